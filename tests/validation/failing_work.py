"""Work that fails and is checkpointed: the study of the targets about the optimal interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log

from engine import CollectedResults, Job, RunResult, SequenceSource
from engine.study import Exponential, Failures


def failing_work(
    work: int, every: int, unit: str, cost: str, mtbf: str, restart: str, seed: int, *, during_recovery: bool
) -> RunResult:
    """So many units of work, with a checkpoint after each ``every`` of them, during which no work is done. There is one
    task."""
    job = Job("work")
    job.source(SequenceSource(0, work), name="work").collect(CollectedResults(transactional=False), name="end")
    return job.run(
        checkpoint_interval=f"{every}rec", seed=seed, cost={"source_record": unit, "sync": cost},
        restart=f"fixed:10000000:{restart}",
        failures=Failures(Exponential(mtbf), during_recovery=during_recovery),
    )


def least_of(run: Callable[[int], float], around: float, factors: Sequence[float]) -> float:
    """Where a function is least: of the parabola through its logarithms, over the logarithm of its argument."""
    points = [(log(every), log(run(every))) for every in (round(around * factor) for factor in factors)]
    middle = sum(x for x, _ in points) / len(points)
    powers = [sum((x - middle) ** k for x, _ in points) for k in range(5)]
    moments = [sum((x - middle) ** k * y for x, y in points) for k in range(3)]
    # The normal equations of a + b x + c x^2, solved for b and c by elimination of a.
    n, s1, s2, s3, s4 = powers
    bb, bc, cc = s2 - s1 * s1 / n, s3 - s1 * s2 / n, s4 - s2 * s2 / n
    by, cy = moments[1] - s1 * moments[0] / n, moments[2] - s2 * moments[0] / n
    determinant = bb * cc - bc * bc
    b, c = (by * cc - cy * bc) / determinant, (cy * bb - by * bc) / determinant
    return exp(middle - b / (2 * c))


AROUND = (0.6, 0.72, 0.86, 1.0, 1.16, 1.38, 1.66)
"""Intervals that are tried, in parts of the expected one."""
