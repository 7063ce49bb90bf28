"""Times as they are typed: a number and a unit."""

from __future__ import annotations

import re
from decimal import Decimal

from engine.elements.errors import ConfigurationError

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION = re.compile(r"^\s*(-?\d+(?:\.\d+)?)\s*([a-zµ]+)\s*$")


def parse_duration_ns(text: str, what: str = "duration") -> int:
    """Virtual ns of ``'250ms'``, ``'1.5s'``, ``'20us'``; raises :class:`ConfigurationError` on anything else."""
    match = _DURATION.match(text)
    if match is None or match[2] not in _UNITS_NS:
        raise ConfigurationError(
            f"{what} {text!r} is not a time: write a number and a unit, one of {', '.join(_UNITS_NS)}; e.g. 250ms"
        )
    if match[1].startswith("-"):
        raise ConfigurationError(f"{what} {text!r} is negative: write a time of 0 or more; e.g. 250ms")
    # Decimal: a float would lose nanoseconds above 104 days.
    return round(Decimal(match[1]) * _UNITS_NS[match[2]])


def duration_text(time_ns: int) -> str:
    """A time as it is typed, exact: ``12us``."""
    unit = next(unit for unit in ("s", "ms", "us", "ns") if time_ns % _UNITS_NS[unit] == 0)
    return f"{time_ns // _UNITS_NS[unit]}{unit}"


def rounded_ns(time_ns: float) -> int:
    """With three digits, as a person would write it; at least 1."""
    whole = max(1, round(time_ns))
    return round(whole, min(0, 3 - len(str(whole))))
