"""Floating credit: records that a task lends to those of its input channels that are full (Flink: floating buffers of a
gate, ``RemoteInputChannel`` and ``LocalBufferPool``).

Rules.
1. A channel that would be full borrows as much as it needs, while there is any. Its capacity grows with its credit.
2. When records were taken from it, it gives back what it does not need to be one record below its capacity.
3. What comes back goes to the channels that are full, in the order of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.runtime.channels.channel import Channel


class FloatingCredit:
    """Of the input channels of one task."""

    __slots__ = ("_channels", "left")

    def __init__(self, records: int, channels: Sequence[Channel]) -> None:
        self.left = records
        """Records that are not lent."""
        self._channels = channels
        for channel in channels:
            channel.floating = self

    def lend(self, channel: Channel) -> bool:
        """To a channel that would be full; returns whether it is not."""
        wanted = min(self.left, channel.queued_records - channel.capacity + 1)
        self._move(wanted, channel)
        return channel.queued_records < channel.capacity

    def give_back(self, channel: Channel) -> None:
        """Records were taken from a channel that has borrowed."""
        spare = min(channel.borrowed, channel.capacity - 1 - channel.queued_records)
        if spare > 0:
            self._move(-spare, channel)
            for other in self._channels:
                if self.left and other.full and self.lend(other):
                    other.has_room()

    def _move(self, records: int, channel: Channel) -> None:
        self.left -= records
        channel.borrowed += records
        channel.input_credit += records
        channel.capacity += records
