"""Connections to PostgreSQL, with renewal of broken ones, and the meaning of its errors.

When a connection breaks, repeatable requests are repeated over a new one, because a restarting server comes back. A
caller that cannot repeat its requests opens a connection and keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from engine.elements.errors import ConfigurationError, MissingDependencyError
from operators.databases.database_session import DatabaseError, Row, RowRefusedError
from operators.databases.waiting import wait_s

if TYPE_CHECKING:
    from psycopg import Connection

_T = TypeVar("_T")

_AWAY = ("57P01", "57P02", "57P03", "57P05", "53300")
"""Shut down, crashed, starting up; idle for too long; too many connections for a moment. Class 08 is about connections
as well."""
_LONGEST_WAIT_S = 2.0
_LINE_OF_COPY = re.compile(r"COPY .*?, \D*(\d+)", re.DOTALL)
_COLUMN_OF_COPY = re.compile(r", column ([^:]+):")


def imported_psycopg() -> Any:
    """The module. Raises :class:`MissingDependencyError`."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingDependencyError(
            "PostgreSQL needs the package psycopg, which is not installed\n  fix: pip install 'weirstream[postgres]'"
        ) from error
    return psycopg


class PostgresServer(NamedTuple):
    """How to reach a database of a server; see :class:`operators.databases.postgres_database.PostgresDatabase`."""

    dsn: str
    reconnects: int
    reconnect_wait_s: float
    lock_timeout_ms: int
    connect_timeout_s: int

    def open_connection(self) -> Connection[Any]:
        """A connection with our settings. Raises psycopg's errors, and :class:`ConfigurationError` for a bad dsn."""
        psycopg = imported_psycopg()
        try:
            connection: Connection[Any] = psycopg.connect(
                self.dsn, autocommit=True, connect_timeout=self.connect_timeout_s, application_name="weir"
            )
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(f"dsn of PostgresDatabase: {error}") from error
        try:
            # Commits stay durable, whatever the server's default is. An open transaction may wait for records without
            # limit, and sees which session has taken over its subtask since it began.
            connection.execute(
                "SELECT set_config('lock_timeout', %s, false), set_config('idle_in_transaction_session_timeout', '0',"
                " false), set_config('default_transaction_isolation', 'read committed', false),"
                " set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') = 'off'"
                " THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
                (f"{self.lock_timeout_ms}ms",),
            )
        except BaseException:
            connection.close()
            raise
        return connection


class PostgresConnection:
    """Connections of one session, for one table."""

    def __init__(self, server: PostgresServer, table: str) -> None:
        self._psycopg = imported_psycopg()
        self._server, self._table = server, table
        self.place = f"table {table!r} in PostgreSQL"
        self._control: Connection[Any] | None = None

    def open(self) -> Connection[Any]:
        """A connection that only the caller uses."""
        try:
            connection = self._server.open_connection()
        except self._psycopg.Error as error:
            raise self.explained(error) from error
        self.place = f"table {self._table!r} of database {connection.info.dbname!r} on {connection.info.host}"
        return connection

    def ask(self, request: Callable[[Connection[Any]], _T]) -> _T:
        """The answer to a request that may be repeated. Raises :class:`DatabaseError`."""
        wait = self._server.reconnect_wait_s
        for left in range(self._server.reconnects, -1, -1):
            try:
                if self._control is None:
                    self._control = self.open()
                return request(self._control)
            except (self._psycopg.Error, DatabaseError) as error:
                cause = error.__cause__ if isinstance(error, DatabaseError) else error
                is_broken = self.is_broken(cause)
                if is_broken:
                    self.close()
                if not (is_broken and left):
                    if isinstance(error, DatabaseError):
                        raise
                    raise self.explained(error) from error
            wait_s(wait)
            wait = min(2 * wait, _LONGEST_WAIT_S)
        raise AssertionError("the last round returns or raises")

    def is_broken(self, error: BaseException | None) -> bool:
        """Whether the server is away, or has closed the connection: a new connection may work."""
        state = getattr(error, "sqlstate", None)
        if state is None:
            return isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)
        return state.startswith("08") or state in _AWAY

    def explained(self, error: Exception) -> DatabaseError:
        """The error that the server, or the network, reports."""
        state = getattr(error, "sqlstate", None)
        message = f"{self.place}: {str(error).strip() or type(error).__name__}"
        if state == "55P03":
            message += (
                f"\n  a lock was not to be had within {self._server.lock_timeout_ms} ms. A transaction that waits for"
                " its checkpoint keeps its locks, so that two of them cannot insert the same unique key\n"
                "  fix: drop the unique constraint, use UpsertSink, or raise lock_timeout_ms"
            )
        elif state == "53200" and "prepared" in str(error):
            message += "\n  fix: raise max_prepared_transactions in postgresql.conf and restart the server"
        return DatabaseError(message)

    def refused(self, error: Exception, rows: Sequence[Row], last: Row) -> DatabaseError:
        """The server's or psycopg's objection to one of ``rows`` in a COPY, or to ``last``."""
        psycopg = self._psycopg
        of_row = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
        if not of_row and (self.is_broken(error) or getattr(error, "sqlstate", None) is not None):
            return self.explained(error)
        diagnosis = getattr(error, "diag", None)
        context, column = getattr(diagnosis, "context", None) or "", getattr(diagnosis, "column_name", None)
        row: object = last
        if found := _LINE_OF_COPY.match(context):
            row = rows[int(found[1]) - 1] if int(found[1]) <= len(rows) else last
            if column is None and (named := _COLUMN_OF_COPY.search(context)):
                column = named[1]
        why = getattr(diagnosis, "message_primary", None) or str(error)
        detail = getattr(diagnosis, "message_detail", None)
        return RowRefusedError(self.place, f"{why} ({detail})" if detail else why, row, column)

    def close(self) -> None:
        """Close the connection for requests; the next request opens another one."""
        if self._control is not None:
            self._control.close()
            self._control = None
