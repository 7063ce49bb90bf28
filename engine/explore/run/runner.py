"""Carries out one case: processes that run, die and are resumed, watched by invariants, until the job has ended.

A process that dies loses everything that is not in a file; the next one is another incarnation in the same
storage directory, like one of ``weir resume``. A case always ends: a run that takes too long is cut off.

The runner itself reports, apart from the invariants it was given:

* ``V13``        the job did not end: too many events or too much virtual time, no event left while a task
                 still waits, or it failed although it may restart any number of times;
* ``assertion``  an exception that is about neither the world nor the job: an assertion of the engine, or a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.restore import UnsupportedMappingError
from engine.elements.errors import ConfigurationError, JobChangedError, StorageError, WeirError
from engine.explore.cases import FIFO, PCT, Case
from engine.explore.run.file_outputs import NotedFileSystem, directory_in
from engine.explore.run.invariant import Invariant, Violation
from engine.explore.run.job_sequence import Jobs, Start
from engine.explore.run.job_under_test import OUTPUT_DIR, Subject, World
from engine.faults.fault import Fault
from engine.faults.injector import FaultInjector
from engine.graph.plan import ExecutionPlan
from engine.observe.provenance import Provenance
from engine.observe.trace_events import EVERY_CHANNEL, RECORDS, Receive, Send, TraceEvent
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution, ExecutionResult, Progress, who_waits
from engine.runtime.faulted import Interference, ProcessDiedError
from engine.runtime.job import ENDED, FAILED, STOPPED, JobManager
from engine.runtime.kernel import START_NS, Choice, ChoiceRecorder, PriorityChoices, SparseChoices
from state_backends.base import StateBackendError
from state_backends.files import FileSystem, MemoryFileSystem

NOTHING_IS_LEFT = "nothing is left to happen"
"""The first words of an execution's assertion when it has no event left and has not ended."""

_LOOK_EVERY_EVENTS = 500
"""After how many events the runner checks the limits of a case."""

LIVENESS, ASSERTION = "V13", "assertion"
"""The names of violations that the runner itself reports."""

CUT_OFF, REFUSED, BROKEN = "cut off", "refused", "broken"
"""Outcomes besides those of :mod:`engine.runtime.job.job_state`: the case took too long; a process could not start,
with an error that says why; an unexpected exception ended it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a case may take: ``events`` of the kernel, ``virtual_ns`` since its start, ``processes``, and
    ``attempts`` of each of these (``None`` = any number). A replay of a case that was cut off must use the
    same bounds."""

    events: int = 60_000
    virtual_ns: int = 24 * 3_600 * 1_000_000_000
    processes: int = 50
    attempts: int | None = None


@dataclass(slots=True)
class CaseView:
    """The view that invariants have of a running case; it is updated as processes and jobs follow each other.
    ``job`` counts these from 1; ``start``: the savepoint that the job resumes from, ``storage_dir``: the directory of
    its checkpoints; ``cancelled``: its user has just cancelled it."""

    subject: Subject
    case: Case
    config: RunConfig
    plan: ExecutionPlan
    world: World
    execution: Execution
    incarnation: int
    job: int
    start: Start | None
    storage_dir: str
    cancelled: bool = False


@dataclass(slots=True)
class FinishedCase:
    """The result of a case.

    ``outcome``   ``finished``, ``stopped``, ``failed``, ``refused``, ``cut off`` or ``broken``;
    ``results``   one for each process that ended by itself (the last one did, unless the case was cut off);
    ``faults``    those that struck, exactly; ``unused``: those of the case that never did;
    ``points``    ``(point, phase)`` -> visits;
    ``choices``   all draws, in order; ``committed``: the rows that readers see at the end.
    """

    view: CaseView
    results: list[ExecutionResult]
    committed: dict[str, list[str]]
    choices: Sequence[Choice]
    violations: list[Violation] = field(default_factory=list)
    faults: tuple[Fault, ...] = ()
    points: Mapping[tuple[str, str], int] = field(default_factory=dict)
    incarnations: int = 1
    events: int = 0
    error: Exception | None = None
    outcome: str = ""
    unused: tuple[Fault, ...] = ()
    judged_by_ledger: bool = False
    """Whether the ledger has judged its effects, because there is no reference for its rows."""

    def __repr__(self) -> str:
        rows = sum(map(len, self.committed.values()))
        broken = ", ".join(one.invariant for one in self.violations) or "no invariant"
        return f"<FinishedCase {self.outcome}: {rows:,} rows, {len(self.faults)} faults, violates {broken}>"

    @property
    def result(self) -> ExecutionResult:
        """Of the last process that ended by itself."""
        assert self.results, f"no process ended by itself: the case was {self.outcome} ({self.error})"
        return self.results[-1]

    @property
    def is_over(self) -> bool:
        """Whether the job came to its end, so that its output can be judged as a whole."""
        return self.outcome in ENDED and self.outcome != FAILED


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


