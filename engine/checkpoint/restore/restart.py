"""Whether a failed job is restarted, and when (Flink: ``RestartBackoffTimeStrategy``).

A strategy is a pure function of the times of the failures so far, so one value may serve any number of runs, forks
and threads of exploration; the job manager keeps the list. It hides no chance either: the caller brings the
``draw`` that decides the jitter, from a named stream of choices. Only the requested delay has jitter; the
delays before it, which decide how far the back-off has grown, are taken without it. So the answer depends only
on the times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engine.elements.errors import ConfigurationError

Draw = Callable[[int], int]
"""``draw(bound)`` is a value from 0 to ``bound - 1``."""


def no_jitter(bound: int) -> int:
    """The draw in the middle: the delay is exactly that of the back-off."""
    return bound // 2


@runtime_checkable
class RestartStrategy(Protocol):
    """Decides after each failure of the job."""

    @property
    def description(self) -> str:
        """The limits of the strategy, for messages."""

    def restart_delay_ns(self, failure_times_ns: Sequence[int], draw: Draw = no_jitter) -> int | None:
        """How long after the last of these failures (oldest first, at least one) the job is restarted; ``None`` =
        never, the job has failed for good. ``draw`` is called at most once."""


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure is final (Flink: ``none``)."""

    @property
    def description(self) -> str:
        """For messages."""
        return "no restart"

    def restart_delay_ns(self, failure_times_ns: Sequence[int], draw: Draw = no_jitter) -> int | None:
        """Never."""
        assert failure_times_ns, "asked without a failure"
        return None


@dataclass(frozen=True, slots=True)
class FixedDelayRestart:
    """At most ``attempts`` restarts, each after the same delay (Flink: ``fixed-delay``). ``None`` = any number."""

    attempts: int | None
    delay_ns: int

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 0:
            raise ConfigurationError(
                f"restart attempts is {self.attempts}; it must be 0 or more, or None for any number"
            )
        _at_least(0, delay_ns=self.delay_ns)

    @property
    def description(self) -> str:
        """For messages."""
        count = "any number of" if self.attempts is None else f"at most {self.attempts}"
        return f"{count} restarts, {_told(self.delay_ns)} after each failure"

    def restart_delay_ns(self, failure_times_ns: Sequence[int], draw: Draw = no_jitter) -> int | None:
        """The fixed delay, until the attempts are used up."""
        assert failure_times_ns, "asked without a failure"
        if self.attempts is not None and len(failure_times_ns) > self.attempts:
            return None
        return self.delay_ns


