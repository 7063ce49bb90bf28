"""Histograms of times: exact to 0.1 %, whatever the range."""

from __future__ import annotations

from hypothesis import given, strategies as st

from engine.observe.histogram import Histogram


def test_small_values_are_exact() -> None:
    """A bucket each below 2,048."""
    one = Histogram([*range(1, 101), 7])
    assert (one.count, one.total, one.greatest) == (101, 5_057, 100)
    assert [one.percentile(percent) for percent in (0, 50, 99, 100)] == [1, 50, 99, 100]


def test_without_a_value_there_is_nothing() -> None:
    """Neither a mean nor a percentile."""
    assert Histogram().mean is None
    assert Histogram().percentile(50) is None


@given(st.lists(st.integers(0, 1 << 60), min_size=1), st.lists(st.integers(0, 1 << 60)), st.floats(0, 100))
def test_percentiles_are_exact_to_a_thousandth(ones: list[int], others: list[int], percent: float) -> None:
    """Also of merged histograms, and never above the greatest value."""
    merged = Histogram(ones)
    merged.merge(Histogram(others))
    everything = sorted(ones + others)
    wanted = len(everything) * percent / 100
    exact = next(value for number, value in enumerate(everything, 1) if number >= wanted)
    found = merged.percentile(percent)
    assert found is not None
    assert exact <= found <= max(exact, exact * 1025 // 1024 + 1)
    assert found <= max(everything)
    assert (merged.count, merged.total) == (len(everything), sum(everything))
