"""Arrival processes against their closed forms, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import fmean, pvariance

import pytest

from engine.elements.arrival_processes import ArrivalProcess, Part, Periodic, Poisson, Trace
from engine.elements.errors import ConfigurationError
from engine.elements.laws import DRAW_BOUND

BEGAN_NS = 1_000


def due_times(process: ArrivalProcess, count: int, split: int = 0, splits: int = 1) -> list[int]:
    """Those of one split. Numbers are evenly spread, so that the mean is that of the law and not of a sample."""
    times, before_ns = [], BEGAN_NS
    for number in range(count):
        before_ns = process.due_ns(
            Part(split, splits, BEGAN_NS), number, before_ns, lambda at=number: (2 * at + 1) * DRAW_BOUND // (2 * count)
        )
        times.append(before_ns)
    return times


@pytest.mark.parametrize("splits", [1, 4])
def test_the_gaps_of_a_poisson_process_are_exponential(splits: int) -> None:
    """Mean and standard deviation are both 1 / rate; each of n splits has an n-th of the rate."""
    times = due_times(Poisson("8/s"), 20_000, split=splits - 1, splits=splits)
    gaps = [after - before for before, after in pairwise([BEGAN_NS, *times])]
    mean_ns = splits * 125_000_000
    assert fmean(gaps) == pytest.approx(mean_ns, rel=1e-3)
    assert pvariance(gaps) == pytest.approx(mean_ns**2, rel=5e-3)


def test_periodic_records_come_at_equal_distances_that_do_not_drift() -> None:
    """A distance that is no whole number of ns is not rounded again and again."""
    times = due_times(Periodic("3/s"), 3_001)
    assert times[0] == BEGAN_NS
    assert times[3] == BEGAN_NS + 1_000_000_000
    assert times[3_000] == BEGAN_NS + 1_000 * 1_000_000_000
    assert {after - before for before, after in pairwise(times)} == {333_333_333, 333_333_334}


def test_the_splits_of_periodic_records_and_of_a_trace_are_all_of_them() -> None:
    """Split i of n has the records i, i + n, i + 2 n, ..."""
    for process in (Periodic("7/ms"), Trace([0, 5, 5, 9, 20, 21])):
        whole = due_times(process, 6)
        parts = [due_times(process, 2, split, 3) for split in range(3)]
        assert whole == [part[at] for at in range(2) for part in parts]


def test_a_trace_is_as_given() -> None:
    """Its times count from the beginning."""
    assert due_times(Trace(["0s", "2us", 2_000, "1ms"]), 4) == [1_000, 3_000, 3_000, 1_001_000]
    assert Trace([1, 2]).most == 2


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Poisson("8"), "rate of Poisson is '8'; write records per unit of time"),
        (lambda: Periodic("0/s"), "rate of Periodic is '0/s'; it must be above 0"),
        (lambda: Trace("5ms"), "times of Trace are '5ms'; give a list"),
        (lambda: Trace([5, 3]), "times of Trace go back from 5 ns to 3 ns; sort them"),
        (lambda: Trace([-1]), "it must be from 0"),
    ],
)
def test_impossible_processes_are_refused(make: Callable[[], object], told: str) -> None:
    """The error names the process and the value."""
    with pytest.raises(ConfigurationError, match=told):
        make()
