"""Failover: which tasks a failure takes with it, whether and when they are deployed anew, and from which checkpoint.

Rules.

* Full failover: a failed task takes the whole job with it. The job leaves the running state, and every pending and
  queued snapshot dies (CHECKPOINT_COORDINATOR_SUSPEND).
* Regional failover: it takes its region with it (:func:`failover_regions`); the other tasks go on. Pending snapshots
  die (JOB_FAILOVER_REGION): a part of them will never come. Snapshots triggered before the region runs again
  fail (NOT_ALL_REQUIRED_TASKS_RUNNING). A job of one region, one that is about to stop, and one with too many failed
  checkpoints fail over as a whole. So does one in which other subtasks of a vertex of the region may finish, or have
  finished, if that vertex has union state: no snapshot can be taken of a vertex that has lost a part of it, so the part
  that comes back could never be confirmed (Flink would try for ever). The same holds for the whole job if
  no checkpoint is taken once tasks have finished: the region that comes back would wait for one.
* In mode ``acking`` every task is a region of its own.
* The restart strategy counts all failures of the job. A failure that a restart cannot repair ends the job at once.
* Nothing is restored until the newest checkpoint is known. Failover waits for the write of a ``_metadata`` under way;
  one that failed, and may have left something, is deleted first.
* The job manager may die, too. Its tasks are cancelled with it, and everything it only remembered is lost: the
  coordinator, requests under way, timers. A successor finds the durable checkpoints and deploys the job from there.
  That is no failure of the job, and no restart strategy is asked. (The state of the run as a whole survives: attempt
  numbers, which real clusters take from a fencing token, and the statistics.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.checkpoint.coordinator import JobStatus, TaskId
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.errors import (
    AcknowledgementError,
    ConfigurationError,
    DataLossError,
    ForbiddenCallError,
    JobChangedError,
    JobFailedError,
    JobGraphError,
    MissingDependencyError,
    OutputAheadError,
    OverloadError,
    StorageError,
    WeirError,
)
from engine.protocols.acking.settings import ReplayLimitError, UnacknowledgedError
from engine.runtime.config import RunConfig
from engine.runtime.job.checkpoint_driver import CheckpointDriver, Unsettled
from engine.runtime.job.end_of_input import EndOfInput
from engine.runtime.job.job_state import ENDED, FAILED, RECOVERING, RESTARTING, RUNNING, JobProgress
from engine.runtime.job.requested_savepoints import Savepoints
from engine.runtime.job.task_deployment import Region, failover_regions, single_task_regions
from engine.runtime.kernel import Kernel
from engine.runtime.storage import CheckpointFiles, RestoredJob
from engine.runtime.tasks import OperatorChain, TaskLife, TaskPlace
from state_backends.base import StateBackendError


class TaskKilledError(WeirError):
    """A task was killed on purpose."""

    exit_code = JobFailedError.exit_code


class HeartbeatTimeoutError(WeirError):
    """No heartbeat of a task came for too long: it counts as dead, even if it still runs."""

    exit_code = JobFailedError.exit_code


class FinalCheckpointError(WeirError):
    """The last checkpoint of a job cannot be completed."""

    exit_code = JobFailedError.exit_code


NO_RESTART_HELPS = (
    ForbiddenCallError,
    MissingDependencyError,
    JobChangedError,
    JobGraphError,
    ConfigurationError,
    FinalCheckpointError,
    DataLossError,
    OutputAheadError,
    OverloadError,
    ReplayLimitError,
    UnacknowledgedError,
    AcknowledgementError,
)
"""Errors that the next attempt would meet again (Flink: ``SuppressRestartsException``)."""


@dataclass(slots=True)
class _Ends:
    """Attempts in a row that ended alike: by which numbers, why, and the note that says so."""

    scope: str
    cause: str
    attempts: list[int]
    why: str
    note: str


def _cause(why: str) -> str:
    """Why an attempt ended, without its number."""
    return "\n".join(line for line in why.splitlines() if not line.startswith("  attempt "))


def _named(attempts: Sequence[int]) -> str:
    """``attempt 3``, ``attempts 1 and 2``, ``attempts 1 to 4``."""
    first, last = attempts[0], attempts[-1]
    if len(attempts) <= 2:
        return f"attempt{'s'[: len(attempts) - 1]} {' and '.join(map(str, attempts))}"
    if last - first == len(attempts) - 1:
        return f"attempts {first} to {last}"
    return f"{len(attempts)} attempts from {first} to {last}"


class FailingTask(Protocol):
    """A task that may fail."""

    place: TaskPlace
    life: TaskLife
    chain: OperatorChain


class Deployer(Protocol):
    """Deploys and cancels the tasks, and ends the job."""

    @property
    def driver(self) -> CheckpointDriver:
        """That of the present job manager."""

    def deploy_all(self, restored: RestoredJob | None, problems: tuple[str, ...]) -> None:
        """Deploy all tasks, from ``restored`` or from nothing; ``problems``: checkpoints passed over."""

    def deploy(self, ids: Region, restored: RestoredJob | None, problems: tuple[str, ...]) -> None:
        """Deploy these tasks."""

    def cancel_tasks(self) -> None:
        """No task goes on."""

    def tasks_down(self, ids: Region) -> None:
        """These tasks are to be deployed anew."""

    def replace_coordinator(self) -> None:
        """The job manager has died: its successor remembers nothing."""

    def take_over(self, restored: RestoredJob | None) -> None:
        """Begin with the contents of storage, up to ``restored``."""

    def shut_down(self, status: JobStatus) -> None:
        """The job is over."""

    def end_run(self) -> None:
        """The job can do nothing more."""


class Failover:
    """The failures of one job; see the rules at the top of the module."""

    name = "failover"

    def __init__(
        self,
        config: RunConfig,
        *,
        kernel: Kernel,
        job: JobProgress,
        tasks: Mapping[TaskId, FailingTask],
        files: CheckpointFiles,
        savepoints: Savepoints,
        end: EndOfInput,
        unsettled: Unsettled,
        deployer: Deployer,
        draw: Callable[[str, int], int],
    ) -> None:
        """``draw``: a choice, by its stream and its bound."""
        plan, self._config = files.plan, config
        self._kernel = kernel
        self._job = job
        self._tasks = tasks
        self._files = files
        self._savepoints = savepoints
        self._end = end
        self._unsettled = unsettled
        self._deployer = deployer
        self._draw = draw
        self._strategy = config.restart_strategy()
        self._times_ns: list[int] = []
        self._failures = 0
        """Of tasks and job managers together: plans made after a failure are void after the next."""
        self._regions = failover_regions(plan) if config.failover == "region" else ()
        if config.protocol.tracks_records:
            self._regions = single_task_regions(plan)
        self._region_of = {task: at for at, region in enumerate(self._regions) for task in region}
        self._restarting: dict[int, int] = {}
        """Index of a region that is down -> number of its failure."""
        self._ends: _Ends | None = None
        """How the last attempts have ended."""

    # -- failures of tasks ----------------------------------------------------------------------------------------

    def task_failed(self, attempt: int, name: str, error: Exception) -> None:
        """A task is dead. Reports of an older attempt are ignored."""
        places = (task.place for task in self._tasks.values())
        named = (one for one in places if name in (one.name, *one.vertex.names_of(one.plan.subtask)))
        place = next((one for one in named if one.attempt == attempt), None)
        if place is None or self._job.state != RUNNING:
            return
        region = self._region_of.get(place.task_id, 0)
        if region in self._restarting:
            return
        text = str(error) or type(error).__name__
        why = text if name in text else f"{name}: {text}"
        is_one, is_tracked = len(self._regions) <= 1, self._config.protocol.tracks_records
        if is_one or self._savepoints.is_stopping or (not is_tracked and self._comes_back_in_part(region)):
            self.fail_globally(why, error)
        else:
            self._fail_region(region, why, error)

    def _comes_back_in_part(self, region: int) -> bool:
        """Whether a vertex with union state, or a job that needs all of its tasks for a checkpoint, would come back in
        part, while the rest of it finishes."""
        ids = self._regions[region]
        if not self._config.checkpoints_after_tasks_finish:
            return any(self._end.is_leaving(vertex) for vertex, _ in self._tasks)
        leaving = {vertex for vertex, _ in ids if self._end.is_leaving(vertex)}
        return any(
            task.chain.has_union_state
            for (vertex, subtask), task in self._tasks.items()
            if vertex in leaving and (vertex, subtask) not in ids
        )

    def fail_globally(self, why: str, error: Exception) -> None:
        """End the whole deployment, and perhaps begin another one."""
        now = self._kernel.now_ns
        if self._job.state != RUNNING:
            return
        self._job.state = RESTARTING
        self._begins(error)
        self._deployer.cancel_tasks()
        self._restarting.clear()
        driver = self._deployer.driver
        driver.execute(driver.coordinator.on_job_failure(now))
        # A task that cannot be reached has been given up, whatever it still does.
        lives = {task_id: task.life for task_id, task in self._tasks.items()}
        ends = {task_id: "failed" if life.disowned else life.state for task_id, life in lives.items()}
        self._savepoints.tasks_terminated(ends)
        delay_ns = self._delay_ns(error)
        if delay_ns is None:
            self.fail_job(why, error)
        else:
            self._note_end(self._job.attempt, "", why)
            self._kernel.schedule(now + self._down_ns(delay_ns, len(self._tasks)), "restart", self, self._failures)

    def recovery_struck(self, error: Exception) -> None:
        """A failure while all tasks are to be deployed anew: that begins again."""
        assert self._job.state == RESTARTING, self._job.state
        delay_ns = self._delay_ns(error)
        if delay_ns is None:
            self.fail_job(str(error), error)
            return
        down_ns = self._config.cost.detection_ns + self._down_ns(delay_ns, len(self._tasks))
        self._kernel.schedule(self._kernel.now_ns + down_ns, "restart", self, self._failures)

    def _down_ns(self, delay_ns: int, tasks: int) -> int:
        """From the notice of a failure until so many tasks are deployed."""
        return delay_ns + self._config.cost.deploy_ns(tasks)

    def _begins(self, error: Exception | None) -> None:
        """A failure ends the present attempt. One that has to be detected began before."""
        if self._job.failed_ns is None:
            detection_ns = self._config.cost.detection_ns if isinstance(error, TaskKilledError) else 0
            self._job.failed_ns = self._kernel.now_ns - detection_ns

    def _fail_region(self, region: int, why: str, error: Exception) -> None:
        now, ids = self._kernel.now_ns, self._regions[region]
        self._begins(error)
        attempt = self._tasks[ids[0]].life.attempt
        for task_id in ids:
            self._tasks[task_id].life.cancel()
        self._deployer.tasks_down(ids)
        driver = self._deployer.driver
        driver.execute(driver.coordinator.on_region_failure(ids, now))
        delay_ns = self._delay_ns(error)
        if delay_ns is None:
            self.fail_job(why, error)
            return
        self._note_end(attempt, " of 1 task" if len(ids) == 1 else f" of {len(ids)} tasks", why)
        self._restarting[region] = self._failures
        down_ns = self._down_ns(delay_ns, len(ids))
        self._kernel.schedule(now + down_ns, "restart_region", self, (region, self._failures))

    def _delay_ns(self, error: Exception) -> int | None:
        self._failures += 1
        self._times_ns.append(self._kernel.now_ns)
        if isinstance(error, NO_RESTART_HELPS):
            return None
        return self._strategy.restart_delay_ns(self._times_ns, self._draw_jitter)

    def _note_end(self, attempt: int, scope: str, why: str) -> None:
        """An attempt has ended, and another one follows. A reason that ends several in a row is noted once."""
        ends = self._ends
        if ends is None or (ends.scope, ends.cause) != (scope, _cause(why)):
            self._ends = ends = _Ends(scope, _cause(why), [], why, "")
        else:
            self._job.notes.remove(ends.note)
        ends.attempts.append(attempt)
        ends.note = f"{_named(ends.attempts)}{scope} ended: {ends.why}"
        self._job.note(ends.note)

    def _draw_jitter(self, bound: int) -> int:
        return self._draw("restart jitter", bound)

    # -- restarts -------------------------------------------------------------------------------------------------

    def restart(self, failure: int) -> None:
        """The restart delay is over (kernel event)."""
        if self._job.state != RESTARTING or failure != self._failures or self.waits("restart", failure):
            return
        found = self._newest_completed()
        if found is not None:
            self._deployer.deploy_all(*found)

    def restart_region(self, which: tuple[int, int]) -> None:
        """The restart delay of a region is over (kernel event)."""
        region, failure = which
        if self._restarting.get(region) != failure or self.waits("restart_region", which):
            return
        found = self._newest_completed()
        if found is not None:
            del self._restarting[region]
            self._deployer.deploy(self._regions[region], *found)

    def waits(self, operation: str, payload: object) -> bool:
        """Whether the newest checkpoint is not known yet: then the operation comes again."""
        if self._deployer.driver.coordinator.pending.finalizing_id is None:
            return False
        self._unsettled.waiting.append((operation, self, payload))
        return True

    def _newest_completed(self) -> tuple[RestoredJob | None, tuple[str, ...]] | None:
        """The checkpoint to restore, and the problems of newer ones; ``None`` when the job has failed over it."""
        files = self._files
        try:
            self._settle()
            completed = self._deployer.driver.coordinator.retained.ids
            restored, problems = files.latest(completed)
            if completed and restored is None:
                # A fresh start would commit a second time the records that these checkpoints have committed.
                raise _nothing_usable(problems)
            files.discard_passed_over(restored)
        except (WeirError, StateBackendError, OSError) as error:
            self.fail_job(f"no state to restart from: {error}", error)
            return None
        return restored, problems

    def _settle(self) -> None:
        # A checkpoint that failed while it was made durable may exist nevertheless. It must not come back once this
        # attempt has done anything: a resume would take it for the newest, and its files would be gone.
        for checkpoint_id in list(self._unsettled.maybe):
            self._files.discard(checkpoint_id)
            del self._unsettled.maybe[checkpoint_id]

    def fail_job(self, why: str, error: Exception) -> None:
        """The job has failed for good."""
        self._deployer.cancel_tasks()
        self._job.state = FAILED
        allowed = "no restart can help" if isinstance(error, NO_RESTART_HELPS) else self._strategy.description
        before = ""
        if self._ends is not None and self._ends.cause == _cause(why):
            # The error of the job includes it.
            self._job.notes.remove(self._ends.note)
            before = f", like {_named(self._ends.attempts)}"
            self._ends = None
        failure = JobFailedError(
            f"job {self._files.plan.job_name!r} failed in attempt {self._job.attempt}{before} ({allowed}): {why}"
        )
        failure.__cause__ = error
        self._job.error = failure
        if isinstance(error, WeirError):
            failure.exit_code = error.exit_code
        self._deployer.shut_down(JobStatus.FAILED)

    def job_is_over(self, _payload: None = None) -> None:
        """The last checkpoint can have no further effects (kernel event)."""
        self._deployer.end_run()

    # -- failures of the job manager --------------------------------------------------------------------------------

    def kill_master(self, cause: str) -> None:
        """The job manager dies, and its tasks with it; a successor comes."""
        now = self._kernel.now_ns
        if self._job.state in ENDED:
            self._job.note(f"nothing to kill at {self._job.elapsed}: the job is {self._job.state}")
            if not self.waits("job_is_over", None):
                self._deployer.end_run()
            return
        died = self._deployer.driver.coordinator
        for task in self._tasks.values():
            if task.place.hook is not None and task.place.hook.pause is not None:
                # It hears nothing.
                task.life.disowned = True
        self._deployer.cancel_tasks()
        self._job.state = RECOVERING
        self._begins(None)
        self._failures += 1
        self._restarting.clear()
        self._unsettled.forget()
        self._savepoints.master_died(died.waiting_labels)
        self._job.note(f"the job manager was {cause} in attempt {self._job.attempt}")
        for checkpoint_id in died.pending.ids:
            reason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
            died.statistics.on_failed(checkpoint_id, reason, now, "the job manager died")
        self._deployer.replace_coordinator()
        down_ns = self._down_ns(self._config.master_recovery_ns, len(self._tasks))
        self._kernel.schedule(now + down_ns, "recover", self, self._failures)

    def recover(self, failure: int) -> None:
        """A new job manager takes over from the durable checkpoints (kernel event)."""
        if self._job.state != RECOVERING or failure != self._failures:
            return
        try:
            self._files.discard_leftovers()
            # The files decide, not the memory of the dead job manager (mutant "empty checkpoint chosen").
            restored, problems = self._files.latest()
            if restored is None and problems:
                raise _nothing_usable(problems)
            self._deployer.take_over(restored)
        except (WeirError, StateBackendError, OSError) as error:
            self.fail_job(f"no state to recover from: {error}", error)
            return
        self._deployer.deploy_all(restored, problems)

    def fingerprint(self) -> object:
        now = self._kernel.now_ns
        return (
            self._unsettled.fingerprint(),
            tuple(self._restarting.items()),
            tuple(now - failed_ns for failed_ns in self._times_ns),
        )


def _nothing_usable(problems: tuple[str, ...]) -> StorageError:
    return StorageError("none of the completed checkpoints can be used\n  " + "\n  ".join(problems))
