"""How often to take a checkpoint: closed forms for work that fails at random.

The model: a checkpoint costs the work ``cost``, and is complete at its end; failures come as a Poisson process, one in
``mtbf`` on average; work since the last checkpoint is done again. All arguments have the same unit of time.

Young and Daly say how much work to do between two checkpoints. A *period* goes from the trigger of one checkpoint to
that of the next one, as the setting ``checkpoint_interval`` counts, so it is ``cost`` longer.
"""

from __future__ import annotations

from math import e, exp, isfinite, sqrt

from engine.elements.errors import ConfigurationError


def young_work(cost: float, mtbf: float) -> float:
    """``sqrt(2 c M)``, the optimum to the first order in ``c / M`` (J. W. Young: A first order approximation to the
    optimum checkpoint interval, CACM 17(9), 1974)."""
    _check(cost, mtbf)
    return sqrt(2 * cost * mtbf)


def daly_work(cost: float, mtbf: float) -> float:
    """``sqrt(2 c M) (1 + sqrt(c / 2 M) / 3 + (c / 2 M) / 9) - c``, and ``M`` from ``c = 2 M`` on (J. T. Daly: A higher
    order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006)."""
    _check(cost, mtbf)
    if cost >= 2 * mtbf:
        return mtbf
    part = cost / (2 * mtbf)
    return young_work(cost, mtbf) * (1 + sqrt(part) / 3 + part / 9) - cost


def best_period(cost: float, mtbf: float) -> float:
    """``T = c + M (1 + W(-exp(-1 - c / M)))``, the exact optimum. It does not depend on the time that a restart takes
    (S. Jayasekara, S. Karunasekera, A. Harwood: Optimizing checkpoint-based fault-tolerance in distributed stream
    processing systems, arXiv 1911.11915)."""
    _check(cost, mtbf)
    return cost + mtbf * (1 + lambert_w(-exp(-1 - cost / mtbf)))


def lambert_w(x: float) -> float:
    """The principal branch of the inverse of ``w exp(w)``, for ``-1/e <= x <= 0``."""
    if not -1 / e <= x <= 0:
        raise ConfigurationError(f"Lambert's W is asked for {x}; it is known here from -1/e to 0")
    low, high = -1.0, 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * exp(middle) < x else (low, middle)
    return low


def expected_makespan(work: float, period: float, cost: float, mtbf: float, restart: float = 0.0) -> float:
    """How long the work takes: ``M exp(R / M) (exp(T / M) - 1) work / (T - c)``. A failure may strike during a restart,
    which takes ``restart`` (Daly 2006, as above)."""
    _check(cost, mtbf)
    if not (work >= 0 and restart >= 0 and period > cost):
        raise ConfigurationError(
            f"work is {work}, restart {restart}, the period {period} and the cost of a checkpoint {cost}; work and"
            " restart must be at least 0, and the period longer than the checkpoint, so that there is work in it"
        )
    return mtbf * exp(restart / mtbf) * (exp(period / mtbf) - 1) * work / (period - cost)


def _check(cost: float, mtbf: float) -> None:
    """Raises :class:`ConfigurationError` for what are no times."""
    if not (cost >= 0 and mtbf > 0 and isfinite(cost) and isfinite(mtbf)):
        raise ConfigurationError(
            f"the cost of a checkpoint is {cost} and the time between two failures {mtbf}; the cost must be at least 0,"
            " and the time above 0"
        )
