"""V20: the optimal checkpoint interval of work that fails."""

from __future__ import annotations

from collections.abc import Iterator

from engine.study import best_period, expected_makespan
from tests.validation.failing_work import AROUND, failing_work, least_of
from tests.validation.targets import Figure, Size, assert_plausible, mean_figure, target

UNIT_S, COST_MIN, RESTART_MIN = 30, 5, 10
PER_MIN = 60 // UNIT_S
CASES = (("15 min", 15, 40, 3), ("6 h", 360, 2_000, 6), ("24 h", 1_440, 2_000, 12))
"""Time between two failures, also in minutes; hours of work of one run, and seeds."""
MEANS = {15: 160, 360: 12, 1_440: 12}
"""Seeds of the mean at the best interval."""


def makespan_min(every: int, mtbf_min: int, hours: int, seed: int) -> float:
    """Of work with a checkpoint after each ``every`` units."""
    work = hours * 3_600 // UNIT_S
    run = failing_work(
        work, every, f"{UNIT_S}s", f"{COST_MIN}m", f"{mtbf_min}m", f"{RESTART_MIN}m", seed, during_recovery=True
    )
    return run.makespan_ns / 60e9


def daly_min(interval_min: float, mtbf_min: float, hours: float) -> float:
    """The expected makespan."""
    return expected_makespan(hours * 60, interval_min + COST_MIN, COST_MIN, mtbf_min, RESTART_MIN)


@target("V20", "which interval finishes work first?", study=[failing_work], seeds=12)
def interval(size: Size) -> Iterator[Figure]:
    """The same failures strike every interval of a seed."""
    for name, mtbf_min, hours, seeds in CASES if size.full else (("15 min", 15, 4, 3),):
        case = f"M = {name} ({seeds} seeds)"
        best_min = best_period(COST_MIN, mtbf_min) - COST_MIN

        def total_min(every: int, mtbf_min: int = mtbf_min, hours: int = hours, seeds: int = seeds) -> float:
            return sum(makespan_min(every, mtbf_min, hours, seed) for seed in range(seeds))

        if size.full:
            found_min = least_of(total_min, best_min * PER_MIN, AROUND) / PER_MIN
            yield Figure(f"{case}: interval, min", best_min, found_min, 0.03)
            least, there = (daly_min(one, mtbf_min, hours) for one in (best_min, found_min))
            yield Figure(f"{case}: expected makespan at that interval, h", least / 60, there / 60, 0.001)
        every = round(best_min * PER_MIN)
        # Intervals are compared seed by seed; the mean itself needs more of them.
        runs = [makespan_min(every, mtbf_min, hours, seed) / 60 for seed in range(size.of(seeds, MEANS[mtbf_min]))]
        expected_h = daly_min(every / PER_MIN, mtbf_min, hours) / 60
        yield mean_figure(f"M = {name} ({len(runs)} seeds): makespan, h", expected_h, runs, 0.02)


def test_the_optimal_interval_is_that_of_daly() -> None:
    """For a checkpoint of 5 min and a restart of 10 min Daly's figures show 117, 57 and 9.1 min at a mean time between
    failures of 24 h, 6 h and 15 min; the optimum of his complete model is exactly M (1 + W(-exp(-1 - c / M))): 116.7,
    56.7, 9.17 (J. T. Daly: A higher order estimate of the optimum checkpoint interval, 2006, figures 3-5).
    """
    assert_plausible(interval)
