"""Shared by all invariants: the tasks at the ends of a channel, the promises of sinks, and reported losses.

A disk may hide or destroy a file that was written in time and still has to be committed. Then no sink can publish its
rows; a sink that reports the loss is honest (:mod:`operators.files.writing.lost_files`). So rows may be missing from
the partition that a report names. No row there may be duplicated or unexpected, and every other partition must be
whole. In return a report must be true: a disk without a fault has lost no file.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.elements.events import StopMode
from engine.explore.cases import AT_LEAST_ONCE, AT_MOST_ONCE, DRAIN, EXACTLY_ONCE, NONE, promise_of
from engine.explore.run import OUTPUT_DIR, CaseView, Invariant, Reference, World, directory_in
from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted
from state_backends.snapshots import CheckpointMetadata, FileStateHandle

DAMAGE = frozenset(
    ("bit-flip", "truncate", "missing", "delete-referenced", "read-error", "stale-listing", "restore-older")
)
"""Faults after which a job may go back to a state older than its committed output."""


class Topology:
    """The names of a plan's tasks and channels, by index of the channel."""

    def __init__(self, plan: ExecutionPlan) -> None:
        name = {(one.vertex, one.subtask): one.name for one in plan.subtasks}
        self.tasks = tuple(name.values())
        self.senders = {one.index: name[one.sender_vertex, one.sender_subtask] for one in plan.channels}
        self.receivers = {one.index: name[one.receiver_vertex, one.receiver_subtask] for one in plan.channels}
        edges = plan.edges
        self.awaited_inputs: dict[str, frozenset[int]] = {
            one.name: frozenset(
                index for index in one.input_channels if not edges[plan.channels[index].edge].is_feedback
            )
            for one in plan.subtasks
        }
        """By task: the inputs that are not back edges."""

    def channel(self, index: int) -> str:
        """``sender->receiver``."""
        return f"{self.senders[index]}->{self.receivers[index]}"


@dataclass(slots=True, eq=False)
class ReadMetadata:
    """The metadata of a snapshot: its bytes, what they mean, and the files that it refers to. All else is known as soon
    as an invariant has looked at it."""

    content: bytes
    metadata: CheckpointMetadata
    files: tuple[FileStateHandle, ...]
    is_canonical: bool | None = None
    """Whether it gives the same bytes when it is written again."""
    canonical_states: set[tuple[str, int]] = field(default_factory=set)
    """Uid and subtask of the keyed states within it that give the same bytes."""


MOST_METADATA_KEPT = 256


