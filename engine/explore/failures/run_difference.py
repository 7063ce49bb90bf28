"""Find what makes the difference: compare a failing run with the nearest one that passes.

Two runs are compared event by event. They are the same run up to the first event that only one of them has. That event
makes the difference, and the committed output shows its result.

The *nearest passing run* of a failing case differs by one thing (a choice, a fault, an instant, a record) and stays the
same for longest. Of two that part at the same event, the smaller change is preferred: another choice before another
fault, less before otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.elements.errors import WeirError
from engine.explore.cases import Case, Savepoint
from engine.explore.opinion import OutputComparison, compare_outputs
from engine.explore.run import Bounds, FinishedCase, Subject, run_case
from engine.explore.shrink import Budget, InvariantsFactory, case_key, removals
from engine.explore.story import Story, StoryStep, tell
from engine.faults.fault import Fault
from engine.observe.points import POINTS
from engine.observe.trace_events import CheckpointCompleted, RunStarted, SnapshotAcknowledged, TraceEvent

DEFAULT_BUDGET = Budget(runs=60)

_SHOWN = 8
"""How many further changes are named."""

CHOICE, CHECKPOINT, FAULT, SAVEPOINT, SETTING, RECORD = (
    "choice", "checkpoint", "fault", "savepoint", "setting", "record",
)  # fmt: skip
"""The subject of a change, the smallest first."""

_ORDER = (CHOICE, CHECKPOINT, FAULT, SAVEPOINT, SETTING, RECORD)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing done otherwise: ``text`` describes it, ``case`` is the run with it."""

    about: str
    text: str
    case: Case


@dataclass(frozen=True, slots=True)
class Difference:
    """Two runs compared: ``this`` one and ``that`` one.

    ``common``       how many trace events both begin with;
    ``change``       the change that makes that run, ``None`` when two given cases were compared;
    ``this_story``   of this run, with the step marked at which they part; ``that_story`` likewise;
    ``output``       the committed output of this run, against that of the other one;
    ``others``       further changes that each alone make the run pass.
    """

    this: FinishedCase
    that: FinishedCase
    change: Change | None
    common: int
    this_story: Story
    that_story: Story
    output: OutputComparison
    others: tuple[Change, ...] = ()

    def __repr__(self) -> str:
        return f"<Difference {'none' if self.same else f'after {self.common:,} events'}: {self.output!r}>"

    @property
    def same(self) -> bool:
        """Whether the two runs are the same."""
        return self.common == len_of(self.this_story) == len_of(self.that_story)

    @property
    def this_step(self) -> StoryStep | None:
        """The step of this run at which they part; ``None`` when it has ended by then."""
        return _step(self.this_story)

    @property
    def that_step(self) -> StoryStep | None:
        """The step of the other run at which they part; ``None`` when it has ended by then."""
        return _step(self.that_story)

    def describe(self, this: str = "this run", that: str = "that run") -> str:
        """For people, in a few lines."""
        if self.same:
            return f"{this} and {that} are the same run: {self.common} events, and the same output"
        width = max(len(this), len(that))
        lines = [
            f"the same for {self.common} events, up to {_before(self.this_story)}; then",
            f"  {this:>{width}}  {_said(self.this_step)}",
            f"  {that:>{width}}  {_said(self.that_step)}",
        ]
        if self.change is not None and self.change.about == RECORD:
            # Different input rightly gives different output.
            pass
        elif self.output.equal:
            lines.append(f"committed output is the same: {self.output.rows_actual} rows")
        else:
            lines.append(f"committed by {this} against {that}: {self.output.describe()}")
        if self.others:
            further = f"; … {len(self.others) - _SHOWN} more" if len(self.others) > _SHOWN else ""
            lines.append(f"it passes also {'; '.join(one.text for one in self.others[:_SHOWN])}{further}")
        return "\n".join(lines)


def len_of(story: Story) -> int:
    """How many trace events a story tells of."""
    return story.steps[-1].end if story.steps else 0


def compare_cases(
    subject: Subject,
    this: Case,
    that: Case,
    invariants_for: InvariantsFactory | None = None,
    *,
    change: Change | None = None,
    others: Sequence[Change] = (),
    bounds: Bounds | None = None,
) -> Difference:
    judges = invariants_for or (lambda _case: ())
    this_story, this_finished, this_witness = tell(subject, this, judges(this), bounds)
    that_story, that_finished, that_witness = tell(subject, that, judges(that), bounds)
    common = common_events(this_witness.trace, that_witness.trace)
    return Difference(
        this_finished,
        that_finished,
        change,
        common,
        this_story.marked(common),
        that_story.marked(common),
        compare_outputs(that_finished.committed, this_finished.committed),
        tuple(others),
    )


