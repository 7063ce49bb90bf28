"""All subtasks of one database sink over its attempts; a coordinator completes checkpoints, or does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from operators.databases import DatabaseSink, Row, SinkDatabase
from tests.operators.harness import Harness
from tests.operators.sink_cluster import SinkCluster

IMPATIENT: dict[str, Any] = {"reconnects": 1, "reconnect_wait_s": 0.0, "lock_timeout_ms": 200}
"""Options of a database client that waits at most 200 ms for a lock, and reconnects once without waiting."""

COLUMNS = {"number": "BIGINT NOT NULL", "text": "TEXT"}


class Cluster(SinkCluster):
    """The tasks before a new attempt are zombies, unless :meth:`kill` came first."""

    def __init__(self, database: SinkDatabase, parallelism: int = 1, **options: Any) -> None:
        self.database = database
        self.everybody: list[Harness] = []
        super().__init__(DatabaseSink(database, "numbers", options.pop("columns", COLUMNS), **options), parallelism)

    def deploy(self, subtask: int, parallelism: int) -> Harness:
        self.everybody.append(super().deploy(subtask, parallelism))
        return self.everybody[-1]

    def row_of(self, value: int) -> Row:
        return (value, f"text {value}")

    def rows(self) -> list[Row]:
        return self.database.rows(self.sink.describe("op-uid"))

    def visible(self) -> list[int]:
        return sorted(row[0] for row in self.rows())

    def unfinished(self) -> list[str]:
        """Transactions in the database that are neither committed nor aborted."""
        session = self.database.connect(self.sink.describe("op-uid"), str)
        try:
            return list(map(str, session.unfinished()))
        finally:
            session.close()

    def close(self) -> None:
        for task in self.everybody:
            task.operator.abandon()


@contextmanager
def clusters(connect: Callable[..., SinkDatabase], *connecting: str) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters, and disconnects them in the end; ``connect`` takes the options that ``connecting`` names."""
    made: list[Cluster] = []

    def make(parallelism: int = 1, **options: Any) -> Cluster:
        database = connect(**{name: options.pop(name) for name in connecting if name in options})
        made.append(Cluster(database, parallelism, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def execute(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement in a connection of its own."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description is not None else []


def prepared(dsn: str) -> list[str]:
    """Global names of the prepared transactions in this database."""
    found = execute(dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid")
    return [gid for (gid,) in found]
