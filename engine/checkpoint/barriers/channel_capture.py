"""Which records of an input channel are in flight for an unaligned checkpoint (Flink: ``ChannelStatePersister``).

Rules, for one channel:

* ``last`` is the highest barrier id recognised, or whose capture was started; ``status`` says what it means:
  *idle* no capture runs, *waiting* records that arrive now are in flight, *received* the barrier of ``last`` is here.
* A barrier is recognised when it **arrives** (not when the task takes it; announcements do not count), iff its id is
  at least ``last`` (above it when idle). Obsolete barriers neither end a capture nor delimit it.
* A capture is single: while the barrier of a newer id is here, an older one is refused, and so is its checkpoint.
* Starting a newer id always waits for the barrier of that id, even where an older one was received.
* Stopping an id leaves a newer barrier alone.

Arrival decides which records are captured: at the start all records queued before the barrier of that id (all of the
queue when the barrier is not here yet), later each record that arrives while ``captures``.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

_NO_CHECKPOINT = -1


class CaptureStatus(Enum):
    """The meaning of ``ChannelCapture.last``."""

    IDLE = "idle"
    WAITING = "waiting"
    RECEIVED = "received"


# An attribute of an enum is looked up in Python's slow way, and every barrier asks for these.
_IDLE, _WAITING, _RECEIVED = CaptureStatus.IDLE, CaptureStatus.WAITING, CaptureStatus.RECEIVED


class ChannelCapture:
    """The capture of one input channel; see the rules at the top of the module."""

    __slots__ = ("captures", "last", "status")

    def __init__(self) -> None:
        self.status = _IDLE
        self.last = _NO_CHECKPOINT
        self.captures = False
        """Whether a record that arrives now is in flight for checkpoint ``last``: the status is *waiting*."""

    def can_start(self, checkpoint_id: int) -> bool:
        """Whether no barrier of a newer checkpoint is here."""
        return self.status is not _RECEIVED or self.last <= checkpoint_id

    def start(self, checkpoint_id: int) -> None:
        """The checkpoint begins. The caller takes the records queued before its barrier."""
        assert self.can_start(checkpoint_id), f"barrier {self.last} is here, {checkpoint_id} is subsumed"
        if checkpoint_id > self.last:
            self.status, self.captures = _WAITING, True
            self.last = checkpoint_id

    def barrier_arrived(self, checkpoint_id: int) -> bool:
        """A barrier enters the channel; returns whether it is recognised. If so, it ends the capture of its id, or
        delimits a later start of it."""
        if checkpoint_id < self.last or (checkpoint_id == self.last and self.status is _IDLE):
            return False
        self.status, self.captures = _RECEIVED, False
        self.last = checkpoint_id
        return True

    def stop(self, checkpoint_id: int) -> None:
        """The checkpoint is complete or given up."""
        if checkpoint_id >= self.last:
            self.status, self.captures = _IDLE, False

    def validate(self) -> None:
        assert self.status is _IDLE or self.last > _NO_CHECKPOINT, (self.status, self.last)
        assert self.captures == (self.status is _WAITING), (self.status, self.captures)

    def fingerprint(self) -> tuple[str, int]:
        return (self.status.value, self.last)


class InputCapture:
    """The captures of all ``channels`` of one task, which its driver keeps and its barrier handler asks."""

    __slots__ = ("channels",)

    def __init__(self, channels: int) -> None:
        self.channels = [ChannelCapture() for _ in range(channels)]

    def can_start(self, checkpoint_id: int, among: Iterable[int] | None = None) -> bool:
        """Whether no channel (none of ``among``) holds the barrier of a newer checkpoint."""
        channels = self.channels if among is None else [self.channels[index] for index in among]
        received = [channel.last for channel in channels if channel.status is _RECEIVED]
        return max(received, default=_NO_CHECKPOINT) <= checkpoint_id

    def validate(self) -> None:
        for channel in self.channels:
            channel.validate()

    def fingerprint(self) -> tuple[object, ...]:
        return tuple(channel.fingerprint() for channel in self.channels)
