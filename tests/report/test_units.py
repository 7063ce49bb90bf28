"""Numbers are shown in the largest unit that fits."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.report.units import NOTHING, format_bytes, format_count, format_ns, plural, short_bytes, short_ns


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NOTHING),
        (0, "0ns"),
        (999, "999ns"),
        (1_000, "1µs"),
        (1_500_000, "1.5ms"),
        (2_000_000_000, "2s"),
        (90_000_000_000, "1.5m"),
        (7_200_000_000_000, "2h"),
        (333.3333, "333.33ns"),
    ],
)
def test_durations(value: float | None, text: str) -> None:
    """Nanoseconds to hours; no trailing zeros."""
    assert format_ns(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, NOTHING), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB")]
)
def test_sizes(value: float | None, text: str) -> None:
    """Binary units."""
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "time", "size"),
    [
        (None, NOTHING, NOTHING),
        (0, "0ns", "0 B"),
        (5, "5ns", "5 B"),
        (0.25, "0.25ns", "0.25 B"),
        (999, "999ns", "999 B"),
        (1_234, "1.23µs", "1.21 KiB"),
        (12_345, "12.3µs", "12.1 KiB"),
        (123_456, "123µs", "121 KiB"),
        (999_499, "999µs", "976 KiB"),
        (999_500, "1ms", "976 KiB"),
        (59_960_000_000, "1m", "55.8 GiB"),
        (-1_500, "-1.5µs", "-1.46 KiB"),
    ],
)
def test_short_numbers(value: float | None, time: str, size: str) -> None:
    """Three digits; a value that rounds up to a whole of the next unit is shown in that unit."""
    assert (short_ns(value), short_bytes(value)) == (time, size)


@given(st.integers(0, 10**15))
def test_short_numbers_are_short_and_near(value: int) -> None:
    """At most 6 and 8 characters (up to 1,000 h and 1,000 GiB), and off by half a per cent at most."""
    time, size = short_ns(value), short_bytes(value)
    factors = {"ns": 1, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
    unit = next(unit for unit in ("ns", "µs", "ms", "s", "m", "h") if time.endswith(unit))

    assert abs(float(time.removesuffix(unit)) * factors[unit] - value) <= value * 0.005
    assert len(time) <= 6
    assert len(size) <= 8 or value >= 1000 << 30


def test_counts() -> None:
    """Separators in large numbers; one entry, two entries, one record, no records."""
    assert (format_count(1_234_567), format_count(None)) == ("1,234,567", NOTHING)
    assert [plural(1, "entry", "entries"), plural(2, "entry", "entries")] == ["1 entry", "2 entries"]
    assert [plural(1, "record"), plural(0, "record")] == ["1 record", "0 records"]