class InvariantError(WeirError):
    """An invariant itself is broken: its verdict on the run is worth nothing."""


class _InvariantFailed(BaseException):
    """Says the same from within a run. Not an :class:`Exception`, or the engine would take it for a failed task."""


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
        dispatcher = _Dispatcher(self._invariants, (*hearing, *self._given))
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
        finished.violations.sort(key=_causes_first)
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
            except _InvariantFailed as error:
                raise InvariantError(str(error)) from error.__cause__
            except ConfigurationError:
                raise
            except (WeirError, StateBackendError, OSError) as error:
                if self._view is None and struck_before == self._struck_count():
                    raise
                self._error, state = error, REFUSED
            except Exception as error:
                self._error = error
                self._found.append(self._broken(error))
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
        checkpoints, files = world.checkpoints, self._noted(world)
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

    def _noted(self, world: World) -> FileSystem:
        """The files of a world; changes are reported to the invariants that need them."""
        told = [one.files_changed for one in self._invariants if type(one).files_changed != Invariant.files_changed]
        outputs = list(world.file_outputs.values())
        if not told or not outputs:
            return world.files

        def changed(path: str) -> None:
            if any(output.is_visible(path) for output in outputs):
                try:
                    for tell in told:
                        tell()
                except Exception as error:
                    raise _InvariantFailed(f"an invariant failed when {path} had changed: {error!r}") from error

        return NotedFileSystem(world.files, changed)

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
        if state == FAILED:
            text = f"the job failed for good: {_whole(error)}"
        else:
            text = f"a process could not start: {type(error).__name__}: {error}"
        self._found.append(Violation(LIVENESS, text, self._now_ns()))

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

    def _broken(self, error: Exception) -> Violation:
        view = self._view
        is_assertion = isinstance(error, AssertionError)
        if is_assertion and view is not None and str(error).startswith(NOTHING_IS_LEFT):
            text = f"{NOTHING_IS_LEFT}, but the job is {view.execution.manager.job.state}"
            return Violation(LIVENESS, f"{text}: {who_waits(view.execution.manager)}", self._now_ns())
        return Violation(ASSERTION, f"{type(error).__name__}: {error}", self._now_ns(), {"error": error})


_CONSEQUENCES = (LIVENESS, "V1", "V2")
"""The usual consequences of most mistakes. Any other violation says more about the cause."""


def _causes_first(violation: Violation) -> tuple[int, bool, int]:
    """Causes in the order in which they were seen, those seen at the end last; then consequences."""
    name, at_ns = violation.invariant, violation.at_ns
    return (1 + _CONSEQUENCES.index(name) if name in _CONSEQUENCES else 0, at_ns is None, at_ns or 0)


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


def _whole(error: BaseException | None) -> str:
    cause = None if error is None else error.__cause__
    if cause is None or str(cause) in str(error):
        return str(error)
    return f"{error} ({type(cause).__name__}: {cause})"


class _Dispatcher:
    """One instrument for all invariants: each receives only the kinds of events that it asked for. Other instruments
    receive all, after them."""

    def __init__(self, invariants: Sequence[Invariant], others: Sequence[Callable[[TraceEvent], None]]) -> None:
        self.others = others
        self.by_kind: dict[type[Any], tuple[Callable[[Any], None], ...]] = {}
        heard: list[Container[int]] = []
        for invariant in invariants:
            handlers = invariant.handlers()
            for kind, handler in handlers.items():
                self.by_kind[kind] = (*self.by_kind.get(kind, ()), handler)
            if Send in handlers or Receive in handlers:
                heard.append(invariant.records_of)
        is_shared = all(one is heard[0] for one in heard)
        self._heard = EVERY_CHANNEL if not is_shared else heard[0] if heard else ()
        self.records_of: Container[int] = EVERY_CHANNEL if others else self._heard
        """As an instrument."""
        self._hears_more = self.records_of is not self._heard

    def __call__(self, event: Any) -> None:
        kind = event.__class__
        handlers = self.by_kind.get(kind)
        if handlers is not None:
            is_element = self._hears_more and (kind is Send or kind is Receive)
            if not is_element or event.kind != RECORDS or event.channel in self._heard:
                try:
                    for handler in handlers:
                        handler(event)
                except Exception as error:
                    raise _InvariantFailed(f"an invariant failed at {event}: {error!r}") from error
        for other in self.others:
            other(event)
