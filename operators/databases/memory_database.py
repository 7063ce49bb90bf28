"""A model of a database in memory, with the port of database sessions: exploration runs it thousands of times.

It keeps every rule of :mod:`operators.databases.database_session`. Where a rule leaves a choice, the model makes it
harder for sinks: an unprepared transaction outlives its session, so that a sink must find and abort it. One suite of
tests compares it with SQLite and PostgreSQL.

A ``gate`` decides the fate of each request that changes something:

* it is delivered, lost on its way, or carried out with its answer lost;
* ``expire``: right before the request the transaction is rolled back, prepared or not. Only administrators can do this;
* ``fence``: right before the request another session takes over the subtask. Prepared transactions keep waiting;
* ``late-marker``: a commit or abort arrives a second time, right before the subtask's next request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from operators.databases.database_session import (
    DatabaseError,
    EpochHolder,
    FencedError,
    LedgerRow,
    Row,
    TableDescription,
    TransactionGoneError,
    TransactionName,
)
from operators.log.port import (
    ANSWER_LOST,
    DELIVERED,
    EXPIRE,
    FATES,
    FENCE,
    LATE_MARKER,
    LOST,
    OK,
    REFUSED,
    REFUSED_AS_FENCED,
    REPEATED,
    REQUEST_LOST,
    UNHEARD,
)


class DatabaseRequest(NamedTuple):
    """A request to a database. ``kind``: a method of :class:`operators.databases.database_session.SinkSession`
    (with a hyphen: ``take-over``), or ``late`` for a commit or abort that arrives again; ``subtask`` is ``None`` for
    ``retract`` and ``forget``; ``note``: the checkpoint of a ``prepare``."""

    kind: str
    writer: str
    subtask: int | None = None
    transaction: TransactionName | None = None
    note: int | None = None

    @property
    def name(self) -> str:
        """Its name in faults: ``commit orders:table/0/2/1.2/0``, ``take-over orders:table/0``, ``forget
        orders:table``."""
        if self.transaction is not None:
            return f"{self.kind} {self.transaction}"
        return f"{self.kind} {self.writer}{'' if self.subtask is None else f'/{self.subtask}'}"


class DatabaseExchange(NamedTuple):
    """One request in the history of a database, with its fate and its result (those of
    :mod:`operators.log.port.transaction_log`)."""

    number: int
    request: DatabaseRequest
    fate: str
    result: str


Gate = Callable[[DatabaseRequest], str]
"""Decides the fate of a request: one of ``FATES``."""

_OPEN, _PREPARED = "open", "prepared"


class UnansweredError(DatabaseError):
    """No answer came. It is unknown whether the request was carried out."""


class _Staged:
    """A transaction that has not ended."""

    __slots__ = ("checkpoint_id", "rows", "state", "table")

    def __init__(self, table: str) -> None:
        self.table = table
        self.state = _OPEN
        self.rows: list[Row] = []
        self.checkpoint_id: int | None = None


class MemoryDatabase:
    """Tables, ledger and epochs; they outlive sessions. ``history``: every request that passed the
    gate."""

    def __init__(self) -> None:
        self.gate: Gate | None = None
        self.history: list[DatabaseExchange] = []
        self._late: list[DatabaseRequest] = []
        """Commits and aborts that will arrive a second time."""
        self._tables: dict[str, list[tuple[TransactionName, Row]]] = {}
        self._keyed: dict[str, dict[Row, Row]] = {}
        self._staged: dict[TransactionName, _Staged] = {}
        self._ledger: dict[TransactionName, LedgerRow] = {}
        self._epochs: dict[tuple[str, int], int] = {}

    def connect(self, description: TableDescription, resolve_path: Callable[[str], str]) -> MemorySession:
        del resolve_path
        return MemorySession(self, description)

    def rows(self, description: TableDescription) -> list[Row]:
        """See :class:`operators.databases.database_session.SinkDatabase`; in the order of commits."""
        if description.key:
            return list(self._keyed.get(description.table, {}).values())
        with_name = description.transaction_column is not None
        rows = self._tables.get(description.table, [])
        return [(*row, str(name)) if with_name else row for name, row in rows]

    def unfinished(self) -> list[TransactionName]:
        """Transactions of all writers that have not ended, in order."""
        return sorted(self._staged)

    def commits(self) -> list[tuple[int, int]]:
        """Subtask and checkpoint of each transaction in the ledger, in the order of commits; those without a checkpoint
        are left out."""
        entries = self._ledger.values()
        return [(one.name.subtask, one.checkpoint_id) for one in entries if one.checkpoint_id is not None]

    def fingerprint(self) -> object:
        return (
            sorted((table, sorted(repr(row) for _, row in rows)) for table, rows in self._tables.items()),
            sorted((table, sorted(map(repr, rows.items()))) for table, rows in self._keyed.items()),
            [(name, one.state, one.checkpoint_id, repr(one.rows)) for name, one in sorted(self._staged.items())],
            sorted(self._ledger),
            sorted(self._epochs.items()),
            tuple(self._late),
        )

    # --- what befalls requests ----------------------------------------------------------------------------

    def record(self, request: DatabaseRequest, fate: str, result: str) -> None:
        """Add to the history."""
        self.history.append(DatabaseExchange(len(self.history), request, fate, result))

    def fate_of(self, request: DatabaseRequest) -> str:
        """Handle everything that comes before a request; returns the request's fate."""
        if self._late:
            self._deliver_late(request)
        if self.gate is None:
            return DELIVERED
        fate = self.gate(request)
        assert fate in FATES, fate
        if fate == EXPIRE and request.transaction is not None:
            self._staged.pop(request.transaction, None)
        elif fate == FENCE and request.subtask is not None:
            key = (request.writer, request.subtask)
            self._epochs[key] = self._epochs.get(key, 0) + 1
        return fate

    def arrives_again(self, request: DatabaseRequest) -> None:
        """A commit or abort that was carried out will arrive again later."""
        self._late.append(request)

    def _deliver_late(self, trigger: DatabaseRequest) -> None:
        for late in [one for one in self._late if (one.writer, one.subtask) == (trigger.writer, trigger.subtask)]:
            name = late.transaction
            assert name is not None, late
            if name == trigger.transaction:
                continue
            self._late.remove(late)
            result = self.end(name, late.kind)
            self.record(late._replace(kind="late"), LATE_MARKER, result)

    def end(self, name: TransactionName, kind: str) -> str:
        """Carry out a ``commit`` or ``abort``; returns the result."""
        if name in self._ledger:
            return REPEATED if kind == "commit" else REFUSED
        staged = self._staged.get(name)
        if kind == "abort":
            self._staged.pop(name, None)
            return OK if staged is not None else REPEATED
        if staged is None or staged.state != _PREPARED:
            return LOST
        del self._staged[name]
        self._tables.setdefault(staged.table, []).extend((name, row) for row in staged.rows)
        self._ledger[name] = LedgerRow(name, staged.checkpoint_id, len(staged.rows))
        return OK