def nearest_passing(
    subject: Subject,
    case: Case,
    invariants_for: InvariantsFactory,
    *,
    records: Mapping[str, int] | None = None,
    budget: Budget | None = None,
    bounds: Bounds | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Difference | None:
    """The failing ``case`` compared with the nearest run that breaks no invariant; ``None`` when the budget ends before
    one is found. ``records``: how many records each split has; only these can be left out."""
    budget, start_s = budget or DEFAULT_BUDGET, clock()
    witness = tell(subject, case, (), bounds)[2]
    trace = witness.trace
    passing: list[tuple[tuple[int, int], Change]] = []
    for change in _changes(case, witness.records if records is None else records)[: budget.runs]:
        if clock() - start_s > budget.seconds:
            break
        events: list[TraceEvent] = []
        judges = invariants_for(change.case)
        try:
            finished = run_case(subject, change.case, judges, instruments=[events.append], bounds=bounds)
        except WeirError:
            continue
        if not finished.violations and not finished.unused:
            passing.append(((-common_events(trace, events), _ORDER.index(change.about)), change))
    if not passing:
        return None
    passing.sort(key=lambda one: one[0])
    (_, nearest), *others = passing
    further = [change for _, change in others]
    return compare_cases(subject, case, nearest.case, invariants_for, change=nearest, others=further, bounds=bounds)


def _changes(case: Case, records: Mapping[str, int]) -> list[Change]:
    known = {case_key(case): None}
    changes: list[Change] = []
    candidates = sorted([*_otherwise(case), *_less(case, records)], key=lambda one: _ORDER.index(one.about))
    for change in candidates:
        key = case_key(change.case)
        if key not in known:
            known[key] = None
            changes.append(change)
    return changes


def _less(case: Case, records: Mapping[str, int]) -> Iterator[Change]:
    for what, smaller in removals(case, records):
        about = what.partition(" ")[0]
        text = f"with first come, first served at {what.partition(' = ')[0]}" if about == CHOICE else f"without {what}"
        yield Change(about, text, smaller)


def _otherwise(case: Case) -> Iterator[Change]:
    for number, value in sorted(case.schedule.items()):
        if value > 1:
            text = f"with choice {number} = {value - 1} instead of {value}"
            yield Change(CHOICE, text, replace(case, schedule={**case.schedule, number: value - 1}))
    for at, fault in enumerate(case.faults):
        for other in _neighbours(fault):
            faults = (*case.faults[:at], other, *case.faults[at + 1 :])
            yield Change(FAULT, f"with {other} instead of {fault}", replace(case, faults=faults))
    for at, order in enumerate(case.savepoints):
        for another in _plainer(order):
            orders = (*case.savepoints[:at], another, *case.savepoints[at + 1 :])
            yield Change(SAVEPOINT, f"with savepoint {another} instead of {order}", replace(case, savepoints=orders))
    mode = case.config.get("mode")
    if mode is not None and mode != "aligned":
        yield Change(SETTING, f"in mode aligned instead of {mode}", case.with_config(mode="aligned"))


def _plainer(order: Savepoint) -> Iterator[Savepoint]:
    """The order with one field set to its default."""
    if order.native:
        yield replace(order, native=False)
    if order.ends_job:
        yield replace(order, claim=Savepoint(order.kind, order.at_ns).claim)
    for name in sorted(order.settings):
        yield replace(order, settings={one: value for one, value in order.settings.items() if one != name})


def _neighbours(fault: Fault) -> Iterator[Fault]:
    """One visit earlier or later, or the other side of the step."""
    if fault.at_ns is None:
        if fault.number > 1:
            yield replace(fault, number=fault.number - 1)
        yield replace(fault, number=fault.number + 1)
    if fault.point is not None and fault.point in POINTS:
        for phase in POINTS[fault.point].phases:
            if phase != fault.phase:
                yield replace(fault, phase=phase)


def common_events(one: Sequence[TraceEvent], other: Sequence[TraceEvent]) -> int:
    """How many events two traces begin with in common.

    The seed and the size of state are ignored: a source with dropped records keeps longer positions.
    """
    for number, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second and _plain(first) != _plain(second):
            return number
    return min(len(one), len(other))


def _plain(event: TraceEvent) -> TraceEvent:
    if isinstance(event, RunStarted):
        return event._replace(seed="")
    if isinstance(event, SnapshotAcknowledged | CheckpointCompleted):
        return event._replace(size_bytes=0)
    return event


def _step(story: Story) -> StoryStep | None:
    if story.distinguishing is None:
        return None
    return story.steps[story.distinguishing - 1]


def _before(story: Story) -> str:
    if story.distinguishing is None:
        return "the end"
    return f"step {story.distinguishing - 1}" if story.distinguishing > 1 else "the start"


def _said(step: StoryStep | None) -> str:
    return "has ended" if step is None else f"{step.number}. {step.text}"
