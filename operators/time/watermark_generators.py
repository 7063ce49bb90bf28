"""Watermark generators and idleness: pure, given records and the virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from engine.elements.batch import MIN_TIMESTAMP_MS
from state_backends.base import flag, optional, row, whole


class WatermarkGenerator(Protocol):
    """Turns the timestamps of one split into a watermark (Flink: ``WatermarkGenerator``)."""

    def on_batch(self, timestamps: Sequence[int]) -> None:
        """Process the event times of further records (at least one), or the newest of them alone."""

    def watermark_ms(self) -> int:
        """The present watermark; it never falls."""

    def snapshot(self) -> int:
        """The value that ``restore`` needs."""

    def restore(self, snapshot: int) -> None:
        """Continue where another generator stood."""


class BoundedOutOfOrdernessGenerator:
    """Watermark = greatest timestamp seen - bound - 1 (Flink: ``BoundedOutOfOrdernessWatermarks``).

    The 1 is subtracted because a watermark ``w`` promises that no record *at or below* ``w`` follows, but another
    record with exactly the greatest timestamp may follow.
    """

    __slots__ = ("_bound_ms", "_max_ms")

    def __init__(self, bound_ms: int) -> None:
        self._bound_ms = bound_ms
        self._max_ms = MIN_TIMESTAMP_MS + bound_ms + 1

    def on_batch(self, timestamps: Sequence[int]) -> None:
        newest_ms = max(timestamps)
        self._max_ms = max(self._max_ms, newest_ms)

    def watermark_ms(self) -> int:
        return self._max_ms - self._bound_ms - 1

    def snapshot(self) -> int:
        return self._max_ms

    def restore(self, snapshot: int) -> None:
        # Not below the limit of the bound: the strategy may have changed since the snapshot.
        self._max_ms = max(MIN_TIMESTAMP_MS + self._bound_ms + 1, snapshot)


class NoWatermarksGenerator:
    """Never promises anything (Flink: ``NoWatermarksGenerator``)."""

    __slots__ = ()

    def on_batch(self, timestamps: Sequence[int]) -> None:
        pass

    def watermark_ms(self) -> int:
        return MIN_TIMESTAMP_MS

    def snapshot(self) -> int:
        return MIN_TIMESTAMP_MS

    def restore(self, snapshot: int) -> None:
        pass


class Idleness(NamedTuple):
    """The state of an ``IdlenessTimer`` and its split, independent of the present time."""

    idle: bool
    seen: bool
    inactive_for_ns: int | None


IDLENESS = row(flag, flag, optional(whole))
"""The shape of an :class:`Idleness`."""


class IdlenessTimer:
    """Decides at the points of the grid whether a split is idle (Flink: ``IdlenessTimer``).

    Inactivity begins at the first check that finds no new record. A split is idle once it has been inactive for *more*
    than the timeout.
    """

    __slots__ = ("_inactive_since_ns", "_seen", "_timeout_ns")

    def __init__(self, timeout_ns: int) -> None:
        self._timeout_ns = timeout_ns
        self._seen = False
        self._inactive_since_ns: int | None = None

    def activity(self) -> None:
        """A record has come."""
        self._seen = True

    def check_if_idle(self, now_ns: int) -> bool:
        """Whether the split is idle at ``now_ns``."""
        if self._seen:
            self._seen, self._inactive_since_ns = False, None
            return False
        if self._inactive_since_ns is None:
            self._inactive_since_ns = now_ns
            return False
        return now_ns - self._inactive_since_ns > self._timeout_ns

    def snapshot(self, idle: bool, now_ns: int) -> Idleness:
        """The value that ``restore`` needs. The caller knows whether the split is ``idle``."""
        since_ns = self._inactive_since_ns
        return Idleness(idle, self._seen, None if since_ns is None else now_ns - since_ns)

    def restore(self, snapshot: Idleness, now_ns: int) -> None:
        """Continue where another timer stood."""
        self._seen = snapshot.seen
        ago_ns = snapshot.inactive_for_ns
        self._inactive_since_ns = None if ago_ns is None else now_ns - ago_ns

    def next_check_ns(self, now_ns: int) -> int:
        """If ``check_if_idle`` returned false at ``now_ns``: the earliest time at which it can return true without a
        further record."""
        if self._inactive_since_ns is None:
            return now_ns + 1
        return self._inactive_since_ns + self._timeout_ns + 1
