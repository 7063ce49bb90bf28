"""V22: Young's interval for a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from engine.study import best_period
from tests.validation.failing_work import failing_work, least_of
from tests.validation.targets import Figure, Size, assert_plausible, target

NODES, YEAR_S, COST_S, PUBLISHED_S = 64, 365 * 86_400, 120, 10_915
MTBF_S = YEAR_S // NODES
UNIT_S = 2_159
"""A fifth of the work between two checkpoints at the published period."""
FACTORS = (0.4, 1.0, 2.4)
FAILURES = {2: 250, 5: 250, 12: 1_500}
"""In a run, by the units of an interval: more where a failure may lose more."""


def relative_makespan(every: int, failures: int, seed: int) -> float:
    """Of work in which about so many of 64 machines fail. A restart takes no time.

    What a failure loses is that of the simulation. Of failures there are as many as expected: the chance of a few more
    would hide the flat optimum.
    """
    intervals = failures * MTBF_S // UNIT_S // every
    run = failing_work(
        intervals * every, every, f"{UNIT_S}s", f"{COST_S}s", f"{MTBF_S}s", "0s", seed, during_recovery=False
    )
    undisturbed_s = intervals * (every * UNIT_S + COST_S)
    lost_s = (run.makespan_ns / 1e9 - undisturbed_s) / (run.attempts - 1)
    return undisturbed_s / (intervals * every * UNIT_S) / (1 - lost_s / MTBF_S)


@target("V22", "how often does a cluster of 64 take a checkpoint?", study=[failing_work], seeds=10, quick_seeds=2)
def period(size: Size) -> Iterator[Figure]:
    """Failures of 64 machines, each once a year, are one process."""
    yield Figure("formula, s", PUBLISHED_S, best_period(COST_S, YEAR_S / NODES), 0.001)
    part = size.of(25, 1)

    def mean(every: int) -> float:
        return fmean(relative_makespan(every, FAILURES[every] // part, seed) for seed in size.seeds)

    found_s = least_of(mean, (PUBLISHED_S - COST_S) / UNIT_S, FACTORS) * UNIT_S + COST_S
    # The loss of a failure is uniform over the period; that of the longest interval decides.
    spread = 0.4 * PUBLISHED_S / (FAILURES[12] // part * len(size.seeds)) ** 0.5
    yield Figure("least makespan of the simulation, s", PUBLISHED_S, found_s, 0.01, spread)


def test_a_cluster_of_64_takes_a_checkpoint_each_three_hours() -> None:
    """sqrt(2 c M) to the first order, here exactly: 64 machines that fail once a year each, 120 s for a checkpoint:
    10,915 s or 3.03 h (J. W. Young 1974; Y. Low et al.: Distributed GraphLab, PVLDB 2012, who say 3 h).
    """
    assert_plausible(period)
