"""Numbers are shown in the largest unit that fits."""

from __future__ import annotations

import pytest

from engine.report.units import NOTHING, format_bytes, format_count, format_ns, plural


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


def test_counts() -> None:
    """Separators in large numbers; one entry, two entries, one record, no records."""
    assert (format_count(1_234_567), format_count(None)) == ("1,234,567", NOTHING)
    assert [plural(1, "entry", "entries"), plural(2, "entry", "entries")] == ["1 entry", "2 entries"]
    assert [plural(1, "record"), plural(0, "record")] == ["1 record", "0 records"]
