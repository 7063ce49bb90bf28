"""V21: utilisation of a stream at the optimal interval."""

from __future__ import annotations

from collections.abc import Iterator

from engine.study import best_period
from tests.validation.failing_work import failing_work
from tests.validation.targets import Figure, Size, assert_plausible, mean_figure, target

CASES = (
    (10, 3_600, 0, 271.7, 0.9273), (10, 3_600, 60, 271.7, 0.9121),
    (30, 3_600, 0, 475.0, 0.8764), (30, 3_600, 60, 475.0, 0.8620),
)  # fmt: skip
"""Checkpoint, mean time between failures, restart, optimal period in s; utilisation."""


def utilisation(cost_s: int, mtbf_s: int, restart_s: int, failures: int, seed: int) -> float:
    """The part of the time in which work is done that stays, in a run with about so many failures."""
    work = failures * mtbf_s
    every = round(best_period(cost_s, mtbf_s) - cost_s)
    run = failing_work(work, every, "1s", f"{cost_s}s", f"{mtbf_s}s", f"{restart_s}s", seed, during_recovery=False)
    return work * 1e9 / run.makespan_ns


@target("V21", "how much of the time is useful?", study=[failing_work], seeds=10, quick_seeds=2)
def useful(size: Size) -> Iterator[Figure]:
    """At the optimal period of each case."""
    for cost_s, mtbf_s, restart_s, period_s, expected in CASES[: size.of(2, 4)]:
        case = f"c = {cost_s} s, M = {mtbf_s} s, R = {restart_s} s"
        yield Figure(f"{case}: period, s", period_s, round(best_period(cost_s, mtbf_s), 1), 0)
        runs = [utilisation(cost_s, mtbf_s, restart_s, size.of(10, 50), seed) for seed in size.seeds]
        yield mean_figure(f"{case}: utilisation", expected, runs, 0.01)


def test_utilisation_is_that_of_the_optimal_period() -> None:
    """T = c + M (1 + W(-exp(-1 - c / M))) does not depend on the restart (S. Jayasekara, S. Karunasekera, A. Harwood:
    Optimizing checkpoint-based fault-tolerance in distributed stream processing systems, arXiv 1911.11915); the
    utilisation is (T - c) / ((M + R) (exp(T / M) - 1)), if no failure strikes during a restart.
    """
    assert_plausible(useful)
