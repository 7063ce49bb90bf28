"""The port to a database, as sinks see it: transactions by name that are prepared and then committed, and upserts.

A database is an *external system*: it outlives jobs. Every implementation of the port keeps these rules, and one suite
of tests checks all of them:

* A transaction is ``begin``, ``write``, ..., ``prepare``, and then ``commit`` or ``abort``. Any session can commit a
  prepared transaction, even after the one that prepared it has died. It waits for that without limit. An unprepared
  transaction may vanish with its session, or stay until a session aborts it.
* No row of a transaction is visible before its commit; then all become visible at once.
* A *ledger* in the same database names every committed transaction. The entry appears in the same step as the rows. So
  a transaction that is neither prepared nor in the ledger is lost, even if a state contains it. This makes ``commit``
  idempotent without guessing (as the transaction markers of a log do).
* ``take_over`` raises the *epoch* of a subtask of a writer. Names contain the epoch, so no name is ever used twice,
  even by other runs with the same database. A session with an older epoch can no longer write or prepare: it is fenced,
  as Kafka's producers are (KIP-98).
* ``upsert`` is atomic and idempotent, and fenced like everything else.

Names: ``{writer}/{subtask}/{epoch}/{incarnation}.{attempt}/{number}``. Of two epochs of one subtask the higher is the
later. Incarnation and attempt only help people to read the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from engine.elements.errors import ConfigurationError, StorageError, shorten

Row = tuple[Any, ...]
"""One value for each column."""

MAX_WRITER_BYTES = 96
"""With this limit the names of transaction and database together fit into the 199 bytes of PostgreSQL."""


class DatabaseError(StorageError):
    """A database could not carry out a request: it is unreachable, locked, or full. Another attempt may succeed."""


class FencedError(DatabaseError):
    """A newer attempt has taken over the subtask, so this attempt may not write any more."""

    def __init__(self, place: str, writer: str, subtask: int, epoch: int, newest: int) -> None:
        self.place, self.writer, self.subtask, self.epoch, self.newest = place, writer, subtask, epoch, newest
        super().__init__(
            f"{place}: subtask {subtask} of writer {writer!r} is of epoch {epoch}, but epoch {newest} has begun"
            "\n  a newer attempt has it; if that is another job, give one of them another writer="
        )

    def __reduce__(self) -> tuple[type[FencedError], tuple[str, str, int, int, int]]:
        return FencedError, (self.place, self.writer, self.subtask, self.epoch, self.newest)


class RowRefusedError(DatabaseError):
    """The table refuses a row. The message names the table, the column if it is known, and the row."""

    def __init__(self, place: str, why: str, row: object, column: str | None = None) -> None:
        self.place, self.why, self.row, self.column = place, why, row, column
        at = "" if column is None else f", column {column!r}"
        super().__init__(
            f"{place}{at}: {why}\n"
            f"  row     {shorten(row)}\n"
            "  fix the records or the definition of the table; rows that shall replace others with the same key"
            " need UpsertSink"
        )

    def __reduce__(self) -> tuple[type[RowRefusedError], tuple[str, str, object, str | None]]:
        return RowRefusedError, (self.place, self.why, self.row, self.column)


class TransactionGoneError(DatabaseError):
    """A commit of a transaction that is neither prepared nor in the ledger: none of its rows is visible, or ever will
    be."""


class TransactionName(NamedTuple):
    """See the module."""

    writer: str
    subtask: int
    epoch: int
    incarnation: int
    attempt: int
    number: int

    def __str__(self) -> str:
        writer, subtask, epoch, incarnation, attempt, number = self
        return f"{writer}/{subtask}/{epoch}/{incarnation}.{attempt}/{number}"

    @classmethod
    def is_one(cls, text: str) -> bool:
        """Whether :meth:`parse` can read a text."""
        try:
            return str(cls.parse(text)) == text
        except ValueError:
            return False

    @classmethod
    def parse(cls, text: str) -> TransactionName:
        """The reverse of ``str``. Raises :class:`ValueError`."""
        writer, subtask, epoch, run, number = text.rsplit("/", 4)
        incarnation, _, attempt = run.partition(".")
        return cls(writer, int(subtask), int(epoch), int(incarnation), int(attempt), int(number))


class EpochHolder(NamedTuple):
    """The writer: a subtask in an epoch. A :class:`TransactionName` contains it, too."""

    subtask: int
    epoch: int


class LedgerRow(NamedTuple):
    """An entry of the ledger. ``checkpoint_id`` is ``None`` for commits without checkpoints."""

    name: TransactionName
    checkpoint_id: int | None
    rows: int


@dataclass(frozen=True, slots=True)
class TableDescription:
    """The table of a sink, and the sink's name in it.

    ``columns``             their names; a mapping from names to SQL types creates the table if it does not exist;
    ``writer``              distinguishes this sink from every other one that writes to the same table;
    ``transaction_column``  a column of text that gets the name of each row's transaction, or ``None``;
    ``key``, ``version``    for upserts: the columns that identify a row, and one that orders the versions of a row.
    """

    table: str
    columns: Sequence[str] | Mapping[str, str]
    writer: str
    transaction_column: str | None = None
    key: tuple[str, ...] = ()
    version: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that rows have values for."""
        return tuple(self.columns)

    @property
    def all_names(self) -> tuple[str, ...]:
        """The same, and the column of the transaction."""
        return self.names if self.transaction_column is None else (*self.names, self.transaction_column)

    def definitions(self) -> list[str] | None:
        """``"name" TYPE`` of each column and the primary key, if the table may be created."""
        if not isinstance(self.columns, Mapping):
            return None
        lines = [f"{quoted(name)} {definition}" for name, definition in self.columns.items()]
        if self.transaction_column is not None:
            lines.append(f"{quoted(self.transaction_column)} TEXT")
        if self.key:
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, self.key))})")
        return lines

    def check_columns(self, place: str, found: Sequence[str]) -> None:
        """Raises :class:`ConfigurationError` unless the table has every column."""
        if not found:
            raise ConfigurationError(
                f"{place}: the table does not exist\n"
                "  fix: create it, or give the columns with their types: columns={'name': 'TEXT', ...}"
            )
        missing = [name for name in self.all_names if name not in found]
        if missing:
            raise ConfigurationError(
                f"{place}: the table has no column {', '.join(map(repr, missing))}\n"
                f"  it has  {', '.join(found)}\n"
                "  fix: add what is missing, or change columns= of the sink (names are case-sensitive)"
            )


