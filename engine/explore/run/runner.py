"""Carries out one case: processes that run, die and are resumed, watched by invariants, until the job has ended.

A process that dies loses everything that is not in a file; the next one is another incarnation in the same
storage directory, like one of ``weir resume``. A case always ends: a run that takes too long is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.checkpoint.restore import UnsupportedMappingError
from engine.elements.errors import ConfigurationError, JobChangedError, StorageError, WeirError
from engine.explore.cases import FIFO, PCT, Case
from engine.explore.run.case_outcome import (
    BROKEN,
    CUT_OFF,
    LIVENESS,
    REFUSED,
    CaseView,
    FinishedCase,
    broken_by,
    causes_first,
    given_up,
)
from engine.explore.run.file_outputs import directory_in
from engine.explore.run.hearing import Dispatcher, InvariantError, InvariantFailed, noted_files
from engine.explore.run.invariant import Invariant, Violation
from engine.explore.run.job_sequence import Jobs
from engine.explore.run.job_under_test import OUTPUT_DIR, Subject, World
from engine.faults.injector import FaultInjector
from engine.observe.provenance import Provenance
from engine.observe.trace_events import TraceEvent
from engine.runtime.execution import ExecutionResult, Progress, who_waits
from engine.runtime.faulted import Interference, ProcessDiedError
from engine.runtime.job import ENDED, FAILED, STOPPED, JobManager
from engine.runtime.kernel import START_NS, ChoiceRecorder, PriorityChoices, SparseChoices
from state_backends.base import StateBackendError
from state_backends.files import MemoryFileSystem

_LOOK_EVERY_EVENTS = 500
"""After how many events the runner checks the limits of a case."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a case may take: ``events`` of the kernel, ``virtual_ns`` since its start, ``processes``, and
    ``attempts`` of each of these (``None`` = any number). A replay of a case that was cut off must use the
    same bounds."""

    events: int = 60_000
    virtual_ns: int = 24 * 3_600 * 1_000_000_000
    processes: int = 50
    attempts: int | None = None


def choices_of(case: Case) -> ChoiceRecorder:
    """The reader of choices that a case requests."""
    if case.scheduler == FIFO:
        return SparseChoices(case.seed, case.schedule)
    if case.scheduler == PCT:
        return PriorityChoices(case.seed, case.preemptions)
    return ChoiceRecorder(case.seed)


def injector_of(case: Case, choices: ChoiceRecorder) -> FaultInjector:
    """What makes the faults of a case strike; of one without faults, it only counts the visits of points."""
    rescales = any("parallelism" in one.settings for one in case.savepoints)
    return FaultInjector(case.faults, case.mix, choices, rescales=rescales)


def run_case(
    subject: Subject,
    case: Case,
    invariants: Sequence[Invariant] = (),
    *,
    world: World | None = None,
    interference: Interference | None = None,
    choices: ChoiceRecorder | None = None,
    instruments: Sequence[Callable[[TraceEvent], None]] = (),
    bounds: Bounds | None = None,
    provenance: Provenance | None = None,
) -> FinishedCase:
    """Run a case to its end and judge it.

    ``world`` belongs to the caller, who can look at it afterwards; ``interference`` and ``choices`` replace those that
    the case requests; ``provenance`` receives causes and effects, in all processes. Without one, a ledger
    judges output that has no reference, if V1 is among the invariants.

    :raises ConfigurationError: when the case has an invalid setting
    """
    if choices is None:
        choices = choices_of(case)
    if interference is None and (case.faults or case.mix.per_million):
        interference = injector_of(case, choices)
    ledger = None
    if provenance is None and not any(one.ends_job for one in case.savepoints):
        # A ledger is about one job: the next one may use numbers of checkpoints again, and a drained one loses records.
        ledger = next(filter(None, (one.stand_in(subject, case) for one in invariants)), None)
        if ledger is not None:
            invariants, provenance = [*invariants, ledger], ledger.provenance
    world, bounds = world or World(), bounds or Bounds()
    run = _CaseRun(subject, case, invariants, world, interference, choices, instruments, bounds, provenance)
    finished = run.to_end()
    finished.judged_by_ledger = ledger is not None
    return finished


class _CutOffError(Exception):
    """The case has exceeded its bounds."""


@dataclass(eq=False)
class _CaseRun:
    """One running case."""

    _subject: Subject
    _case: Case
    _invariants: Sequence[Invariant]
    _world: World
    _interference: Interference | None
    _choices: ChoiceRecorder
    _given: Sequence[Callable[[TraceEvent], None]]
    _bounds: Bounds
    _provenance: Provenance | None

    def __post_init__(self) -> None:
        self._injector = self._interference if isinstance(self._interference, FaultInjector) else None
        self._jobs = Jobs(self._case)
        self._parallelism = self._jobs.parallelism
        self._parallelisms = [self._parallelism]
        hearing = [self._jobs.hear] if self._jobs.cancels else []
        dispatcher = Dispatcher(self._invariants, (*hearing, *self._given))
        watched = dispatcher.by_kind or dispatcher.others
        self._instruments: list[Callable[[TraceEvent], None]] = [dispatcher] if watched else []
        asked = next((one for one in self._invariants if one.every_events), None)
        self._check: Callable[[], None] | None = None if asked is None else asked.between_events
        self._look_every = _LOOK_EVERY_EVENTS if asked is None else asked.every_events
        self._view: CaseView | None = None
        self._results: list[ExecutionResult] = []
        self._found: list[Violation] = []
        self._events = 0
        self._error: Exception | None = None

    def to_end(self) -> FinishedCase:
        outcome = self._processes()
        view = self._view
        assert view is not None, "the first process of a case starts, or run_case raises"
        finished = FinishedCase(
            view,
            self._results,
            self._committed(),
            self._choices.log,
            self._found,
            incarnations=view.incarnation,
            events=self._events,
            error=self._error,
            outcome=outcome,
        )
        injector = self._injector
        if injector is not None:
            finished.faults, finished.points = injector.struck, injector.points
            finished.unused = injector.unused
        for invariant in self._invariants:
            try:
                invariant.finished(finished)
            except Exception as error:
                raise InvariantError(f"invariant {invariant.name} failed at the end of a case: {error!r}") from error
            finished.violations += invariant.violations
        finished.violations.sort(key=causes_first)
        return finished

    def _committed(self) -> dict[str, list[str]]:
        try:
            return self._world.committed()
        except StorageError as error:
            self._found.append(Violation("V1", f"readers find a file that is torn: {error}"))
            return {}

    def _processes(self) -> str:
        """One process after the other, until one ends by itself and no further one is due."""
        for _ in range(self._bounds.processes):
            struck_before = self._struck_count()
            try:
                state = self._process()
            except ProcessDiedError:
                self._process_died()
                continue
            except _CutOffError as error:
                self._found.append(Violation(LIVENESS, str(error), self._now_ns()))
                return CUT_OFF
            except InvariantFailed as error:
                raise InvariantError(str(error)) from error.__cause__
            except ConfigurationError:
                raise
            except (WeirError, StateBackendError, OSError) as error:
                if self._view is None and struck_before == self._struck_count():
                    raise
                self._error, state = error, REFUSED
            except Exception as error:
                self._error = error
                execution = None if self._view is None else self._view.execution
                self._found.append(broken_by(error, execution, self._now_ns()))
                return BROKEN
            if state in (FAILED, REFUSED):
                if self._struck_count() > struck_before and self._may_end_the_job():
                    # Like an operator who has repaired the disk: try once more, from the durable files.
                    continue
                if state == REFUSED or not self._jobs.may_go_on(self._world.checkpoints):
                    self._judge_failure(state)
                    return state
            elif state != STOPPED:
                return state
            # Another job resumes from the savepoint; between the two the machine may lose power, too.
            self._process_died()
        text = f"{self._bounds.processes} processes came to nothing, one after the other"
        self._found.append(Violation(LIVENESS, text))
        return CUT_OFF

    def _process(self) -> str:
        world, subject, injector, jobs = self._world, self._subject, self._injector, self._jobs
        plan = subject.in_world(subject.plan(self._parallelism), world, self._case.dropped)
        checkpoints, files = world.checkpoints, noted_files(world, self._invariants)
        if injector is not None:
            plan = injector.in_world(plan, world, jobs.storage_dir)
            logs = [directory_in(OUTPUT_DIR, log.path) for log in world.logs.values()]
            checkpoints, files = injector.wrap(checkpoints, "checkpoints"), injector.wrap(files, "files", logs)
        behind = 0 if self._view is None or jobs.has_begun else self._view.incarnation
        around = (self._choices, self._interference, self._instruments, self._provenance)
        with jobs.process(plan, checkpoints, files, behind, *around) as execution:
            self._view = CaseView(
                subject,
                self._case,
                jobs.config,
                plan,
                world,
                execution,
                execution.manager.deployment.environment.incarnation,
                jobs.number,
                jobs.start,
                jobs.storage_dir,
            )
            jobs.attend(execution)
            trigger = CheckpointTrigger(execution.manager)
            for at_ns in self._case.checkpoints or ():
                execution.appoint(START_NS + at_ns, "checkpoint_is_due", trigger)
            if injector is not None:
                injector.install(execution)
            for invariant in self._invariants:
                invariant.process_started(self._view)
            try:
                result = execution.run(self._between_events, self._look_every)
            finally:
                self._events += execution.kernel.executed
        self._results.append(result)
        self._error = result.error
        return result.state

    def _judge_failure(self, state: str) -> None:
        error = self._error
        if self._may_end_the_job() or self._jobs.has_stopped_in_vain:
            return
        if state == REFUSED and (
            isinstance(error, UnsupportedMappingError)
            or (isinstance(error, JobChangedError) and (self._is_chained_otherwise() or self._jobs.may_be_refused))
        ):
            # Records in flight on an edge that cannot be divided otherwise, or that another parallelism has turned
            # into a call within a task; a native savepoint for another state backend. Refusing it is right.
            return
        self._found.append(given_up(state, error, self._now_ns()))

    def _is_chained_otherwise(self) -> bool:
        """Whether the operators of a task differ between two processes."""
        first, *others = (
            [[one.uid for one in vertex.operators] for vertex in self._subject.plan(parallelism).vertices]
            for parallelism in self._parallelisms
        )
        return any(other != first for other in others)

    def _struck_count(self) -> int:
        return 0 if self._injector is None else len(self._injector.struck)

    def _process_died(self) -> None:
        view, injector, world = self._view, self._injector, self._world
        assert view is not None, "what dies has been started"
        state = view.execution.manager.job.state
        assert injector is not None or self._jobs.cancelled or state in ENDED, "who kills it?"
        view.cancelled = self._jobs.cancelled
        disks = {"checkpoints": world.checkpoints, "files": world.files}
        for invariant in self._invariants:
            invariant.process_dies(view)
        if injector is not None:
            # Real files survive: all writes are there.
            injector.storage.process_died(
                {name: disk for name, disk in disks.items() if isinstance(disk, MemoryFileSystem)}
            )
            if injector.processes.next_parallelism is not None:
                self._parallelism = injector.processes.next_parallelism
        for invariant in self._invariants:
            invariant.process_died(view)
        if self._jobs.goes_on(world.checkpoints):
            self._parallelism = self._jobs.parallelism
            if injector is not None:
                # A requested rescale was meant for the previous job.
                injector.processes.next_parallelism = None
        else:
            assert view.execution.manager.job.state not in ENDED, "a job that has ended is gone on with by another one"
        self._parallelisms.append(self._parallelism)

    def _may_end_the_job(self) -> bool:
        """Whether a fault has struck after which a job may end with an error, instead of finishing."""
        return self._injector is not None and self._injector.may_end_the_job

    def _now_ns(self) -> int | None:
        return None if self._view is None else self._view.execution.kernel.now_ns

    def _between_events(self, progress: Progress) -> None:
        view = self._view
        assert view is not None
        if self._check is not None:
            self._check()
        bounds, manager = self._bounds, view.execution.manager
        events, passed_ns = self._events + view.execution.kernel.executed, progress.virtual_ns - START_NS
        spent = None
        if events > bounds.events:
            spent = f"{events} events"
        elif passed_ns > bounds.virtual_ns:
            spent = f"{passed_ns} ns"
        elif bounds.attempts is not None and progress.attempt > bounds.attempts:
            spent = f"{bounds.attempts} attempts"
        if spent is not None:
            last = f"; at last: {manager.job.notes[-1]}" if manager.job.notes else ""
            raise _CutOffError(f"not ended after {spent}: {who_waits(manager)}{last}")


class CheckpointTrigger:
    """Triggers a checkpoint at an instant that the case names; a target of kernel events. It has the name of the
    trigger of periodic checkpoints, and does the same."""

    name = "checkpoint driver"

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager

    def checkpoint_is_due(self, _payload: None) -> None:
        """The instant has come (kernel event)."""
        manager = self._manager
        if manager.coordinator.schedule.is_running:
            manager.driver.execute(manager.coordinator.trigger_periodic(manager.kernel.now_ns))
