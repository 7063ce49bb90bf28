"""Shrinking: what is found is minimal, fails for the same reason, costs what it may, and says what it does not know."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from engine.elements.source import SourceContext, SplitReader
from engine.explore.cases import FIFO, Case
from engine.explore.run import FinishedCase, Invariant, Subject, Violation, run_case
from engine.explore.shrink import WAITING, Budget, Shrunk, Size, concretised, removals, shrink
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.explore.failing_job import SPLITS, judges, losing_sink, subject

_DRAWN = Case(seed="7", config={"checkpoint_interval": "5us", "batch_size": 3, "cost.link_latency_ns": 400})


@pytest.fixture
def sabotaged() -> Iterator[None]:
    with losing_sink():
        yield


def _failing_case() -> Case:
    case = concretised(run_case(subject(), _DRAWN, judges(_DRAWN)))
    assert case.schedule, "a drawn schedule is not first come, first served"
    return case


def _shrunk(case: Case, **options: Any) -> Shrunk:
    found = shrink(subject(), case, judges, **options)
    assert found is not None
    return found


@pytest.mark.usefixtures("sabotaged")
def test_two_records_and_one_checkpoint_are_left() -> None:
    """Forty records, four checkpoints and a random schedule shrink to what the mistake needs, and to nothing else."""
    shrunk = _shrunk(_failing_case())

    assert Size(records=2, faults=0, checkpoints=1, choices=0) == shrunk.after
    assert (shrunk.before.records, shrunk.before.choices) == (40, 187)
    assert shrunk.case.config == {"batch_size": 1}
    assert shrunk.case.seed == "0"
    assert shrunk.is_minimal
    assert shrunk.verified == 3
    assert shrunk.runs <= 300


@pytest.mark.usefixtures("sabotaged")
def test_every_single_removal_passes() -> None:
    """1-minimal is what was run: no case with one thing less fails."""
    shrunk = _shrunk(_failing_case())

    smaller = [case for _, case in removals(shrunk.case, shrunk.records)]
    assert len(smaller) == 3
    assert [case for case in smaller if run_case(subject(), case, judges(case)).violations] == []


@pytest.mark.usefixtures("sabotaged")
def test_shrinking_twice_changes_nothing() -> None:
    """The smallest case is a fixpoint, and shrinking is deterministic."""
    once = _shrunk(_failing_case())

    assert once.case == _shrunk(once.case).case
    assert once.case == _shrunk(_failing_case()).case


def test_a_case_that_does_not_fail_is_not_shrunk() -> None:
    """Without the mistake there is nothing to shrink."""
    assert shrink(subject(), replace(_DRAWN, scheduler=FIFO), judges) is None


@pytest.mark.usefixtures("sabotaged")
def test_a_case_with_choices_to_be_drawn_is_refused() -> None:
    """A case that is not spelled out would be another run after any removal."""
    with pytest.raises(ConfigurationError, match="spelled out"):
        shrink(subject(), _DRAWN, judges)


class _Fake:
    """Runs nothing: says which cases fail, and how."""

    def __init__(self, *bugs: Any) -> None:
        self.bugs = bugs
        self.cases: list[Case] = []
        self.watched: list[Case] = []

    def __call__(self, subject: Subject, case: Case, invariants: Sequence[Invariant]) -> FinishedCase:
        finished = run_case(subject, replace(case, faults=()), invariants)
        if invariants[0].name == "witness":
            self.watched.append(case)
        else:
            self.cases.append(case)
            finished.violations += [bug for bug in (one(case) for one in self.bugs) if bug is not None]
        return finished


def _needs(*faults: str, kind: str = "lost") -> Any:
    def bug(case: Case) -> Violation | None:
        texts = [str(fault) for fault in case.faults]
        return Violation("X", "broken", None, {"kind": kind}) if all(one in texts for one in faults) else None

    return bug


def _with_faults(*texts: str, **settings: Any) -> Case:
    dropped = dict.fromkeys(SPLITS, ((0, 20),))
    return Case(scheduler=FIFO, faults=tuple(map(parse_fault, texts)), checkpoints=(), dropped=dropped, **settings)


_FAULTS = [f"crash:count[1]@before:snapshot.sync#{number}" for number in range(1, 7)]


def test_only_the_faults_that_matter_are_left() -> None:
    """Two of six faults cause the failure together: the others go."""
    fake = _Fake(_needs(_FAULTS[2], _FAULTS[4]))

    shrunk = _shrunk(_with_faults(*_FAULTS), run=fake)

    assert [_FAULTS[2], _FAULTS[4]] == [str(fault) for fault in shrunk.case.faults]
    assert shrunk.is_minimal


def test_a_fault_is_made_simpler() -> None:
    """An earlier visit, before instead of after, a shorter time: as long as it fails."""

    def bug(case: Case) -> Violation | None:
        if any(fault.kind == "crash" and fault.number >= 3 for fault in case.faults) and any(
            fault.kind == "pause" and fault.for_ns >= 2_000 for fault in case.faults
        ):
            return Violation("X", "broken")
        return None

    case = _with_faults("crash:count[1]@after:snapshot.sync#9", "pause:count[0]@12345ns~70001ns")
    shrunk = _shrunk(case, run=_Fake(bug))

    simpler = ["crash:count[1]@before:snapshot.sync#3", "pause:count[0]@0s~2us"]
    assert simpler == [str(one) for one in shrunk.case.faults]


def test_another_mistake_is_never_taken_for_this_one() -> None:
    """A smaller case that breaks another invariant, or the same one in another way, is not accepted."""
    other = _needs(_FAULTS[0], kind="too many")
    fake = _Fake(_needs(_FAULTS[0], _FAULTS[1], kind="lost"), other)

    shrunk = _shrunk(_with_faults(*_FAULTS), run=fake, violation=Violation("X", "broken", None, {"kind": "lost"}))

    assert _FAULTS[:2] == [str(fault) for fault in shrunk.case.faults]
    assert shrunk.violation.details["kind"] == "lost"


def test_records_are_counted_where_nothing_goes_wrong() -> None:
    """A failing run may end before it has read everything; what it has not read can still be left out."""
    fake = _Fake(_needs(_FAULTS[2]))

    shrunk = _shrunk(replace(_with_faults(_FAULTS[2]), dropped={}), run=fake)

    assert [(case.faults, case.dropped) for case in fake.watched] == [((), {})]
    assert shrunk.before.records == 40
    assert shrunk.after.records == 0


def test_a_budget_that_ends_is_said() -> None:
    """With few runs the case is not minimal, and the result names each thing whose removal was not tried."""
    fake = _Fake(_needs(_FAULTS[2], _FAULTS[4]))

    shrunk = _shrunk(_with_faults(*_FAULTS), run=fake, budget=Budget(runs=6, seconds=100))

    assert len(fake.cases) <= 6
    assert not shrunk.is_minimal
    assert "not shown to be 1-minimal" in shrunk.describe()
    assert all(one.startswith("fault crash") for one in shrunk.unverified)


def test_time_is_a_budget_too() -> None:
    """A clock that stands at the end of the budget ends the search at once."""
    times = iter([0.0])
    fake = _Fake(_needs(_FAULTS[2]))

    shrunk = _shrunk(_with_faults(*_FAULTS), run=fake, budget=WAITING, clock=lambda: next(times, 100.0))

    assert len(shrunk.case.faults) == len(_FAULTS)
    assert len(shrunk.unverified) == len(_FAULTS)


def test_a_slow_machine_finds_what_a_fast_one_finds() -> None:
    """Unless seconds are asked for, the clock ends nothing: each reading of this one is a day later."""
    slow = map(float, itertools.count(step=86_400))

    shrunk = _shrunk(_with_faults(*_FAULTS), run=_Fake(_needs(_FAULTS[2])), clock=lambda: next(slow))

    assert shrunk.is_minimal
    assert len(shrunk.case.faults) == 1


def test_a_removal_that_fails_after_all_is_accepted() -> None:
    """A later pass can make an earlier one possible: the verification finds that, and shrinking begins again."""

    def bug(case: Case) -> Violation | None:
        # The record is needed as long as the second choice is there, whose removal is tried after that of records.
        if 0 not in case.schedule:
            return None
        records = any(first > 0 for first, _ in case.dropped.get(SPLITS[0], ((0, 20),)))
        return Violation("X", "broken") if records or 1 not in case.schedule else None

    dropped = {SPLITS[0]: ((1, 20),), SPLITS[1]: ((0, 20),)}
    case = Case(scheduler=FIFO, checkpoints=(), dropped=dropped, schedule={0: 1, 1: 1})
    shrunk = _shrunk(case, run=_Fake(bug))

    assert Size(records=0, faults=0, checkpoints=0, choices=1) == shrunk.after
    assert shrunk.is_minimal


class _Named:
    """A source whose only split is called like a path."""

    def __init__(self) -> None:
        self._inner = SequenceSource(0, 6)

    def splits(self, context: SourceContext) -> Sequence[str]:
        return ["/in/numbers.txt"]

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        return self._inner.open_split(self._inner.splits(context)[0], position, context)


def test_records_of_a_split_with_slashes_in_its_name_are_left_out() -> None:
    """Files are splits that are called by their paths: their records can be dropped like any others."""

    def build(_parallelism: int | None) -> Job:
        job = Job("files")
        job.source(_Named(), name="numbers").collect(CollectedResults(), name="out")
        return job

    def bug(case: Case) -> Violation | None:
        rows = run_case(Subject(build), case).committed["out"]
        return Violation("X", "broken") if "4" in rows else None

    case = Case(scheduler=FIFO, config={"batch_size": 1}, checkpoints=())
    shrunk = shrink(Subject(build), case, lambda _: [Invariant()], run=_Fake(bug))

    assert shrunk is not None
    assert shrunk.case.dropped == {"numbers//in/numbers.txt": ((0, 4), (5, 6))}
