"""The catalogue of a table's partitions: a port, and two implementations.

A metastore is an external system, like a database: the job reaches it through this port, not through its file system.
Every call is one whole transaction. So a task may die between any two calls, and every call may be repeated.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from engine.elements.errors import ConfigurationError, StorageError, check_whole

Spec = tuple[tuple[str, str], ...]
"""Columns and values of one partition, in the order of the table's partition columns."""


PathOf = Callable[[str], str]
"""Resolves a path: absolute ones stay, others are below the run's output directory."""


class PartitionEntry(NamedTuple):
    """A metastore's entry for one partition."""

    spec: Spec
    location: str
    committed_ms: int
    """When it was last created or updated, by the job's clock."""


class Metastore(Protocol):
    """Where tables and their partitions are listed.

    Errors: :class:`StorageError` when it cannot be reached; :class:`ConfigurationError` when a table does not exist.
    """

    def resolved(self, path_of: PathOf) -> Metastore:
        """The same, with relative paths taken from the run's output directory."""

    def ensure_table(self, table: str, partition_columns: Sequence[str]) -> None:
        """List a table unless it is listed already; idempotent."""

    def partition_columns(self, table: str) -> tuple[str, ...]:
        """The columns by which ``table`` is partitioned; none for a plain table."""

    def put_partition(self, table: str, entry: PartitionEntry) -> bool:
        """Create or update a partition; idempotent. Returns whether it is new."""

    def partitions(self, table: str) -> list[PartitionEntry]:
        """All partitions of ``table``, by their values."""


def _no_table(table: str, known: Sequence[str], where: str) -> ConfigurationError:
    return ConfigurationError(
        f"{where} has no table {table!r}; it has {', '.join(map(repr, known)) or 'none'}\n"
        f"  create it first, with create_table({table!r}, partition_columns)"
    )


