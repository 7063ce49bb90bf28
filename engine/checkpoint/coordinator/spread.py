"""How a column of numbers is spread: extremes, average and percentiles, as in Flink's checkpoint table.

* Average: rounded down (Flink: ``StatsSummary.getAverage``, a division of two ``long``).
* Percentiles: interpolated between ranks, see :func:`percentile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def percentile(ordered: Sequence[int], per_mille: int) -> float:
    """The percentile of ascending values, by linear interpolation between ranks.

    With ``n`` values and ``h = (n + 1) * per_mille / 1000``: the first value when ``h < 1``, the last one when
    ``h >= n``, else the value at rank ``floor(h)`` (from 1) plus that fraction of the way to the next one which ``h``
    is above it. That is the estimator of Flink's ``DescriptiveStatisticsHistogram``: ``Percentile`` of Apache Commons
    Math 3 with ``EstimationType.LEGACY``. The rank is computed in integers here, so that no rounding moves it.
    """
    assert ordered, "a percentile of nothing"
    assert 0 < per_mille <= 1000, per_mille
    rank, thousandths = divmod((len(ordered) + 1) * per_mille, 1000)
    if rank < 1:
        return float(ordered[0])
    if rank >= len(ordered):
        return float(ordered[-1])
    lower, upper = ordered[rank - 1], ordered[rank]
    return lower + thousandths * (upper - lower) / 1000


@dataclass(frozen=True, slots=True)
class Spread:
    """How values are spread: extremes, average (rounded down, as Flink's) and percentiles (:func:`percentile`)."""

    minimum: int
    average: int
    maximum: int
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float

    @classmethod
    def of(cls, values: Sequence[int]) -> Spread | None:
        """The spread of these values; ``None`` without any."""
        if not values:
            return None
        return cls.over(sorted(values), min(values), sum(values) // len(values), max(values))

    @classmethod
    def over(cls, ordered: Sequence[int], minimum: int, average: int, maximum: int) -> Spread:
        """The spread with the percentiles of ``ordered`` values, which may be some of all."""
        p50, p90, p95, p99, p999 = (percentile(ordered, per_mille) for per_mille in (500, 900, 950, 990, 999))
        return cls(minimum, average, maximum, p50, p90, p95, p99, p999)
