"""Numbers as people read them: virtual times, sizes, counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TIMES = ((3_600_000_000_000, "h"), (60_000_000_000, "m"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

NOTHING = "–"
"""The text for a missing value."""


def format_ns(value: float | None) -> str:
    """A duration in ns, in the largest unit that leaves a number of at least 1: ``1.5ms``."""
    if value is None:
        return NOTHING
    factor, unit = next(((factor, unit) for factor, unit in _TIMES if abs(value) >= factor), (1, "ns"))
    return f"{_short(value / factor)}{unit}"


def format_bytes(value: float | None) -> str:
    """A size in bytes, in the largest binary unit that leaves a number of at least 1: ``1.5 KiB``."""
    if value is None:
        return NOTHING
    factor, unit = next(((factor, unit) for factor, unit in _SIZES if abs(value) >= factor), (1, "B"))
    return f"{_short(value / factor)} {unit}"


def short_ns(value: float | None) -> str:
    """Like :func:`format_ns` with three digits, for narrow columns: ``12.3ms``."""
    return _short_of(value, _TIMES, "ns", "")


def short_bytes(value: float | None) -> str:
    """Like :func:`format_bytes` with three digits (four above 1000), for narrow columns: ``12.3 KiB``."""
    return _short_of(value, _SIZES, "B", " ")


def format_count(value: int | None) -> str:
    """A count with separators: ``1,234,567``."""
    return NOTHING if value is None else f"{value:,}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """A count with its noun: ``1 entry``, ``2 entries``; ``many`` where the plural is not formed with an s."""
    return f"{format_count(count)} {noun if count == 1 else many or noun + 's'}"


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _short_of(value: float | None, units: Sequence[tuple[int, str]], smallest: str, space: str) -> str:
    if value is None:
        return NOTHING
    ascending = ((1, smallest), *reversed(units))
    number = ""
    for (factor, unit), (next_factor, _) in zip(ascending, (*ascending[1:], (0, "")), strict=True):
        number = f"{_three_digits(abs(value) / factor)}{space}{unit}"
        # A value that rounds up to a whole of the next unit is shown in that unit.
        if not next_factor or float(_three_digits(abs(value) / factor)) * factor < next_factor:
            break
    return f"-{number}" if value < 0 else number


def _three_digits(value: float) -> str:
    digits = max(0, 2 - max(0, math.floor(math.log10(value)))) if value > 0 else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
