"""The tasks of a job: built for each attempt, put in the place of their predecessors, and started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from engine.checkpoint.coordinator import TaskId
from engine.graph.plan import ExecutionPlan
from engine.observe.trace_events import AttemptStarted
from engine.runtime.config import RunConfig
from engine.runtime.job.job_state import JobProgress
from engine.runtime.job.record_counts import RecordCounts
from engine.runtime.storage import CheckpointFiles, RestoredJob
from engine.runtime.tasks import CREATED, LOCAL, REMOTE, Task, TaskEnvironment, build_tasks

Region = tuple[TaskId, ...]
"""Tasks in plan order."""


def single_task_regions(plan: ExecutionPlan) -> tuple[Region, ...]:
    """Each task is a region: the tasks that live send the records of a dead one again."""
    return tuple(((subtask.vertex, subtask.subtask),) for subtask in plan.subtasks)


def failover_regions(plan: ExecutionPlan) -> tuple[Region, ...]:
    """The regions of a plan, ordered by their first task; together they are all tasks (Flink:
    ``PipelinedRegionComputeUtil``).

    All channels of Weir are pipelined: records that a task has sent cannot be sent again without the task. So tasks
    that exchange records, directly or through others, in either direction, must go back to a checkpoint together. A
    region is a weakly connected component of the graph of subtasks; there are no channels between two regions.
    """
    leader = {(subtask.vertex, subtask.subtask): (subtask.vertex, subtask.subtask) for subtask in plan.subtasks}

    def leader_of(task: TaskId) -> TaskId:
        while leader[task] != task:
            leader[task] = task = leader[leader[task]]
        return task

    for channel in plan.channels:
        sender = leader_of((channel.sender_vertex, channel.sender_subtask))
        receiver = leader_of((channel.receiver_vertex, channel.receiver_subtask))
        leader[max(sender, receiver)] = min(sender, receiver)
    regions: dict[TaskId, list[TaskId]] = {}
    for task in leader:
        regions.setdefault(leader_of(task), []).append(task)
    return tuple(tuple(region) for region in regions.values())


@dataclass(frozen=True, slots=True)
class Restore:
    """How one attempt began: from ``checkpoint_id``, or from nothing; ``problems`` are checkpoints passed over;
    ``tasks``: which were deployed, ``None`` = all."""

    attempt: int
    checkpoint_id: int | None
    time_ns: int
    problems: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None
    failed_ns: int | None = None
    """When the failure began that ended the attempt before."""
    read_ns: int = 0
    """How long the slowest task read its state."""
    remote_bytes: int = 0
    """What all of them read from checkpoint storage."""
    local_bytes: int = 0
    """What they read from the copies beside them."""


class TaskDeployment:
    """The tasks that are deployed. ``environment`` is the part that tasks of all attempts share."""

    def __init__(
        self, environment: TaskEnvironment, config: RunConfig, files: CheckpointFiles, job: JobProgress
    ) -> None:
        self.environment = environment
        self.tasks: dict[TaskId, Task] = {}
        self.counts = RecordCounts(self.tasks)
        self.restores: list[Restore] = []
        self._credit = config.credit
        self._files = files
        self._job = job

    def is_everything(self, ids: Region) -> bool:
        """Whether these are all tasks, and no region."""
        return len(ids) == len(self._files.plan.subtasks)

    def build(self, ids: Region, restored: RestoredJob | None, problems: tuple[str, ...]) -> dict[TaskId, Task]:
        """Build these tasks, which are all or a region, as the next attempt. They take the place of their predecessors;
        none is started."""
        common, plan, job, everything = self.environment, self._files.plan, self._job, self.is_everything(ids)
        job.attempt += 1
        now, checkpoint_id = common.kernel.now_ns, None if restored is None else restored.checkpoint_id
        self.counts.replaced(ids, checkpoint_id, common.sources.records)
        is_from_elsewhere = restored is not None and self._files.is_adopted(restored.checkpoint_id)
        environment = replace(common, plan=plan, attempt=job.attempt, starts_from_another_run=is_from_elsewhere)
        if everything or common.tracking is None:
            tasks = build_tasks(plan, environment, restored, self._credit, only=None if everything else ids)
        else:
            tasks = common.tracking.replace_tasks(plan, environment, ids, self.tasks)
        names = None if everything else tuple(task.name for task in tasks.values())
        self.restores.append(Restore(job.attempt, checkpoint_id, now, problems, names, job.failed_ns))
        job.failed_ns = None
        if common.instrument is not None:
            common.instrument(AttemptStarted(now, job.attempt, checkpoint_id))
        if everything:
            self.tasks.clear()
        self.tasks.update(tasks)
        self.counts.deployed(ids)
        return tasks

    def start(self, tasks: Iterable[Task], restored: RestoredJob | None) -> None:
        """Start tasks that were built, each with its part of ``restored``."""
        for task in tasks:
            if task.life.state != CREATED:
                # It has died while records in flight were put back.
                continue
            if restored is not None and task.place.plan.vertex in restored.finished_vertices:
                task.end.start_finished()
            elif task.place.hook is None:
                self._start(task, restored)
            else:
                # The other tasks are deployed nevertheless: each is in a process of its own.
                with task.place.hook.alone():
                    self._start(task, restored)

    def read(self, tasks: Mapping[TaskId, Task]) -> dict[TaskId, int]:
        """Have tasks that were started take the time that it takes to read their state. Returns for how many ns each
        of them does, if it is one that runs and does at all."""
        environment, found = self.environment, dict[TaskId, int]()
        remote = {task_id: task.restored_bytes(REMOTE) for task_id, task in tasks.items()}
        local = {task_id: task.restored_bytes(LOCAL) for task_id, task in tasks.items()}
        times, cost, now = environment.storage_times, environment.cost, environment.kernel.now_ns
        if times is not None and cost.has_restore_times:
            for task_id, task in tasks.items():
                read_ns = times.read_ns(now, remote[task_id], local[task_id])
                if read_ns and task.life.is_running:
                    task.rest(read_ns)
                    found[task_id] = read_ns
        self.restores[-1] = replace(
            self.restores[-1],
            read_ns=max(found.values(), default=0),
            remote_bytes=cost.virtual_bytes(sum(remote.values())),
            local_bytes=cost.virtual_bytes(sum(local.values())),
        )
        return found

    def _start(self, task: Task, restored: RestoredJob | None) -> None:
        if restored is None:
            task.start({}, None)
        else:
            uids = {context.uid for context in task.chain.contexts}
            task.start(restored.for_task(task.place.plan.subtask, uids), restored.checkpoint_id)
