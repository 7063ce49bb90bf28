"""The settings of a checkpoint coordinator, checked (Flink: ``CheckpointCoordinatorConfiguration``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.elements.errors import ConfigurationError
from engine.elements.events import CheckpointOptions

DEFAULT_TIMEOUT_NS = 600 * 1_000_000_000
"""Ten minutes (Flink's default)."""

MAX_PAUSE_NS = 365 * 24 * 3600 * 1_000_000_000
"""A longer pause is cut to one year, so that sums of times stay sensible (Flink does the same)."""


class JobStatus(Enum):
    """How a job ended, or that it only paused (Flink: ``JobStatus``)."""

    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"
    SUSPENDED = "suspended"


class RetentionPolicy(Enum):
    """Whether completed checkpoints outlive the job (Flink: ``CheckpointRetentionPolicy``).

    ``RETAIN_ALWAYS`` is ours and the default: a finished run can be inspected.
    """

    NEVER_RETAIN_AFTER_TERMINATION = "never_retain_after_termination"
    RETAIN_ON_FAILURE = "retain_on_failure"
    RETAIN_ON_CANCELLATION = "retain_on_cancellation"
    RETAIN_ALWAYS = "retain_always"

    def discards(self, status: JobStatus) -> bool:
        """Whether a checkpoint is deleted when the job reaches ``status``."""
        if self is RetentionPolicy.RETAIN_ALWAYS:
            return False
        if self is RetentionPolicy.RETAIN_ON_FAILURE:
            return status is not JobStatus.FAILED
        if self is RetentionPolicy.RETAIN_ON_CANCELLATION:
            return status is JobStatus.FINISHED
        return True


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """How checkpoints are triggered and kept.

    ``interval_ns``         time between periodic triggers, ``None`` = no timer (requests are still served);
    ``timeout_ns``          a checkpoint that is not complete this long after it got its id is aborted;
    ``min_pause_ns``        least time between a completion and the next periodic trigger; raises the interval;
    ``max_concurrent``      checkpoints that may be pending together (1 when in-flight data is stored);
    ``num_retained``        completed checkpoints that are kept;
    ``tolerable_failures``  failures in a row that do not fail the job, ``None`` = any number;
    ``after_tasks_finish``  whether checkpoints go on once some tasks have finished;
    ``retention``           whether completed checkpoints are kept when the job ends;
    ``interval_during_backlog_ns``  takes the place of the interval while a source works off a backlog; 0 = no periodic
                            triggers meanwhile, ``None`` = the interval as always.
    """

    interval_ns: int | None = None
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    min_pause_ns: int = 0
    max_concurrent: int = 1
    num_retained: int = 1
    tolerable_failures: int | None = 0
    after_tasks_finish: bool = True
    retention: RetentionPolicy = RetentionPolicy.RETAIN_ALWAYS
    interval_during_backlog_ns: int | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("interval_ns", 1),
            ("timeout_ns", 1),
            ("min_pause_ns", 0),
            ("max_concurrent", 1),
            ("num_retained", 1),
            ("tolerable_failures", 0),
            ("interval_during_backlog_ns", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"checkpoint setting {name} is {value}; it must be at least {least}")

    def check_fits(self, options: CheckpointOptions) -> None:
        """Raise :class:`ConfigurationError` when checkpoints with these barriers cannot overlap as configured."""
        if options.needs_channel_state and self.max_concurrent != 1:
            raise ConfigurationError(
                f"checkpoint setting max_concurrent is {self.max_concurrent}, but unaligned checkpoints store "
                "the records in flight and cannot overlap; set max_concurrent to 1 or use aligned checkpoints"
            )

    @property
    def pause_ns(self) -> int:
        """``min_pause_ns``, at most a year."""
        return min(self.min_pause_ns, MAX_PAUSE_NS)

    @property
    def effective_interval_ns(self) -> int | None:
        """The interval, but never below the pause."""
        return None if self.interval_ns is None else max(self.interval_ns, self.pause_ns)

    @property
    def effective_backlog_interval_ns(self) -> int | None:
        """The interval during a backlog, but never below the pause; ``None`` = no periodic triggers."""
        slow_ns = self.interval_during_backlog_ns
        if slow_ns is None or self.interval_ns is None:
            return self.effective_interval_ns
        return max(slow_ns, self.pause_ns) if slow_ns else None
