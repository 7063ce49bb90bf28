"""Faults of external systems: transactional logs and databases whose requests and answers are lost, and sources that
forget the position of a reader.

A request to a log has the name ``KIND TRANSACTIONAL-ID[ TOPIC-PARTITION]``, for instance
``commit out/0/1.1/0`` or ``append out/0/1.1/0 rows-1``; one to a database as ``KIND TRANSACTION`` or
``KIND WRITER/SUBTASK``, for instance ``prepare orders:out/0/2/1.1/0`` or ``upsert customers:table/1``. Targets are
patterns over that name, or the kind alone::

    answer-lost:commit#2             the second commit is carried out, but its answer is lost
    request-lost:append out/1/*#5    the fifth append of subtask 1 of the sink out never arrives
    expire:append#3                  the log aborts the transaction right before the third append
    fence:prepare*#1                 another producer takes the name right before
    late-marker:commit#1             the first commit arrives again while the next transaction of its name is open
    answer-lost:upsert customers:*   rows of a table are replaced, but the sink does not know
    rewind:numbers/*#1=-3            a split is opened three records before the position that was restored

Chance strikes only with faults that a correct sink survives. A *prepared* transaction that is aborted loses data that
no sink can save, so ``expire`` and ``fence`` strike prepared transactions only when requested exactly.
(A database keeps prepared transactions when another session takes it over; there ``fence`` strikes upserts, too.)
``rewind`` breaks an assumption of every protocol, and is never drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.elements.batch import Batch
from engine.elements.source import Source, SourceContext, SplitReader
from engine.faults.fault import Fault, FaultMix
from engine.faults.gated_database import GatedDatabase
from engine.faults.opportunities import Opportunities, Struck
from engine.graph.plan import ExecutionPlan, OperatorPlan
from engine.runtime.kernel import Kernel
from operators.databases import DatabaseRequest, DatabaseSink, MemoryDatabase, UpsertSink
from operators.log.connectors import LogSink
from operators.log.disk import DiskLog
from operators.log.memory_transaction_log import MemoryTransactionLog as Log
from operators.log.port import ANSWER_LOST, DELIVERED, EXPIRE, FENCE, LATE_MARKER, REQUEST_LOST, Request
from operators.sources import reading_from, source_of

_REQUEST_KINDS = (REQUEST_LOST, ANSWER_LOST, EXPIRE, FENCE, LATE_MARKER)
_ANYWHERE = (REQUEST_LOST, ANSWER_LOST)
_BEFORE_PREPARE = (*_ANYWHERE, EXPIRE, FENCE)
FATES_BY_CHANCE: Mapping[str, tuple[str, ...]] = {
    "init": _ANYWHERE,
    "begin": _BEFORE_PREPARE,
    "append": _BEFORE_PREPARE,
    "prepare": _BEFORE_PREPARE,
    "commit": (*_ANYWHERE, LATE_MARKER),
    "abort": (*_ANYWHERE, LATE_MARKER),
    "take-over": _ANYWHERE,
    "write": _BEFORE_PREPARE,
    "upsert": (*_ANYWHERE, FENCE),
    "retract": _ANYWHERE,
    "forget": _ANYWHERE,
}
"""By kind of request to a log or a database: the faults that may strike it by chance."""


def requests_befallen_by(kind: str) -> tuple[str, ...]:
    """The kinds of requests that a kind of fault may strike by chance."""
    return tuple(request for request, possible in FATES_BY_CHANCE.items() if kind in possible)


def requests_to(sinks: Mapping[str, Any]) -> Mapping[str, int]:
    """How many requests the logs and databases of sinks have had, by kind."""
    asked: Counter[str] = Counter()
    for sink in sinks.values():
        log, database = getattr(sink, "log", None), getattr(sink, "database", None)
        if isinstance(log, Log | DiskLog):
            asked.update(one.request.kind for one in log.history)
        if isinstance(database, MemoryDatabase):
            asked.update(one.request.kind for one in database.history)
    return asked


class ExternalFaults:
    """The faults of external systems in one case."""

    def __init__(self, faults: Sequence[Fault], mix: FaultMix, struck: Struck) -> None:
        nothing_by_chance = FaultMix()
        self._exact = Opportunities(_REQUEST_KINDS, faults, nothing_by_chance, struck, fits=_fits)
        self._by_chance = Opportunities(_REQUEST_KINDS, (), mix, struck)
        self._rewinds = Opportunities(("rewind",), faults, nothing_by_chance, struck)
        self._logs: list[Log | DiskLog] = []
        self._come_by: Callable[[], None] | None = None

    @property
    def is_armed(self) -> bool:
        return self._exact.is_armed or self._by_chance.is_armed or self._rewinds.is_armed

    @property
    def unused(self) -> tuple[Fault, ...]:
        return self._exact.unused + self._rewinds.unused

    def attach(self, sinks: Mapping[str, Any], come_by: Callable[[], None] | None = None) -> None:
        """Place the faults between the sinks of a world and their logs and databases; once per process, before it runs.
        ``come_by`` is called before each request."""
        self._come_by = come_by
        found = [sink for _, sink in sorted(sinks.items())]
        logs = [getattr(sink, "log", None) for sink in found]
        self._logs = [log for log in logs if isinstance(log, Log | DiskLog)]
        is_armed = self._exact.is_armed or self._by_chance.is_armed or come_by is not None
        for log in self._logs:
            log.gate = self.fate if is_armed else None
        for sink in found:
            if isinstance(sink, DatabaseSink | UpsertSink):
                if isinstance(sink.database, MemoryDatabase):
                    sink.database.gate = self.fate if is_armed else None
                elif is_armed and not isinstance(sink.database, GatedDatabase):
                    sink.database = GatedDatabase(sink.database, self.fate)

    def started(self, kernel: Kernel) -> None:
        """A process begins, on this kernel. The logs use true time: a task's clock may be wrong, theirs is not."""
        for log in self._logs:
            log.clock = kernel.clock_ns

    def fate(self, request: Request | DatabaseRequest) -> str:
        """The fate of a request; see :class:`operators.log.memory_transaction_log.MemoryTransactionLog` and
        :mod:`operators.databases.memory_database`."""
        if self._come_by is not None:
            self._come_by()
        fault = self._exact.strike(request.name) if self._exact.is_armed else None
        if fault is None and self._by_chance.is_armed:
            fault = self._by_chance.strike(request.name, FATES_BY_CHANCE[request.kind])
        return DELIVERED if fault is None else fault.kind

    def in_plan(self, plan: ExecutionPlan) -> ExecutionPlan:
        """The plan with sources that may be rewound; the same plan when no rewind is planned."""
        return plan.with_operators(self._rewound) if self._rewinds.is_armed else plan

    def _rewound(self, operator: OperatorPlan) -> OperatorPlan:
        source = source_of(operator.factory)
        if source is None:
            return operator
        rewound = RewoundSource(source, operator.name, self._rewinds)
        return replace(operator, factory=reading_from(operator.factory, rewound))


