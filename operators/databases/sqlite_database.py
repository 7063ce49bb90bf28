"""SQLite as an implementation of the port of database sessions.

SQLite has no prepared transactions, so they are built from its own features:

* Rows are *staged* in a table beside the target (``weir_staged_<table>``), in short transactions of SQLite: a database
  file has one writer at a time, and several subtasks share it. No call leaves a transaction of SQLite open.
* ``prepare`` marks the transaction. Before that it inserts the rows into the target and rolls back. This finds violated
  constraints now; after the checkpoint has completed, the error would come too late. If the target has unique columns,
  all rows that wait for their commit are tried together. For foreign keys that SQLite checks only at the commit
  (``DEFERRED``), this checks the whole target, so the cost grows with it.
* ``commit`` moves the rows into the target, in order, and writes the ledger, in one transaction of SQLite. A second
  commit finds the entry.
* Every transaction begins with ``BEGIN IMMEDIATE``: upgrading a lock could fail in the middle. SQLite
  waits for other writers up to ``busy_timeout_ms`` of wall time.
* Commits reach the disk before they return (``synchronous=FULL``, in a rollback journal ``EXTRA``). By default the
  journal is written ahead (WAL): readers and the sink do not wait for each other.

Our tables: ``weir_transactions`` (transactions that wait, and the ledger), ``weir_epochs`` (who may write), and one of
staged rows for each target.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from engine.elements.errors import ConfigurationError, check_whole
from operators.databases.database_session import (
    DatabaseError,
    EpochHolder,
    FencedError,
    LedgerRow,
    Row,
    RowRefusedError,
    TableDescription,
    TransactionGoneError,
    TransactionName,
    quoted,
)
from operators.databases.upsert_statements import delete_statement, upsert_statement
from state_backends.files import LocalFileSystem

_OPEN, _PREPARED, _COMMITTED = "open", "prepared", "committed"

_OUR_TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_transactions (name TEXT PRIMARY KEY, writer TEXT NOT NULL, target TEXT NOT NULL,"
    " state TEXT NOT NULL, checkpoint_id INTEGER, row_count INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS weir_transactions_of ON weir_transactions (writer, state)",
    "CREATE TABLE IF NOT EXISTS weir_epochs (writer TEXT NOT NULL, subtask INTEGER NOT NULL, epoch INTEGER NOT NULL,"
    " PRIMARY KEY (writer, subtask)) WITHOUT ROWID",
)
_AT_FAULT = (
    sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError, OverflowError,
    UnicodeError,
)  # fmt: skip
"""The errors of SQLite for a row that it refuses. (``InterfaceError`` or ``ProgrammingError``, by version of Python: a
value of a type that SQLite cannot store; ``OverflowError``: an int beyond 64 bits; ``UnicodeError``: half a surrogate
pair.)"""


class SqliteDatabase:
    """A database file. ``path`` is relative to the run's output directory unless it is absolute; ``busy_timeout_ms``:
    how long to wait for another writer, in wall time; ``journal_mode``: ``"wal"``, ``"delete"``, or ``None`` to leave
    the file as it is."""

    def __init__(self, path: str, *, busy_timeout_ms: int = 10_000, journal_mode: str | None = "wal") -> None:
        if type(path) is not str or not path or "://" in path or path.startswith((":", "file:")):
            raise ConfigurationError(f"path must be the name of a local file, got {path!r}")
        if journal_mode not in ("wal", "delete", None):
            raise ConfigurationError(f"journal_mode is {journal_mode!r}; it must be 'wal', 'delete' or None")
        check_whole("busy_timeout_ms", busy_timeout_ms, 0)
        self.path, self.busy_timeout_ms, self.journal_mode = path, busy_timeout_ms, journal_mode
        self._found_at = path

    def connect(self, description: TableDescription, resolve_path: Callable[[str], str]) -> SqliteSession:
        path = self.path if self.path.startswith("/") else resolve_path(self.path)
        if "://" in path:
            raise ConfigurationError(f"{path}: SQLite writes local files only; give SqliteDatabase an absolute path")
        directory = path.rpartition("/")[0]
        if directory:
            LocalFileSystem().make_dirs(directory)
        self._found_at = path
        return SqliteSession(path, description, self.busy_timeout_ms, self.journal_mode)

    def rows(self, description: TableDescription) -> list[Row]:
        """See :class:`operators.databases.database_session.SinkDatabase`; in the order of their row ids."""
        if not LocalFileSystem().exists(self._found_at):
            return []
        connection = sqlite3.connect(self._found_at, timeout=self.busy_timeout_ms / 1000)
        try:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (description.table,)).fetchall():
                return []
            columns = ", ".join(map(quoted, description.all_names))
            return connection.execute(f"SELECT {columns} FROM {quoted(description.table)}").fetchall()
        finally:
            connection.close()


class SqliteSession:
    """See :class:`operators.databases.database_session.SinkSession`."""

    def __init__(
        self, path: str, description: TableDescription, busy_timeout_ms: int, journal_mode: str | None
    ) -> None:
        self.place = f"table {description.table!r} in {path}"
        self._description, self._journal_mode = description, journal_mode
        self._target, self._staged = quoted(description.table), quoted(f"weir_staged_{description.table}")
        self._columns = ", ".join(map(quoted, description.names))
        self._is_unique = self._has_deferred_keys = False
        try:
            self._connection = sqlite3.connect(path, timeout=busy_timeout_ms / 1000, isolation_level=None)
        except sqlite3.Error as error:
            raise DatabaseError(f"{path}: SQLite cannot open it: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction of SQLite: all changes or, after an error, none."""
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._explained(error) from error
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _explained(self, error: sqlite3.Error) -> DatabaseError:
        message = f"{self.place}: SQLite says: {error}"
        if "locked" in str(error) or "busy" in str(error):
            message += (
                "\n  another program holds the database for longer than busy_timeout_ms; subtasks of one job wait for"
                " each other\n  fix: let it commit sooner (a reader should not keep a transaction open), or raise"
                " busy_timeout_ms"
            )
        return DatabaseError(message)

    # --- tables -------------------------------------------------------------------------------------------

    def prepare_table(self) -> None:
        connection, description = self._connection, self._description
        try:
            if self._journal_mode is not None:
                connection.execute(f"PRAGMA journal_mode = {self._journal_mode}").fetchall()
            is_wal = connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            connection.execute(f"PRAGMA synchronous = {'FULL' if is_wal else 'EXTRA'}")
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error as error:
            raise self._explained(error) from error
        definitions = description.definitions()
        with self._transaction():
            if definitions is not None:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {self._target} ({', '.join(definitions)})")
            found = connection.execute("SELECT name FROM pragma_table_xinfo(?)", (description.table,)).fetchall()
            description.check_columns(self.place, [name for (name,) in found])
            for statement in _OUR_TABLES:
                connection.execute(statement)
            if description.key:
                self._check_key()
                return
            self._make_staged_table()
            self._is_unique = _has_unique_columns(connection, description.table)
            self._has_deferred_keys = _has_deferred_keys(connection, description.table)

    def _check_key(self) -> None:
        try:
            self._connection.execute(f"EXPLAIN {upsert_statement(self._description, '?')}", self._nothing()).fetchall()
        except sqlite3.OperationalError as error:
            raise ConfigurationError(
                f"{self.place}: {error}\n"
                f"  fix: the key columns ({', '.join(self._description.key)}) need a PRIMARY KEY or UNIQUE constraint"
            ) from error

    def _nothing(self) -> list[None]:
        return [None] * len(self._description.names)

    def _make_staged_table(self) -> None:
        # Copy the target's declared types, for their affinity: a staged value is stored in its final form.
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self._staged} AS SELECT '' AS weir_name, 0 AS weir_number, {self._columns}"
            f" FROM {self._target} WHERE 0"
        )
        index = quoted(f"weir_staged_{self._description.table}_by_name")
        self._connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {self._staged} (weir_name, weir_number)")
        table = f"weir_staged_{self._description.table}"
        found = self._connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,)).fetchall()
        for name in self._description.names:
            if (name,) not in found:
                self._connection.execute(f"ALTER TABLE {self._staged} ADD COLUMN {quoted(name)}")

    # --- epochs -------------------------------------------------------------------------------------------

    def take_over(self, subtask: int, parallelism: int) -> int:
        writer, residue = self._description.writer, subtask % parallelism
        mine = "writer = ? AND subtask % ? = ?"
        with self._transaction() as connection:
            found = connection.execute(
                f"SELECT max(epoch) FROM weir_epochs WHERE {mine}", (writer, parallelism, residue)
            ).fetchone()[0]
            epoch = 1 + (found or 0)
            connection.execute("INSERT OR IGNORE INTO weir_epochs VALUES (?, ?, 0)", (writer, subtask))
            connection.execute(f"UPDATE weir_epochs SET epoch = ? WHERE {mine}", (epoch, writer, parallelism, residue))
        return epoch

    def _check_epoch(self, holder: TransactionName | EpochHolder) -> None:
        writer = self._description.writer
        found = self._connection.execute(
            "SELECT epoch FROM weir_epochs WHERE writer = ? AND subtask = ?", (writer, holder.subtask)
        ).fetchone()
        if found is not None and holder.epoch < found[0]:
            raise FencedError(self.place, writer, holder.subtask, holder.epoch, found[0])

    # --- transactions -------------------------------------------------------------------------------------

    def _state(self, name: TransactionName) -> str | None:
        found = self._connection.execute("SELECT state FROM weir_transactions WHERE name = ?", (str(name),)).fetchone()
        return None if found is None else str(found[0])

    def begin(self, name: TransactionName) -> None:
        with self._transaction() as connection:
            self._check_epoch(name)
            connection.execute(
                "INSERT OR IGNORE INTO weir_transactions VALUES (?, ?, ?, ?, NULL, 0)",
                (str(name), name.writer, self._description.table, _OPEN),
            )

    def write(self, name: TransactionName, rows: Sequence[Row]) -> None:
        text = str(name)
        holes = ", ".join("?" * (2 + len(self._description.names)))
        statement = f"INSERT INTO {self._staged} (weir_name, weir_number, {self._columns}) VALUES ({holes})"
        with self._transaction() as connection:
            self._check_epoch(name)
            if self._state(name) != _OPEN:
                raise DatabaseError(f"{self.place}: {name} takes no rows any more; another attempt has ended it")
            (first,) = connection.execute("SELECT row_count FROM weir_transactions WHERE name = ?", (text,)).fetchone()
            try:
                connection.executemany(statement, [(text, at, *row) for at, row in enumerate(rows, start=first)])
            except _AT_FAULT as error:
                raise self._refused(statement, (text, 0), rows, error) from error
            connection.execute("UPDATE weir_transactions SET row_count = ? WHERE name = ?", (first + len(rows), text))

    def _refused(
        self, statement: str, before: tuple[object, ...], rows: Sequence[Row], error: Exception
    ) -> RowRefusedError:
        """The first row that fails by itself, among rows that fail together."""
        for row in rows:
            try:
                self._connection.execute(statement, (*before, *row))
            except _AT_FAULT as of_row:
                return RowRefusedError(self.place, str(of_row), row)
        return RowRefusedError(self.place, str(error), rows)

    def prepare(self, name: TransactionName, checkpoint_id: int | None) -> None:
        with self._transaction() as connection:
            self._check_epoch(name)
            state = self._state(name)
            if state is None:
                raise DatabaseError(f"{self.place}: {name} cannot be prepared; another attempt has ended it")
            if state != _OPEN:
                return
            self._try(name)
            connection.execute(
                "UPDATE weir_transactions SET state = ?, checkpoint_id = ? WHERE name = ?",
                (_PREPARED, checkpoint_id, str(name)),
            )

    def _try(self, name: TransactionName) -> None:
        """Insert the rows to be committed into the target, and roll back."""
        connection, names = self._connection, [str(name)]
        if self._is_unique:
            waiting = connection.execute(
                "SELECT name FROM weir_transactions WHERE target = ? AND state = ? ORDER BY name",
                (self._description.table, _PREPARED),
            ).fetchall()
            names = [*[text for (text,) in waiting], *names]
        connection.execute("SAVEPOINT weir_try")
        try:
            for text in names:
                self._move(text)
        except _AT_FAULT as error:
            raise self._refused_target(name, error) from error
        broken = _broken_key(connection, self._description.table, self._columns) if self._has_deferred_keys else None
        if broken is not None:
            raise RowRefusedError(self.place, f"FOREIGN KEY constraint failed: no such row in {broken[0]!r}", broken[1])
        connection.execute("ROLLBACK TO weir_try")
        connection.execute("RELEASE weir_try")

    def _refused_target(self, name: TransactionName, error: Exception) -> RowRefusedError:
        staged = self._connection.execute(
            f"SELECT {self._columns} FROM {self._staged} WHERE weir_name = ? ORDER BY weir_number", (str(name),)
        ).fetchall()
        holes = ", ".join("?" * len(self._description.names))
        statement = f"INSERT INTO {self._target} ({self._columns}) VALUES ({holes})"
        return self._refused(statement, (), staged, error)

    def _move(self, text: str) -> None:
        into, values = self._columns, self._columns
        if self._description.transaction_column is not None:
            into, values = f"{into}, {quoted(self._description.transaction_column)}", f"{values}, weir_name"
        self._connection.execute(
            f"INSERT INTO {self._target} ({into}) SELECT {values} FROM {self._staged}"
            " WHERE weir_name = ? ORDER BY weir_number",
            (text,),
        )

    def commit(self, name: TransactionName) -> bool:
        text = str(name)
        with self._transaction() as connection:
            state = self._state(name)
            if state == _COMMITTED:
                return False
            if state != _PREPARED:
                raise TransactionGoneError(f"{self.place}: {name} is neither prepared nor in the ledger")
            try:
                self._move(text)
            except _AT_FAULT as error:
                raise self._refused_target(name, error) from error
            connection.execute(f"DELETE FROM {self._staged} WHERE weir_name = ?", (text,))
            connection.execute("UPDATE weir_transactions SET state = ? WHERE name = ?", (_COMMITTED, text))
        return True

    def abort(self, name: TransactionName) -> bool:
        text = str(name)
        with self._transaction() as connection:
            if self._state(name) == _COMMITTED:
                return False
            connection.execute(f"DELETE FROM {self._staged} WHERE weir_name = ?", (text,))
            connection.execute("DELETE FROM weir_transactions WHERE name = ?", (text,))
        return True

    # --- what is there ------------------------------------------------------------------------------------

    def _transactions(self, states: tuple[str, ...]) -> list[LedgerRow]:
        holes = ", ".join("?" * len(states))
        try:
            found = self._connection.execute(
                "SELECT name, checkpoint_id, row_count FROM weir_transactions"
                f" WHERE writer = ? AND target = ? AND state IN ({holes})",
                (self._description.writer, self._description.table, *states),
            ).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error) from error
        return sorted(LedgerRow(TransactionName.parse(name), number, rows) for name, number, rows in found)

    def unfinished(self) -> list[TransactionName]:
        return [one.name for one in self._transactions((_OPEN, _PREPARED))]

    def committed(self) -> list[LedgerRow]:
        return self._transactions((_COMMITTED,))

    def retract(self, names: Sequence[TransactionName]) -> int:
        assert self._description.transaction_column is not None, "rows without their transaction are not found again"
        column, texts = quoted(self._description.transaction_column), [(str(name),) for name in names]
        with self._transaction() as connection:
            retracted = connection.executemany(f"DELETE FROM {self._target} WHERE {column} = ?", texts).rowcount
            connection.executemany("DELETE FROM weir_transactions WHERE name = ?", texts)
        return retracted

    def forget(self, names: Sequence[TransactionName]) -> None:
        with self._transaction() as connection:
            connection.executemany("DELETE FROM weir_transactions WHERE name = ?", [(str(name),) for name in names])

    def upsert(self, holder: EpochHolder, rows: Sequence[Row], deleted: Sequence[Row]) -> None:
        inserted, removed = upsert_statement(self._description, "?"), delete_statement(self._description, "?")
        with self._transaction() as connection:
            self._check_epoch(holder)
            for statement, several in ((removed, deleted), (inserted, rows)):
                try:
                    connection.executemany(statement, several)
                except _AT_FAULT as error:
                    raise self._refused(statement, (), several, error) from error

    def close(self) -> None:
        self._connection.close()

    def drop(self) -> None:
        self._connection.close()


