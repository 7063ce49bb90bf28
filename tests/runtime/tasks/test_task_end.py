"""How one task comes to its end, without the task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.runtime.kernel import nothing_around
from engine.runtime.tasks.operator_chain import OperatorChain
from engine.runtime.tasks.task_end import TaskEnd


class Finishing(Operator):
    """An operator that has work left to do at the end."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def process_batch(self, batch: Batch) -> None:
        """Nothing comes here."""

    def finish(self) -> None:
        self._told.append("finish")


class FakeTask:
    """The parts of a task that its end uses; ``told`` lists what it was asked to do."""

    is_running = True

    def __init__(self) -> None:
        self.told: list[str] = []
        protocol = SimpleNamespace(takes_checkpoints=False)
        place: Any = SimpleNamespace(
            kernel=None,
            plan=SimpleNamespace(input_channels=(0,)),
            vertex=SimpleNamespace(is_source=False, operators=()),
            environment=SimpleNamespace(protocol=protocol, master=self),
            around=nothing_around,
        )
        chain = OperatorChain(place, 0, [])
        chain.operators = [Finishing(self.told)]
        self.checkpointing = SimpleNamespace(
            is_writing=False, end_of_data=lambda: self.told.append("last snapshot"), abandon=lambda: None
        )
        timers = SimpleNamespace(quiesce=lambda: self.told.append("silence"))
        parts: Any = (place, self, chain, timers, self.checkpointing, [self])
        self.end = TaskEnd(self, *parts, back_edges=[])

    def broadcast(self, event: object) -> None:
        self.told.append(type(event).__name__)

    def trace_state(self, state: str) -> None:
        self.told.append(state)

    def task_reached_end(self, _task: object) -> None:
        """The job manager hears of the end of data."""

    def survives(self, _step: object) -> bool:
        return False


def test_timers_are_quiet_before_operators_finish() -> None:
    """Records that a timer emitted after the end of data would come too late for the receivers."""
    task = FakeTask()
    task.end.end_input()

    assert task.end.input_ended
    assert task.told == ["silence", "finish", "last snapshot", "EndOfData", "end_of_data"]


def test_a_task_that_is_writing_a_snapshot_closes_behind_it() -> None:
    """A task that has finished does not abandon a checkpoint that all others complete."""
    task = FakeTask()
    task.checkpointing.is_writing = True
    task.end.finish()
    assert task.told == []
    assert task.end.is_closing

    task.checkpointing.is_writing = False
    task.end.finish()
    assert task.told == ["EndOfPartition"]


def test_timers_are_quiet_after_the_savepoint_that_stops_the_job() -> None:
    """They are in the savepoint: if they fired now, they would fire again in a resumed run."""
    task = FakeTask()
    task.end.await_stop()

    assert task.end.is_stopping
    assert task.told == ["silence"]
