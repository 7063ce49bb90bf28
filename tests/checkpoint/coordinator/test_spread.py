"""Averages and percentiles are those of Flink's checkpoint table."""

from __future__ import annotations

from math import floor

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import Spread
from engine.checkpoint.coordinator.checkpoint_statistics import StatsSummary
from engine.checkpoint.coordinator.spread import percentile

NUMBERS = st.integers(min_value=0, max_value=10**15)

# The measurements of the NIST/SEMATECH handbook's page on percentiles, in units of 0.0001.
NIST = sorted((
    951_772, 951_567, 951_937, 951_959, 951_442, 950_610, 951_591, 951_195, 951_065, 950_925, 951_990, 951_682,
))  # fmt: skip


@pytest.mark.parametrize(
    ("values", "per_mille", "expected"),
    [
        ([1, 2, 3, 4], 250, 1.25),
        ([1, 2, 3, 4], 300, 1.5),
        ([1, 2, 3, 4], 500, 2.5),
        ([1, 2, 3, 4], 750, 3.75),
        ([1, 2, 3], 750, 3.0),
        ([0, 1], 250, 0.0),
        ([7], 1, 7.0),
        ([7], 999, 7.0),
        (NIST, 900, 951_980.7),
        (list(range(1, 1000)), 999, 999.0),
        (list(range(1, 1001)), 999, 999.999),
    ],
)
def test_percentiles_known_from_elsewhere(values: list[int], per_mille: int, expected: float) -> None:
    """The values that Commons Math's own tests and the NIST handbook give, and both ends."""
    assert percentile(values, per_mille) == pytest.approx(expected, rel=1e-12)


def legacy(values: list[int], quantile: float) -> float:
    """Commons Math's LEGACY estimate as its documentation words it, in floating point."""
    ordered, position = sorted(values), quantile * (len(values) + 1)
    if position < 1:
        return ordered[0]
    if position >= len(ordered):
        return ordered[-1]
    lower, upper = ordered[floor(position) - 1], ordered[floor(position)]
    return lower + (position - floor(position)) * (upper - lower)


@given(st.lists(NUMBERS, min_size=1, max_size=60))
def test_a_spread_is_what_its_columns_say(values: list[int]) -> None:
    """Extremes, the average rounded down, and each percentile against a second implementation."""
    spread = Spread.of(values)

    assert spread is not None
    assert (spread.minimum, spread.average, spread.maximum) == (
        min(values), int(sum(values) // len(values)), max(values),
    )  # fmt: skip
    found = (spread.p50, spread.p90, spread.p95, spread.p99, spread.p999)
    assert found == pytest.approx([legacy(values, p) for p in (0.5, 0.9, 0.95, 0.99, 0.999)], rel=1e-9, abs=1e-3)
    assert list(found) == sorted(found)


@given(st.lists(NUMBERS, max_size=40), st.integers(min_value=1, max_value=10))
def test_a_summary_estimates_percentiles_from_its_window_only(values: list[int], window: int) -> None:
    """Extremes and average are over everything that was ever added, percentiles over the latest values."""
    summary = StatsSummary(window)
    for value in values:
        summary.add(value)
    spread, latest = summary.spread(), Spread.of(values[-window:])

    assert (spread is None) == (latest is None) == (not values)
    if spread is not None and latest is not None:
        assert (spread.minimum, spread.average, spread.maximum) == (
            min(values), sum(values) // len(values), max(values),
        )  # fmt: skip
        assert (spread.p50, spread.p90, spread.p95, spread.p99, spread.p999) == (
            latest.p50, latest.p90, latest.p95, latest.p99, latest.p999,
        )  # fmt: skip


def test_nothing_has_no_spread() -> None:
    """Neither an empty column nor a summary before its first value."""
    assert Spread.of([]) is None
    assert StatsSummary().spread() is None
