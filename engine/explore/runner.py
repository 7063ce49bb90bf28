"""Carries out one case: processes that run, die and are resumed, watched by invariants, until the job has ended.

A process that dies takes everything with it that is in no file; the next one is another incarnation in the same
storage directory, as ``weir resume`` would be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from engine.checkpoint.restart import FixedDelayRestart
from engine.elements.errors import ConfigurationError
from engine.explore.case import FIFO, Case
from engine.explore.invariant import Invariant, Violation
from engine.explore.subject import CHECKPOINTS_DIR, OUTPUT_DIR, Subject, World
from engine.runtime.choices import Choice, ChoiceRecorder
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.cost import CostModel
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.storage_directory import open_storage

if TYPE_CHECKING:
    from engine.faults.fault import Fault
    from engine.graph.plan import ExecutionPlan
    from engine.observe.events import TraceEvent
    from engine.runtime.interference import Interference

RESTART_DELAY_NS = 1_000


@dataclass(slots=True)
class CaseView:
    """What invariants may look at while a case runs; it is updated as processes come and go."""

    subject: Subject
    case: Case
    config: RunConfig
    plan: ExecutionPlan
    world: World
    execution: Execution
    incarnation: int = 1


@dataclass(slots=True)
class FinishedCase:
    """What came of a case.

    ``results``   one for each process that ended by itself (the last one did, unless the case was cut off);
    ``faults``    those that struck, exactly; ``points``: ``(point, phase)`` -> visits;
    ``choices``   everything that was drawn, in order; ``committed``: what readers see at the end.
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

    @property
    def result(self) -> ExecutionResult:
        """Of the last process."""
        return self.results[-1]


def run_config(case: Case) -> RunConfig:
    """The configuration of a case.

    :raises ConfigurationError: when a setting has no such name or makes no sense
    """
    settings: dict[str, Any] = {"restart": FixedDelayRestart(None, RESTART_DELAY_NS)}
    cost: dict[str, Any] = {}
    known = {one.name for one in fields(RunConfig)}
    for name, value in case.config.items():
        if name.startswith("cost."):
            cost[name.removeprefix("cost.")] = value
        elif name == "checkpoint_interval":
            settings[name] = None if value is None else CheckpointInterval.parse(str(value))
        elif name in known:
            settings[name] = value
        elif name != "parallelism":
            raise ConfigurationError(f"a case has no setting {name!r}; it takes those of RunConfig, and cost.NAME")
    if case.checkpoints is not None:
        settings["checkpoint_interval"] = None
    return RunConfig(seed=case.seed, cost=CostModel(**cost), **settings)


def run_case(
    subject: Subject,
    case: Case,
    invariants: Sequence[Invariant] = (),
    *,
    world: World | None = None,
    interference: Interference | None = None,
    choices: ChoiceRecorder | None = None,
    instruments: Sequence[Callable[[TraceEvent], None]] = (),
) -> FinishedCase:
    """Run a case to its end and judge it."""
    world = World() if world is None else world
    config = run_config(case)
    parallelism = case.config.get("parallelism")
    assert parallelism is None or isinstance(parallelism, int), parallelism
    plan = subject.in_world(subject.plan(parallelism), world, case.dropped)
    if choices is None:
        choices = ChoiceRecorder(case.seed) if case.scheduler != FIFO else _SparseChoices(case)
    dispatcher = _Dispatcher(invariants)
    watching = [dispatcher, *instruments] if dispatcher.by_kind else list(instruments)
    with open_storage(CHECKPOINTS_DIR, plan.job_name, file_system=world.checkpoints) as opened:
        execution = Execution(
            plan,
            config,
            storage=opened.storage,
            file_system=world.files,
            output_dir=OUTPUT_DIR,
            incarnation=opened.incarnation,
            instruments=watching,
            choices=choices,
            interference=interference,
        )
        view = CaseView(subject, case, config, plan, world, execution, opened.incarnation)
        for invariant in invariants:
            invariant.process_started(view)
        result = execution.run()
    finished = FinishedCase(view, [result], world.committed(), choices.log, error=result.error)
    finished.events = result.events_executed
    for invariant in invariants:
        invariant.finished(finished)
        finished.violations += invariant.violations
    return finished


class _SparseChoices(ChoiceRecorder):
    """First come, first served, except where a case says otherwise; a draw past the bound is the last one."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.seed)
        self._case = case
        self._number = -1

    def draw(self, stream: str, bound: int) -> int:
        if stream != "schedule":
            return super().draw(stream, bound)
        if bound == 1:
            return 0
        self._number += 1
        value = min(self._case.schedule.get(self._number, 0), bound - 1)
        self.log.append(Choice(stream, value, bound))
        return value


class _Dispatcher:
    """One instrument for all invariants: each hears only of the kinds of events that it asked for."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        self.by_kind: dict[type[Any], list[Callable[[Any], None]]] = {}
        for invariant in invariants:
            for kind, handler in invariant.handlers().items():
                self.by_kind.setdefault(kind, []).append(handler)

    def __call__(self, event: TraceEvent) -> None:
        for handler in self.by_kind.get(event.__class__, ()):
            handler(event)