def sinks_outside(plan: ExecutionPlan) -> dict[str, Any]:
    """By uid: the sinks of a plan that write to a log or a database."""
    found = {}
    for vertex in plan.vertices:
        for operator in vertex.operators:
            owner = getattr(operator.factory, "__self__", None)
            if isinstance(owner, DatabaseSink | UpsertSink | LogSink):
                found[operator.uid] = owner
    return found


def _fits(fault: Fault, name: str) -> bool:
    return fault.hits(name) or fault.hits(name.partition(" ")[0])


class RewoundSource:
    """A source whose splits may be opened at another position than the restored one."""

    def __init__(self, source: Source, name: str, rewinds: Opportunities) -> None:
        self._source, self._name, self._rewinds = source, name, rewinds

    def splits(self, context: SourceContext) -> Sequence[str]:
        return self._source.splits(context)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """At ``position``, or ``amount`` records away from it."""
        if position is None:
            return CountingReader(self._source.open_split(split, None, context), 0)
        inner, number = position
        fault = self._rewinds.strike(f"{self._name}/{split}")
        if fault is None:
            return CountingReader(self._source.open_split(split, inner, context), number)
        reader = CountingReader(self._source.open_split(split, None, context), 0)
        reader.skip(max(0, number + fault.amount))
        return reader


class CountingReader:
    """A reader whose positions are pairs: the inner one, and how many records of the split were read so far."""

    def __init__(self, reader: SplitReader, number: int) -> None:
        self._reader, self.number = reader, number

    def skip(self, records: int) -> None:
        """Read up to so many records and discard them."""
        while records > 0:
            batch = self.read(records)
            if batch is None or not len(batch):
                return
            records -= len(batch)

    def read(self, max_records: int) -> Batch | None:
        batch = self._reader.read(max_records)
        if batch is not None:
            self.number += len(batch)
        return batch

    @property
    def due_ns(self) -> int | None:
        return getattr(self._reader, "due_ns", None)

    def position(self) -> Any:
        return (self._reader.position(), self.number)

    def available_at_ns(self, now_ns: int) -> int:
        return self._reader.available_at_ns(now_ns)

    def close(self) -> None:
        self._reader.close()
