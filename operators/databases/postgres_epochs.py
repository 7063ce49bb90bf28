"""Fencing in PostgreSQL: the epoch of each subtask of a writer, and the backend that holds it.

A takeover terminates the backends of earlier epochs, because an open transaction of a zombie would hold locks for ever.
If the server forbids that, the zombie is still fenced: its next request that checks its epoch fails.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from operators.databases.database_session import EpochHolder, FencedError, TransactionName
from operators.databases.postgres_connection import imported_psycopg

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresEpochs:
    """The epochs of one writer; each call uses the given ``connection``."""

    def __init__(self, writer: str) -> None:
        self._writer = writer

    def take_over(self, connection: Connection[Any], subtask: int, parallelism: int) -> int:
        writer, mine = self._writer, "writer = %s AND subtask %% %s = %s"
        parameters = (writer, parallelism, subtask % parallelism)
        with connection.transaction():
            connection.execute("INSERT INTO weir_epochs VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", (writer, subtask))
            held = connection.execute(
                f"SELECT epoch, backend, backend_start FROM weir_epochs WHERE {mine} ORDER BY subtask FOR UPDATE",
                parameters,
            ).fetchall()
            epoch = 1 + max(int(one[0]) for one in held)
            # The earlier holder stays stored: the takeover may break off here, and is then repeated.
            connection.execute(f"UPDATE weir_epochs SET epoch = %s WHERE {mine}", (epoch, *parameters))
        for _, backend, started in held:
            if backend is not None:
                _terminate(connection, backend, started)
        return epoch

    def hold(self, connection: Connection[Any], holder: TransactionName) -> None:
        """Store that this connection has open transactions of ``holder``, if its epoch is the newest."""
        connection.execute(
            "UPDATE weir_epochs SET backend = pg_backend_pid(), backend_start = (SELECT backend_start FROM"
            " pg_stat_activity WHERE pid = pg_backend_pid()) WHERE writer = %s AND subtask = %s AND epoch = %s",
            (self._writer, holder.subtask, holder.epoch),
        )

    def check(
        self, connection: Connection[Any], place: str, holder: TransactionName | EpochHolder, lock: str = ""
    ) -> None:
        """Raises :class:`FencedError` when the holder's epoch is over."""
        found = connection.execute(
            f"SELECT epoch FROM weir_epochs WHERE writer = %s AND subtask = %s {lock}", (self._writer, holder.subtask)
        ).fetchone()
        if found is not None and holder.epoch < found[0]:
            raise FencedError(place, self._writer, holder.subtask, holder.epoch, found[0])


def _terminate(connection: Connection[Any], backend: int, started: object) -> None:
    wait = ", 5000" if connection.info.server_version >= 140000 else ""
    with suppress(imported_psycopg().errors.InsufficientPrivilege):
        connection.execute(
            f"SELECT pg_terminate_backend(pid{wait}) FROM pg_stat_activity"
            " WHERE pid = %s AND backend_start = %s AND pid <> pg_backend_pid()",
            (backend, started),
        )
