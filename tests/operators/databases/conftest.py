"""A PostgreSQL server for all tests here, and an empty database in it for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from operators.databases import MemoryDatabase, PostgresDatabase, SinkDatabase, SqliteDatabase
from tests.operators.databases.cluster import Cluster, clusters
from tests.postgres_server import PostgresServer, running_server

DATABASE = "tested"
EMPTIED = """
DO $$
DECLARE one record;
BEGIN
    PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
    FOR one IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema)' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', one.nspname);
    END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
    EXECUTE format('ALTER DATABASE %I RESET ALL', current_database());
END $$
"""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running server, in a hurry: it would not survive a power cut."""
    with running_server(fsync=False) as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database, always the same one of a server: creating one takes longer than most tests. After the test it
    is emptied, and its prepared transactions are rolled back."""
    if not postgres_server.execute(f"SELECT FROM pg_database WHERE datname = '{DATABASE}'"):
        postgres_server.execute(f"CREATE DATABASE {DATABASE}")
    yield postgres_server.dsn(DATABASE)
    prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    for (gid,) in postgres_server.execute(prepared, DATABASE):
        postgres_server.execute(f"ROLLBACK PREPARED '{gid}'", DATABASE)
    postgres_server.execute(EMPTIED, DATABASE)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> SinkDatabase:
    """Each database that implements the port, empty."""
    if request.param == "memory":
        return MemoryDatabase()
    return _real_database(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def real_database(request: pytest.FixtureRequest, tmp_path: Path) -> SinkDatabase:
    """The same without the model."""
    return _real_database(request, tmp_path)


def _real_database(request: pytest.FixtureRequest, directory: Path) -> SinkDatabase:
    if request.param == "sqlite":
        return SqliteDatabase(str(directory / "data.sqlite"))
    return PostgresDatabase(request.getfixturevalue("postgres_dsn"), lock_timeout_ms=300)


@pytest.fixture
def postgres_cluster_of(postgres_dsn: str) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that write to PostgreSQL, and disconnects them after the test."""

    def connected(patience: dict[str, Any] | None = None) -> PostgresDatabase:
        return PostgresDatabase(postgres_dsn, **({"lock_timeout_ms": 200} if patience is None else patience))

    with clusters(connected, "patience") as make:
        yield make
