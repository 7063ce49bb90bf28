"""The parts that tracking of records adds to the tasks of a run. They are absent when records are not tracked.

Tasks know no more of acking than this; the parts are built in :mod:`engine.runtime.acking`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from engine.checkpoint.coordinator import TaskId
from engine.elements.batch import Batch
from engine.graph.partitioner import Router
from engine.graph.plan import ExecutionPlan
from engine.runtime.channels import Channel

if TYPE_CHECKING:
    from engine.runtime.tasks.environment import TaskEnvironment
    from engine.runtime.tasks.source_task import SourceTask
    from engine.runtime.tasks.task import Task


class TaskTracking(Protocol):
    """Tracks what one task handles and sends."""

    def receiver(self, process: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """Receives the records of an input, and acknowledges them."""

    def router(self, router: Router) -> Router:
        """Sends records on, and tracks them."""

    def task_died(self) -> None:
        """The task has failed, or was cancelled."""

    def fingerprint(self) -> object:
        """State that determines future messages about records."""


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

    def for_task(self, task: Task) -> TaskTracking:
        """The part of a task that is being built."""

    def for_source(self, task: SourceTask) -> SourceTracking:
        """One more part of a source that is being built."""

    def replace_tasks(
        self, plan: ExecutionPlan, environment: TaskEnvironment, ids: Collection[TaskId], tasks: Mapping[TaskId, Task]
    ) -> dict[TaskId, Task]:
        """Successors of some of ``tasks``, which are dead, on their channels; none is started."""
