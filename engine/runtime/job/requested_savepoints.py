"""The savepoints that a user requests of a run, and their outcomes; stopping the job with one of them.

An order is data, like a kill: when, where to, in which format, and whether the job stops with it.
:class:`engine.checkpoint.coordinator.stop_with_savepoint.StopWithSavepoint` decides how the job stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.checkpoint.coordinator import (
    FailGlobally,
    StartScheduler,
    StopFailed,
    StopInstruction,
    StopScheduler,
    StopSucceeded,
    StopWithSavepoint,
    TaskId,
    TaskTermination,
    TriggerSynchronousSavepoint,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.errors import JobFailedError, WeirError
from engine.elements.events import SavepointFormat, StopMode
from engine.runtime.job.job_state import JobProgress
from engine.runtime.kernel import Kernel

if TYPE_CHECKING:
    from engine.runtime.job.checkpoint_driver import CheckpointDriver

_LABEL = "savepoint "


class StopFailedError(WeirError):
    """A job that was to stop with a savepoint did not stop properly; the savepoint is kept."""

    exit_code = JobFailedError.exit_code


@dataclass(frozen=True, slots=True)
class SavepointOrder:
    """A savepoint that a user requests.

    ``at_ns``   virtual time since the start of the run;
    ``target``  the directory in which the savepoint's own is made;
    ``stop``    the job stops with it, and how; ``None`` = it goes on.
    """

    at_ns: int
    target: str
    savepoint_format: SavepointFormat = SavepointFormat.CANONICAL
    stop: StopMode | None = None


@dataclass(slots=True)
class SavepointReport:
    """The outcome of an order. ``path``: of the savepoint, once complete. ``error``: why there is none, or, with a
    ``path``, why the job did not stop although there is one. Neither: the run was over before."""

    order: SavepointOrder
    checkpoint_id: int | None = None
    path: str | None = None
    error: str | None = None


class StoppableJob(Protocol):
    """The services of the job for stopping with a savepoint."""

    @property
    def driver(self) -> CheckpointDriver:
        """That of the present job manager."""

    def resume_schedule_soon(self) -> None:
        """Go on with periodic checkpoints after the coordinator has given its instructions."""

    def fail_globally(self, why: str, error: Exception) -> None:
        """End the whole deployment, and perhaps begin another one."""


class Savepoints:
    """The savepoints of one run."""

    def __init__(self, kernel: Kernel, job: JobProgress, stoppable: StoppableJob) -> None:
        self._kernel = kernel
        self._job = job
        self._stoppable = stoppable
        self.reports: list[SavepointReport] = []
        self._stop: StopWithSavepoint | None = None
        self._stopping: SavepointReport | None = None
        self.is_stopping = False
        """Whether the job is about to stop with a savepoint."""

    def order(self, order: SavepointOrder) -> int:
        """Take note of an order before the run; returns its number."""
        self.reports.append(SavepointReport(order))
        return len(self.reports) - 1

    def target(self, label: str) -> str:
        """Where the savepoint of a request goes."""
        return self._report(label).order.target

    def _report(self, label: str) -> SavepointReport:
        return self.reports[int(label.removeprefix(_LABEL))]

    # -- requests -----------------------------------------------------------------------------------------------

    def trigger(self, number: int) -> None:
        """The time of an order has come."""
        report = self.reports[number]
        if self._stop is not None:
            self._fail(report, "the job is stopping with another savepoint")
        elif self._job.state != "running":
            self._fail(report, f"the job is {self._job.state}")
        elif report.order.stop is None:
            self._request(number)
        else:
            self._stop, self._stopping, self.is_stopping = StopWithSavepoint(report.order.stop), report, True
            self._follow(self._stop.begin(), number)

    def _request(self, number: int) -> None:
        driver, order = self._stoppable.driver, self.reports[number].order
        driver.execute(
            driver.coordinator.trigger_savepoint(
                f"{_LABEL}{number}", self._kernel.now_ns, stop=order.stop, savepoint_format=order.savepoint_format
            )
        )

    def completed(self, label: str, checkpoint_id: int, path: str) -> None:
        """A savepoint is durable."""
        report = self._report(label)
        report.checkpoint_id, report.path = checkpoint_id, path
        if report is self._stopping:
            assert self._stop is not None
            self._follow(self._stop.on_savepoint_completed(checkpoint_id, path))

    def failed(self, label: str, reason: CheckpointFailureReason, checkpoint_id: int | None) -> None:
        """There will be no savepoint."""
        report = self._report(label)
        report.checkpoint_id = checkpoint_id
        if report is self._stopping:
            assert self._stop is not None
            self._follow(self._stop.on_savepoint_failed(reason))
        else:
            self._fail(report, reason.value)

    @staticmethod
    def _fail(report: SavepointReport, why: str) -> None:
        report.error = why

    # -- stopping -----------------------------------------------------------------------------------------------

    def tasks_terminated(self, states: Mapping[TaskId, str]) -> bool:
        """Every task has ended, in these states. Returns whether the job has stopped with a savepoint."""
        if self._stop is None:
            return False
        report = self._stopping
        assert report is not None
        self._follow(self._stop.on_tasks_terminated({task: TaskTermination(state) for task, state in states.items()}))
        return report.path is not None and report.error is None

    def master_died(self, labels: Iterable[str]) -> None:
        """The job manager is gone: fail the requests that it can no longer answer."""
        for label in labels:
            if label.startswith(_LABEL):
                self._fail(self._report(label), "the job manager died")
        if self._stopping is not None and self._stopping.error is None:
            # The savepoint was complete already; the tasks, and with them the job, were not.
            self._fail(self._stopping, "the job manager died before the job had stopped")
        self._stopped()

    def _stopped(self) -> None:
        self._stop, self._stopping, self.is_stopping = None, None, False

    def _follow(self, instructions: Iterable[StopInstruction], number: int | None = None) -> None:
        driver = self._stoppable.driver
        for instruction in instructions:
            match instruction:
                case StopScheduler():
                    driver.execute(driver.coordinator.stop(self._kernel.now_ns))
                case TriggerSynchronousSavepoint():
                    assert number is not None
                    self._request(number)
                case StartScheduler():
                    # Not at once: the coordinator is still giving the instructions that follow from the failure.
                    self._stoppable.resume_schedule_soon()
                case FailGlobally(cause):
                    self._stoppable.fail_globally(cause, StopFailedError(cause))
                case StopSucceeded():
                    self._stopped()
                case StopFailed(cause):
                    assert self._stopping is not None
                    self._fail(self._stopping, cause)
                    self._stopped()

    def fingerprint(self) -> object:
        outcomes = tuple((report.checkpoint_id, report.path, report.error) for report in self.reports)
        return (None if self._stop is None else self._stop.fingerprint(), outcomes)
