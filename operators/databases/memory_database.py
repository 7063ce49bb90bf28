"""A model of a database behind the port of sessions, in memory: what exploration runs thousands of times.

It keeps every rule of :mod:`operators.databases.session`, with the choice that is harder for a sink where there is one:
what is not prepared stays when its session is gone, and has to be found and taken back. One suite of tests holds it
against SQLite and PostgreSQL.

A ``gate`` decides what becomes of each request: delivered, lost on its way, or carried out with its answer lost. Only
requests that change something come by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from operators.databases.session import (
    Committed,
    DatabaseError,
    EpochHolder,
    FencedError,
    Row,
    TableDescription,
    TransactionGoneError,
    TransactionName,
)

DELIVERED, REQUEST_LOST, ANSWER_LOST = "delivered", "request-lost", "answer-lost"

Gate = Callable[[str, TransactionName | None], str]
"""``(kind of request, transaction)`` -> what becomes of it."""

_OPEN, _PREPARED = "open", "prepared"


class UnansweredError(DatabaseError):
    """No answer came. Whether the request was carried out is not known."""


class _Staged:
    """A transaction that is not over."""

    __slots__ = ("checkpoint_id", "rows", "state")

    def __init__(self) -> None:
        self.state = _OPEN
        self.rows: list[Row] = []
        self.checkpoint_id: int | None = None


class MemoryDatabase:
    """Tables, ledger and epochs; lives on while sessions come and go."""

    def __init__(self) -> None:
        self.gate: Gate | None = None
        self._tables: dict[str, list[tuple[TransactionName, Row]]] = {}
        self._keyed: dict[str, dict[Row, Row]] = {}
        self._staged: dict[TransactionName, _Staged] = {}
        self._ledger: dict[TransactionName, Committed] = {}
        self._epochs: dict[tuple[str, int], int] = {}

    def connect(self, description: TableDescription, resolve_path: Callable[[str], str]) -> MemorySession:
        """See :class:`operators.databases.session.SinkDatabase`."""
        del resolve_path
        return MemorySession(self, description)

    def rows(self, description: TableDescription) -> list[Row]:
        """See :class:`operators.databases.session.SinkDatabase`; in the order of commits."""
        if description.key:
            return list(self._keyed.get(description.table, {}).values())
        with_name = description.transaction_column is not None
        rows = self._tables.get(description.table, [])
        return [(*row, str(name)) if with_name else row for name, row in rows]

    def unfinished(self) -> list[TransactionName]:
        """Transactions of whomever that are not over, in order."""
        return sorted(self._staged)

    def commits(self) -> list[tuple[int, int]]:
        """Subtask and checkpoint of each transaction in the ledger, in the order of commits; those without a checkpoint
        are left out."""
        entries = self._ledger.values()
        return [(one.name.subtask, one.checkpoint_id) for one in entries if one.checkpoint_id is not None]

    def fingerprint(self) -> object:
        """All that decides what happens next, and what readers see."""
        return (
            sorted((table, sorted(repr(row) for _, row in rows)) for table, rows in self._tables.items()),
            sorted((table, sorted(map(repr, rows.items()))) for table, rows in self._keyed.items()),
            [(name, one.state, one.checkpoint_id, repr(one.rows)) for name, one in sorted(self._staged.items())],
            sorted(self._ledger),
            sorted(self._epochs.items()),
        )


class MemorySession:
    """See :class:`operators.databases.session.SinkSession`."""

    def __init__(self, database: MemoryDatabase, description: TableDescription) -> None:
        self.place = f"table {description.table!r} in memory"
        self._database, self._description = database, description
        self._open = True

    def _request(self, kind: str, name: TransactionName | None, carry_out: Callable[[], None]) -> None:
        assert self._open, f"{kind} by a session that is closed"
        gate = self._database.gate
        fate = DELIVERED if gate is None else gate(kind, name)
        if fate != REQUEST_LOST:
            carry_out()
        if fate != DELIVERED:
            what = f"{kind}{'' if name is None else f' of {name}'}"
            raise UnansweredError(f"{self.place}: no answer came to {what}")

    def _check_epoch(self, holder: TransactionName | EpochHolder) -> None:
        writer = self._description.writer
        newest = self._database._epochs.get((writer, holder.subtask), 0)
        if holder.epoch < newest:
            raise FencedError(self.place, writer, holder.subtask, holder.epoch, newest)

    def prepare_table(self) -> None:
        self._database._tables.setdefault(self._description.table, [])

    def take_over(self, subtask: int, parallelism: int) -> int:
        database, writer = self._database, self._description.writer
        mine = [
            one for one in database._epochs if one[0] == writer and one[1] % parallelism == subtask % parallelism
        ]
        epoch = 1 + max((database._epochs[one] for one in mine), default=0)

        def raise_epochs() -> None:
            for one in (*mine, (writer, subtask)):
                database._epochs[one] = epoch

        self._request("take-over", None, raise_epochs)
        return epoch

    def begin(self, name: TransactionName) -> None:
        def begin() -> None:
            self._check_epoch(name)
            assert name not in self._database._ledger, f"{name} is used twice"
            self._database._staged.setdefault(name, _Staged())

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

        self._request("prepare", name, prepare)

    def commit(self, name: TransactionName) -> bool:
        database = self._database
        was_committed = name in database._ledger

        def commit() -> None:
            if was_committed:
                return
            staged = database._staged.get(name)
            if staged is None or staged.state != _PREPARED:
                raise TransactionGoneError(f"{self.place}: {name} is neither prepared nor in the ledger")
            del database._staged[name]
            rows = database._tables.setdefault(self._description.table, [])
            rows.extend((name, row) for row in staged.rows)
            database._ledger[name] = Committed(name, staged.checkpoint_id, len(staged.rows))

        self._request("commit", name, commit)
        return not was_committed

    def abort(self, name: TransactionName) -> bool:
        self._request("abort", name, lambda: self._drop_staged(name))
        return name not in self._database._ledger

    def _drop_staged(self, name: TransactionName) -> None:
        self._database._staged.pop(name, None)

    def unfinished(self) -> list[TransactionName]:
        return [name for name in self._database.unfinished() if name.writer == self._description.writer]

    def committed(self) -> list[Committed]:
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
            return found is not None and version is not None and bool(found[version] > value)

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

        self._request("upsert", None, upsert)

    def close(self) -> None:
        self._open = False

    def drop(self) -> None:
        self._open = False
