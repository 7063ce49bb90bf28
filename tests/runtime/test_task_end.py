"""How one task comes to its end, without the task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from engine.runtime.task import Task
from engine.runtime.task_end import TaskEnd


class FakeTask:
    """What the end of a task needs of it; ``told`` is what it was asked to do."""

    name = "fake[0]"
    is_running = True
    input_ended = False

    def __init__(self) -> None:
        self.told: list[str] = []
        self.inputs: list[Any] = []
        self.environment = SimpleNamespace(
            protocol=SimpleNamespace(takes_checkpoints=False, stores_channel_state=False)
        )
        self.checkpointing = SimpleNamespace(is_writing=False, end_of_data=lambda: self.told.append("last snapshot"))
        self.timers = SimpleNamespace(silence=lambda: self.told.append("silence"))
        self.operators = [SimpleNamespace(finish=lambda: self.told.append("finish"))]
        self.end = TaskEnd(cast("Task", self), [])

    def broadcast(self, event: object) -> None:
        """Whoever reads is told."""
        self.told.append(type(event).__name__)

    def finish_operator(self, operator: Any) -> None:
        """As the task does."""
        operator.finish()

    def finish(self) -> None:
        """As the task does."""
        self.end.finish()

    def finish_now(self) -> None:
        """Close."""
        self.told.append("close")


def test_timers_are_quiet_before_operators_finish() -> None:
    """What a timer emitted behind the end of data would come too late for whoever reads."""
    task = FakeTask()
    task.end.end_input()

    assert task.input_ended
    assert task.told == ["silence", "finish", "last snapshot", "EndOfData"]


def test_a_task_that_is_writing_a_snapshot_closes_behind_it() -> None:
    """A checkpoint that all others complete is not abandoned by a task that is done."""
    task = FakeTask()
    task.checkpointing.is_writing = True
    task.finish()
    assert task.told == []
    assert task.end.is_closing

    task.checkpointing.is_writing = False
    task.end.snapshots_written()
    assert task.told == ["close"]


def test_the_end_of_a_snapshot_closes_nobody_who_is_at_work() -> None:
    """A task that has more to do goes on when a snapshot is written."""
    task = FakeTask()
    task.end.snapshots_written()

    assert task.told == []
