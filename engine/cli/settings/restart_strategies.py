"""Restart strategies as users type them: ``none``, ``fixed:3:10ms``, ``exponential:10ms:1s``, ``rate:2:1m:10ms``.

The parts after the name are separated by colons and may be omitted from the end; omitted parts have Flink's
default (``fixed`` needs both).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.elements.errors import ConfigurationError
from engine.elements.suggestions import nearest

if TYPE_CHECKING:
    from engine.checkpoint.restore import RestartStrategy

FORMS = {
    "none": "none",
    "fixed": "fixed:ATTEMPTS:DELAY, for instance fixed:3:10ms",
    "exponential": "exponential:INITIAL:MAX:MULTIPLIER:RESET:JITTER, for instance exponential:10ms:1s:2:1m:0.1",
    "rate": "rate:FAILURES:INTERVAL:DELAY, for instance rate:2:1m:10ms",
}
"""The text form of each strategy, by its name."""


_MOST_PARTS = {"none": 0, "fixed": 2, "exponential": 5, "rate": 3}


def parse_restart(text: str) -> RestartStrategy:
    """The strategy that ``text`` describes. Raises :class:`ConfigurationError` on anything else, with the form that was
    probably meant."""
    name, *parts = text.strip().split(":")
    if name not in FORMS:
        close = nearest(name, FORMS)
        forms = [FORMS[close]] if close else list(FORMS.values())
        raise ConfigurationError(f"restart {text!r} is no restart strategy: write {'; or '.join(forms)}")
    try:
        if len(parts) > _MOST_PARTS[name]:
            raise _WrongFormError(f"{name} takes at most {_MOST_PARTS[name]} settings, and these are {len(parts)}")
        return _read(name, _Parts(text, parts))
    except _WrongFormError as error:
        raise ConfigurationError(f"restart {text!r}: {error}; write {FORMS[name]}") from None


class _WrongFormError(Exception):
    """A part is missing, superfluous, or not readable."""


class _Parts:
    """The parts of one text, taken one after the other. Without a default a part is required."""

    def __init__(self, text: str, parts: list[str]) -> None:
        self._what = f"of restart {text!r}"
        self._parts = iter(parts)

    def _take(self, name: str) -> str | None:
        part = next(self._parts, None)
        if part is not None and not part.strip():
            raise _WrongFormError(f"{name} is empty")
        return part

    def duration_ns(self, name: str, default: int | None = None) -> int:
        from engine.runtime.config import parse_duration_ns

        part = self._take(name)
        if part is not None:
            return parse_duration_ns(part, f"the {name} {self._what},")
        if default is None:
            raise _WrongFormError(f"the {name} is missing")
        return default

    def count(self, name: str, default: int | None = None) -> int:
        part = self._take(name)
        if part is None and default is not None:
            return default
        if part is None or not part.isdecimal():
            raise _WrongFormError(f"{name} must be a whole number" + ("" if part is None else f", not {part!r}"))
        return int(part)

    def number(self, name: str, default: float) -> float:
        part = self._take(name)
        try:
            return default if part is None else float(part)
        except ValueError:
            raise _WrongFormError(f"{name} must be a number, not {part!r}") from None


def _read(name: str, parts: _Parts) -> RestartStrategy:
    from engine.checkpoint.restore import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart

    if name == "none":
        return NoRestart()
    if name == "fixed":
        return FixedDelayRestart(parts.count("attempts"), parts.duration_ns("delay"))
    if name == "rate":
        rate = FailureRateRestart()
        failures = parts.count("failures", rate.max_failures)
        interval_ns = parts.duration_ns("interval", rate.interval_ns)
        return FailureRateRestart(failures, interval_ns, parts.duration_ns("delay", rate.delay_ns))
    plain = ExponentialDelayRestart()
    initial_ns = parts.duration_ns("initial delay", plain.initial_ns)
    return ExponentialDelayRestart(
        initial_ns,
        parts.duration_ns("maximal delay", max(initial_ns, plain.max_ns)),
        parts.number("multiplier", plain.multiplier),
        parts.duration_ns("reset threshold", plain.reset_after_ns),
        parts.number("jitter", plain.jitter),
    )
