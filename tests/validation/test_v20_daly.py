"""V20: the optimal checkpoint interval of work that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from engine.study import best_period, expected_makespan
from tests.validation.failing_work import AROUND, failing_work, least_of
from tests.validation.targets import Figure, Size, assert_plausible, mean_figure, target

COST_MIN, RESTART_MIN = 5, 10
NEAR = (0.75, 0.86, 1.0, 1.16, 1.33)
"""Where a checkpoint takes a third of the time between two failures, the makespan is no parabola over a wide range: one
through the expected makespans at ``AROUND`` has its least value 2 % off, at these intervals 0.6 %."""
CASES = (("15 min", 15, 0.5, 40, 60, NEAR), ("6 h", 360, 2, 2_000, 12, AROUND), ("24 h", 1_440, 4, 2_000, 48, AROUND))
"""Time between two failures, also in minutes; minutes of one unit of work; hours of work of one run; seeds, for an
optimum known to 1 %; intervals tried."""
MEANS = {15: 160, 360: 12, 1_440: 48}
"""Seeds of the mean at the best interval."""


def makespan_min(every: int, unit_min: float, mtbf_min: int, hours: int, seed: int) -> float:
    """Of work with a checkpoint after each ``every`` units."""
    work, unit = round(hours * 60 / unit_min), f"{round(unit_min * 60)}s"
    run = failing_work(work, every, unit, f"{COST_MIN}m", f"{mtbf_min}m", f"{RESTART_MIN}m", seed, during_recovery=True)
    return run.makespan_ns / 60e9


def daly_min(interval_min: float, mtbf_min: float, hours: float) -> float:
    """The expected makespan."""
    return expected_makespan(hours * 60, interval_min + COST_MIN, COST_MIN, mtbf_min, RESTART_MIN)


@target("V20", "which interval finishes work first?", study=[failing_work], seeds=60)
def interval(size: Size) -> Iterator[Figure]:
    """The same failures strike every interval of a seed."""
    for name, mtbf_min, unit_min, hours, seeds, factors in CASES if size.full else (("15 min", 15, 0.5, 4, 3, NEAR),):
        case = f"M = {name} ({seeds} seeds)"
        best_min = best_period(COST_MIN, mtbf_min) - COST_MIN

        work = partial(makespan_min, unit_min=unit_min, mtbf_min=mtbf_min, hours=hours)

        def total_min(every: int, work: Callable[..., float] = work, seeds: int = seeds) -> float:
            return sum(work(every, seed=seed) for seed in range(seeds))

        if size.full:
            found_min = least_of(total_min, best_min / unit_min, factors) * unit_min
            yield Figure(f"{case}: interval, min", best_min, found_min, 0.03)
            least, there = (daly_min(one, mtbf_min, hours) for one in (best_min, found_min))
            yield Figure(f"{case}: expected makespan at that interval, h", least / 60, there / 60, 0.001)
        every = round(best_min / unit_min)
        # Intervals are compared seed by seed; the mean itself needs more of them.
        runs = [work(every, seed=seed) / 60 for seed in range(size.of(seeds, MEANS[mtbf_min]))]
        expected_h = daly_min(every * unit_min, mtbf_min, hours) / 60
        yield mean_figure(f"M = {name} ({len(runs)} seeds): makespan, h", expected_h, runs, 0.02)


def test_the_optimal_interval_is_that_of_daly() -> None:
    """For a checkpoint of 5 min and a restart of 10 min Daly's figures show 117, 57 and 9.1 min at a mean time between
    failures of 24 h, 6 h and 15 min; the optimum of his complete model is exactly M (1 + W(-exp(-1 - c / M))): 116.7,
    56.7, 9.17 (J. T. Daly: A higher order estimate of the optimum checkpoint interval, 2006, figures 3-5).
    """
    assert_plausible(interval)
