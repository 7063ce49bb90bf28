"""Whether a failed job is restarted, and when (Flink: ``RestartBackoffTimeStrategy``).

A strategy is a pure function of the failures so far, so one value may serve any number of runs, forks and threads of
exploration; the job manager keeps the list. A strategy that looks at *when* failures came (exponential delay, failure
rate) needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.elements.errors import ConfigurationError


class RestartStrategy(Protocol):
    """Decides after each failure of the job."""

    @property
    def description(self) -> str:
        """For messages: what the strategy allows."""

    def restart_delay_ns(self, failure_times_ns: Sequence[int]) -> int | None:
        """How long after the last of these failures (oldest first, at least one) the job is restarted; ``None`` =
        never, the job has failed for good."""


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure is final (Flink: ``none``)."""

    @property
    def description(self) -> str:
        """For messages."""
        return "no restart"

    def restart_delay_ns(self, failure_times_ns: Sequence[int]) -> int | None:
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
        if self.delay_ns < 0:
            raise ConfigurationError(f"restart delay_ns is {self.delay_ns}; it must be 0 or more")

    @property
    def description(self) -> str:
        """For messages."""
        count = "any number of" if self.attempts is None else f"at most {self.attempts}"
        return f"{count} restarts, {self.delay_ns / 1e6:g} ms after each failure"

    def restart_delay_ns(self, failure_times_ns: Sequence[int]) -> int | None:
        """The fixed delay, until the attempts are used up."""
        assert failure_times_ns, "asked without a failure"
        if self.attempts is not None and len(failure_times_ns) > self.attempts:
            return None
        return self.delay_ns
