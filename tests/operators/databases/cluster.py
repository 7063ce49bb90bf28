"""All subtasks of one database sink over its attempts; a coordinator completes checkpoints, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operators.databases import DatabaseSink, Row, SinkDatabase
from tests.operators.harness import START_NS, Checkpoint, Harness

IMPATIENT: dict[str, Any] = {"reconnects": 1, "reconnect_wait_s": 0.0, "lock_timeout_ms": 200}
"""Options of a database that waits for nobody."""

COLUMNS = {"number": "BIGINT NOT NULL", "text": "TEXT"}


class Cluster:
    """Numbers go to the subtask of their remainder. A new attempt leaves what ran before as it was: a zombie, unless
    :meth:`kill` came first."""

    def __init__(self, database: SinkDatabase, parallelism: int = 1, **options: Any) -> None:
        self.database = database
        self.sink = DatabaseSink(database, "numbers", options.pop("columns", COLUMNS), **options)
        self.completed: Checkpoint | None = None
        self.next_id = 1
        self.incarnation, self.attempt = 1, 0
        self.now_ns = START_NS
        self.tasks: list[Harness] = []
        self.everybody: list[Harness] = []
        self.start(parallelism)

    def start(self, parallelism: int | None = None, order: Sequence[int] | None = None) -> None:
        """A new attempt from the last completed checkpoint."""
        parallelism = len(self.tasks) if parallelism is None else parallelism
        self.attempt += 1
        started = {subtask: self.deploy(subtask, parallelism) for subtask in order or range(parallelism)}
        self.tasks = [started[subtask] for subtask in range(parallelism)]

    def deploy(self, subtask: int, parallelism: int) -> Harness:
        operator = self.sink.create_operator()
        try:
            harness = Harness(
                operator,
                subtask=subtask,
                parallelism=parallelism,
                attempt=self.attempt,
                incarnation=self.incarnation,
                now_ns=self.now_ns,
                restored=self.completed,
            )
        except BaseException:
            operator.abandon()
            raise
        self.everybody.append(harness)
        return harness

    def kill(self) -> None:
        """The process dies."""
        for task in self.tasks:
            task.operator.abandon()

    def crash(self, parallelism: int | None = None) -> None:
        """The process dies, and another one goes on."""
        self.kill()
        self.start(parallelism)

    def write(self, *values: int) -> None:
        for value in values:
            self.tasks[value % len(self.tasks)].process([(value, f"text {value}")])

    def snapshot(self) -> Checkpoint:
        checkpoint = Checkpoint(self.next_id)
        self.next_id += 1
        for task in self.tasks:
            task.snapshot(checkpoint.id, checkpoint)
        return checkpoint

    def checkpoint(self, *notified: int) -> Checkpoint:
        """Taken and completed; only some are told."""
        self.completed = self.snapshot()
        for subtask in notified:
            self.tasks[subtask].complete(self.completed.id)
        return self.completed

    def rows(self) -> list[Row]:
        return self.database.rows(self.sink.describe("op-uid"))

    def visible(self) -> list[int]:
        return sorted(row[0] for row in self.rows())

    def counter(self, name: str) -> int:
        return sum(task.counter(name) for task in self.tasks)

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


def execute(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    """Run one statement in a connection of its own."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description is not None else []


def prepared(dsn: str) -> list[str]:
    """Global names of what waits in this database."""
    found = execute(dsn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid")
    return [gid for (gid,) in found]
