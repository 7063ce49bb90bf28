"""The job manager: deploys attempts, drives the checkpoint coordinator, takes the reports of tasks.

Theory of operation.

* An *attempt* is one deployment of tasks. After a failure the failed tasks are deployed anew, as the next attempt, from
  the newest usable completed checkpoint, or from nothing (:mod:`engine.runtime.job.failover`). Messages still under way
  to or from tasks of an older attempt are ignored: acknowledgements by their attempt number, elements and mail because
  a dead task takes none.
* The coordinator is a pure machine; the checkpoint driver carries out its instructions. Checkpoints begin once all
  tasks run. A task with restored records in flight does not run yet.
* A bounded job ends in order, see :mod:`engine.runtime.job.end_of_input`. Without checkpoints its tasks finish at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointCoordinator,
    CheckpointGraph,
    CheckpointStatistics,
    CoordinatorConfig,
    Decline,
    JobStatus,
    TaskId,
    TaskStatus,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.laws import sample_ns
from engine.graph.plan import ExecutionPlan
from engine.observe.provenance import Provenance
from engine.observe.trace_events import Instrument
from engine.runtime.acking import AckingRun
from engine.runtime.channels import links_of_hosts
from engine.runtime.config import RunConfig
from engine.runtime.job.checkpoint_driver import CheckpointDriver, Unsettled
from engine.runtime.job.end_of_input import EndOfInput
from engine.runtime.job.failover import Failover, FinalCheckpointError, HeartbeatTimeoutError, TaskKilledError
from engine.runtime.job.job_state import FINISHED, RECOVERING, RESTARTING, RUNNING, STOPPED, JobProgress
from engine.runtime.job.operator_coordinators import OperatorCoordinators
from engine.runtime.job.random_failures import RandomFailures
from engine.runtime.job.requested_savepoints import Savepoints
from engine.runtime.job.task_deployment import Region, TaskDeployment
from engine.runtime.kernel import JOB_MANAGER, ChoiceRecorder, Kernel, Post, around_of
from engine.runtime.storage import CheckpointFiles, LocalFiles, RestoredJob
from engine.runtime.tasks import (
    AttemptHook,
    BarrierProcessed,
    DrawnWorld,
    OperatorEvent,
    ServiceTimes,
    SourceProgress,
    StorageTimes,
    Task,
    TaskEnvironment,
    TaskLife,
)
from state_backends.files import FileSystem
from state_backends.snapshots import CheckpointStorage

_FINAL_RETRY_NS = 10_000_000


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
        hook: AttemptHook | None = None,
        acking: AckingRun | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        self.config = config
        self.hook = hook
        self.around = around_of(hook, JOB_MANAGER)
        self.kernel = kernel
        state_backend = config.backend()
        self.files = CheckpointFiles(
            storage,
            plan,
            incarnation,
            config.allow_non_restored_state,
            savepoint_files,
            state_backend.name,
            provenance,
            around=self.around,
        )
        self.job = JobProgress(kernel)
        self.note = self.job.note
        self.local = LocalFiles(storage, output_dir, keeps_state=config.local_recovery, note=self.job.note)
        every = None if config.checkpoint_interval is None else config.checkpoint_interval.records
        self.sources = SourceProgress(config.batch_size, every, self._interval_over)
        self.post = Post(kernel, hook, self)
        self.acking = acking
        if acking is not None:
            acking.attach(self.job.note, self._task_named)
        delay = config.cost.link_delay
        self.deployment = TaskDeployment(
            TaskEnvironment(
                plan=plan,
                attempt=0,
                incarnation=incarnation,
                kernel=kernel,
                master=self,
                sources=self.sources,
                post=self.post,
                protocol=config.protocol,
                cost=config.cost,
                storage=storage,
                location=self.files.location,
                file_system=file_system,
                output_dir=output_dir,
                instrument=instrument,
                state_backend=state_backend,
                local=self.local,
                snapshot_compression=config.snapshot_compression,
                allow_non_restored_state=config.allow_non_restored_state,
                debloating=config.debloating,
                hook=hook,
                provenance=provenance,
                tracking=acking,
                world=DrawnWorld(choices, lambda: self.job.started_ns),
                storage_times=StorageTimes(config.cost, choices.draw) if config.cost.has_storage_times else None,
                link_delay=None if delay is None else partial(sample_ns, delay, partial(choices.draw, "link delay")),
                host_links=links_of_hosts(config.cost, plan),
                service=ServiceTimes(config.service, plan, choices) if config.service else None,
            ),
            config,
            self.files,
            self.job,
        )
        self.tasks = self.deployment.tasks
        self._not_running: dict[TaskId, None] = {}
        self._graph = CheckpointGraph.of(plan)
        self.savepoints = Savepoints(kernel, self.job, self)
        self._unsettled = Unsettled(kernel)
        self.coordinators = OperatorCoordinators(self.plan, self)
        self.coordinator = self._new_coordinator()
        self.driver = self._new_driver()
        self._choices = choices
        self.is_over = False
        """Whether the job can do nothing more."""
        self.swept: tuple[str, ...] = ()
        """Files in the shared scope that the last sweep has deleted: no checkpoint referred to them."""
        self.end = EndOfInput(
            self._graph.tasks(),
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

        self.random_failures = RandomFailures(
            config.failure_laws, plan=plan, kernel=kernel, draw=choices.draw, job=self.job, struck=self
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
            counts=self.deployment.counts,
            listener=self,
            instrument=self.deployment.environment.instrument,
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
        self.random_failures.begin()

    def take_over(self, restored: RestoredJob | None) -> None:
        """Begin with the contents of storage, up to ``restored``."""
        retained = [] if restored is None else self.files.retained(restored.checkpoint_id)
        # Also on a fresh start: all files there may be damaged, and no number is used twice.
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
        self.sources.begin_interval()
        if restored is not None and restored.dropped:
            self.note(f"state of operators that the job does not have was dropped: {', '.join(restored.dropped)}")
        self.deploy(self._graph.tasks(), restored, problems)

    def deploy(self, ids: Region, restored: RestoredJob | None, problems: tuple[str, ...]) -> None:
        """Deploy these tasks, which are all or a region, as the next attempt."""
        tasks = self.deployment.build(ids, restored, problems)
        now, checkpoint_id = self.kernel.now_ns, None if restored is None else restored.checkpoint_id
        everything = self.deployment.is_everything(ids)
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
        self.deployment.start(tasks.values(), restored)
        self.coordinators.deployed(ids)
        reading = {} if restored is None else self.deployment.read(tasks)
        for task_id, read_ns in reading.items():
            self.kernel.schedule(now + read_ns, "state_read", self, (task_id, self.job.attempt))
        for task_id, task in tasks.items():
            if task_id in reading:
                continue
            # A task with restored records in flight does not run yet: it could not say which of them its state holds.
            if task.life.state == "finished" or (task.life.is_running and task.gate.is_recovered):
                self._runs(task.life)
        self._begin_to_checkpoint()

    def state_read(self, which: tuple[TaskId, int]) -> None:
        """The time is over in which a task reads its restored state (kernel event): it runs from now on."""
        task = self.tasks.get(which[0])
        if task is not None and task.life.attempt == which[1] and task.gate.is_recovered:
            self.task_recovered(task.life)

    @property
    def is_recovering(self) -> bool:
        """Whether not all tasks run that should."""
        return self.job.state != RUNNING or bool(self._not_running)

    def tasks_struck(self, ids: Sequence[TaskId], cause: str, *, with_disk: bool = False) -> None:
        """These tasks die at random; a recovery of all tasks begins anew. ``with_disk``: copies of their state, too."""
        if with_disk:
            self.local.lost(self.plan, ids)
        if self.job.state == RESTARTING:
            self.failover.recovery_struck(TaskKilledError(cause))
            return
        for task in [self.tasks[task_id] for task_id in ids if task_id in self.tasks]:
            if task.life.is_running:
                self.post.to_task(task, "kill", TaskKilledError(f"{task.name} was {cause}"))

    def storage_struck(self) -> None:
        """Checkpoint storage fails: so does every snapshot that is being written."""
        for task in self.tasks.values():
            task.checkpointing.storage_failed(OSError("checkpoint storage was struck by a failure"))

    def tasks_down(self, ids: Region) -> None:
        """These tasks are to be deployed anew."""
        self.end.deployed(ids)
        self.coordinators.tasks_failed(ids)
        self._not_running.update(dict.fromkeys(ids))

    def _runs(self, task: TaskLife) -> None:
        self._not_running.pop(task.task_id, None)
        if task.is_running:
            self.coordinator.on_task_status(task.task_id, TaskStatus.RUNNING)

    def _task_named(self, name: str) -> Task | None:
        return next((task for task in self.tasks.values() if task.name == name and task.life.is_running), None)

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
            task.life.cancel()

    def shut_down(self, status: JobStatus) -> None:
        """The job is over."""
        self.driver.execute(self.coordinator.shut_down(status, self.kernel.now_ns))
        self.coordinators.close()
        if not self.failover.waits("job_is_over", None):
            self.end_run()

    def end_run(self) -> None:
        """The job can do nothing more."""
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

    # -- reports of tasks -----------------------------------------------------------------------------------------

    def task_failed(self, report: tuple[int, str, Exception]) -> None:
        """``(attempt, task, error)``: a task is dead (kernel event)."""
        self.failover.task_failed(*report)

    def deployment_failed(self, report: tuple[int, str, Exception]) -> None:
        """``(deployment, why, error)``: a failure of no single task (kernel event)."""
        deployment, why, error = report
        if deployment == self.job.deployment:
            self.failover.fail_globally(why, error)

    def operator_event(self, message: OperatorEvent) -> None:
        """An operator has sent something to its coordinator (kernel event)."""
        self.coordinators.operator_event(message)

    def barrier_processed(self, message: BarrierProcessed) -> None:
        """The snapshot of a task whose operators have coordinators has been taken (kernel event)."""
        self.coordinators.barrier_processed(message)

    def task_recovered(self, task: TaskLife) -> None:
        """A task has read all its restored records in flight; once all tasks have, checkpoints begin."""
        if not task.disowned and self.job.state == RUNNING and task.is_running:
            self._runs(task)
            self._begin_to_checkpoint()

    def task_reached_end(self, task: TaskLife) -> None:
        """All input of a task has ended."""
        # A report of an attempt that is over changes nothing (mutant "end of a zombie counts").
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

    def task_finished(self, task: TaskLife) -> None:
        """A task is closed; when all are, the job has finished."""
        if task.disowned:
            return
        self.end.task_finished(task.task_id)
        self.coordinator.on_task_status(task.task_id, TaskStatus.FINISHED)
        if self.end.all_finished:
            stopped = self.savepoints.tasks_terminated({task_id: one.life.state for task_id, one in self.tasks.items()})
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
        if not self.end.ended:
            return
        for task_id in self.end.checkpoint_completed(checkpoint_id):
            self.post.to_task(self.tasks[task_id], "may_finish", checkpoint_id)
        if self.end.replaces_final(checkpoint_id):
            self.kernel.schedule(self.kernel.now_ns, "all_parts_confirmed", self, self.job.deployment)

    def source_backlog(self, task: TaskLife, is_backlog: bool) -> None:
        """A source has begun, or ended, to work off a backlog."""
        if task.is_alive and self.job.state == RUNNING and not task.disowned:
            now = self.kernel.now_ns
            self.driver.execute(self.coordinator.on_backlog(task.task_id, is_backlog, now))

    def _interval_over(self) -> None:
        self.kernel.schedule(self.kernel.now_ns, "records_interval_over", self, self.job.deployment)

    def records_interval_over(self, deployment: int) -> None:
        """The sources have emitted enough for the next periodic checkpoint (kernel event)."""
        if deployment == self.job.deployment and self.job.state == RUNNING:
            self.driver.execute(self.coordinator.trigger_periodic(self.kernel.now_ns))

    def checkpoint_aborted(self, reason: CheckpointFailureReason) -> None:
        """With an interval in records: try again a little later. No record may be left to trigger the next one, and
        only its barriers free the records that some tasks hold back for the lost barriers of this one. The same
        when checkpoints are triggered only by requests, and this one got lost on its way."""
        is_lost = reason is CheckpointFailureReason.CHECKPOINT_EXPIRED
        if self.sources.interval is not None or (self.config.checkpoint_interval is None and is_lost):
            again_ns = self.kernel.now_ns + _FINAL_RETRY_NS
            self.kernel.schedule(again_ns, "records_interval_over", self, self.job.deployment)

    # -- requests of users ----------------------------------------------------------------------------------------

    def kill(self, order: tuple[tuple[TaskId, ...], str]) -> None:
        """Kill tasks (kernel event of a fault plan)."""
        targets, cause = order
        for task_id in targets:
            task = self.tasks.get(task_id)
            if task is None or self.job.state != RUNNING:
                self.note(f"nothing to kill at {self.job.elapsed}: the job is {self.job.state}")
            elif not task.life.is_running:
                self.note(f"nothing to kill at {self.job.elapsed}: {task.name} is {task.life.state}")
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
        """An event that the hook has arranged is due (kernel event)."""
        assert self.hook is not None, event
        self.hook.happens(event)

    def declare_dead(self, task_id: TaskId, attempt: int, why: str) -> None:
        """Give up on a task that cannot be reached. If it lives on nevertheless, its messages are ignored."""
        task = self.tasks[task_id]
        if self.job.state == RUNNING and task.life.is_running and task.life.attempt == attempt:
            task.life.disowned = True
            self.failover.task_failed(attempt, task.name, HeartbeatTimeoutError(f"{task.name}: {why}"))

    def trigger_savepoint(self, number: int) -> None:
        """The time of a savepoint order has come (kernel event)."""
        self.savepoints.trigger(number)

    def resume_schedule_soon(self) -> None:
        """Go on with periodic checkpoints after the coordinator has given its instructions."""
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

    def fail_soon(self, why: str, error: Exception) -> None:
        """End the whole deployment after the present event: checkpoints or an operator coordinator have failed."""
        self.kernel.schedule(self.kernel.now_ns, "deployment_failed", self, (self.job.deployment, why, error))

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
        self.fail_soon(f"checkpoints: {error}", error)

    # -- inspection -----------------------------------------------------------------------------------------------

    def validate(self) -> None:
        self.coordinator.validate()
        self.coordinators.validate()
        self.end.validate()
        for task in self.tasks.values():
            if task.life.is_running:
                task.validate()

    def fingerprint(self) -> object:
        now = self.kernel.now_ns
        return (
            self.job.attempt,
            self.job.deployment,
            self.job.state,
            self.end.fingerprint(),
            self.savepoints.fingerprint(),
            self.failover.fingerprint(),
            self.sources.missing,
            self.coordinator.fingerprint(now),
            self.coordinators.fingerprint(),
            None if self.acking is None else self.acking.fingerprint(),
            tuple(task.fingerprint() for task in self.tasks.values()),
        )