_REFUSALS: dict[type[DatabaseError], str] = {FencedError: REFUSED_AS_FENCED, TransactionGoneError: LOST}


class MemorySession:
    """See :class:`operators.databases.database_session.SinkSession`."""

    def __init__(self, database: MemoryDatabase, description: TableDescription) -> None:
        self.place = f"table {description.table!r} in memory"
        self._database, self._description = database, description
        self._open = True

    def _request(
        self,
        kind: str,
        who: TransactionName | EpochHolder | None,
        carry_out: Callable[[], str | None],
        note: int | None = None,
    ) -> None:
        assert self._open, f"{kind} by a session that is closed"
        name = who if isinstance(who, TransactionName) else None
        request = DatabaseRequest(kind, self._description.writer, None if who is None else who.subtask, name, note)
        database = self._database
        fate = database.fate_of(request)
        result, error = UNHEARD, None
        if fate != REQUEST_LOST:
            try:
                result = carry_out() or OK
            except DatabaseError as raised:
                result, error = _REFUSALS.get(type(raised), REFUSED), raised
        database.record(request, fate, result)
        if fate == LATE_MARKER and kind in ("commit", "abort") and result == OK:
            database.arrives_again(request)
        if fate in (REQUEST_LOST, ANSWER_LOST):
            raise UnansweredError(f"{self.place}: no answer came to {request.name}")
        if error is not None:
            raise error

    def _check_epoch(self, holder: TransactionName | EpochHolder) -> None:
        writer = self._description.writer
        newest = self._database._epochs.get((writer, holder.subtask), 0)
        # An older attempt may not write once a newer one has begun (mutant "database takes older epochs").
        if holder.epoch < newest:
            raise FencedError(self.place, writer, holder.subtask, holder.epoch, newest)

    def prepare_table(self) -> None:
        self._database._tables.setdefault(self._description.table, [])

    def take_over(self, subtask: int, parallelism: int) -> int:
        epochs, writer = self._database._epochs, self._description.writer

        def raise_epochs() -> None:
            mine = [one for one in epochs if one[0] == writer and one[1] % parallelism == subtask % parallelism]
            epoch = 1 + max((epochs[one] for one in mine), default=0)
            for one in (*mine, (writer, subtask)):
                epochs[one] = epoch

        self._request("take-over", EpochHolder(subtask, 0), raise_epochs)
        return epochs[writer, subtask]

    def begin(self, name: TransactionName) -> None:
        def begin() -> None:
            self._check_epoch(name)
            assert name not in self._database._ledger, f"{name} is used twice"
            self._database._staged.setdefault(name, _Staged(self._description.table))

        self._request("begin", name, begin)

    def write(self, name: TransactionName, rows: Sequence[Row]) -> None:
        def write() -> None:
            self._check_epoch(name)
            staged = self._database._staged.get(name)
            if staged is None or staged.state != _OPEN:
                raise DatabaseError(f"{self.place}: {name} takes no rows any more; another attempt has ended it")
            staged.rows.extend(rows)

        self._request("write", name, write)

    def prepare(self, name: TransactionName, checkpoint_id: int | None) -> None:
        def prepare() -> None:
            self._check_epoch(name)
            staged = self._database._staged.get(name)
            if staged is None:
                raise DatabaseError(f"{self.place}: {name} cannot be prepared; another attempt has ended it")
            staged.state, staged.checkpoint_id = _PREPARED, checkpoint_id

        self._request("prepare", name, prepare, checkpoint_id)

    def commit(self, name: TransactionName) -> bool:
        was_committed = name in self._database._ledger

        def commit() -> str:
            result = self._database.end(name, "commit")
            if result == LOST:
                raise TransactionGoneError(f"{self.place}: {name} is neither prepared nor in the ledger")
            return result

        self._request("commit", name, commit)
        return not was_committed

    def abort(self, name: TransactionName) -> bool:
        self._request("abort", name, lambda: self._database.end(name, "abort"))
        return name not in self._database._ledger

    def unfinished(self) -> list[TransactionName]:
        return [name for name in self._database.unfinished() if name.writer == self._description.writer]

    def committed(self) -> list[LedgerRow]:
        ledger = self._database._ledger
        return [entry for name, entry in sorted(ledger.items()) if name.writer == self._description.writer]

    def retract(self, names: Sequence[TransactionName]) -> int:
        database, table = self._database, self._description.table
        gone = dict.fromkeys(names)
        kept = [one for one in database._tables[table] if one[0] not in gone]
        retracted = len(database._tables[table]) - len(kept)

        def retract() -> None:
            database._tables[table] = kept
            self._forget(names)

        self._request("retract", None, retract)
        return retracted

    def forget(self, names: Sequence[TransactionName]) -> None:
        self._request("forget", None, lambda: self._forget(names))

    def _forget(self, names: Sequence[TransactionName]) -> None:
        for name in names:
            self._database._ledger.pop(name, None)

    def upsert(self, holder: EpochHolder, rows: Sequence[Row], deleted: Sequence[Row]) -> None:
        description = self._description
        columns, keys = description.names, description.key
        positions = [columns.index(name) for name in keys]
        version = None if description.version is None else columns.index(description.version)
        table = self._database._keyed.setdefault(description.table, {})

        def is_older(key: Row, value: object) -> bool:
            found = table.get(key)
            return found is not None and version is not None and found[version] is not None and found[version] > value

        def upsert() -> None:
            self._check_epoch(holder)
            for row in deleted:
                key = row[: len(keys)]
                if not is_older(key, row[-1]):
                    table.pop(key, None)
            for row in rows:
                key = tuple(row[at] for at in positions)
                if version is None or not is_older(key, row[version]):
                    table[key] = row

        self._request("upsert", holder, upsert)

    def close(self) -> None:
        self._open = False

    def drop(self) -> None:
        self._open = False
