"""The common half of all sinks into a table: the settings of the table, and the session of a subtask with the
database.

The sinks differ in how they write the rows: :mod:`operators.databases.database_sink` and
:mod:`operators.databases.upsert_sink`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from hashlib import blake2b
from typing import Any, Self

from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.operator import Operator
from operators.databases.database_session import (
    MAX_WRITER_BYTES,
    DatabaseError,
    SinkDatabase,
    SinkSession,
    TableDescription,
    check_table,
)
from operators.databases.memory_database import MemoryDatabase
from operators.databases.records_to_rows import RecordsToRows, RowFunction, row_of

Columns = Sequence[str] | Mapping[str, str]


def check_function(name: str, value: object) -> None:
    """Raises :class:`ConfigurationError` unless ``value`` can be called, or is ``None``."""
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} is {value!r}; it must be a function of a record, or None")


def writer_name(table: str, writer: str) -> str:
    """Table and writer together; a digest replaces the part beyond the limit for names of transactions."""
    name = f"{table}:{writer}"
    encoded = name.encode()
    if len(encoded) <= MAX_WRITER_BYTES:
        return name
    short = encoded[: MAX_WRITER_BYTES - 33].decode(errors="ignore")
    return f"{short}-{blake2b(encoded, digest_size=16).hexdigest()}"


class TableSink:
    """Describes a sink into a table of a database. Raises :class:`ConfigurationError` for invalid settings."""

    transaction_column: str | None = None
    key_columns: tuple[str, ...] = ()
    version: str | None = None

    def __init__(
        self,
        database: SinkDatabase,
        table: str,
        columns: Columns,
        *,
        row: RowFunction | None,
        writer: str | None,
        batch_rows: int,
        request_ns: int,
    ) -> None:
        if isinstance(database, type) or not callable(getattr(database, "connect", None)):
            raise ConfigurationError(
                f"database is {database!r}; it must be SqliteDatabase('file') or PostgresDatabase('dsn'), or like them"
            )
        if writer is not None and (type(writer) is not str or not writer):
            raise ConfigurationError(f"writer is {writer!r}; it must be a name, or None for the operator's uid")
        check_function("row", row)
        check_whole("batch_rows", batch_rows, 1)
        check_whole("request_ns", request_ns, 0)
        self.database, self.table, self.columns, self.row, self.writer = database, table, columns, row, writer
        self.batch_rows, self.request_ns = batch_rows, request_ns
        self.describe("")

    def describe(self, uid: str) -> TableDescription:
        """The table, as the operator ``uid`` writes to it."""
        writer = writer_name(self.table, uid if self.writer is None else self.writer)
        return check_table(
            TableDescription(self.table, self.columns, writer, self.transaction_column, self.key_columns, self.version)
        )

    def fresh(self) -> Self:
        """A copy with its own database in memory."""
        other = copy(self)
        other.database = MemoryDatabase()
        return other

    def text_of(self, record: Any) -> str:
        """The text of a record in ``committed_rows()``."""
        return repr(row_of(record, self.row, tuple(self.columns)))

    def committed_rows(self) -> list[str]:
        """The rows that readers see, as text, without names of transactions."""
        width = len(self.columns)
        return [repr(row[:width]) for row in self.database.rows(self.describe(""))]

    @property
    def one_process(self) -> str | None:
        """See :class:`engine.elements.operator.Operator`."""
        if not isinstance(self.database, MemoryDatabase):
            return None
        return "writes to a database in the memory of one process: give it SqliteDatabase('path') or PostgresDatabase"

    def fingerprint(self) -> object:
        if isinstance(self.database, MemoryDatabase):
            return self.database.fingerprint()
        return sorted(self.committed_rows())


class TableWriter:
    """The session of one subtask. It is held from :meth:`take_over` to :meth:`close` or :meth:`drop`."""

    def __init__(self, sink: TableSink, operator: Operator) -> None:
        self._sink, self._operator = sink, operator
        self._held: SinkSession | None = None
        self.rows = RecordsToRows(operator, sink.row, tuple(sink.columns))
        """One row for each record of a batch."""
        self.epoch = 0

    def take_over(self) -> TableDescription:
        """Connect, create what is missing, and fence earlier writers; returns the description with this writer."""
        sink, context = self._sink, self._operator.context
        description = sink.describe(context.uid)
        self._held = sink.database.connect(description, context.resolve_path)
        self._held.prepare_table()
        self.epoch = self._held.take_over(context.subtask, context.parallelism)
        return description

    @property
    def session(self) -> SinkSession:
        """The session since :meth:`take_over`."""
        assert self._held is not None, "not initialized, or closed"
        return self._held

    @property
    def is_connected(self) -> bool:
        """Whether there is a session."""
        return self._held is not None

    def spend(self) -> None:
        """Spend the virtual time of one request."""
        if self._sink.request_ns:
            self._operator.context.spend(self._sink.request_ns)

    def close(self) -> None:
        """Disconnect, in order."""
        held, self._held = self._held, None
        if held is not None:
            with suppress(DatabaseError):
                held.close()

    def drop(self) -> None:
        """The process is dead: the connection breaks."""
        held, self._held = self._held, None
        if held is not None:
            held.drop()
