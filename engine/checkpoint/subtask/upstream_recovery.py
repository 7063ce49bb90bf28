"""When the channels of a gate may go on after their restored output (Flink: ``UpstreamRecoveryTracker``).

A sender first sends what was in its output queues, then an end-of-channel-state marker. The marker leaves its channel
blocked. Only when the markers of all channels were handled is every one of them resumed, once: no new record is
processed before all restored ones, on any channel.
"""

from __future__ import annotations


class UpstreamRecoveryTracker:
    """The markers of one gate with ``channels`` channels."""

    __slots__ = ("_channels", "_waiting")

    def __init__(self, channels: int) -> None:
        self._channels = channels
        self._waiting = dict.fromkeys(range(channels))

    def on_end_of_channel_state(self, channel: int) -> tuple[int, ...]:
        """The marker of ``channel`` was handled; returns the channels to resume now: none, or all."""
        assert channel in self._waiting, f"channel {channel} ends its channel state twice"
        del self._waiting[channel]
        return () if self._waiting else tuple(range(self._channels))

    @property
    def is_recovered(self) -> bool:
        """Whether all restored output was handled."""
        return not self._waiting

    def fingerprint(self) -> object:
        """Channels whose marker is still to come."""
        return tuple(self._waiting)
