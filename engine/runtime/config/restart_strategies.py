"""Restart strategies as text: ``none``, ``fixed:3:10ms``, ``exponential:10ms:1s``, ``rate:2:1m:10ms``.

The parts after the name are separated by colons and may be omitted from the end; omitted parts have Flink's
default (``fixed`` needs both). ``any`` is any number of attempts.
"""

from __future__ import annotations

from engine.checkpoint.restore import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from engine.elements.durations import duration_text, parse_duration_ns
from engine.elements.errors import ConfigurationError
from engine.elements.suggestions import nearest

FORMS = {
    "none": "none",
    "fixed": "fixed:ATTEMPTS:DELAY, for instance fixed:3:10ms",
    "exponential": "exponential:INITIAL:MAX:MULTIPLIER:RESET:JITTER:ATTEMPTS, for instance"
    " exponential:10ms:1s:2:1m:0.1",
    "rate": "rate:FAILURES:INTERVAL:DELAY, for instance rate:2:1m:10ms",
}
"""The text form of each strategy, by its name."""


_ANY = "any"
_MOST_PARTS = {"none": 0, "fixed": 2, "exponential": 6, "rate": 3}


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
        part = self._take(name)
        if part is not None:
            return parse_duration_ns(part, f"the {name} {self._what},")
        if default is None:
            raise _WrongFormError(f"the {name} is missing")
        return default

    def count(self, name: str, default: int) -> int:
        part = self._take(name)
        return default if part is None else self._whole(name, part)

    def attempts(self, default: str | None = None) -> int | None:
        part = self._take("attempts") or default
        return None if part == _ANY else self._whole("attempts", part)

    def _whole(self, name: str, part: str | None) -> int:
        if part is None or not part.isdecimal():
            raise _WrongFormError(f"{name} must be a whole number" + ("" if part is None else f", not {part!r}"))
        return int(part)

    def number(self, name: str, default: float) -> float:
        part = self._take(name)
        try:
            return default if part is None else float(part)
        except ValueError:
            raise _WrongFormError(f"{name} must be a number, not {part!r}") from None


def restart_text(strategy: RestartStrategy) -> str:
    """The text of a strategy, which :func:`parse_restart` reads back."""
    match strategy:
        case FixedDelayRestart(attempts, delay_ns):
            return f"fixed:{_ANY if attempts is None else attempts}:{duration_text(delay_ns)}"
        case FailureRateRestart(failures, interval_ns, delay_ns):
            return f"rate:{failures}:{duration_text(interval_ns)}:{duration_text(delay_ns)}"
        case ExponentialDelayRestart(initial_ns, max_ns, multiplier, reset_ns, jitter, attempts):
            times = f"{duration_text(initial_ns)}:{duration_text(max_ns)}:{multiplier}:{duration_text(reset_ns)}"
            return f"exponential:{times}:{jitter}:{_ANY if attempts is None else attempts}"
        case NoRestart():
            return "none"
    return strategy.description


def _read(name: str, parts: _Parts) -> RestartStrategy:
    if name == "none":
        return NoRestart()
    if name == "fixed":
        return FixedDelayRestart(parts.attempts(), parts.duration_ns("delay"))
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
        parts.attempts(_ANY),
    )