@dataclass(slots=True)
class Shared:
    """State shared by the invariants of one case. ``promise``: requested by the user, ``None`` = the mode's."""

    promise: str | None = None
    view: CaseView = field(init=False)
    """Of the running process."""
    topology: Topology = field(init=False)
    topology_plan: ExecutionPlan | None = None
    deliveries: dict[str, str] = field(default_factory=dict)
    """By uid of a sink: the strongest promise that it can keep."""
    newest_completed: int = 0
    """The newest completed checkpoint that is still valid: the job has not gone back to an older one."""
    newest_stop: int = 0
    """The newest completed savepoint that stops the job."""
    went_back: bool = False
    """Whether an attempt began from an older checkpoint than the newest completed one."""
    has_stopped_in_vain: bool = False
    """Whether an attempt began from an older checkpoint after a savepoint that stops the job had committed more."""
    drained: bool = False
    """Whether a job was drained, and another one continued."""
    records_of: set[int] = field(default_factory=set)
    """The channels of whose records some invariant needs to hear now."""
    counted: frozenset[int] = frozenset()
    """Those of which V17 counts all records."""
    _reports: list[Mapping[str, None]] = field(default_factory=list)
    """What each process reports as lost."""
    _reference: Reference | None = None

    def process_started(self, view: CaseView) -> None:
        """Another process began. Each invariant calls this; the first call counts."""
        if not self._reports or view is not self.view:
            self._reports.append(view.execution.manager.deployment.environment.losses)
        self.view = view
        if view.start is not None:
            self.drained |= view.start.order.kind == DRAIN
            self.newest_completed = max(self.newest_completed, view.start.checkpoint_id)
        if self.topology_plan is not view.plan:
            self.topology, self.topology_plan = Topology(view.plan), view.plan

    def completed(self, event: CheckpointCompleted) -> None:
        """A checkpoint exists. Each invariant that needs it calls this; the first call counts."""
        if self.commits(event.checkpoint_id):
            self.newest_completed = max(self.newest_completed, event.checkpoint_id)
            if self.is_savepoint(event.checkpoint_id):
                self.newest_stop = event.checkpoint_id

    def is_savepoint(self, checkpoint_id: int) -> bool:
        """Whether a snapshot that is being taken, or was just completed, is a savepoint."""
        return checkpoint_id in self.view.execution.manager.files.savepoint_locations

    def commits(self, checkpoint_id: int) -> bool:
        """Whether tasks are notified of a snapshot that was just completed. They are not notified of a savepoint after
        which the job continues."""
        return not self.is_savepoint(checkpoint_id) or self.view.execution.manager.savepoints.is_stopping

    @property
    def drains(self) -> bool:
        """Whether event time may end before the input: a job is being drained, or was drained."""
        reports = self.view.execution.manager.savepoints.reports
        return self.drained or any(report.order.stop is StopMode.TERMINATE for report in reports)

    def attempt_started(self, event: AttemptStarted) -> None:
        restored = event.restored_checkpoint or 0
        if restored < self.newest_completed:
            self.went_back = True
            self.has_stopped_in_vain |= restored < self.newest_stop
            self.newest_completed = restored

    def reference(self) -> Reference:
        """Of the case's input; computed when first needed."""
        if self._reference is None:
            self._reference = self.view.subject.reference(self.view.case.dropped)
        return self._reference

    def metadata_of(self, content: bytes, read: Callable[[], ReadMetadata]) -> ReadMetadata:
        """The metadata with these bytes. The cases of a search write the same few again and again, so ``read`` is
        called once for all of them."""
        known: dict[bytes, ReadMetadata] = self.view.subject.kept.setdefault("metadata of snapshots", {})
        found = known.get(content)
        if found is None:
            found = read()
            if len(known) >= MOST_METADATA_KEPT:
                known.clear()
            known[content] = found
        return found

    @property
    def losses(self) -> list[str]:
        """Everything that the job has reported as lost so far."""
        return [loss for reported in self._reports for loss in reported]

    def promise_for(self, partition: str) -> str:
        """The promise by which the output in a partition (``uid`` or ``uid/bucket``) is judged. It is weakened for rows
        that the job itself reports as lost."""
        promise = self._promise_for(partition)
        if not any(self._reports) or not is_reported(self.view.world, partition, self.losses):
            return promise
        is_announcement = partition in self.view.world.announcers
        return AT_MOST_ONCE if promise in (EXACTLY_ONCE, AT_MOST_ONCE) and not is_announcement else NONE

    def _promise_for(self, partition: str) -> str:
        """The mode's promise is that of its state; a sink that cannot take rows back keeps less of it. A promise that
        the user requested holds unchanged."""
        view = self.view
        if self.has_stopped_in_vain and EXACTLY_ONCE in (self.promise, promise_of(view.config.protocol)):
            # Tasks were notified of the savepoint, and one died before the job had stopped. As in Flink the job
            # restarts from its newest checkpoint, which is older.
            return AT_LEAST_ONCE
        if self.went_back and not faults_possible(view).isdisjoint(DAMAGE):
            # No sink can keep a promise if the checkpoint was destroyed after its output had been committed.
            return AT_LEAST_ONCE if EXACTLY_ONCE in (self.promise, promise_of(view.config.protocol)) else NONE
        if self.promise is not None:
            return self.promise
        mine = promise_of(view.config.protocol)
        offered = self.delivery_of(partition)
        if mine == EXACTLY_ONCE and offered == AT_LEAST_ONCE:
            return AT_LEAST_ONCE
        return NONE if offered == NONE else mine

    def delivery_of(self, partition: str) -> str:
        """The strongest promise that the sink of a partition can keep."""
        uid = partition.partition("/")[0]
        known = self.deliveries.get(uid)
        if known is None:
            sink = self.view.world.sinks.get(uid)
            known = self.deliveries[uid] = EXACTLY_ONCE if sink is None else getattr(sink, "delivery", EXACTLY_ONCE)
        return known


class Watcher(Invariant):
    """Base of the invariants of this package.

    ``skipped``  why a case was not judged, if it was not judged.
    """

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__()
        self.shared = Shared() if shared is None else shared
        self.skipped: str | None = None
        self._job = 1

    def process_started(self, view: CaseView) -> None:
        self.shared.process_started(view)
        if view.job != self._job:
            self._job = view.job
            self.job_started(view)

    def job_started(self, view: CaseView) -> None:
        """Another job starts from a savepoint: its checkpoint numbers continue from there, in another directory."""

    @property
    def view(self) -> CaseView:
        """Of the running process."""
        return self.shared.view

    @property
    def topology(self) -> Topology:
        """Of the running plan."""
        return self.shared.topology


def multisets(committed: Mapping[str, list[str]]) -> dict[str, Counter[str]]:
    return {partition: Counter(rows) for partition, rows in committed.items()}


def shown(rows: Any, limit: int = 3) -> str:
    listed = sorted(rows)
    more = f", … ({len(listed)} in all)" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def faults_possible(view: CaseView) -> frozenset[str]:
    return frozenset((*(one.kind for one in view.case.faults), *view.case.mix.per_million))


def is_reported(world: World, partition: str, losses: Iterable[str]) -> bool:
    """Whether one of these reports is about the output in a partition (``uid`` or ``uid/bucket``). A report holds the
    path of a file, or the name of a transaction, which begins with the uid of its sink."""
    uid, _, bucket = partition.partition("/")
    if uid in world.file_outputs:
        place = posixpath.join(world.file_outputs[uid].directory, bucket, "")
    elif uid in world.announcers:
        # The announcement of a table may contain its number of rows.
        place = posixpath.join(directory_in(OUTPUT_DIR, world.announcers[uid].path), "")
    else:
        place = f"'{uid}/"
    return any(place in loss for loss in losses)


def losses_of_files(world: World, losses: Iterable[str]) -> list[str]:
    """The reports that are about files. (A transaction may be lost by its age alone.)"""
    return [loss for loss in losses if any(f"{output.directory}/" in loss for output in world.file_outputs.values())]
