"""V22: Young's interval for a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from engine.study import best_period
from tests.validation.failing_work import AROUND, failing_work, least_of
from tests.validation.targets import Figure, Size, assert_plausible, target

NODES, YEAR_S, COST_S, PUBLISHED_S = 64, 365 * 86_400, 120, 10_915
UNIT_S = 1_200
"""Longer than a minute, so that a run has many failures: the loss of one says little."""


def makespan(every: int, failures: int, seed: int) -> int:
    """Of work in which about so many of 64 machines fail. A restart takes no time."""
    mtbf_s = YEAR_S // NODES
    work = failures * mtbf_s // UNIT_S
    run = failing_work(work, every, f"{UNIT_S}s", f"{COST_S}s", f"{mtbf_s}s", "0s", seed, during_recovery=False)
    return run.makespan_ns


@target("V22", "how often does a cluster of 64 take a checkpoint?", study=[failing_work], seeds=10, quick_seeds=2)
def period(size: Size) -> Iterator[Figure]:
    """Failures of 64 machines, each once a year, are one process."""
    yield Figure("formula, s", PUBLISHED_S, best_period(COST_S, YEAR_S / NODES), 0.001)
    failures = size.of(60, 600)

    def total(every: int) -> float:
        return sum(makespan(every, failures, seed) for seed in size.seeds)

    found_s = least_of(total, (PUBLISHED_S - COST_S) / UNIT_S, AROUND[::3]) * UNIT_S + COST_S
    # The loss of a failure is uniform over the period.
    spread = 0.3 * PUBLISHED_S / (failures * len(size.seeds)) ** 0.5
    yield Figure("least makespan of the simulation, s", PUBLISHED_S, found_s, 0.01, spread)


def test_a_cluster_of_64_takes_a_checkpoint_each_three_hours() -> None:
    """sqrt(2 c M) to the first order, here exactly: 64 machines that fail once a year each, 120 s for a checkpoint:
    10,915 s or 3.03 h (J. W. Young 1974; Y. Low et al.: Distributed GraphLab, PVLDB 2012, who say 3 h).
    """
    assert_plausible(period)
