"""Failover: what a failure takes with it, whether and when that is deployed anew, and from which checkpoint.

Rules.

* Full failover: a failed task takes the whole job with it. The job leaves the running state, and every pending and
  queued snapshot dies (CHECKPOINT_COORDINATOR_SUSPEND).
* Regional failover: it takes its region with it (:mod:`engine.runtime.regions`); the other tasks go on. Pending
  snapshots die (JOB_FAILOVER_REGION): a part of them will never come. What is triggered before the region runs again
  fails (NOT_ALL_REQUIRED_TASKS_RUNNING). A job of one region, one that is about to stop, and one with too many failed
  checkpoints fail over as a whole. So does one in which other subtasks of a vertex of the region may finish, or have
  finished, if that vertex has union state: no snapshot can be taken of a vertex of which a part of that is gone, so
  that the part that comes back could never be confirmed (Flink would try for ever). The same holds for the whole job
  where no checkpoint is taken once tasks have finished: the region that comes back would wait for one.
* In mode ``acking`` every task is a region of its own.
* The restart strategy counts all failures of the job. What no restart can help ends the job at once.
* Nothing is restored while it is unknown which checkpoint is the newest: the write of a ``_metadata`` that is under
  way is waited for, and one that failed, and may have left something, is deleted first.
* The job manager may die, too. Its tasks are cancelled with it, and what it only remembered is lost: the coordinator,
  requests under way, timers. A successor finds what is durable and deploys the job from there; that is no failure of
  the job, and no restart strategy is asked. (What the run as a whole knows survives: attempt numbers, which real
  clusters take from a fencing token, and the statistics.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.checkpoint.coordinator import JobStatus
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.errors import (
    ConfigurationError,
    DataLossError,
    ForbiddenCallError,
    JobChangedError,
    JobFailedError,
    JobGraphError,
    MissingDependencyError,
    OutputAheadError,
    StorageError,
    WeirError,
)
from engine.protocols.acking.errors import ReplayLimitError, UnacknowledgedError
from engine.runtime.job_state import ENDED, FAILED, RECOVERING, RESTARTING, RUNNING
from engine.runtime.regions import failover_regions, single_task_regions
from state_backends.base import StateBackendError

if TYPE_CHECKING:
    from engine.runtime.job_manager import JobManager
    from engine.runtime.restored_state import RestoredJob


class TaskKilledError(WeirError):
    """A task was killed on purpose."""

    exit_code = JobFailedError.exit_code


class HeartbeatTimeoutError(WeirError):
    """Nothing was heard of a task for too long: it counts as dead, whatever it does."""

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
    ReplayLimitError,
    UnacknowledgedError,
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


class Failover:
    """The failures of one job; see the rules at the top of the module."""

    name = "failover"

    def __init__(self, manager: JobManager) -> None:
        config, plan = manager.config, manager.plan
        self._manager = manager
        self._kernel = manager.kernel
        self._strategy = config.restart_strategy()
        self._times_ns: list[int] = []
        self._failures = 0
        """Of tasks and job managers together: what a failure has planned is void after the next."""
        self._regions = failover_regions(plan) if config.failover == "region" else ()
        if config.protocol.tracks_records:
            self._regions = single_task_regions(plan)
        self._region_of = {task: at for at, region in enumerate(self._regions) for task in region}
        self._restarting: dict[int, int] = {}
        """Index of a region that is down -> number of its failure."""
        self.unsettled: dict[int, None] = {}
        """Checkpoints that failed while they were made durable, and may exist."""
        self._ends: _Ends | None = None
        """How the last attempts have ended."""
        self.once_settled: list[tuple[str, object]] = []
        """Operations, with their payloads, that wait until it is known whether a checkpoint is durable."""

    # -- failures of tasks ----------------------------------------------------------------------------------------

    def task_failed(self, attempt: int, name: str, error: Exception) -> None:
        """A task is dead. What an older attempt says means nothing any more."""
        manager = self._manager
        task = next(
            (
                task
                for task in manager.tasks.values()
                if task.attempt == attempt and name in (task.name, *task.vertex.names_of(task.plan.subtask))
            ),
            None,
        )
        if task is None or manager.state != RUNNING:
            return
        region = self._region_of.get(task.task_id, 0)
        if region in self._restarting:
            return
        text = str(error) or type(error).__name__
        why = text if name in text else f"{name}: {text}"
        is_one = len(self._regions) <= 1
        if is_one or manager.savepoints.is_stopping or (manager.acking is None and self._comes_back_in_part(region)):
            self.fail_globally(why, error)
        else:
            self._fail_region(region, why, error)

    def _comes_back_in_part(self, region: int) -> bool:
        """Whether a vertex with union state, or a job that needs all of its tasks for a checkpoint, would come back in
        part, while the rest of it finishes."""
        manager, ids = self._manager, self._regions[region]
        if not manager.config.checkpoints_after_tasks_finish:
            return any(manager.end.is_leaving(vertex) for vertex, _ in manager.tasks)
        leaving = {vertex for vertex, _ in ids if manager.end.is_leaving(vertex)}
        return any(
            task.chain.has_union_state for (vertex, subtask), task in manager.tasks.items()
            if vertex in leaving and (vertex, subtask) not in ids
        )

    def fail_globally(self, why: str, error: Exception) -> None:
        """End the whole deployment, and perhaps begin another one."""
        manager, now = self._manager, self._kernel.now_ns
        if manager.state != RUNNING:
            return
        manager.state = RESTARTING
        manager.cancel_tasks()
        self._restarting.clear()
        manager.driver.execute(manager.coordinator.on_job_failure(now))
        # A task that nobody reaches has been given up, whatever it does.
        ends = {task_id: "failed" if task.disowned else task.state for task_id, task in manager.tasks.items()}
        manager.savepoints.tasks_terminated(ends)
        delay_ns = self._delay_ns(error)
        if delay_ns is None:
            self.fail_job(why, error)
        else:
            self._note_end(manager.attempt, "", why)
            self._kernel.schedule(now + delay_ns, "restart", self, self._failures)

    def _fail_region(self, region: int, why: str, error: Exception) -> None:
        manager, now, ids = self._manager, self._kernel.now_ns, self._regions[region]
        attempt = manager.tasks[ids[0]].attempt
        for task_id in ids:
            manager.tasks[task_id].cancel()
        manager.tasks_down(ids)
        manager.driver.execute(manager.coordinator.on_region_failure(ids, now))
        delay_ns = self._delay_ns(error)
        if delay_ns is None:
            self.fail_job(why, error)
            return
        self._note_end(attempt, " of 1 task" if len(ids) == 1 else f" of {len(ids)} tasks", why)
        self._restarting[region] = self._failures
        self._kernel.schedule(now + delay_ns, "restart_region", self, (region, self._failures))

    def _delay_ns(self, error: Exception) -> int | None:
        self._failures += 1
        self._times_ns.append(self._kernel.now_ns)
        if isinstance(error, NO_RESTART_HELPS):
            return None
        return self._strategy.restart_delay_ns(self._times_ns, self._draw_jitter)

    def _note_end(self, attempt: int, scope: str, why: str) -> None:
        """An attempt has ended, and another one follows. What ends several in a row is told once."""
        manager, ends = self._manager, self._ends
        if ends is None or (ends.scope, ends.cause) != (scope, _cause(why)):
            self._ends = ends = _Ends(scope, _cause(why), [], why, "")
        else:
            manager.notes.remove(ends.note)
        ends.attempts.append(attempt)
        ends.note = f"{_named(ends.attempts)}{scope} ended: {ends.why}"
        manager.note(ends.note)

    def _draw_jitter(self, bound: int) -> int:
        return self._manager.choices.draw("restart jitter", bound)

    # -- restarts -------------------------------------------------------------------------------------------------

    def restart(self, failure: int) -> None:
        """The restart delay is over (kernel event)."""
        if self._manager.state != RESTARTING or failure != self._failures or self.waits("restart", failure):
            return
        found = self._newest_completed()
        if found is not None:
            self._manager.deploy_all(*found)

    def restart_region(self, which: tuple[int, int]) -> None:
        """The restart delay of a region is over (kernel event)."""
        region, failure = which
        if self._restarting.get(region) != failure or self.waits("restart_region", which):
            return
        found = self._newest_completed()
        if found is not None:
            del self._restarting[region]
            self._manager.deploy(self._regions[region], *found)

    def waits(self, operation: str, payload: object) -> bool:
        """Whether it is not known yet which checkpoint is the newest: then the operation comes again."""
        if self._manager.coordinator.pending.finalizing_id is None:
            return False
        self.once_settled.append((operation, payload))
        return True

    def metadata_settled(self) -> None:
        """The outcome of a checkpoint is known: what has waited for it may go on."""
        waiting, self.once_settled = self.once_settled, []
        for operation, payload in waiting:
            self._kernel.schedule(self._kernel.now_ns, operation, self, payload)

    def _newest_completed(self) -> tuple[RestoredJob | None, tuple[str, ...]] | None:
        """What to go on from, and what was wrong with newer ones; ``None`` when the job has failed over it."""
        files = self._manager.files
        try:
            self._settle()
            completed = self._manager.coordinator.retained.ids
            restored, problems = files.latest(completed)
            if completed and restored is None:
                # Beginning again would commit a second time what these checkpoints have committed.
                raise _nothing_usable(problems)
            files.discard_passed_over(restored)
        except (WeirError, StateBackendError, OSError) as error:
            self.fail_job(f"no state to restart from: {error}", error)
            return None
        return restored, problems

    def _settle(self) -> None:
        # A checkpoint that failed while it was made durable may exist nevertheless. It must not come back once this
        # attempt has done anything: a resume would take it for the newest, and what it refers to would be gone.
        for checkpoint_id in list(self.unsettled):
            self._manager.files.discard(checkpoint_id)
            del self.unsettled[checkpoint_id]

    def fail_job(self, why: str, error: Exception) -> None:
        """The job has failed for good."""
        manager = self._manager
        manager.cancel_tasks()
        manager.state = FAILED
        allowed = "no restart can help" if isinstance(error, NO_RESTART_HELPS) else self._strategy.description
        before = ""
        if self._ends is not None and self._ends.cause == _cause(why):
            # It is told with the error of the job.
            manager.notes.remove(self._ends.note)
            before = f", like {_named(self._ends.attempts)}"
            self._ends = None
        failure = JobFailedError(
            f"job {manager.plan.job_name!r} failed in attempt {manager.attempt}{before} ({allowed}): {why}"
        )
        failure.__cause__ = error
        manager.error = failure
        if isinstance(error, WeirError):
            failure.exit_code = error.exit_code
        manager.shut_down(JobStatus.FAILED)

    def job_is_over(self, _payload: None = None) -> None:
        """Nothing more can come of the last checkpoint (kernel event)."""
        self._manager.end_run()

    # -- failures of the job manager --------------------------------------------------------------------------------

    def kill_master(self, cause: str) -> None:
        """The job manager dies, and its tasks with it; a successor comes."""
        manager, now = self._manager, self._kernel.now_ns
        if manager.state in ENDED:
            manager.note(f"nothing to kill at {manager.elapsed}: the job is {manager.state}")
            if not self.waits("job_is_over", None):
                manager.end_run()
            return
        died = manager.coordinator
        for task in manager.tasks.values():
            # Who does nothing hears of nothing.
            task.disowned = task.disowned or task.is_silent
        manager.cancel_tasks()
        manager.state = RECOVERING
        self._failures += 1
        self._restarting.clear()
        self.once_settled.clear()
        self.unsettled.clear()
        manager.savepoints.master_died(died.waiting_labels)
        manager.note(f"the job manager was {cause} in attempt {manager.attempt}")
        for checkpoint_id in died.pending.ids:
            reason = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND
            died.statistics.on_failed(checkpoint_id, reason, now, "the job manager died")
        manager.replace_coordinator()
        self._kernel.schedule(now + manager.config.master_recovery_ns, "recover", self, self._failures)

    def recover(self, failure: int) -> None:
        """A new job manager takes over from what is durable (kernel event)."""
        manager = self._manager
        if manager.state != RECOVERING or failure != self._failures:
            return
        try:
            manager.files.discard_leftovers()
            restored, problems = manager.files.latest()
            if restored is None and problems:
                raise _nothing_usable(problems)
            manager.take_over(restored)
        except (WeirError, StateBackendError, OSError) as error:
            self.fail_job(f"no state to recover from: {error}", error)
            return
        manager.deploy_all(restored, problems)

    def fingerprint(self) -> object:
        """Everything that decides what happens next."""
        now = self._kernel.now_ns
        return (
            tuple(self.unsettled),
            tuple(self._restarting.items()),
            tuple(operation for operation, _ in self.once_settled),
            tuple(now - failed_ns for failed_ns in self._times_ns),
        )


def _nothing_usable(problems: tuple[str, ...]) -> StorageError:
    return StorageError("none of the completed checkpoints can be used\n  " + "\n  ".join(problems))
