"""Comparing runs: where they part, and which passing run is nearest to a failing one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from engine.explore.cases import FIFO, RANDOM, Case
from engine.explore.failures import compare_cases, nearest_passing
from engine.explore.failures.run_difference import CHECKPOINT, RECORD, Difference, common_events
from engine.explore.run import run_case
from engine.explore.shrink import WAITING, Budget
from engine.observe.trace_events import TraceEvent
from tests.explore.failing_job import SPLITS, judges, losing_sink, subject

_MINIMAL = Case(
    scheduler=FIFO,
    config={"batch_size": 1},
    checkpoints=(0,),
    dropped={SPLITS[0]: ((0, 1), (3, 20)), SPLITS[1]: ((0, 20),)},
)
"""The minimal case of the sink that loses a row: two records and a checkpoint before them."""

_COUNTS = dict.fromkeys(SPLITS, 20)


@pytest.fixture
def sabotaged() -> Iterator[None]:
    with losing_sink():
        yield


def test_a_run_compared_with_itself_is_the_same() -> None:
    """All events are common, nothing is marked, the output is equal."""
    difference = compare_cases(subject(), _MINIMAL, _MINIMAL)

    assert difference.same
    assert difference.output.equal
    assert difference.this_step is None
    assert "are the same run" in difference.describe()


def test_a_seed_that_draws_nothing_makes_no_difference() -> None:
    """Two seeds of a run that is spelled out are one run: the seed itself is not compared."""
    assert compare_cases(subject(), _MINIMAL, replace(_MINIMAL, seed="another")).same


def test_two_runs_part_at_the_first_event_that_differs() -> None:
    """All events before it are common; the difference shows the step on either side."""
    difference = compare_cases(subject(), _MINIMAL, replace(_MINIMAL, checkpoints=(2_000,)))

    assert not difference.same
    assert difference.this_step is not None
    assert difference.that_step is not None
    assert "triggers checkpoint 1" in difference.this_step.text
    assert "checkpoint" not in difference.that_step.text
    assert difference.this_step.text in difference.describe()
    assert difference.that_step.text in difference.describe()


def test_common_events_are_counted_to_the_first_difference() -> None:
    """A trace against itself, against a shorter one, and against one that differs in the middle."""
    events: list[TraceEvent] = []
    run_case(subject(), _MINIMAL, instruments=[events.append])
    other = list(events)
    other[10] = other[10]._replace(time_ns=1)

    assert common_events(events, events) == len(events)
    assert common_events(events, events[:7]) == 7
    assert common_events(events, other) == 10


def test_schedules_are_compared_with_their_output() -> None:
    """Two schedules of a healthy job part somewhere, and commit the same."""
    case = Case(scheduler=RANDOM, config={"batch_size": 1, "checkpoint_interval": "5us"})
    difference = compare_cases(subject(), case, replace(case, seed="2"))

    assert not difference.same
    assert difference.output.equal
    assert "committed output is the same: 40 rows" in difference.describe()


@pytest.mark.usefixtures("sabotaged")
def test_the_nearest_passing_run_stays_the_same_for_longest() -> None:
    """Without the second record the run is the same until that is read; without the checkpoint it parts earlier."""
    difference = nearest_passing(subject(), _MINIMAL, judges, records=_COUNTS)

    assert difference is not None
    assert difference.change is not None
    assert difference.change.about == RECORD
    assert difference.this_step is not None
    assert "reads #2 = 2" in difference.this_step.text
    assert difference.that.violations == []
    assert difference.this.violations != []


@pytest.mark.usefixtures("sabotaged")
def test_a_budget_of_runs_goes_to_the_smaller_changes() -> None:
    """With one run to make, the checkpoint is left out, not a record."""
    difference = nearest_passing(subject(), _MINIMAL, judges, records=_COUNTS, budget=Budget(1, 60.0))

    assert difference is not None
    assert difference.change is not None
    assert difference.change.about == CHECKPOINT
    assert difference.change.text == "without checkpoint at 0 ns"
    assert difference.output.counts.lost == 1


@pytest.mark.usefixtures("sabotaged")
def test_time_is_a_budget_where_it_is_asked_for() -> None:
    """A clock that is a day later at each reading ends the search before its first run, or not at all."""

    def found(budget: Budget | None) -> Difference | None:
        slow = map(float, itertools.count(step=86_400))
        return nearest_passing(subject(), _MINIMAL, judges, records=_COUNTS, budget=budget, clock=lambda: next(slow))

    assert found(WAITING) is None
    assert found(None) is not None


def test_without_a_passing_neighbour_there_is_none() -> None:
    """A case with more than it needs fails whatever single thing is changed."""
    case = replace(_MINIMAL, dropped={SPLITS[0]: ((8, 20),), SPLITS[1]: ((0, 20),)}, checkpoints=(0, 1_000))

    with losing_sink(least=1):
        assert nearest_passing(subject(), case, judges, records={SPLITS[0]: 8}) is None