class MemoryMetastore:
    """A metastore in this process: for tests, and for searches that kill a job thousands of times."""

    def __init__(self) -> None:
        self._tables: dict[str, tuple[str, ...]] = {}
        self._partitions: dict[tuple[str, Spec], PartitionEntry] = {}

    def create_table(self, table: str, partition_columns: Sequence[str] = ()) -> None:
        """List a table; an existing one keeps its partitions."""
        self._tables[table] = tuple(partition_columns)

    def ensure_table(self, table: str, partition_columns: Sequence[str]) -> None:
        self._tables.setdefault(table, tuple(partition_columns))

    def resolved(self, path_of: PathOf) -> Metastore:
        """See ``Metastore``; it has no path."""
        return self

    def partition_columns(self, table: str) -> tuple[str, ...]:
        if table not in self._tables:
            raise _no_table(table, sorted(self._tables), "the metastore in memory")
        return self._tables[table]

    def put_partition(self, table: str, entry: PartitionEntry) -> bool:
        self.partition_columns(table)
        is_new = (table, entry.spec) not in self._partitions
        self._partitions[table, entry.spec] = entry
        return is_new

    def partitions(self, table: str) -> list[PartitionEntry]:
        self.partition_columns(table)
        return [entry for (of, _), entry in sorted(self._partitions.items()) if of == table]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, partition_columns TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
    "table" TEXT NOT NULL REFERENCES tables (name), spec TEXT NOT NULL, location TEXT NOT NULL,
    committed_ms INTEGER NOT NULL, PRIMARY KEY ("table", spec)
);
"""


class SqliteMetastore:
    """A metastore in one file of SQLite: tables ``tables`` and ``partitions``, which any client can read.

    ``path``             of the file; relative to the run's output directory when a sink uses it;
    ``busy_timeout_ms``  how long a call waits (in real time) for another writer.
    """

    def __init__(self, path: str, *, busy_timeout_ms: int = 5_000) -> None:
        if not path or "\0" in path:
            raise ConfigurationError(f"path must be the name of a file, got {path!r}")
        check_whole("busy_timeout_ms", busy_timeout_ms, 0)
        self.path = path
        self._busy_timeout_ms = busy_timeout_ms

    def resolved(self, path_of: PathOf) -> Metastore:
        return SqliteMetastore(path_of(self.path), busy_timeout_ms=self._busy_timeout_ms)

    def create_table(self, table: str, partition_columns: Sequence[str] = ()) -> None:
        """Create the file if it does not exist, and list a table; an existing one keeps its partitions.

        Raises :class:`StorageError`.
        """
        self._list(table, partition_columns, "UPDATE SET partition_columns = excluded.partition_columns")

    def ensure_table(self, table: str, partition_columns: Sequence[str]) -> None:
        """See ``Metastore``: create the file too if it does not exist. Raises :class:`StorageError`."""
        self._list(table, partition_columns, "NOTHING")

    def _list(self, table: str, partition_columns: Sequence[str], if_known: str) -> None:
        with self._transaction(creates=True) as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(
                f"INSERT INTO tables VALUES (?, ?) ON CONFLICT (name) DO {if_known}",
                (table, json.dumps(list(partition_columns))),
            )

    def partition_columns(self, table: str) -> tuple[str, ...]:
        with self._transaction() as connection:
            return self._columns(connection, table)

    def _columns(self, connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
        row = connection.execute("SELECT partition_columns FROM tables WHERE name = ?", (table,)).fetchone()
        if row is None:
            names = [name for (name,) in connection.execute("SELECT name FROM tables ORDER BY name")]
            raise _no_table(table, names, f"metastore {self.path}")
        return tuple(json.loads(row[0]))

    def put_partition(self, table: str, entry: PartitionEntry) -> bool:
        spec = json.dumps(entry.spec)
        with self._transaction() as connection:
            self._columns(connection, table)
            known = connection.execute(
                'SELECT 1 FROM partitions WHERE "table" = ? AND spec = ?', (table, spec)
            ).fetchone()
            connection.execute(
                'INSERT INTO partitions VALUES (?, ?, ?, ?) ON CONFLICT ("table", spec) DO UPDATE SET'
                " location = excluded.location, committed_ms = excluded.committed_ms",
                (table, spec, entry.location, entry.committed_ms),
            )
        return known is None

    def partitions(self, table: str) -> list[PartitionEntry]:
        with self._transaction() as connection:
            self._columns(connection, table)
            rows = connection.execute(
                'SELECT spec, location, committed_ms FROM partitions WHERE "table" = ?', (table,)
            ).fetchall()
        return sorted(
            PartitionEntry(tuple((key, value) for key, value in json.loads(spec)), location, committed_ms)
            for spec, location, committed_ms in rows
        )

    @contextlib.contextmanager
    def _transaction(self, *, creates: bool = False) -> Iterator[sqlite3.Connection]:
        mode = "rwc" if creates else "rw"
        quoted = self.path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
        try:
            connection = sqlite3.connect(
                f"file:{quoted}?mode={mode}", uri=True, isolation_level=None, timeout=self._busy_timeout_ms / 1000
            )
            try:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            finally:
                # Without COMMIT this rolls everything back.
                connection.close()
        except sqlite3.Error as error:
            raise _unreachable(self.path, error) from error


def _unreachable(path: str, error: sqlite3.Error) -> StorageError:
    text = str(error)
    fix = "check that the file is a database of SQLite, and that it and its directory are writable"
    if "locked" in text or "busy" in text:
        fix = "another program holds a transaction open: end it, or give a longer busy_timeout_ms"
    elif "unable to open" in text:
        fix = "check the path; create_table() makes the file, a sink never does"
    elif "no such table" in text:
        fix = "this database is no metastore: create_table() makes it one"
    return StorageError(
        f"metastore {path} cannot be used: {text}\n  {fix}; the partition is committed when the job is resumed"
    )