@dataclass(frozen=True, slots=True)
class ExponentialDelayRestart:
    """Any number of restarts, each after a longer delay (Flink: ``exponential-delay``, its defaults).

    The first delay is ``initial_ns``; each further one is the one before times ``multiplier``, at most ``max_ns``.
    When the job has run for ``reset_after_ns`` since its last restart, the next failure is a first one again. A
    failure that comes before the job can have restarted (another region of it fails meanwhile) belongs to the failure
    before it: it changes no delay. ``jitter`` is the share of the delay by which the real one may be longer or shorter;
    it stays between ``initial_ns`` and ``max_ns``. ``attempts``: restarts in a row before the job is given up,
    ``None`` = any number.
    """

    initial_ns: int = 1_000_000_000
    max_ns: int = 60_000_000_000
    multiplier: float = 1.5
    reset_after_ns: int = 3_600_000_000_000
    jitter: float = 0.1
    attempts: int | None = None

    def __post_init__(self) -> None:
        _at_least(1, initial_ns=self.initial_ns, reset_after_ns=self.reset_after_ns)
        if self.max_ns < self.initial_ns:
            raise ConfigurationError(
                f"restart max_ns is {self.max_ns}; it must be at least initial_ns, which is {self.initial_ns}"
            )
        # Written so that a NaN is refused too.
        if not 1 < self.multiplier < float("inf"):
            raise ConfigurationError(f"restart multiplier is {self.multiplier}; it must be above 1, for instance 1.5")
        if not 0 <= self.jitter <= 1:
            raise ConfigurationError(f"restart jitter is {self.jitter}; it must be from 0 to 1, for instance 0.1")
        if self.attempts is not None:
            _at_least(1, attempts=self.attempts)

    @property
    def description(self) -> str:
        """For messages."""
        count = "any number of" if self.attempts is None else f"at most {self.attempts}"
        span = f"{_told(self.initial_ns)} to {_told(self.max_ns)}"
        return f"{count} restarts in a row, {span} after each failure, growing by {self.multiplier:g}"

    def restart_delay_ns(self, failure_times_ns: Sequence[int], draw: Draw = no_jitter) -> int | None:
        """The back-off after this many failures in a row."""
        assert failure_times_ns, "asked without a failure"
        backoff_ns, in_a_row, is_part = self.initial_ns, 1, False
        restart_ns = failure_times_ns[0] + backoff_ns
        for failed_ns in failure_times_ns[1:]:
            is_part = failed_ns <= restart_ns - int(backoff_ns * self.jitter)
            if is_part:
                continue
            if failed_ns - restart_ns >= self.reset_after_ns:
                backoff_ns, in_a_row = self.initial_ns, 1
            else:
                backoff_ns, in_a_row = self._grown(backoff_ns), in_a_row + 1
            restart_ns = failed_ns + backoff_ns
        if self.attempts is not None and in_a_row > self.attempts:
            return None
        return restart_ns - failure_times_ns[-1] if is_part else self._shaken(backoff_ns, draw)

    def _grown(self, backoff_ns: int) -> int:
        if backoff_ns >= self.max_ns:
            return self.max_ns
        return min(self.max_ns, max(backoff_ns + 1, int(backoff_ns * self.multiplier)))

    def _shaken(self, delay_ns: int, draw: Draw) -> int:
        reach_ns = int(delay_ns * self.jitter)
        if not reach_ns:
            return delay_ns
        return max(self.initial_ns, min(self.max_ns, delay_ns - reach_ns + draw(2 * reach_ns + 1)))


@dataclass(frozen=True, slots=True)
class FailureRateRestart:
    """Restarts as long as failures are rare (Flink: ``failure-rate``, its defaults).

    The job is given up when one more than ``max_failures`` failures lie within ``interval_ns`` (a distance of exactly
    ``interval_ns`` counts as within).
    """

    max_failures: int = 1
    interval_ns: int = 60_000_000_000
    delay_ns: int = 1_000_000_000

    def __post_init__(self) -> None:
        _at_least(1, max_failures=self.max_failures, interval_ns=self.interval_ns)
        _at_least(0, delay_ns=self.delay_ns)

    @property
    def description(self) -> str:
        """For messages."""
        return (
            f"at most {self.max_failures} failure{'s' if self.max_failures > 1 else ''}"
            f" within {_told(self.interval_ns)}, restarts {_told(self.delay_ns)} after each"
        )

    def restart_delay_ns(self, failure_times_ns: Sequence[int], draw: Draw = no_jitter) -> int | None:
        """The fixed delay, while failures stay within the rate."""
        assert failure_times_ns, "asked without a failure"
        if len(failure_times_ns) > self.max_failures:
            first_ns = failure_times_ns[-1 - self.max_failures]
            if failure_times_ns[-1] - first_ns <= self.interval_ns:
                return None
        return self.delay_ns


def _at_least(least: int, **settings: int) -> None:
    for name, value in settings.items():
        if value < least:
            raise ConfigurationError(f"restart {name} is {value}; it must be {least} or more")


def _told(time_ns: int) -> str:
    if time_ns < 1_000_000_000:
        return f"{time_ns / 1e6:g} ms"
    return f"{time_ns / 1e9:g} s"
