"""Means with their confidence intervals, by Student's distribution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import atan, cos, fsum, pi, sin, sqrt
from typing import NamedTuple


class Mean(NamedTuple):
    """A mean, and the interval that holds the true one with a confidence of 95 %. Of one value there is no interval: it
    says nothing about others."""

    mean: float
    low: float | None
    high: float | None
    runs: int


def mean_of_values(values: Sequence[float]) -> Mean:
    """Of at least one value. They are taken as independent, such as runs with different seeds are."""
    count = len(values)
    mean = fsum(values) / count
    if count == 1:
        return Mean(mean, None, None, 1)
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = student_quantile(count - 1) * deviation / sqrt(count)
    return Mean(mean, mean - half, mean + half, count)


@lru_cache(maxsize=1024)
def student_quantile(degrees: int, confidence: float = 0.95) -> float:
    """The value that |t| does not exceed with this confidence, at so many degrees of freedom."""
    assert degrees >= 1, degrees
    low, high = 0.0, 1.0
    while student_within(high, degrees) < confidence:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_within(middle, degrees) < confidence else (low, middle)
    return high


def student_within(t: float, degrees: int) -> float:
    """P(|T| <= t) (Abramowitz and Stegun: Handbook of Mathematical Functions, 26.7.3 and 26.7.4)."""
    angle = atan(t / sqrt(degrees))
    square = cos(angle) ** 2
    total, term = 0.0, 1.0 if degrees % 2 == 0 else cos(angle)
    for k in range(1 if degrees % 2 == 0 else 2, degrees, 2):
        total += term
        term *= square * k / (k + 1)
    return sin(angle) * total if degrees % 2 == 0 else 2 / pi * (angle + sin(angle) * total)
