"""A PostgreSQL server that is killed under the jobs of a campaign, and started again without waiting for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.postgres_server import PostgresServer


class KilledServer(PostgresServer):
    """A server with a database for each job; it flushes what it commits."""

    def __init__(self) -> None:
        super().__init__(fsync=True)
        self._waits = True
        self._databases = 0

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[KilledServer]:
        """A running server, while the block runs."""
        server = cls()
        try:
            server.start()
            yield server
        finally:
            server.remove()

    def begin(self) -> None:
        """Start it, and return before it takes connections."""
        self._waits = False
        try:
            self.start()
        finally:
            self._waits = True

    def wait_until_ready(self) -> None:
        if self._waits:
            super().wait_until_ready()

    def new_database(self) -> str:
        self._databases += 1
        name = f"killed_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.dsn(name)

    def prepared(self, dsn: str) -> list[tuple[object, ...]]:
        """Transactions that are still prepared in that database."""
        name = dsn.rpartition("dbname=")[2]
        return self.execute(f"SELECT gid FROM pg_prepared_xacts WHERE database = '{name}'")
