"""Restart strategies as they are typed: ``none``, ``fixed:3:10ms``, ``exponential:10ms:1s``, ``rate:2:1m:10ms``.

The parts behind the name are separated by colons and may be left out from the end; what is left out is Flink's
default (``fixed`` needs both).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.errors import ConfigurationError
from engine.elements.suggestions import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.checkpoint.restore import RestartStrategy

FORMS = {
    "none": "none",
    "fixed": "fixed:ATTEMPTS:DELAY, for instance fixed:3:10ms",
    "exponential": "exponential:INITIAL:MAX:MULTIPLIER:RESET:JITTER, for instance exponential:10ms:1s:2:1m:0.1",
    "rate": "rate:FAILURES:INTERVAL:DELAY, for instance rate:2:1m:10ms",
}
"""How each strategy is written, by its name."""


def parse_restart(text: str) -> RestartStrategy:
    """The strategy that ``text`` describes.

    Raises :class:`ConfigurationError` on anything else, with the form that was probably meant.
    """
    name, *parts = text.strip().split(":")
    read = _READERS.get(name)
    if read is None:
        close = nearest(name, FORMS)
        forms = [FORMS[close]] if close else list(FORMS.values())
        raise ConfigurationError(f"restart {text!r} is no restart strategy: write {'; or '.join(forms)}")
    try:
        return read(_Parts(text, name, parts))
    except _WrongFormError as error:
        raise ConfigurationError(f"restart {text!r}: {error}; write {FORMS[name]}") from None


class _WrongFormError(Exception):
    """A part is missing, too much, or cannot be read."""


class _Parts:
    """The parts of one text, taken one after the other."""

    def __init__(self, text: str, name: str, parts: list[str]) -> None:
        self._what = f"of restart {text!r}"
        self._name = name
        self._parts = parts
        self._next = 0

    def limit(self, most: int) -> _Parts:
        """Refuse more parts than there are settings."""
        if len(self._parts) > most:
            raise _WrongFormError(f"{self._name} takes at most {most} settings, and these are {len(self._parts)}")
        return self

    def _take(self, name: str) -> str | None:
        if self._next >= len(self._parts):
            return None
        part = self._parts[self._next]
        self._next += 1
        if not part.strip():
            raise _WrongFormError(f"{name} is empty")
        return part

    def duration_ns(self, name: str, default: int | None = None) -> int:
        """A time; required when there is no default."""
        from engine.runtime.config import parse_duration_ns

        part = self._take(name)
        if part is not None:
            return parse_duration_ns(part, f"the {name} {self._what},")
        if default is None:
            raise _WrongFormError(f"the {name} is missing")
        return default

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number; required when there is no default."""
        part = self._take(name)
        if part is None and default is not None:
            return default
        if part is None or not part.isdecimal():
            raise _WrongFormError(f"{name} must be a whole number" + ("" if part is None else f", not {part!r}"))
        return int(part)

    def number(self, name: str, default: float) -> float:
        """A number with or without fraction."""
        part = self._take(name)
        try:
            return default if part is None else float(part)
        except ValueError:
            raise _WrongFormError(f"{name} must be a number, not {part!r}") from None


def _none(parts: _Parts) -> RestartStrategy:
    from engine.checkpoint.restore import NoRestart

    parts.limit(0)
    return NoRestart()


def _fixed(parts: _Parts) -> RestartStrategy:
    from engine.checkpoint.restore import FixedDelayRestart

    parts.limit(2)
    return FixedDelayRestart(parts.count("attempts"), parts.duration_ns("delay"))


def _exponential(parts: _Parts) -> RestartStrategy:
    from engine.checkpoint.restore import ExponentialDelayRestart

    parts.limit(5)
    plain = ExponentialDelayRestart()
    initial_ns = parts.duration_ns("initial delay", plain.initial_ns)
    return ExponentialDelayRestart(
        initial_ns,
        parts.duration_ns("maximal delay", max(initial_ns, plain.max_ns)),
        parts.number("multiplier", plain.multiplier),
        parts.duration_ns("reset threshold", plain.reset_after_ns),
        parts.number("jitter", plain.jitter),
    )


def _rate(parts: _Parts) -> RestartStrategy:
    from engine.checkpoint.restore import FailureRateRestart

    parts.limit(3)
    plain = FailureRateRestart()
    return FailureRateRestart(
        parts.count("failures", plain.max_failures),
        parts.duration_ns("interval", plain.interval_ns),
        parts.duration_ns("delay", plain.delay_ns),
    )


_READERS: dict[str, Callable[[_Parts], RestartStrategy]] = {
    "none": _none,
    "fixed": _fixed,
    "exponential": _exponential,
    "rate": _rate,
}
