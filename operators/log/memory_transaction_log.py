"""A transactional log in memory: the rules of :mod:`operators.log.transaction_log`, every request recorded, all of it
open to faults.

Before a request is checked and carried out, time passes (``expire``) and what is late arrives (``_deliver_late``).
``gate`` is asked for each of them what becomes of it. Who is told that no answer came does not know whether the request
was carried out, as it is with a network. The log goes by a clock of its own, or else by the latest time that it was
ever told.

What readers see is decided by the partitions alone, as on a real log: by markers, not by what the coordinator of
transactions remembers. ``validate`` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from engine.elements.errors import ConfigurationError
from operators.log.transaction_log import (
    ABORT_MARKER,
    ABORTED,
    COMMIT_MARKER,
    COMMITTED,
    DATA,
    ENDED_BY_OTHERS,
    EXPIRED,
    FENCED,
    LOST,
    OK,
    OPEN,
    PREPARED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    REFUSED,
    REFUSED_AS_FENCED,
    REPEATED,
    UNHEARD,
    UNKNOWN,
    Entry,
    Exchange,
    InvalidTransactionError,
    LogRecord,
    LogTimeoutError,
    Producer,
    ProducerFencedError,
    Request,
    TransactionDescription,
    TransactionGoneError,
    TransactionLogError,
)

DELIVERED, REQUEST_LOST, ANSWER_LOST, EXPIRE, FENCE, LATE_MARKER = (
    "delivered", "request-lost", "answer-lost", "expire", "fence", "late-marker",
)
"""Fates of a request: carried out and answered; never arrives; carried out, but the answer is lost; the log gives the
transaction up right before; another producer takes the name right before; an end of a transaction arrives a second
time, while the next one is open."""

FATES = (DELIVERED, REQUEST_LOST, ANSWER_LOST, EXPIRE, FENCE, LATE_MARKER)

DEFAULT_MAX_TIMEOUT_NS = 15 * 60 * 1_000_000_000
"""The longest timeout that a producer may ask for (Kafka: ``transaction.max.timeout.ms``, 15 minutes)."""


@dataclass(slots=True)
class _Ended:
    """How an epoch's transaction ended."""

    outcome: str
    note: int | None


@dataclass(slots=True)
class _Name:
    """A transactional id."""

    epoch: int
    timeout_ns: int
    state: str | None = None
    """``open`` or ``prepared``; ``None`` between transactions."""
    begun_ns: int = 0
    note: int | None = None
    written: dict[tuple[str, int], int] = field(default_factory=dict)
    """Records by partition."""
    first_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    ended: dict[int, _Ended] = field(default_factory=dict)
    """By epoch."""


