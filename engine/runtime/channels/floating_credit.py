"""Floating credit that a task lends to those of its input channels that are full (Flink: floating buffers of a gate,
``RemoteInputChannel`` and ``LocalBufferPool``).

Rules.
1. A channel that would be full borrows as much as it needs, while there is any. Its capacity grows with its credit.
2. When records were taken from it, it gives back what it does not need to be below its capacity.
3. What comes back goes to the channels that are full, in the order of inputs.
4. Credit is lent and given back in whole units: one record, or one buffer when credit is counted in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.runtime.channels.channel import Channel

_IS_FULL = attrgetter("full")


class FloatingCredit:
    """Of the input channels of one task. ``credit``: a multiple of ``unit``."""

    __slots__ = ("_channels", "_may_wait", "_unit", "left")

    def __init__(self, credit: int, channels: Sequence[Channel], unit: int = 1) -> None:
        assert credit % unit == 0, (credit, unit)
        self.left = credit
        """What is not lent."""
        self._unit = unit
        self._channels = channels
        self._may_wait = True
        """Whether a channel may be full; not when none was since it was last looked at."""
        for channel in channels:
            channel.floating = self

    def lend(self, channel: Channel) -> bool:
        """To a channel that would be full; returns whether it is not."""
        short = channel.occupied - channel.capacity + 1
        # Rounded up to whole units.
        self._move(min(self.left, short + -short % self._unit), channel)
        has_room = channel.occupied < channel.capacity
        if not has_room:
            self._may_wait = True
        return has_room

    def give_back(self, channel: Channel) -> None:
        """Records were taken from a channel that has borrowed."""
        spare = min(channel.borrowed, channel.capacity - 1 - channel.occupied)
        spare -= spare % self._unit
        if spare > 0:
            self._move(-spare, channel)
            if not self._may_wait:
                return
            self._may_wait = False
            for other in filter(_IS_FULL, self._channels):
                if self.lend(other):
                    other.has_room()
                if not self.left:
                    # There may be others.
                    self._may_wait = True
                    break

    def _move(self, credit: int, channel: Channel) -> None:
        self.left -= credit
        channel.borrowed += credit
        channel.input_credit += credit
        channel.capacity += credit
