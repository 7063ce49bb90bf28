"""The job manager: deploys attempts, drives the checkpoint coordinator, hears what tasks report.

Theory of operation.

* An *attempt* is one deployment of tasks. After a failure what has failed is deployed anew, as the next attempt, from
  the newest usable completed checkpoint, or from nothing (:mod:`engine.runtime.job.failover`). What is still under way
  to or from tasks of an older attempt is ignored: acknowledgements by their attempt number, elements and mail because
  a dead task takes none.
* The coordinator is a pure machine; the checkpoint driver carries out its instructions. Checkpoints begin once all
  tasks run: one with restored records in flight does not yet.
* A bounded job ends in order, see :mod:`engine.runtime.job.end_of_input`. Without checkpoints its tasks finish at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointCoordinator,
    CheckpointGraph,
    CoordinatorConfig,
    Decline,
    JobStatus,
    TaskId,
    TaskStatus,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.observe.events import AttemptStarted, Instrument
from engine.runtime.config import RunConfig
from engine.runtime.hook import JOB_MANAGER, around_of
from engine.runtime.job.checkpoint_driver import CheckpointDriver, Unsettled
from engine.runtime.job.end_of_input import EndOfInput
from engine.runtime.job.failover import Failover, FinalCheckpointError, HeartbeatTimeoutError, TaskKilledError
from engine.runtime.job.job_state import FINISHED, RECOVERING, RUNNING, STOPPED, JobProgress
from engine.runtime.job.operator_coordinators import OperatorCoordinators
from engine.runtime.job.record_counts import RecordCounts
from engine.runtime.job.regions import Region
from engine.runtime.job.savepoints import Savepoints
from engine.runtime.kernel import Post
from engine.runtime.storage import CheckpointFiles, LocalFiles
from engine.runtime.tasks import TaskEnvironment, build_tasks

if TYPE_CHECKING:
    from engine.checkpoint.coordinator import CheckpointStatistics
    from engine.elements.operator_coordination import CoordinatorError
    from engine.graph.plan import ExecutionPlan
    from engine.observe.provenance import Provenance
    from engine.runtime.acking import AckingRun
    from engine.runtime.hook import RunHook
    from engine.runtime.kernel import ChoiceRecorder, Kernel
    from engine.runtime.storage import RestoredJob
    from engine.runtime.tasks import BarrierProcessed, OperatorEvent, Task
    from state_backends.files import FileSystem
    from state_backends.snapshots import CheckpointStorage

_FINAL_RETRY_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Restore:
    """How one attempt began: from ``checkpoint_id``, or from nothing; ``problems`` are checkpoints passed over;
    ``tasks``: which were deployed, ``None`` = all."""

    attempt: int
    checkpoint_id: int | None
    time_ns: int
    problems: tuple[str, ...] = ()
    tasks: tuple[str, ...] | None = None


class JobManager:
    """Runs one job on one kernel until it has finished, stopped or failed."""

    name = JOB_MANAGER

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        *,
        kernel: Kernel,
        storage: CheckpointStorage,
        file_system: FileSystem,
        savepoint_files: FileSystem,
        output_dir: str,
        incarnation: int,
        instrument: Instrument | None,
        choices: ChoiceRecorder,
        hook: RunHook | None = None,
        acking: AckingRun | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.config = config
        self.hook = hook
        self.around = around_of(hook, JOB_MANAGER)
        self._provenance = provenance
        self._state_backend = config.backend()
        self.kernel = kernel
        self.files = CheckpointFiles(
            storage,
            plan,
            incarnation,
            config.allow_non_restored_state,
            savepoint_files,
            self._state_backend.name,
            provenance,
            around=self.around,
        )
        self.incarnation = incarnation
        self.instrument = instrument
        self.job = JobProgress(kernel)
        self.note = self.job.note
        self.restores: list[Restore] = []
        self.local = LocalFiles(storage, output_dir, keeps_state=config.local_recovery, note=self.job.note)
        self.source_records = 0
        self.counts = RecordCounts()
        self.counters: dict[tuple[str, int], dict[str, int]] = {}
        self.losses: dict[str, None] = {}
        self.post = Post(kernel, hook, self)
        self.tasks: dict[TaskId, Task] = {}
        self.acking = acking
        if acking is not None:
            acking.attach(self.job.note, self._task_named)
        self._not_running: dict[TaskId, None] = {}
        self._graph = CheckpointGraph.of(plan)
        self.savepoints = Savepoints(kernel, self.job, self)
        self._unsettled = Unsettled(kernel)
        self.coordinators = OperatorCoordinators(self.plan, self)
        self.coordinator = self._new_coordinator()
        self.driver = self._new_driver()
        self._file_system = file_system
        self._output_dir = output_dir
        self._choices = choices
        self.is_over = False
        """Whether nothing more can come of the job."""
        self.swept: tuple[str, ...] = ()
        """Files in the shared scope that the last sweep has deleted: no checkpoint referred to them."""
        interval = config.checkpoint_interval
        self._records_interval = None if interval is None else interval.records
        self._records_to_trigger = self._records_interval or 0
        tasks = self._graph.tasks()
        self.end = EndOfInput(
            tasks,
            finish_early=config.checkpoints_after_tasks_finish and config.protocol.takes_checkpoints,
            final_attempts=config.final_checkpoint_attempts,
        )
        self.failover = Failover(
            config,
            kernel=kernel,
            job=self.job,
            tasks=self.tasks,
            files=self.files,
            savepoints=self.savepoints,
            end=self.end,
            unsettled=self._unsettled,
            deployer=self,
            draw=choices.draw,
        )

    def _new_coordinator(self, statistics: CheckpointStatistics | None = None) -> CheckpointCoordinator:
        config, interval = self.config, self.config.checkpoint_interval
        return CheckpointCoordinator(
            self._graph,
            CoordinatorConfig(
                interval_ns=None if interval is None else interval.time_ns,
                timeout_ns=config.checkpoint_timeout_ns,
                min_pause_ns=config.min_pause_ns,
                max_concurrent=config.max_concurrent,
                num_retained=config.retained,
                tolerable_failures=config.tolerable_failures,
                after_tasks_finish=config.checkpoints_after_tasks_finish,
                interval_during_backlog_ns=config.interval_during_backlog_ns,
            ),
            config.protocol.options(),
            statistics,
            operator_coordinators=self.coordinators.names,
        )

    def _new_driver(self) -> CheckpointDriver:
        return CheckpointDriver(
            self.coordinator,
            kernel=self.kernel,
            job=self.job,
            tasks=self.tasks,
            post=self.post,
            files=self.files,
            savepoints=self.savepoints,
            operator_coordinators=self.coordinators,
            unsettled=self._unsettled,
            counts=self.counts,
            listener=self,
            instrument=self.instrument,
            around=self.around,
        )

    @property
    def plan(self) -> ExecutionPlan:
        """The job, with the max parallelism of restored state where its own was only derived."""
        return self.files.plan

    # -- deployment ---------------------------------------------------------------------------------------------

    def start(self, restored: RestoredJob | None, problems: tuple[str, ...] = ()) -> None:
        """Deploy the first attempt, from ``restored`` or from nothing."""
        self.job.started_ns = self.kernel.now_ns
        self.take_over(restored)
        self.deploy_all(restored, problems)

    def take_over(self, restored: RestoredJob | None) -> None:
        """Begin with what storage holds, up to ``restored``."""
        retained = [] if restored is None else self.files.retained(restored.checkpoint_id)
        # Also on a fresh start: what lies there may all be damaged, and no number is used twice.
        next_id = self.files.next_checkpoint_id()
        self.files.discard_passed_over(restored)
        self._sweep()
        self.driver.execute(self.coordinator.recover(retained, self.kernel.now_ns, next_id))

    def _sweep(self) -> None:
        try:
            self.local.sweep()
            self.swept = tuple(self.files.storage.sweep_shared())
        except OSError as error:
            self.note(f"files that no checkpoint refers to could not be deleted: {error}")

    def close(self) -> None:
        """The run is over: delete local files, and those in the shared scope that no checkpoint refers to."""
        self._sweep()
        self.local.close()

    def deploy_all(self, restored: RestoredJob | None, problems: tuple[str, ...]) -> None:
        """Deploy all tasks, from ``restored`` or from nothing; ``problems``: checkpoints passed over."""
        self.job.state = RUNNING
        self.job.deployment = self.job.attempt + 1
        self.local.deployed(self.plan)
        if self._records_interval is not None:
            self._records_to_trigger = self._records_interval
        if restored is not None and restored.dropped:
            self.note(f"state of operators that the job does not have was dropped: {', '.join(restored.dropped)}")
        self.deploy(self._graph.tasks(), restored, problems)

    def deploy(self, ids: Region, restored: RestoredJob | None, problems: tuple[str, ...]) -> None:
        """Deploy these tasks, which are all or a region, as the next attempt."""
        self.job.attempt += 1
        now = self.kernel.now_ns
        checkpoint_id = None if restored is None else restored.checkpoint_id
        self.counts.replaced([self.tasks[one] for one in ids if one in self.tasks], checkpoint_id, self.source_records)
        everything = len(ids) == len(self._graph.tasks())
        if everything or self.acking is None:
            tasks = build_tasks(
                self.plan,
                self._environment(restored),
                restored,
                capacity=self.config.capacity,
                output_capacity=self.config.output_capacity,
                only=None if everything else ids,
            )
        else:
            tasks = self.acking.replace_tasks(self.plan, self._environment(), ids, self.tasks)
        names = None if everything else tuple(task.name for task in tasks.values())
        self.restores.append(Restore(self.job.attempt, checkpoint_id, now, problems, names))
        if self.instrument is not None:
            self.instrument(AttemptStarted(now, self.job.attempt, checkpoint_id))
        if everything:
            self.tasks.clear()
        self.tasks.update(tasks)
        self.counts.deployed(tasks.values())
        if everything:
            self._not_running.clear()
        self.tasks_down(ids)
        self.driver.execute(
            self.coordinator.restored(checkpoint_id, now, self.job.attempt, TaskStatus.DEPLOYING, tasks=ids)
        )
        if everything:
            self.coordinators.reset(checkpoint_id, {} if restored is None else restored.coordinators)
        else:
            self.coordinators.subtasks_reset(ids, checkpoint_id)
        for task in tasks.values():
            if task.state != "created":
                # It has died while records in flight were put back.
                continue
            if restored is not None and task.plan.vertex in restored.finished_vertices:
                task.start_finished()
                continue
            self._start(task, restored)
        self.coordinators.deployed(ids)
        for task in tasks.values():
            # A task with restored records in flight does not run yet: it could not say which of them its state holds.
            if task.state == "finished" or (task.state == "running" and task.gate.is_recovered):
                self._runs(task)
        self._begin_to_checkpoint()

    def _start(self, task: Task, restored: RestoredJob | None) -> None:
        uids = {context.uid for context in task.contexts}
        checkpoint_id = None if restored is None else restored.checkpoint_id
        state = {} if restored is None else restored.for_task(task.plan.subtask, uids)
        if task.hook is None:
            task.start(state, checkpoint_id)
        else:
            # The others are deployed nevertheless: each in a process of its own.
            with task.hook.alone():
                task.start(state, checkpoint_id)

    def tasks_down(self, ids: Region) -> None:
        """These tasks are to be deployed anew."""
        self.end.deployed(ids)
        self.coordinators.tasks_failed(ids)
        self._not_running.update(dict.fromkeys(ids))

    def _runs(self, task: Task) -> None:
        self._not_running.pop(task.task_id, None)
        if task.state == "running":
            self.coordinator.on_task_status(task.task_id, TaskStatus.RUNNING)

    def _environment(self, restored: RestoredJob | None = None) -> TaskEnvironment:
        return TaskEnvironment(
            plan=self.plan,
            attempt=self.job.attempt,
            incarnation=self.incarnation,
            kernel=self.kernel,
            master=self,
            post=self.post,
            protocol=self.config.protocol,
            cost=self.config.cost,
            storage=self.files.storage,
            location=self.files.location,
            file_system=self._file_system,
            output_dir=self._output_dir,
            instrument=self.instrument,
            state_backend=self._state_backend,
            local_file_system=self.local.file_system,
            working_dir=self.local.working_dir,
            local_state=self.local.stores,
            snapshot_compression=self.config.snapshot_compression,
            counters=self.counters,
            losses=self.losses,
            starts_from_another_run=restored is not None and self.files.is_adopted(restored.checkpoint_id),
            allow_non_restored_state=self.config.allow_non_restored_state,
            debloating=self.config.debloating,
            hook=self.hook,
            provenance=self._provenance,
            tracking=self.acking,
        )

    def _task_named(self, name: str) -> Task | None:
        return next((task for task in self.tasks.values() if task.name == name and task.state == "running"), None)

    def _begin_to_checkpoint(self) -> None:
        if self.config.protocol.takes_checkpoints and not self._not_running:
            self._start_schedule()

    def _start_schedule(self) -> None:
        if not self.coordinator.schedule.is_running:
            now, first_ns = self.kernel.now_ns, None
            interval_ns = self.coordinator.config.effective_interval_ns
            if self.config.random_first_delay and interval_ns is not None:
                earliest_ns = min(self.config.min_pause_ns, interval_ns)
                first_ns = earliest_ns + self._choices.draw("first checkpoint", interval_ns - earliest_ns + 1)
            self.driver.execute(self.coordinator.start(now, self.job.attempt, first_delay_ns=first_ns))

    def cancel_tasks(self) -> None:
        """No task goes on."""
        self.coordinators.tasks_failed(self._graph.tasks())
        for task in self.tasks.values():
            task.cancel()

    def shut_down(self, status: JobStatus) -> None:
        """The job is over."""
        self.driver.execute(self.coordinator.shut_down(status, self.kernel.now_ns))
        self.coordinators.close()
        if not self.failover.waits("job_is_over", None):
            self.end_run()

    def end_run(self) -> None:
        """Nothing more can come of the job."""
        self.is_over = True
        self.kernel.stop()

    def replace_coordinator(self) -> None:
        """The job manager has died: its successor remembers nothing."""
        self.driver.die()
        self.files.savepoint_locations.clear()
        self.coordinators.close()
        self.coordinators = OperatorCoordinators(self.plan, self)
        self.coordinator = self._new_coordinator(self.coordinator.statistics)
        self.coordinator.begin_attempt(self.job.attempt, TaskStatus.FAILED)
        self.driver = self._new_driver()

    # -- what tasks report ----------------------------------------------------------------------------------------

    def task_failed(self, report: tuple[int, str, Exception]) -> None:
        """``(attempt, task, error)``: a task is dead (kernel event)."""
        self.failover.task_failed(*report)

    def checkpoints_failed(self, report: tuple[int, Exception]) -> None:
        """``(deployment, error)``: more checkpoints have failed than the job tolerates (kernel event)."""
        deployment, error = report
        if deployment == self.job.deployment:
            self.failover.fail_globally(f"checkpoints: {error}", error)

    def coordinator_failed(self, report: tuple[int, CoordinatorError]) -> None:
        """``(deployment, error)``: an operator coordinator has raised (kernel event)."""
        deployment, error = report
        if deployment == self.job.deployment:
            self.failover.fail_globally(str(error), error)

    def operator_event(self, message: OperatorEvent) -> None:
        """An operator has sent something to its coordinator (kernel event)."""
        self.coordinators.operator_event(message)

    def barrier_processed(self, message: BarrierProcessed) -> None:
        """The snapshot of a task whose operators have coordinators has been taken (kernel event)."""
        self.coordinators.barrier_processed(message)

    def task_recovered(self, task: Task) -> None:
        """All restored records in flight are behind a task; when that is true of all, checkpoints begin."""
        if not task.disowned and self.job.state == RUNNING and task.state == "running":
            self._runs(task)
            self._begin_to_checkpoint()

    def task_reached_end(self, task: Task) -> None:
        """All input of a task has ended."""
        if task.disowned:
            return
        self.end.task_ended(task.task_id, self.coordinator.next_checkpoint_id)
        if self.end.all_ended:
            self.kernel.schedule(self.kernel.now_ns, "all_input_ended", self, self.job.deployment)

    def all_input_ended(self, deployment: int) -> None:
        """Every task has reached its end: take the last checkpoint (kernel event)."""
        if deployment != self.job.deployment or self.job.state != RUNNING or self.savepoints.is_stopping:
            return
        if not self.config.protocol.takes_checkpoints:
            self._end_of_job()
        elif self.end.request_final():
            self.driver.execute(self.coordinator.trigger_final(self.kernel.now_ns))

    def _end_of_job(self) -> None:
        # No further checkpoint: the next thing any task does is to close.
        self.driver.execute(self.coordinator.stop(self.kernel.now_ns))
        confirmed_id = self.coordinator.retained.latest_id or None
        self.end.all_leave()
        for task in self.tasks.values():
            self.post.to_task(task, "may_finish", confirmed_id)

    def task_finished(self, task: Task) -> None:
        """A task is closed; when all are, the job has finished."""
        if task.disowned:
            return
        self.end.task_finished(task.task_id)
        self.coordinator.on_task_status(task.task_id, TaskStatus.FINISHED)
        if self.end.all_finished:
            stopped = self.savepoints.tasks_terminated({task_id: one.state for task_id, one in self.tasks.items()})
            self.job.state = STOPPED if stopped else FINISHED
            self.shut_down(JobStatus.FINISHED)

    def receive_acknowledge(self, message: Acknowledge) -> None:
        """A task's part of a checkpoint is durable (kernel event)."""
        if self.job.state != RECOVERING:
            self.driver.execute(self.coordinator.on_acknowledge(message, self.kernel.now_ns))

    def receive_decline(self, message: Decline) -> None:
        """A task could not take its part (kernel event)."""
        if self.job.state != RECOVERING:
            self.driver.execute(self.coordinator.on_decline(message, self.kernel.now_ns))

    def checkpoint_completed(self, checkpoint_id: int) -> None:
        """Tasks are being told that a checkpoint is complete: vertices whose end it holds may finish."""
        for task_id in self.end.checkpoint_completed(checkpoint_id):
            self.post.to_task(self.tasks[task_id], "may_finish", checkpoint_id)
        if self.end.replaces_final(checkpoint_id):
            self.kernel.schedule(self.kernel.now_ns, "all_parts_confirmed", self, self.job.deployment)

    def source_backlog(self, task: Task, is_backlog: bool) -> None:
        """A source has begun, or ended, to work off a backlog."""
        if task.state in ("created", "running") and self.job.state == RUNNING and not task.disowned:
            now = self.kernel.now_ns
            self.driver.execute(self.coordinator.on_backlog(task.task_id, is_backlog, now))

    def source_emitted(self, records: int) -> None:
        """Count towards a checkpoint interval given in records."""
        self.source_records += records
        if self._records_interval is not None:
            self._records_to_trigger -= records
            if self._records_to_trigger <= 0:
                self._records_to_trigger += self._records_interval
                self.kernel.schedule(self.kernel.now_ns, "records_interval_over", self, self.job.deployment)

    def records_interval_over(self, deployment: int) -> None:
        """The sources have emitted enough for the next periodic checkpoint (kernel event)."""
        if deployment == self.job.deployment and self.job.state == RUNNING:
            self.driver.execute(self.coordinator.trigger_periodic(self.kernel.now_ns))

    def checkpoint_aborted(self, reason: CheckpointFailureReason) -> None:
        """With an interval in records: try again a little later. There may be no record left to trigger the next one,
        whose barriers alone free what some tasks hold back for the barriers of this one that will never come. The same
        when nothing but somebody's wish triggers checkpoints, and this one has got lost on its way."""
        is_lost = reason is CheckpointFailureReason.CHECKPOINT_EXPIRED
        if self._records_interval is not None or (self.config.checkpoint_interval is None and is_lost):
            again_ns = self.kernel.now_ns + _FINAL_RETRY_NS
            self.kernel.schedule(again_ns, "records_interval_over", self, self.job.deployment)

    def slice_records(self) -> int:
        """One batch, or what is missing to the next checkpoint when the interval counts records."""
        batch_size = self.config.batch_size
        if self._records_interval is None:
            return batch_size
        return max(1, min(batch_size, self._records_to_trigger))

    # -- what users ask -------------------------------------------------------------------------------------------

    def kill(self, order: tuple[tuple[TaskId, ...], str]) -> None:
        """Kill tasks (kernel event of a fault plan)."""
        targets, cause = order
        for task_id in targets:
            task = self.tasks.get(task_id)
            if task is None or self.job.state != RUNNING:
                self.note(f"nothing to kill at {self.job.elapsed}: the job is {self.job.state}")
            elif task.state != "running":
                self.note(f"nothing to kill at {self.job.elapsed}: {task.name} is {task.state}")
            else:
                self.post.to_task(task, "kill", TaskKilledError(f"{task.name} was {cause}"))

    def kill_acker(self, order: tuple[str, str]) -> None:
        """Kill an acker, or all of them (kernel event of a fault plan)."""
        assert self.acking is not None
        for acker in self.acking.named(order[0]):
            acker.die(order[1])

    def kill_master(self, cause: str) -> None:
        """Kill the job manager itself (kernel event of a fault plan)."""
        self.failover.kill_master(cause)

    def happens(self, event: tuple[str, Any]) -> None:
        """Something is due that the hook has arranged (kernel event)."""
        assert self.hook is not None, event
        self.hook.happens(event)

    def declare_dead(self, task: Task, why: str) -> None:
        """Give up on a task that cannot be reached. If it lives on nevertheless, nobody listens to it any more."""
        if self.job.state == RUNNING and task.state == "running" and self.tasks.get(task.task_id) is task:
            task.disowned = True
            self.failover.task_failed(task.attempt, task.name, HeartbeatTimeoutError(f"{task.name}: {why}"))

    def trigger_savepoint(self, number: int) -> None:
        """The time of an order of a savepoint has come (kernel event)."""
        self.savepoints.trigger(number)

    def resume_schedule_soon(self) -> None:
        """Go on with periodic checkpoints once the coordinator has said what it has to say."""
        self.kernel.schedule(self.kernel.now_ns, "resume_schedule", self, self.job.deployment)

    def resume_schedule(self, deployment: int) -> None:
        """The job goes on after it was about to stop (kernel event), if it still runs."""
        if deployment == self.job.deployment and self.job.state == RUNNING:
            self._begin_to_checkpoint()
            if self.end.all_ended:
                self.all_input_ended(deployment)

    def all_parts_confirmed(self, deployment: int) -> None:
        """The last checkpoint is complete: let the tasks end (kernel event)."""
        if deployment == self.job.deployment and self.job.state == RUNNING:
            self._end_of_job()

    def final_checkpoint_completed(self) -> None:
        """The last checkpoint is complete, or another one in its place."""
        self.kernel.schedule(self.kernel.now_ns, "all_parts_confirmed", self, self.job.deployment)

    def too_many_failed(self, error: Exception) -> None:
        """More checkpoints have failed than the job tolerates."""
        self.kernel.schedule(self.kernel.now_ns, "checkpoints_failed", self, (self.job.deployment, error))

    def coordinator_raised(self, error: CoordinatorError) -> None:
        """An operator coordinator has failed."""
        self.kernel.schedule(self.kernel.now_ns, "coordinator_failed", self, (self.job.deployment, error))

    def fail_globally(self, why: str, error: Exception) -> None:
        """End the whole deployment, and perhaps begin another one."""
        self.failover.fail_globally(why, error)

    def final_checkpoint_failed(self, reason: CheckpointFailureReason) -> None:
        """Try another one, a little later; but not for ever."""
        may_retry = self.end.final_failed()
        if self.job.state != RUNNING:
            return
        if may_retry:
            self.kernel.schedule(self.kernel.now_ns + _FINAL_RETRY_NS, "all_input_ended", self, self.job.deployment)
            return
        error = FinalCheckpointError(
            f"the last checkpoint of the job failed {self.end.final_failures} times in a row, at last with"
            f" {reason.name} ({reason.value})\n"
            "  all input was read, but what came after the newest completed checkpoint is not committed; see the"
            " checkpoint table and the notes for what is wrong, then resume from that checkpoint"
        )
        self.too_many_failed(error)

    # -- inspection -----------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert what must hold between two events."""
        self.coordinator.validate()
        self.coordinators.validate()
        self.end.validate()
        for task in self.tasks.values():
            if task.state == "running":
                task.validate()

    def fingerprint(self) -> object:
        """Everything that decides how the job goes on."""
        now = self.kernel.now_ns
        return (
            self.job.attempt,
            self.job.deployment,
            self.job.state,
            self.end.fingerprint(),
            self.savepoints.fingerprint(),
            self.failover.fingerprint(),
            self._records_to_trigger,
            self.coordinator.fingerprint(now),
            self.coordinators.fingerprint(),
            None if self.acking is None else self.acking.fingerprint(),
            tuple(task.fingerprint() for task in self.tasks.values()),
        )

