"""When the open part of a bucket is closed and the next one begun (Flink: ``RollingPolicy``).

A policy is asked at three moments, always about an open part:

* *on event*, before a record is written to it: so a part may exceed a size by one record;
* *on checkpoint*, when a snapshot is taken;
* *on processing time*, at the sink's periodic check.

| policy | on event | on checkpoint | on processing time |
|---|---|---|---|
| ``DefaultRollingPolicy`` | size > limit | size > limit | age >= rollover or idle time >= inactivity |
| ``OnCheckpointRollingPolicy`` | never | always | never |
| ``TableRollingPolicy`` | size > limit | always, or size > limit | as the default |

Sizes are compared strictly, times inclusively. A checkpoint alone does not make the default policy roll, but it closes
an oversized part even if no record follows.

Sources: ``DefaultRollingPolicy``, ``OnCheckpointRollingPolicy``,
``FileSystemTableSink.TableRollingPolicy``.
"""

from __future__ import annotations

from typing import Any, Protocol

from engine.elements.errors import ConfigurationError, check_whole, shorten

DEFAULT_MAX_PART_SIZE_BYTES = 128 << 20
DEFAULT_ROLLOVER_INTERVAL_MS = 60_000
DEFAULT_INACTIVITY_INTERVAL_MS = 60_000
TABLE_ROLLOVER_INTERVAL_MS = 30 * 60_000
"""The interval of the table connector, which keeps parts open for longer."""


class PartFileInfo(Protocol):
    """A policy's view of an open part."""

    @property
    def bucket_id(self) -> str:
        """The bucket that it belongs to."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes written to the file so far. Bulk formats write when they have gathered enough."""

    @property
    def created_at_ms(self) -> int:
        """Processing time at which it was opened."""

    @property
    def last_update_ms(self) -> int:
        """Processing time of the last record; of the opening, if it was restored and has no record since."""


class RollingPolicy:
    """Base of all policies: never rolls. Methods that a subclass does not override are never called."""

    rolls_on_every_checkpoint = False
    """Whether every snapshot closes the open part, which bulk formats demand."""

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        """Whether ``part`` is closed before ``record`` is written."""
        return False

    def should_roll_on_checkpoint(self, part: PartFileInfo) -> bool:
        """Whether ``part`` is closed by the snapshot that is being taken."""
        return False

    def should_roll_on_processing_time(self, part: PartFileInfo, now_ms: int) -> bool:
        """Whether ``part`` is closed by the periodic check at ``now_ms``."""
        return False


class CheckpointRollingPolicy(RollingPolicy):
    """Base of the policies that close the open part at every checkpoint (Flink's class of that name)."""

    rolls_on_every_checkpoint = True

    def should_roll_on_checkpoint(self, part: PartFileInfo) -> bool:
        return True


class OnCheckpointRollingPolicy(CheckpointRollingPolicy):
    """Closes parts at checkpoints and at no other time, so the state never has an open part."""


class DefaultRollingPolicy(RollingPolicy):
    """Closes parts that are too large, too old or idle for too long; they stay open over checkpoints.

    ``max_part_size_bytes``     a part that is larger is closed at the next record or checkpoint;
    ``rollover_interval_ms``    how long a part may stay open;
    ``inactivity_interval_ms``  how long it may stay open without a record.
    """

    def __init__(
        self,
        *,
        max_part_size_bytes: int = DEFAULT_MAX_PART_SIZE_BYTES,
        rollover_interval_ms: int = DEFAULT_ROLLOVER_INTERVAL_MS,
        inactivity_interval_ms: int = DEFAULT_INACTIVITY_INTERVAL_MS,
    ) -> None:
        check_whole("max_part_size_bytes", max_part_size_bytes)
        check_whole("rollover_interval_ms", rollover_interval_ms)
        check_whole("inactivity_interval_ms", inactivity_interval_ms)
        self.max_part_size_bytes = max_part_size_bytes
        self.rollover_interval_ms, self.inactivity_interval_ms = rollover_interval_ms, inactivity_interval_ms

    def should_roll_on_event(self, part: PartFileInfo, record: Any) -> bool:
        return part.size_bytes > self.max_part_size_bytes

    def should_roll_on_checkpoint(self, part: PartFileInfo) -> bool:
        return part.size_bytes > self.max_part_size_bytes

    def should_roll_on_processing_time(self, part: PartFileInfo, now_ms: int) -> bool:
        """By age and idle time."""
        return (
            now_ms - part.created_at_ms >= self.rollover_interval_ms
            or now_ms - part.last_update_ms >= self.inactivity_interval_ms
        )


class TableRollingPolicy(DefaultRollingPolicy):
    """The policy of the table connector: the default one with other intervals, which bulk formats can use too.

    ``roll_on_checkpoint``  whether every checkpoint closes the part; needed for bulk formats.
    """

    def __init__(
        self,
        *,
        roll_on_checkpoint: bool,
        max_part_size_bytes: int = DEFAULT_MAX_PART_SIZE_BYTES,
        rollover_interval_ms: int = TABLE_ROLLOVER_INTERVAL_MS,
        inactivity_interval_ms: int = TABLE_ROLLOVER_INTERVAL_MS,
    ) -> None:
        super().__init__(
            max_part_size_bytes=max_part_size_bytes,
            rollover_interval_ms=rollover_interval_ms,
            inactivity_interval_ms=inactivity_interval_ms,
        )
        self.rolls_on_every_checkpoint = roll_on_checkpoint

    def should_roll_on_checkpoint(self, part: PartFileInfo) -> bool:
        return self.rolls_on_every_checkpoint or super().should_roll_on_checkpoint(part)


class EventRule:
    """How the sink calls a policy for records. Parts are cut at the same records in each case.

    ``never``             it ignores records: batches are written whole;
    ``size_limit_bytes``  it only checks the size: batches are cut by adding up sizes; otherwise ``None``.

    A subclass that overrides its base's method is called for every record, because its answers are not known here.
    """

    __slots__ = ("never", "size_limit_bytes")

    def __init__(self, policy: RollingPolicy) -> None:
        question = type(policy).should_roll_on_event
        self.never = question is RollingPolicy.should_roll_on_event
        self.size_limit_bytes: int | None = None
        if isinstance(policy, DefaultRollingPolicy) and question is DefaultRollingPolicy.should_roll_on_event:
            self.size_limit_bytes = policy.max_part_size_bytes


def rolls_on_processing_time(policy: RollingPolicy) -> bool:
    """Whether the periodic check can close a part, so that timers are needed."""
    return type(policy).should_roll_on_processing_time is not RollingPolicy.should_roll_on_processing_time


def check_rolling_policy(policy: object, *, bulk: bool) -> RollingPolicy:
    """``policy``, if parts can be closed by it. Raises ``ConfigurationError``."""
    if not isinstance(policy, RollingPolicy):
        raise ConfigurationError(
            f"rolling_policy is {shorten(policy)}; it must be a RollingPolicy, such as OnCheckpointRollingPolicy() or "
            "DefaultRollingPolicy(max_part_size_bytes=...), or an object of a subclass of your own"
        )
    if bulk and not policy.rolls_on_every_checkpoint:
        raise ConfigurationError(
            f"a bulk format cannot keep a file open over a checkpoint, and {type(policy).__name__} would\n"
            "  fix: use OnCheckpointRollingPolicy(), TableRollingPolicy(roll_on_checkpoint=True), or a subclass of"
            " CheckpointRollingPolicy; or a row format"
        )
    return policy
