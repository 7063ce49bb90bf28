"""The job manager: deploys attempts, drives the checkpoint coordinator, restarts after failures.

Theory of operation.

* An *attempt* is one deployment of all tasks. When a task fails, the attempt is over: every task is cancelled, what
  is still under way to or from them is ignored (acknowledgements by their attempt number, elements and mail because
  a dead task takes none), and after the restart strategy's delay the next attempt starts from the newest usable
  completed checkpoint, or from nothing.
* The coordinator is a pure machine; the checkpoint driver carries out its instructions.
* A bounded job ends in order: when all tasks have reached the end of their input, one last checkpoint is taken; once
  it is confirmed, sinks have committed everything and the tasks finish. Without checkpoints they finish at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.checkpoint.completed_store import JobStatus
from engine.checkpoint.coordinator import CheckpointCoordinator
from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.messages import Acknowledge, Decline, TaskId
from engine.checkpoint.plan import CheckpointGraph
from engine.elements.errors import (
    ConfigurationError,
    JobChangedError,
    JobFailedError,
    JobGraphError,
    MissingDependencyError,
    StorageError,
    WeirError,
)
from engine.observe.events import AttemptStarted, Instrument
from engine.runtime.attempt import build_tasks
from engine.runtime.checkpoint_driver import CheckpointDriver
from engine.runtime.checkpoint_files import CheckpointFiles
from engine.runtime.config import RunConfig
from engine.runtime.environment import TaskEnvironment
from state_backends.errors import StateBackendError

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan
    from engine.runtime.kernel import Kernel
    from engine.runtime.restored_state import RestoredJob
    from engine.runtime.task import Task
    from state_backends.filesystem import FileSystem
    from state_backends.storage import CheckpointStorage

_FINAL_RETRY_NS = 10_000_000


NO_RESTART_HELPS = (MissingDependencyError, JobChangedError, JobGraphError, ConfigurationError)
"""Errors that the next attempt would meet again (Flink: ``SuppressRestartsException``)."""


class TaskKilledError(WeirError):
    """A task was killed on purpose."""

    exit_code = JobFailedError.exit_code


@dataclass(frozen=True, slots=True)
class Restore:
    """How one attempt began: from ``checkpoint_id``, or from nothing; ``problems`` are checkpoints passed over."""

    attempt: int
    checkpoint_id: int | None
    time_ns: int
    problems: tuple[str, ...] = ()


class JobManager:
    """Runs one job on one kernel until it has finished or failed."""

    name = "job manager"

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        *,
        kernel: Kernel,
        storage: CheckpointStorage,
        file_system: FileSystem,
        output_dir: str,
        incarnation: int,
        instrument: Instrument | None,
    ) -> None:
        self.plan = plan
        self.config = config
        self.kernel = kernel
        self.files = CheckpointFiles(storage, plan, incarnation, config.allow_non_restored_state)
        self.incarnation = incarnation
        self.instrument = instrument
        self.attempt = 0
        self.state = "created"
        self.error: Exception | None = None
        self.restores: list[Restore] = []
        self.notes: list[str] = []
        self.source_records = 0
        self.counters: dict[tuple[str, int], dict[str, int]] = {}
        self.tasks: dict[TaskId, Task] = {}
        interval = config.checkpoint_interval
        self.coordinator = CheckpointCoordinator(
            CheckpointGraph.of(plan),
            CoordinatorConfig(
                interval_ns=None if interval is None else interval.time_ns,
                timeout_ns=config.checkpoint_timeout_ns,
                min_pause_ns=config.min_pause_ns,
                max_concurrent=config.max_concurrent,
                num_retained=config.retained,
                tolerable_failures=config.tolerable_failures,
            ),
            config.protocol.options(),
        )
        self.driver = CheckpointDriver(self)
        self._file_system = file_system
        self._output_dir = output_dir
        self._restart = config.restart_strategy()
        self._failure_times_ns: list[int] = []
        self._records_interval = None if interval is None else interval.records
        self._records_to_trigger = self._records_interval or 0
        self._ended: set[TaskId] = set()
        self._finished: set[TaskId] = set()
        self._final_requested = False
        self.unsettled: dict[int, None] = {}
        """Checkpoints that failed while they were made durable, and may exist."""

    # -- attempts -----------------------------------------------------------------------------------------------

    def start(self, restored: RestoredJob | None, problems: tuple[str, ...] = ()) -> None:
        """Deploy the first attempt, from ``restored`` or from nothing."""
        retained = [] if restored is None else self.files.retained(restored.checkpoint_id)
        # Also on a fresh start: what lies there may all be damaged, and no number is used twice.
        next_id = self.files.next_checkpoint_id()
        self.files.discard_passed_over(restored)
        self.driver.execute(self.coordinator.recover(retained, self.kernel.now_ns, next_id))
        self._deploy(restored, problems)

    def _deploy(self, restored: RestoredJob | None, problems: tuple[str, ...]) -> None:
        self.attempt += 1
        self.state = "running"
        now = self.kernel.now_ns
        checkpoint_id = None if restored is None else restored.checkpoint_id
        self.restores.append(Restore(self.attempt, checkpoint_id, now, problems))
        if self.instrument is not None:
            self.instrument(AttemptStarted(now, self.attempt, checkpoint_id))
        self._ended.clear()
        self._finished.clear()
        self._final_requested = False
        if self._records_interval is not None:
            self._records_to_trigger = self._records_interval
        if restored is not None and restored.dropped:
            self.note(f"state of operators that the job does not have was dropped: {', '.join(restored.dropped)}")
        self.tasks = build_tasks(self.plan, self._environment(), self.config.capacity)
        for task in self.tasks.values():
            uids = {context.uid for context in task.contexts}
            states = {} if restored is None else restored.for_task(task.plan.subtask, uids)
            task.start(states, checkpoint_id)
        if self.config.protocol.takes_checkpoints:
            self.driver.execute(self.coordinator.start(now, self.attempt, checkpoint_id))

    def _environment(self) -> TaskEnvironment:
        return TaskEnvironment(
            attempt=self.attempt,
            incarnation=self.incarnation,
            kernel=self.kernel,
            master=self,
            protocol=self.config.protocol,
            cost=self.config.cost,
            storage=self.files.storage,
            file_system=self._file_system,
            output_dir=self._output_dir,
            instrument=self.instrument,
            counters=self.counters,
        )

    def task_failed(self, report: tuple[int, str, Exception]) -> None:
        """A task of the current attempt is dead: end the attempt (kernel event)."""
        attempt, name, error = report
        if attempt != self.attempt or self.state != "running":
            return
        self._end_attempt(_told(name, error), error)

    def _end_attempt(self, why: str, error: Exception) -> None:
        now = self.kernel.now_ns
        self.state = "restarting"
        for task in self.tasks.values():
            task.cancel()
        self.driver.execute(self.coordinator.on_job_failure(now))
        self.note(f"attempt {self.attempt} ended: {why}")
        self._failure_times_ns.append(now)
        delay = None
        if not isinstance(error, NO_RESTART_HELPS):
            delay = self._restart.restart_delay_ns(self._failure_times_ns)
        if delay is None:
            self._fail(why, error)
        else:
            self.kernel.schedule(now + delay, "restart", self)

    def restart(self, _payload: None = None) -> None:
        """The restart delay is over (kernel event)."""
        assert self.state == "restarting", self.state
        try:
            self._settle()
            completed = self.coordinator.completed_ids
            restored, problems = self.files.latest(completed)
            if completed and restored is None:
                # Beginning again would commit a second time what these checkpoints have committed.
                raise StorageError("none of the completed checkpoints can be used\n  " + "\n  ".join(problems))
            self.files.discard_passed_over(restored)
        except (WeirError, StateBackendError, OSError) as error:
            self._fail(f"no state to restart from: {error}", error)
            return
        self._deploy(restored, problems)

    def _settle(self) -> None:
        # A checkpoint that failed while it was made durable may exist nevertheless. It must not come back once this
        # attempt has done anything: a resume would take it for the newest, and what it refers to would be gone.
        for checkpoint_id in list(self.unsettled):
            self.files.discard(checkpoint_id)
            del self.unsettled[checkpoint_id]

    def _fail(self, why: str, error: Exception) -> None:
        self.state = "failed"
        allowed = "no restart can help" if isinstance(error, NO_RESTART_HELPS) else self._restart.description
        failure = JobFailedError(f"job {self.plan.job_name!r} failed in attempt {self.attempt} ({allowed}): {why}")
        failure.__cause__ = error
        self.error = failure
        if isinstance(error, WeirError):
            failure.exit_code = error.exit_code
        self._shut_down(JobStatus.FAILED)

    def _shut_down(self, status: JobStatus) -> None:
        self.driver.execute(self.coordinator.shut_down(status, self.kernel.now_ns))
        self.kernel.stop()

    # -- what tasks report ----------------------------------------------------------------------------------------

    def task_reached_end(self, task: Task) -> None:
        """All input of a task has ended."""
        self._ended.add(task.task_id)
        if len(self._ended) == len(self.tasks):
            self.kernel.schedule(self.kernel.now_ns, "all_input_ended", self, self.attempt)

    def all_input_ended(self, attempt: int) -> None:
        """Every task has reached its end: take the last checkpoint (kernel event)."""
        if attempt != self.attempt or self.state != "running":
            return
        if not self.config.protocol.takes_checkpoints:
            self._end_of_job()
        elif not self._final_requested:
            self._final_requested = True
            self.driver.execute(self.coordinator.trigger_final(self.kernel.now_ns))

    def _end_of_job(self) -> None:
        # No further checkpoint: one with finished sources would restore them to their beginning.
        self.driver.execute(self.coordinator.stop(self.kernel.now_ns))
        for task in self.tasks.values():
            if not task.inputs:
                self.mail(task, "end_of_job")

    def task_finished(self, task: Task) -> None:
        """A task is closed; when all are, the job has finished."""
        self._finished.add(task.task_id)
        if len(self._finished) == len(self.tasks):
            self.state = "finished"
            self._shut_down(JobStatus.FINISHED)

    def receive_acknowledge(self, message: Acknowledge) -> None:
        """A task's part of a checkpoint is durable (kernel event)."""
        self.driver.execute(self.coordinator.on_acknowledge(message, self.kernel.now_ns))

    def receive_decline(self, message: Decline) -> None:
        """A task could not take its part (kernel event)."""
        self.driver.execute(self.coordinator.on_decline(message, self.kernel.now_ns))

    def source_emitted(self, records: int) -> None:
        """Count towards a checkpoint interval given in records."""
        self.source_records += records
        if self._records_interval is not None:
            self._records_to_trigger -= records
            if self._records_to_trigger <= 0:
                self._records_to_trigger += self._records_interval
                self.kernel.schedule(self.kernel.now_ns, "records_interval_over", self, self.attempt)

    def records_interval_over(self, attempt: int) -> None:
        """The sources have emitted enough for the next periodic checkpoint (kernel event)."""
        if attempt == self.attempt and self.state == "running":
            self.driver.execute(self.coordinator.trigger_periodic(self.kernel.now_ns))

    def slice_records(self) -> int:
        """One batch, or what is missing to the next checkpoint when the interval counts records."""
        batch_size = self.config.batch_size
        if self._records_interval is None:
            return batch_size
        return max(1, min(batch_size, self._records_to_trigger))

    def note(self, text: str) -> None:
        """Keep something worth knowing for the report."""
        self.notes.append(text)

    def kill(self, order: tuple[tuple[TaskId, ...], str]) -> None:
        """Kill tasks (kernel event of a fault plan)."""
        targets, cause = order
        for task_id in targets:
            task = self.tasks.get(task_id)
            if task is None or self.state != "running":
                self.note(f"nothing to kill at {self.kernel.now_ns}: the job is {self.state}")
            else:
                self.mail(task, "kill", TaskKilledError(f"{task.name} was {cause}"))

    def all_parts_confirmed(self, attempt: int) -> None:
        """The last checkpoint is complete: let the sources end (kernel event)."""
        if attempt == self.attempt and self.state == "running":
            self._end_of_job()

    def final_checkpoint_failed(self) -> None:
        """Try another one, a little later."""
        self._final_requested = False
        if self.state == "running":
            self.kernel.schedule(self.kernel.now_ns + _FINAL_RETRY_NS, "all_input_ended", self, self.attempt)

    def mail(self, task: Task, operation: str, *arguments: object) -> None:
        """Send a message to a task."""
        self.kernel.schedule(self.kernel.now_ns, "receive_mail", task, (operation, arguments))

    def validate(self) -> None:
        """Assert what must hold between two events."""
        self.coordinator.validate()
        for task in self.tasks.values():
            if task.state == "running":
                task.validate()

    def fingerprint(self) -> object:
        """Everything that decides how the job goes on."""
        return (
            self.attempt,
            self.state,
            tuple(sorted(self._ended)),
            tuple(sorted(self._finished)),
            self._final_requested,
            self._records_to_trigger,
            tuple(self.unsettled),
            tuple(self.kernel.now_ns - failed_ns for failed_ns in self._failure_times_ns),
            self.coordinator.fingerprint(self.kernel.now_ns),
            tuple(task.fingerprint() for task in self.tasks.values()),
        )


def _told(name: str, error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text if name in text else f"{name}: {text}"
