"""The parts that tracking of records adds to the tasks of a run. They are absent when records are not tracked.

Tasks know no more of acking than this; the parts are built in :mod:`engine.runtime.acking`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from engine.checkpoint.coordinator import TaskId
from engine.elements.batch import Batch
from engine.elements.record_tracking import RecordTracking
from engine.graph.partitioner import Router
from engine.graph.plan import ExecutionPlan
from engine.runtime.channels import Channel

if TYPE_CHECKING:
    from engine.runtime.tasks.environment import TaskEnvironment, TaskPlace
    from engine.runtime.tasks.task import Task
    from operators.sources import SourceOperator


class TaskTracking(RecordTracking, Protocol):
    """Tracks what one task handles and sends."""

    def receiver(self, process: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """Receives the records of an input, and acknowledges them."""

    def router(self, router: Router) -> Router:
        """Sends records on, and tracks them."""

    def task_died(self, inputs: Iterable[Channel], outputs: Iterable[Channel]) -> None:
        """The task on these channels has failed, or was cancelled."""

    def fingerprint(self) -> object:
        """State that determines future messages about records."""


class TrackedSource(Protocol):
    """The task of a source, and the mail for it."""

    @property
    def source(self) -> SourceOperator:
        """The head of its chain."""

    def count(self, emitted: int) -> None:
        """So many records were read."""

    def end_stream(self) -> None:
        """Nothing is left to read, and nothing to send again."""

    def wake(self) -> None:
        """There may be something to send."""


class SourceTracking(Protocol):
    """Reads a source, and sends again records that are not acknowledged."""

    def before_open(self) -> None:
        """The operators are about to open."""

    def opened(self) -> None:
        """The operators are open."""

    def records_due(self) -> int:
        """How many records may be sent now."""

    def send(self) -> None:
        """Send one record."""

    def before_end(self) -> None:
        """The stream is about to end."""

    @property
    def committed_records(self) -> int:
        """Records of this attempt before the positions that were committed last."""

    def fingerprint(self) -> object:
        """State that determines which records are sent next."""


class RunTracking(Protocol):
    """Tracks the records of one run."""

    @property
    def channel_class(self) -> type[Channel]:
        """The class of channels that outlive the tasks at their ends."""

    def for_task(self, place: TaskPlace) -> TaskTracking:
        """The part of the task that is being built at a place."""

    def for_source(self, task: TrackedSource, place: TaskPlace, tracking: TaskTracking) -> SourceTracking:
        """One more part of a source that is being built."""

    def replace_tasks(
        self, plan: ExecutionPlan, environment: TaskEnvironment, ids: Collection[TaskId], tasks: Mapping[TaskId, Task]
    ) -> dict[TaskId, Task]:
        """Successors of some of ``tasks``, which are dead, on their channels; none is started."""