def check_table(description: TableDescription) -> TableDescription:
    """The description. Raises :class:`ConfigurationError` when it is invalid."""
    names = description.names
    given: object = description.columns
    if isinstance(given, str) or not names or not all(names) or any(type(name) is not str for name in names):
        raise ConfigurationError(f"columns must be names, or a mapping of names to SQL types; got {names!r}")
    if len(dict.fromkeys(description.all_names)) != len(description.all_names):
        raise ConfigurationError(f"columns name one twice: {', '.join(description.all_names)}")
    if isinstance(given, Mapping) and any(type(kind) is not str or not kind for kind in given.values()):
        raise ConfigurationError(f"columns must map names to SQL types such as 'TEXT'; got {given!r}")
    if type(description.table) is not str or not description.table:
        raise ConfigurationError(f"table must be the name of a table, got {description.table!r}")
    of_name = description.transaction_column
    if of_name is not None and (type(of_name) is not str or not of_name):
        raise ConfigurationError(f"transaction_column must be the name of a column, got {of_name!r}")
    if len(dict.fromkeys(description.key)) != len(description.key) or description.version in description.key:
        raise ConfigurationError(
            f"key is {', '.join(map(repr, description.key))} and version {description.version!r}: each column once, and"
            " the version is none of the key, for rows with the same key differ in it"
        )
    if description.table.rpartition(".")[2].lower().startswith("weir_"):
        raise ConfigurationError(
            f"table is {description.table!r}: names that begin with weir_ are those of the sink's own tables\n"
            "  fix: give the table another name"
        )
    of_key = [name for name in (*description.key, description.version) if name is not None and name not in names]
    if of_key:
        raise ConfigurationError(f"key and version must be among the columns; {', '.join(map(repr, of_key))} is not")
    return description


def quoted(identifier: str) -> str:
    """An SQL identifier, taken literally."""
    return '"' + identifier.replace('"', '""') + '"'


class SinkSession(Protocol):
    """The connection of one subtask of a sink to a database. Every call may raise :class:`DatabaseError`."""

    @property
    def place(self) -> str:
        """Table and database, for messages."""

    def prepare_table(self) -> None:
        """Create the missing tables. Raises :class:`ConfigurationError` when the table does not fit."""

    def take_over(self, subtask: int, parallelism: int) -> int:
        """Start a new epoch of this subtask and return it. Every subtask with the same number modulo ``parallelism`` is
        fenced up to it."""

    def begin(self, name: TransactionName) -> None:
        """Begin a transaction."""

    def write(self, name: TransactionName, rows: Sequence[Row]) -> None:
        """Add rows, all or none. Raises :class:`RowRefusedError` when the table refuses one."""

    def prepare(self, name: TransactionName, checkpoint_id: int | None) -> None:
        """From now on the transaction can be committed, even if this session dies."""

    def commit(self, name: TransactionName) -> bool:
        """Make it visible; ``False`` when it was visible already. Raises :class:`TransactionGoneError`."""

    def abort(self, name: TransactionName) -> bool:
        """Abort it, unless it is aborted already; ``False`` when it is committed."""

    def unfinished(self) -> list[TransactionName]:
        """The undecided transactions of this writer that outlive their session, in order."""

    def committed(self) -> list[LedgerRow]:
        """The ledger of this writer, in the order of names."""

    def retract(self, names: Sequence[TransactionName]) -> int:
        """Delete the rows of committed transactions and their entries in the ledger; returns the number of rows."""

    def forget(self, names: Sequence[TransactionName]) -> None:
        """Delete entries of the ledger; the rows stay."""

    def upsert(self, holder: EpochHolder, rows: Sequence[Row], deleted: Sequence[Row]) -> None:
        """Insert rows, or replace those with the same key; delete by key (rows of the key columns, then of the version
        if there is one). With a version, an older row never replaces or deletes a newer one. Raises
        :class:`FencedError` when a newer epoch has begun, because late writes of a zombie would replace newer rows."""

    def close(self) -> None:
        """Release everything, in order."""

    def drop(self) -> None:
        """The process is dead: connections break, without a further message to the database."""


class SinkDatabase(Protocol):
    """A database that sinks can connect to."""

    def connect(self, description: TableDescription, resolve_path: Callable[[str], str]) -> SinkSession:
        """A session of one subtask. ``resolve_path``: a relative path -> its place in this run."""

    def rows(self, description: TableDescription) -> list[Row]:
        """The rows that a reader sees now, in no particular order; empty if the table does not exist."""
