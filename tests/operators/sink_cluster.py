"""All subtasks of one sink over its attempts; a coordinator completes checkpoints, or does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.operators.harness import START_NS, Checkpoint, Harness


class SinkCluster:
    """Values go to the subtask of their remainder. A new attempt leaves the tasks before it as they were."""

    def __init__(self, sink: Any, parallelism: int) -> None:
        self.sink = sink
        self.completed: Checkpoint | None = None
        self.next_id = 1
        self.incarnation, self.attempt = 1, 0
        self.now_ns = START_NS
        self.tasks: list[Harness] = []
        self.start(parallelism)

    def start(self, parallelism: int | None = None, order: Sequence[int] | None = None) -> None:
        """A new attempt from the last completed checkpoint."""
        parallelism = len(self.tasks) if parallelism is None else parallelism
        self.attempt += 1
        started = {subtask: self.deploy(subtask, parallelism) for subtask in order or range(parallelism)}
        self.tasks = [started[subtask] for subtask in range(parallelism)]

    def kill(self) -> None:
        for task in self.tasks:
            task.operator.abandon()

    def crash(self, parallelism: int | None = None, order: Sequence[int] | None = None) -> None:
        """The process dies, and another one goes on."""
        self.kill()
        self.start(parallelism, order)

    def deploy(self, subtask: int, parallelism: int) -> Harness:
        operator = self.sink.create_operator()
        try:
            return Harness(
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

    def row_of(self, value: int) -> Any:
        return value

    def write(self, *values: int) -> None:
        for value in values:
            self.tasks[value % len(self.tasks)].process([self.row_of(value)])

    def snapshot(self) -> Checkpoint:
        checkpoint = Checkpoint(self.next_id)
        self.next_id += 1
        for task in self.tasks:
            task.snapshot(checkpoint.id, checkpoint)
        return checkpoint

    def checkpoint(self, *notified: int) -> Checkpoint:
        """Taken and completed; only some subtasks are notified."""
        self.completed = self.snapshot()
        for subtask in notified:
            self.tasks[subtask].complete(self.completed.id)
        return self.completed

    def counter(self, name: str) -> int:
        return sum(task.counter(name) for task in self.tasks)
