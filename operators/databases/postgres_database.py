"""PostgreSQL as an implementation of the port of database sessions, with ``PREPARE TRANSACTION``.

* A transaction is one of PostgreSQL's, in its own connection: rows go in with ``COPY``, then the entry in the ledger.
  ``PREPARE TRANSACTION`` detaches both from the connection. From then on they survive the death of the sink, of the
  connection and of the server, hold their locks, and wait for ``COMMIT PREPARED``. The entry is part of the
  transaction, so it exists exactly if the rows do.
* All other requests use a second connection, because ``COMMIT PREPARED`` cannot run inside a transaction. All of them
  are idempotent. When a connection breaks, the session repeats them over a new one, up to ``reconnects`` times with
  pauses, because a restarting server comes back.
* An open transaction is lost with its connection. The session does not try to save it: the sink reports a failure, and
  the job goes back to its last checkpoint.
* A transaction that has left ``pg_prepared_xacts`` is committed if the ledger has it. Otherwise it is lost: an
  administrator has rolled it back, or the server was restored from a backup.
* The database stores the holder of each epoch; a takeover terminates it (:mod:`operators.databases.postgres_epochs`).
* Two transactions that insert the same unique key wait for each other; the wait for a prepared one could last for ever.
  After ``lock_timeout_ms`` the wait is an error.

A transaction's global name is ``{database}:{name}``, because all databases of a server share these names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from engine.elements.errors import ConfigurationError, check_whole
from operators.databases.database_session import (
    DatabaseError,
    EpochHolder,
    LedgerRow,
    Row,
    RowRefusedError,
    TableDescription,
    TransactionGoneError,
    TransactionName,
    quoted,
)
from operators.databases.postgres_connection import PostgresConnection, PostgresServer, imported_psycopg
from operators.databases.postgres_epochs import PostgresEpochs
from operators.databases.upsert_statements import delete_statement, table_name, upsert_statement

if TYPE_CHECKING:
    from psycopg import Connection

_OUR_TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_transactions (name TEXT PRIMARY KEY, writer TEXT NOT NULL,"
    " checkpoint_id BIGINT, row_count BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS weir_transactions_of ON weir_transactions (writer)",
    "CREATE TABLE IF NOT EXISTS weir_epochs (writer TEXT NOT NULL, subtask INT NOT NULL, epoch BIGINT NOT NULL,"
    " backend INT, backend_start TIMESTAMPTZ, PRIMARY KEY (writer, subtask))",
)
_MAKING_TABLES = 7265_6972
"""Key of an advisory lock: without it, two sinks that create the same tables at the same time would conflict."""


class PostgresDatabase:
    """A database of a server. ``dsn``: how to reach it, as for libpq; ``reconnects``: how often a broken connection is
    renewed for repeatable requests; ``reconnect_wait_s``: wall time before the first renewal, doubled before each
    further one, up to 2 s; ``lock_timeout_ms``, ``connect_timeout_s``: wall time."""

    def __init__(
        self,
        dsn: str,
        *,
        reconnects: int = 8,
        reconnect_wait_s: float = 0.1,
        lock_timeout_ms: int = 10_000,
        connect_timeout_s: int = 10,
    ) -> None:
        if not isinstance(dsn, str):
            raise ConfigurationError(f"dsn must be text such as 'host=localhost dbname=shop', got {dsn!r}")
        wait: object = reconnect_wait_s
        if not isinstance(wait, int | float) or wait < 0:
            raise ConfigurationError(f"reconnect_wait_s is {wait!r}; it must be a number of seconds from 0")
        check_whole("reconnects", reconnects, 0)
        check_whole("lock_timeout_ms", lock_timeout_ms)
        check_whole("connect_timeout_s", connect_timeout_s)
        self._server = PostgresServer(dsn, reconnects, reconnect_wait_s, lock_timeout_ms, connect_timeout_s)

    def connect(self, description: TableDescription, resolve_path: Callable[[str], str]) -> PostgresSession:
        del resolve_path
        return PostgresSession(self._server, description)

    def rows(self, description: TableDescription) -> list[Row]:
        with closing(PostgresSession(self._server, description)) as session:
            return session.rows()


class PostgresSession:
    """See :class:`operators.databases.database_session.SinkSession`."""

    def __init__(self, server: PostgresServer, description: TableDescription) -> None:
        self._psycopg = imported_psycopg()
        self._description = description
        self._target = table_name(description)
        self._connection = PostgresConnection(server, description.table)
        self._ask = self._connection.ask
        self._epochs = PostgresEpochs(description.writer)
        self._writing: Connection[Any] | None = None
        self._current: TransactionName | None = None
        self._is_begun = False
        """Whether the server knows the current transaction."""
        self._rows = 0

    @property
    def place(self) -> str:
        """Table and database, for messages."""
        return self._connection.place

    # --- tables -------------------------------------------------------------------------------------------

    def prepare_table(self) -> None:
        self._ask(self._make_tables)
        found = self._ask(self._columns_found)
        self._description.check_columns(self.place, found)
        if self._description.key:
            self._ask(self._check_key)
        else:
            self._ask(self._check_prepared_transactions)

    def _make_tables(self, connection: Connection[Any]) -> None:
        definitions = self._description.definitions()
        wanted = list(_OUR_TABLES)
        if definitions is not None and not self._columns_found(connection):
            wanted.append(f"CREATE TABLE IF NOT EXISTS {self._target} ({', '.join(definitions)})")
        known = connection.execute("SELECT to_regclass('weir_transactions'), to_regclass('weir_epochs')").fetchone()
        if known is not None and None not in known:
            # A user with the right to write may lack the right to create.
            wanted = [statement for statement in wanted if statement not in _OUR_TABLES]
        if wanted:
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING_TABLES,))
                for statement in wanted:
                    connection.execute(statement)

    def _columns_found(self, connection: Connection[Any]) -> list[str]:
        found = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            (self._target,),
        )
        return [name for (name,) in found.fetchall()]

    def _check_key(self, connection: Connection[Any]) -> None:
        holes = [None] * len(self._description.names)
        try:
            connection.execute(f"EXPLAIN {self._upsert_statement()}", holes)
        except self._psycopg.errors.InvalidColumnReference as error:
            raise ConfigurationError(
                f"{self.place}: {error}\n"
                f"  fix: the key columns ({', '.join(self._description.key)}) need a PRIMARY KEY or UNIQUE constraint"
            ) from error

    def _check_prepared_transactions(self, connection: Connection[Any]) -> None:
        found = connection.execute("SELECT current_setting('max_prepared_transactions')::int").fetchone()
        if found == (0,):
            raise ConfigurationError(
                f"{self.place}: the server has prepared transactions switched off (max_prepared_transactions = 0),"
                " and without them there is no exactly-once\n"
                "  fix: set max_prepared_transactions in postgresql.conf to at least twice the parallelism of the sink"
                " and restart the server; or use UpsertSink, which needs none"
            )

    # --- epochs -------------------------------------------------------------------------------------------

    def take_over(self, subtask: int, parallelism: int) -> int:
        return self._ask(lambda connection: self._epochs.take_over(connection, subtask, parallelism))

    def _check_epoch(self, connection: Connection[Any], holder: TransactionName | EpochHolder, lock: str = "") -> None:
        self._epochs.check(connection, self.place, holder, lock)

    # --- transactions -------------------------------------------------------------------------------------

    def _global_name(self, connection: Connection[Any], name: TransactionName) -> Any:
        return self._psycopg.sql.Literal(f"{connection.info.dbname}:{name}")

    def begin(self, name: TransactionName) -> None:
        self._current, self._is_begun, self._rows = name, False, 0

    def _in_transaction(self, name: TransactionName) -> Connection[Any]:
        """The connection of the open transaction; its first statement begins the transaction there."""
        if name != self._current:
            raise DatabaseError(f"{self.place}: {name} is not open any more: its connection broke")
        if not self._is_begun:
            self._ask(lambda connection: self._check_epoch(connection, name))
            self._begin(name)
            self._is_begun = True
        assert self._writing is not None
        return self._writing

    def _begin(self, name: TransactionName) -> None:
        if self._writing is not None:
            try:
                self._writing.execute("BEGIN")
            except self._psycopg.Error as error:
                if not self._connection.is_broken(error):
                    raise
                # The lost transaction had no rows, so a new one can replace it.
                self._hang_up()
            else:
                return
        self._writing = self._connection.open()
        self._epochs.hold(self._writing, name)
        self._writing.execute("BEGIN")

    def _give_up(self) -> None:
        """The open transaction is lost."""
        self._hang_up()
        self._current = None

    def _hang_up(self) -> None:
        if self._writing is not None:
            self._writing.close()
            self._writing = None

    def write(self, name: TransactionName, rows: Sequence[Row]) -> None:
        description, row = self._description, rows[0]
        columns = ", ".join(map(quoted, description.all_names))
        named = rows if description.transaction_column is None else [(*one, str(name)) for one in rows]
        try:
            with (
                self._in_transaction(name).cursor() as cursor,
                cursor.copy(f"COPY {self._target} ({columns}) FROM STDIN") as copy,
            ):
                for row in named:
                    copy.write_row(row)
        except DatabaseError:
            self._give_up()
            raise
        except (self._psycopg.Error, UnicodeError, OverflowError) as error:
            self._give_up()
            raise self._connection.refused(error, rows, row) from error
        self._rows += len(rows)

    def prepare(self, name: TransactionName, checkpoint_id: int | None) -> None:
        try:
            connection = self._in_transaction(name)
            self._check_epoch(connection, name)
            connection.execute(
                "INSERT INTO weir_transactions VALUES (%s, %s, %s, %s)",
                (str(name), name.writer, checkpoint_id, self._rows),
            )
            statement = self._psycopg.sql.SQL("PREPARE TRANSACTION {}")
            connection.execute(statement.format(self._global_name(connection, name)))
        except DatabaseError:
            self._give_up()
            raise
        except self._psycopg.Error as error:
            self._give_up()
            # Only the answer may have been lost. If the request was carried out, the prepared transaction exists.
            if not (self._connection.is_broken(error) and name in self.unfinished()):
                if isinstance(error, self._psycopg.IntegrityError):
                    raise RowRefusedError(self.place, str(error).strip(), "found when all rows were there") from error
                raise self._connection.explained(error) from error
        self._current = None

    def commit(self, name: TransactionName) -> bool:
        return self._ask(lambda connection: self._commit(connection, name))

    def _commit(self, connection: Connection[Any], name: TransactionName) -> bool:
        if self._is_committed(connection, name):
            return False
        statement = self._psycopg.sql.SQL("COMMIT PREPARED {}").format(self._global_name(connection, name))
        if self._end(connection, statement) or self._is_committed(connection, name):
            return True
        raise TransactionGoneError(f"{self.place}: {name} is neither prepared (pg_prepared_xacts) nor in the ledger")

    def _end(self, connection: Connection[Any], statement: Any) -> bool:
        """Commit or roll back a prepared transaction; ``False`` when it does not exist."""
        try:
            connection.execute(statement)
        except self._psycopg.errors.UndefinedObject:
            return False
        return True

    def _is_committed(self, connection: Connection[Any], name: TransactionName) -> bool:
        found = connection.execute("SELECT 1 FROM weir_transactions WHERE name = %s", (str(name),)).fetchone()
        return found is not None

    def abort(self, name: TransactionName) -> bool:
        if name == self._current:
            self._give_up()
            return True
        return self._ask(lambda connection: self._abort(connection, name))

    def _abort(self, connection: Connection[Any], name: TransactionName) -> bool:
        statement = self._psycopg.sql.SQL("ROLLBACK PREPARED {}").format(self._global_name(connection, name))
        return self._end(connection, statement) or not self._is_committed(connection, name)

    # --- what is there ------------------------------------------------------------------------------------

    def unfinished(self) -> list[TransactionName]:
        return self._ask(self._prepared)

    def _prepared(self, connection: Connection[Any]) -> list[TransactionName]:
        prefix = f"{connection.info.dbname}:"
        found = connection.execute(
            "SELECT substr(gid, %s) FROM pg_prepared_xacts"
            " WHERE database = current_database() AND starts_with(gid, %s)",
            (len(prefix) + 1, f"{prefix}{self._description.writer}/"),
        ).fetchall()
        names = []
        for (text,) in found:
            # Prepared transactions of other programs may have similar names.
            with suppress(ValueError):
                names.append(TransactionName.parse(text))
        return sorted(name for name in names if name.writer == self._description.writer)

    def committed(self) -> list[LedgerRow]:
        return self._ask(self._committed)

    def _committed(self, connection: Connection[Any]) -> list[LedgerRow]:
        found = connection.execute(
            "SELECT name, checkpoint_id, row_count FROM weir_transactions WHERE writer = %s",
            (self._description.writer,),
        ).fetchall()
        return sorted(LedgerRow(TransactionName.parse(name), number, rows) for name, number, rows in found)

    def retract(self, names: Sequence[TransactionName]) -> int:
        assert self._description.transaction_column is not None, "rows without their transaction are not found again"
        column, texts = quoted(self._description.transaction_column), list(map(str, names))

        def retract(connection: Connection[Any]) -> int:
            with connection.transaction():
                deleted = connection.execute(f"DELETE FROM {self._target} WHERE {column} = ANY(%s)", (texts,))
                connection.execute("DELETE FROM weir_transactions WHERE name = ANY(%s)", (texts,))
            return deleted.rowcount

        return self._ask(retract)

    def forget(self, names: Sequence[TransactionName]) -> None:
        texts = list(map(str, names))
        self._ask(lambda connection: connection.execute("DELETE FROM weir_transactions WHERE name = ANY(%s)", (texts,)))

    def rows(self) -> list[Row]:
        """The rows that a reader sees; empty if the table does not exist."""
        columns = ", ".join(map(quoted, self._description.all_names))

        def read(connection: Connection[Any]) -> list[Row]:
            if not self._columns_found(connection):
                return []
            return connection.execute(f"SELECT {columns} FROM {self._target}").fetchall()

        return self._ask(read)

    # --- upserts ------------------------------------------------------------------------------------------

    def _upsert_statement(self) -> str:
        return upsert_statement(self._description, "%s", self._target)

    def upsert(self, holder: EpochHolder, rows: Sequence[Row], deleted: Sequence[Row]) -> None:
        inserted = self._upsert_statement()
        removed = delete_statement(self._description, "%s", self._target)

        def upsert(connection: Connection[Any]) -> None:
            with connection.transaction(), connection.cursor() as cursor:
                # No session can take over the subtask before this transaction has ended.
                self._check_epoch(connection, holder, "FOR SHARE")
                if deleted:
                    cursor.executemany(removed, deleted)
                if rows:
                    cursor.executemany(inserted, rows)

        try:
            self._ask(upsert)
        except DatabaseError as error:
            cause = error.__cause__
            if isinstance(cause, self._psycopg.Error) and not self._connection.is_broken(cause):
                tried = [*((removed, row) for row in deleted), *((inserted, row) for row in rows)]
                raise self._refused_upsert(cause, tried) from cause
            raise

    def _refused_upsert(self, cause: Exception, tried: Sequence[tuple[str, Row]]) -> DatabaseError:
        # Finds the row by trying each by itself and rolling it back.
        for statement, row in tried:

            def attempt(connection: Connection[Any], statement: str = statement, row: Row = row) -> None:
                with connection.transaction(force_rollback=True):
                    connection.execute(statement, row)

            try:
                self._ask(attempt)
            except DatabaseError as error:
                if isinstance(error.__cause__, self._psycopg.Error):
                    return self._connection.refused(error.__cause__, [], row)
                return error
        return self._connection.refused(cause, [], tried[0][1])

    def close(self) -> None:
        self._give_up()
        self._connection.close()

    def drop(self) -> None:
        self.close()
