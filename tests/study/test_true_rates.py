"""The number of tasks for a rate, by true rates, and the state that moves."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine import ConfigurationError, CountingSink, Job, RunResult, SequenceSource
from engine.study import moved_share, rescaling


def totals(count: int = 300, max_parallelism: int | None = None) -> RunResult:
    """A source of 1 us a record, a keyed operator of 10 us, a filter that drops two thirds, and a sink."""
    job = Job("totals", max_parallelism=max_parallelism)
    keyed = job.source(SequenceSource(0, count), name="numbers").key_by(lambda n: n % 7)
    sums = keyed.reduce(lambda a, b: a + b, name="sum").rebalance()
    sums.filter(lambda n: n % 3 == 0, name="third").rebalance().sink(CountingSink(), name="end")
    service = {"sum": "10us", "third": "3us"}
    return job.run(service=service, checkpoint_interval=None)


def test_tasks_are_for_the_rate() -> None:
    """250,000 records a second are 2.5 tasks of 100,000, three; an operator without a time stays as it is. State moves
    from one task to three: all but the first third."""
    table = rescaling(totals(), "250000/s")

    assert {row["vertex"]: (row["parallelism"], row["true_rate_per_s"], row["proposed"]) for row in table} == {
        "numbers": (1, 1e6, 1), "sum": (1, 1e5, 3), "third": (1, pytest.approx(1e6 / 3), 1), "end": (1, None, 1),
    }  # fmt: skip
    moved = {row["vertex"]: row["moved_share"] for row in table}
    assert moved == {"numbers": None, "sum": moved_share(1, 3, 128), "third": None, "end": None}


def test_the_load_of_an_operator_is_its_part_of_the_records() -> None:
    """What a filter drops is no load for the operators after it."""
    job = Job("filtered")
    numbers = job.source(SequenceSource(0, 400), name="numbers").filter(lambda n: n % 4 == 0)
    numbers.rebalance().map(lambda n: n, name="rare").sink(CountingSink(), name="end")
    result = job.run(service={"rare": "10us"})

    rates = {rate: rescaling(result, rate)["proposed"] for rate in ("400000/s", "400001/s", "1/h")}
    assert rates == {"400000/s": [1, 1], "400001/s": [1, 2], "1/h": [1, 1]}, "of 400,000 records it gets 100,000"


def test_more_tasks_than_key_groups_are_told() -> None:
    """State cannot be spread over them, so no share of it moves."""
    row = list(rescaling(totals(max_parallelism=2), "250000/s"))[1]

    assert (row["proposed"], row["max_parallelism"], row["moved_share"]) == (3, 2, None)


def test_a_rate_is_needed_and_records() -> None:
    """What is no rate is refused, and a run that read nothing."""
    with pytest.raises(ConfigurationError, match="rate is '900'; write records per unit of time"):
        rescaling(totals(), "900")
    with pytest.raises(ConfigurationError, match="no source of the run read a record"):
        rescaling(totals(0), "900/s")


@given(st.integers(1, 64), st.integers(1, 64), st.integers(64, 512))
def test_state_that_moves(before: int, after: int, groups: int) -> None:
    """Nothing moves without a change; to and fro it is the same; at least 1 - p / p' moves."""
    share = moved_share(before, after, groups)

    assert moved_share(before, before, groups) == 0
    assert share == moved_share(after, before, groups)
    least = 1 - min(before, after) / max(before, after)
    assert share >= least - max(before, after) / groups
