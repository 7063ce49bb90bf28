"""How many records the tasks of a run have handled, attempt by attempt, and how many its sources have read again.

Rules.

* A task counts from its deployment on. When it takes the place of a predecessor, the predecessor's counts are added up.
  In mode ``acking`` it takes over their channels, whose counters go on; so their values at that time are subtracted.
* A source that goes back to a checkpoint will read again all records that it has read beyond it; in mode ``acking``,
  beyond the positions committed last. Each record read after that counts as read again, until all of these are.
* Nothing is counted here per record: the tasks and channels count anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.checkpoint.coordinator import TaskId
from engine.runtime.channels import RecordWriter
from engine.runtime.storage import TaskSnapshot
from engine.runtime.tasks import TaskLife, TaskPlace, TaskTimes

_NOTHING = (0, 0)
_NO_TIME = TaskTimes()


class CountedTask(Protocol):
    """A task that counts its records."""

    place: TaskPlace
    life: TaskLife
    writers: list[RecordWriter]
    records_out: int
    """Of a source: records read."""

    @property
    def records_in(self) -> int:
        """Records taken from all inputs."""

    @property
    def times_ns(self) -> TaskTimes:
        """How it has passed the time of its attempt."""

    @property
    def committed_records(self) -> int | None:
        """Of a source: records that no successor reads again; ``None``: its checkpoint decides."""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The counts of one subtask in its last attempt, and in all of them together."""

    name: str
    vertex: str
    subtask: int
    records_in: int
    records_out: int
    state: str
    attempt: int = 1
    """Its last one: that of the run, or an older one if it lived on while others were deployed anew."""
    total_records_in: int = 0
    total_records_out: int = 0
    times: TaskTimes = _NO_TIME
    """How it has passed its time, in all attempts together."""


class RecordCounts:
    """The counts of one run. ``tasks``: those of the present attempts."""

    def __init__(self, tasks: Mapping[TaskId, CountedTask]) -> None:
        self._tasks = tasks
        self._past_times: dict[TaskId, TaskTimes] = {}
        self._past: dict[TaskId, tuple[int, int]] = {}
        """Records in and out of earlier attempts."""
        self._taken_over: dict[TaskId, tuple[int, int]] = {}
        """The counters of a task's channels when it was deployed."""
        self._begins_at: dict[TaskId, int] = {}
        """Records that a source has passed when it is deployed, since the start of the run."""
        self._read_at: dict[int, dict[TaskId, int]] = {}
        """By checkpoint: records that each source has passed."""
        self._owed = self._read_again = self._counted_up_to = 0

    def completed(
        self, checkpoint_id: int, snapshots: Mapping[TaskId, TaskSnapshot], retained: Iterable[int]
    ) -> None:
        """Every task has acknowledged a checkpoint. ``retained``: others that a restore may go back to."""
        read_at = {one: self._read_at[one] for one in retained if one in self._read_at}
        read_at[checkpoint_id] = {
            # A task without a part in it had finished before, and reads no more.
            task_id: self._begins_at.get(task_id, 0)
            + (snapshots[task_id].read if task_id in snapshots else task.records_out)
            for task_id, task in self._tasks.items()
            if task.place.vertex.is_source
        }
        self._read_at = read_at

    def replaced(self, ids: Iterable[TaskId], checkpoint_id: int | None, source_records: int) -> None:
        """The tasks at these places are gone, if there were any. Others come, from a checkpoint or from the
        beginning."""
        self._owed, self._read_again = self._owed - self._since(source_records), self.read_again(source_records)
        self._counted_up_to = source_records
        read_at = {} if checkpoint_id is None else self._read_at.get(checkpoint_id, {})
        for task_id in ids:
            task = self._tasks.get(task_id)
            if task is None:
                continue
            self._past[task_id] = _sum(self._past.get(task_id, _NOTHING), self._of_attempt(task))
            self._past_times[task_id] = self._past_times.get(task_id, _NO_TIME).plus(task.times_ns)
            if task.place.vertex.is_source:
                begun_at, committed = self._begins_at.get(task_id, 0), task.committed_records
                behind = read_at.get(task_id, 0) if committed is None else begun_at + committed
                self._owed += begun_at + task.records_out - behind
                self._begins_at[task_id] = behind

    def deployed(self, ids: Iterable[TaskId]) -> None:
        """These tasks begin."""
        for task_id in ids:
            self._taken_over[task_id] = _shown(self._tasks[task_id])

    def read_again(self, source_records: int) -> int:
        """How many of the ``source_records`` records read had been read before."""
        return self._read_again + self._since(source_records)

    def reports(self) -> tuple[TaskReport, ...]:
        """The counts of each task."""
        return tuple(self._report(task) for task in self._tasks.values())

    def _report(self, task: CountedTask) -> TaskReport:
        place, own = task.place, self._of_attempt(task)
        total = _sum(self._past.get(place.task_id, _NOTHING), own)
        state = task.life.state
        times = self._past_times.get(place.task_id, _NO_TIME).plus(task.times_ns)
        return TaskReport(place.name, place.vertex.name, place.plan.subtask, *own, state, place.attempt, *total, times)

    def _of_attempt(self, task: CountedTask) -> tuple[int, int]:
        before_in, before_out = self._taken_over.get(task.place.task_id, _NOTHING)
        shown_in, shown_out = _shown(task)
        return shown_in - before_in, shown_out - before_out

    def _since(self, source_records: int) -> int:
        return min(self._owed, source_records - self._counted_up_to)


def _shown(task: CountedTask) -> tuple[int, int]:
    return task.records_in, sum([channel.sent_records for writer in task.writers for channel in writer.channels])


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]