# --- constraints checked only across rows or at the end: such rows must be tried together ---------------------


def _has_unique_columns(connection: sqlite3.Connection, table: str) -> bool:
    """Whether two rows can conflict."""
    of_index = "SELECT count(*) FROM pragma_index_list(?) WHERE \"unique\""
    of_key = "SELECT count(*) FROM pragma_table_info(?) WHERE pk > 0"
    return any(connection.execute(statement, (table,)).fetchone()[0] for statement in (of_index, of_key))


def _has_deferred_keys(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a foreign key of the table is checked only at the commit. No pragma tells this."""
    ask = "SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%INITIALLY%DEFERRED%'"
    return connection.execute(ask, (table,)).fetchone() is not None


def _broken_key(connection: sqlite3.Connection, table: str, columns: str) -> tuple[str, Row | None] | None:
    """If a row of ``table`` refers to a missing row: the table that lacks it, and the ``columns`` (SQL) of the
    referring row if it can be found again. Reads all of ``table``."""
    found = connection.execute("SELECT parent, rowid FROM pragma_foreign_key_check(?)", (table,)).fetchone()
    if found is None:
        return None
    parent, row_id = found
    if row_id is None:
        return parent, None
    return parent, connection.execute(f"SELECT {columns} FROM {quoted(table)} WHERE rowid = ?", (row_id,)).fetchone()