class MemoryTransactionLog:
    """See the module.

    ``gate``     decides the fate of each request, one of ``FATES``; ``None`` = all are delivered;
    ``clock``    the log's own, in ns; ``None`` = it believes whoever asks;
    ``history``  every request so far, with its result.
    """

    def __init__(self, *, max_timeout_ns: int = DEFAULT_MAX_TIMEOUT_NS) -> None:
        self.gate: Callable[[Request], str] | None = None
        self.clock: Callable[[], int] | None = None
        self.history: list[Exchange] = []
        self._max_timeout_ns = max_timeout_ns
        self._topics: dict[str, list[list[Entry]]] = {}
        self._names: dict[str, _Name] = {}
        self._now_ns = 0
        self._late: list[Request] = []
        """Ends of transactions that will arrive a second time."""

    # --- topics -------------------------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int) -> None:
        """See the port."""
        if not topic or partitions < 1:
            raise ConfigurationError(f"topic {topic!r} with {partitions} partitions: it needs a name and at least one")
        existing = self._topics.setdefault(topic, [[] for _ in range(partitions)])
        if len(existing) != partitions:
            raise ConfigurationError(
                f"topic {topic!r} has {len(existing)} partitions, not {partitions}; name another topic, or ask for as"
                " many as there are"
            )

    def partitions(self, topic: str) -> int:
        """See the port."""
        return len(self._partitions(topic))

    def topics(self) -> Sequence[str]:
        """Their names, in the order in which they were made."""
        return list(self._topics)

    def _partitions(self, topic: str) -> list[list[Entry]]:
        found = self._topics.get(topic)
        if found is None:
            known = ", ".join(self._topics) or "none"
            raise ConfigurationError(f"there is no topic {topic!r}: create it first (there are: {known})")
        return found

    # --- requests -----------------------------------------------------------------------------------------

    def init_transactions(self, transactional_id: str, timeout_ns: int, now_ns: int) -> Producer:
        """See the port."""
        if not 0 < timeout_ns <= self._max_timeout_ns:
            raise ConfigurationError(
                f"transaction timeout of {transactional_id!r} is {timeout_ns} ns; the log allows up to"
                f" {self._max_timeout_ns}: ask for less, or raise max_timeout_ns of the log"
            )
        request = Request("init", transactional_id, -1, None, 0, 0, None, now_ns)
        fate = self._arrives(request)
        name = self._names.get(transactional_id)
        if name is None:
            name = self._names[transactional_id] = _Name(0, timeout_ns)
        else:
            if name.state is not None:
                self._end(transactional_id, name, FENCED, None)
            name.epoch += 1
            name.timeout_ns = timeout_ns
        self._answers(request, fate, OK)
        return Producer(transactional_id, name.epoch)

    def begin(self, producer: Producer, now_ns: int) -> None:
        """See the port."""
        request = self._of("begin", producer, now_ns)
        fate = self._arrives(request)
        name = self._current(request, producer, fate)
        if name.state == PREPARED or name.written:
            self._refuse(request, fate, f"{producer} begins a transaction, but has one that is {name.state}")
        if name.state is None:
            name.state, name.begun_ns = OPEN, self._now_ns
            self._answers(request, fate, OK)
        else:
            self._answers(request, fate, REPEATED)

    def append(
        self,
        producer: Producer | None,
        topic: str,
        partition: int,
        values: Sequence[object],
        sequence: int,
        now_ns: int,
    ) -> None:
        """See the port."""
        transactional_id, epoch = (None, -1) if producer is None else producer
        request = Request("append", transactional_id, epoch, topic, partition, len(values), None, now_ns)
        entries = self._partition(topic, partition)
        fate = self._arrives(request)
        result = OK
        if producer is None:
            self._write(entries, None, values)
        else:
            name = self._current(request, producer, fate)
            if name.state != OPEN:
                self._refuse(request, fate, f"{producer} appends, but its transaction is {name.state or 'not begun'}")
            written = name.written.get((topic, partition), 0)
            if sequence + len(values) == written and values:
                result = REPEATED
            elif sequence != written:
                self._refuse(request, fate, f"{producer} appends record {sequence} of its own, but {written} is next")
            elif values:
                name.first_offsets.setdefault((topic, partition), len(entries))
                name.written[topic, partition] = written + len(values)
                self._write(entries, producer, values)
        self._answers(request, fate, result)

    def prepare(self, producer: Producer, now_ns: int, note: int | None = None) -> None:
        """See the port."""
        request = self._of("prepare", producer, now_ns, note)
        fate = self._arrives(request)
        name = self._current(request, producer, fate)
        if name.state is None:
            self._refuse(request, fate, f"{producer} prepares, but its transaction is not begun")
        result = REPEATED if name.state == PREPARED else OK
        name.state, name.note = PREPARED, note
        self._answers(request, fate, result)

    def commit(self, producer: Producer, now_ns: int, note: int | None = None) -> Producer:
        """See the port."""
        request = self._of("commit", producer, now_ns, note)
        fate = self._arrives(request)
        result = self._carry_out_end(producer, COMMITTED, note)
        if result in (LOST, REFUSED):
            self._refuse(request, fate, TransactionGoneError(producer, self._outcome(producer)), result)
        self._answers(request, fate, result)
        return producer._replace(epoch=producer.epoch + 1)

    def abort(self, producer: Producer, now_ns: int) -> Producer:
        """See the port."""
        request = self._of("abort", producer, now_ns)
        fate = self._arrives(request)
        result = self._carry_out_end(producer, ABORTED, None)
        if result == REFUSED:
            self._refuse(request, fate, f"{producer} aborts, but its transaction is {self._outcome(producer)}")
        self._answers(request, fate, result)
        return producer._replace(epoch=producer.epoch + 1)

    def outcome(self, producer: Producer, now_ns: int) -> str:
        """See the port."""
        self.expire(now_ns)
        return self._outcome(producer)

    def _outcome(self, producer: Producer) -> str:
        name = self._names.get(producer.transactional_id)
        if name is None:
            return UNKNOWN
        ended = name.ended.get(producer.epoch)
        if ended is not None:
            return ended.outcome
        return name.state if name.epoch == producer.epoch and name.state is not None else UNKNOWN

    def transactions(self, prefix: str, now_ns: int) -> Sequence[TransactionDescription]:
        """See the port."""
        self.expire(now_ns)
        return [self._describe(key, name) for key, name in self._names.items() if key.startswith(prefix)]

    def open_transactions(self) -> Sequence[TransactionDescription]:
        """Those that have neither been committed nor aborted, as of the last request."""
        return [self._describe(key, name) for key, name in self._names.items() if name.state is not None]

    @staticmethod
    def _describe(transactional_id: str, name: _Name) -> TransactionDescription:
        notes = [one.note for one in name.ended.values() if one.outcome == COMMITTED and one.note is not None]
        last = name.ended.get(name.epoch - 1)
        return TransactionDescription(
            Producer(transactional_id, name.epoch),
            name.state or (UNKNOWN if last is None else last.outcome),
            sum(name.written.values()),
            name.begun_ns if name.state is not None else None,
            max(notes, default=None),
        )

    # --- what becomes of a request ------------------------------------------------------------------------

    @staticmethod
    def _of(kind: str, producer: Producer, now_ns: int, note: int | None = None) -> Request:
        return Request(kind, producer.transactional_id, producer.epoch, None, 0, 0, note, now_ns)

    def _arrives(self, request: Request) -> str:
        """Everything that comes before the request itself; returns its fate."""
        self.expire(request.at_ns)
        if self._late:
            self._deliver_late(request)
        if self.gate is None:
            return DELIVERED
        fate = self.gate(request)
        assert fate in FATES, fate
        if fate == REQUEST_LOST:
            self._record(request, fate, UNHEARD)
            raise LogTimeoutError(f"no answer to: {request.name}")
        name = self._names.get(request.transactional_id or "")
        if name is not None and fate in (EXPIRE, FENCE):
            self._strike(request, name, fate)
        return fate

    def _strike(self, request: Request, name: _Name, fate: str) -> None:
        assert request.transactional_id is not None
        if name.state is not None and (fate == FENCE or name.epoch == request.epoch):
            self._end(request.transactional_id, name, EXPIRED if fate == EXPIRE else FENCED, None)
        if fate == FENCE:
            name.epoch += 1

    def _answers(self, request: Request, fate: str, result: str) -> None:
        self._record(request, fate, result)
        if fate == LATE_MARKER and request.kind in ("commit", "abort") and result == OK:
            self._late.append(request)
        if fate == ANSWER_LOST:
            raise LogTimeoutError(f"no answer to: {request.name}")

    def _record(self, request: Request, fate: str, result: str) -> None:
        self.history.append(Exchange(len(self.history), request, fate, result))

    def _refuse(
        self, request: Request, fate: str, why: str | TransactionLogError, result: str = REFUSED
    ) -> NoReturn:
        self._record(request, fate, result)
        if fate == ANSWER_LOST:
            raise LogTimeoutError(f"no answer to: {request.name}")
        raise InvalidTransactionError(why) if isinstance(why, str) else why

    def _current(self, request: Request, producer: Producer, fate: str) -> _Name:
        """The name of a producer whose epoch is the current one."""
        name = self._names.get(producer.transactional_id)
        if name is None or producer.epoch > name.epoch:
            self._refuse(request, fate, f"the log has never heard of {producer}")
        if producer.epoch < name.epoch:
            ended = name.ended.get(producer.epoch)
            why = "has been taken over" if ended is None else f"has ended: its transaction is {ended.outcome}"
            error = ProducerFencedError(f"{request.kind} of {producer}: the epoch {why}; the newest is {name.epoch}")
            self._refuse(request, fate, error, REFUSED_AS_FENCED)
        return name

    def _carry_out_end(self, producer: Producer, outcome: str, note: int | None) -> str:
        """Commit or abort the transaction of exactly this epoch; returns the result."""
        name = self._names.get(producer.transactional_id)
        if name is None or producer.epoch > name.epoch:
            return REFUSED
        ended = name.ended.get(producer.epoch)
        if ended is not None:
            # Aborting twice is fine whoever did it first; committing what others have ended is a loss.
            if ended.outcome == outcome or (outcome == ABORTED and ended.outcome in ENDED_BY_OTHERS):
                return REPEATED
            return REFUSED if outcome == ABORTED else LOST
        # An epoch that was taken over before it began anything has nothing to end.
        if producer.epoch < name.epoch or name.state is None:
            return REPEATED if outcome == ABORTED else REFUSED
        self._end(producer.transactional_id, name, outcome, name.note if note is None else note)
        return OK

    def _end(self, transactional_id: str, name: _Name, outcome: str, note: int | None) -> None:
        """Write the markers, and raise the epoch: nothing that bears the old one can end another transaction."""
        producer = Producer(transactional_id, name.epoch)
        kind = COMMIT_MARKER if outcome == COMMITTED else ABORT_MARKER
        for topic, partition in name.written:
            entries = self._topics[topic][partition]
            entries.append(Entry(len(entries), kind, producer, None))
        name.ended[name.epoch] = _Ended(outcome, note)
        name.state, name.note = None, None
        name.written.clear()
        name.first_offsets.clear()
        name.epoch += 1

    def expire(self, now_ns: int) -> None:
        """It is ``now_ns``, or later: give up every transaction that is open for longer than its timeout."""
        now_ns = now_ns if self.clock is None else self.clock()
        self._now_ns = now_ns = max(self._now_ns, now_ns)
        for transactional_id, name in self._names.items():
            if name.state is not None and now_ns - name.begun_ns > name.timeout_ns:
                epoch = name.epoch
                self._end(transactional_id, name, EXPIRED, None)
                request = Request("expire", transactional_id, epoch, None, 0, 0, None, now_ns)
                self._record(request, DELIVERED, OK)

    def _deliver_late(self, trigger: Request) -> None:
        """Ends of older transactions that arrive again in the middle of a newer one of the same name."""
        for request in [one for one in self._late if one.transactional_id == trigger.transactional_id]:
            assert request.transactional_id is not None
            if not self._names[request.transactional_id].written:
                continue
            self._late.remove(request)
            outcome = COMMITTED if request.kind == "commit" else ABORTED
            result = self._carry_out_end(Producer(request.transactional_id, request.epoch), outcome, request.note)
            late = request._replace(kind="late", at_ns=trigger.at_ns)
            self._record(late, LATE_MARKER, REFUSED_AS_FENCED if result == REPEATED else result)

    # --- partitions ---------------------------------------------------------------------------------------

    def _partition(self, topic: str, partition: int) -> list[Entry]:
        partitions = self._partitions(topic)
        if not 0 <= partition < len(partitions):
            raise ConfigurationError(f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, and no {partition}")
        return partitions[partition]

    @staticmethod
    def _write(entries: list[Entry], producer: Producer | None, values: Sequence[object]) -> None:
        start = len(entries)
        entries.extend([Entry(start + at, DATA, producer, value) for at, value in enumerate(values)])

    def entries(self, topic: str, partition: int) -> Sequence[Entry]:
        """Everything in a partition, markers included."""
        return tuple(self._partition(topic, partition))

    def end_offset(self, topic: str, partition: int) -> int:
        """The offset that the next entry will get (Kafka: the high watermark)."""
        return len(self._partition(topic, partition))

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """The offset of the first record that is still undecided, or the end."""
        key, end = (topic, partition), self.end_offset(topic, partition)
        return min((name.first_offsets.get(key, end) for name in self._names.values()), default=end)

    def aborted_ranges(self, topic: str, partition: int) -> Sequence[tuple[Producer, int, int]]:
        """Of every aborted transaction: the offsets of its first record and of its marker (Kafka: the transaction
        index, by which readers know what to skip)."""
        first: dict[Producer, int] = {}
        ranges = []
        for entry in self._partition(topic, partition):
            if entry.producer is not None:
                first.setdefault(entry.producer, entry.offset)
                if entry.kind == ABORT_MARKER:
                    ranges.append((entry.producer, first[entry.producer], entry.offset))
        return ranges

    def read(
        self, topic: str, partition: int, offset: int = 0, isolation: str = READ_COMMITTED
    ) -> Sequence[LogRecord]:
        """See the port."""
        if isolation not in (READ_COMMITTED, READ_UNCOMMITTED):
            raise ConfigurationError(f"isolation is {isolation!r}: say {READ_COMMITTED!r} or {READ_UNCOMMITTED!r}")
        entries = self._partition(topic, partition)
        if isolation == READ_UNCOMMITTED:
            chosen: Iterator[Entry] = (entry for entry in entries if entry.kind == DATA)
        else:
            chosen = self._decided(entries, self.last_stable_offset(topic, partition))
        return [LogRecord(one.offset, one.value, one.producer) for one in chosen if one.offset >= offset]

    def committed(self, topic: str, partition: int) -> Sequence[LogRecord]:
        """What a reader will have seen once everything that is open now is given up: what is committed today, also
        behind the last stable offset."""
        entries = self._partition(topic, partition)
        return [LogRecord(one.offset, one.value, one.producer) for one in self._decided(entries, len(entries))]

    @staticmethod
    def _decided(entries: Sequence[Entry], end: int) -> Iterator[Entry]:
        """Records below ``end`` that a marker commits, and those that need none."""
        committed = {entry.producer for entry in entries if entry.kind == COMMIT_MARKER}
        return (
            entry
            for entry in entries[:end]
            if entry.kind == DATA and (entry.producer is None or entry.producer in committed)
        )

    # --- for whoever watches ------------------------------------------------------------------------------

    def fingerprint(self) -> object:
        """What decides what the log will say, and what readers see. Not: when transactions began, for their timeouts
        are far away from what is compared, and not the history."""
        return (
            tuple(
                (topic, tuple(tuple((one.kind, one.producer, repr(one.value)) for one in part) for part in partitions))
                for topic, partitions in sorted(self._topics.items())
            ),
            tuple((key, _state_of(name)) for key, name in sorted(self._names.items())),
            tuple((one.kind, one.transactional_id, one.epoch) for one in self._late),
        )

    def validate(self) -> None:
        """What must always hold; an ``AssertionError`` says what does not."""
        for topic, partitions in self._topics.items():
            for number, entries in enumerate(partitions):
                self._validate_partition(f"{topic}-{number}", entries)
                assert self.last_stable_offset(topic, number) <= len(entries), topic
        for key, name in self._names.items():
            assert name.epoch not in name.ended, f"{key}: the current epoch {name.epoch} has ended"
            assert all(epoch < name.epoch for epoch in name.ended), f"{key}: an epoch of the future has ended"
            assert name.state is not None or not name.written, f"{key}: records without a transaction"
            assert name.written.keys() == name.first_offsets.keys(), f"{key}: {name.written} {name.first_offsets}"

    def _validate_partition(self, where: str, entries: Sequence[Entry]) -> None:
        marked: dict[Producer, str] = {}
        written: dict[Producer, None] = {}
        for offset, entry in enumerate(entries):
            assert entry.offset == offset, f"{where}: entry {offset} says that it is {entry.offset}"
            if entry.producer is None:
                assert entry.kind == DATA, f"{where}: a marker of nobody at {offset}"
                continue
            assert entry.producer not in marked, f"{where}: {entry.kind} of {entry.producer} behind its marker"
            if entry.kind == DATA:
                written[entry.producer] = None
            else:
                assert entry.producer in written, f"{where}: {entry.producer} is ended where it wrote nothing"
                marked[entry.producer] = COMMITTED if entry.kind == COMMIT_MARKER else ABORTED
        for producer in written:
            name = self._names[producer.transactional_id]
            ended = name.ended.get(producer.epoch)
            if ended is None:
                assert name.epoch == producer.epoch, f"{where}: {producer} is over and has no outcome"
                assert producer not in marked, f"{where}: {producer} is open and has a marker"
            else:
                visible = COMMITTED if ended.outcome == COMMITTED else ABORTED
                assert marked.get(producer) == visible, f"{where}: {producer} is {ended.outcome}, {marked}"


def _state_of(name: _Name) -> object:
    ended = tuple((epoch, one.outcome, one.note) for epoch, one in sorted(name.ended.items()))
    return (name.epoch, name.state, name.note, tuple(sorted(name.written.items())), ended)
