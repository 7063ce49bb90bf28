"""Records in flight that become part of a checkpoint: collected per checkpoint and channel, input and output.

Rules (Flink: ``ChannelStateWriterImpl``, ``ChannelStateCheckpointWriter``)
------------------------------------------------------------------------
* A checkpoint is opened before anything is captured for it; at most ``max_open`` are open at a time.
* The input part ends when all barriers were received (for an aligned checkpoint at once, empty). The output part ends
  when it was declared finished *and* every reserved slot is filled: a slot is reserved for a timeoutable barrier that
  is still queued, and filled empty when the consumer takes the barrier in time.
* Adding after the part ended, or before the checkpoint was opened, is a bug. Adding to an aborted checkpoint does
  nothing: its captured records are discarded, and the capturing side may hear of the abort a little later.
* Only records are accepted; events are never channel state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.elements.batch import Batch

DEFAULT_MAX_OPEN = 1_000
"""Checkpoints with open channel state (Flink: ``ChannelStateWriterImpl.DEFAULT_MAX_CHECKPOINTS``)."""


@dataclass(slots=True)
class ChannelState:
    """Records in flight of one task in one checkpoint, by index of the channel, in the order of the channel."""

    inputs: dict[int, list[Batch]] = field(default_factory=dict)
    outputs: dict[int, list[Batch]] = field(default_factory=dict)

    def input_records(self, channel: int) -> int:
        """Records captured on an input channel."""
        return sum(map(len, self.inputs.get(channel, ())))

    def output_records(self, channel: int) -> int:
        """Records captured on an output channel."""
        return sum(map(len, self.outputs.get(channel, ())))


@dataclass(slots=True)
class _Open:
    state: ChannelState = field(default_factory=ChannelState)
    input_ended: bool = False
    output_declared: bool = False
    reserved: dict[int, None] = field(default_factory=dict)
    failed: bool = False

    @property
    def complete(self) -> bool:
        return self.input_ended and self.output_declared and not self.reserved and not self.failed


class ChannelStateWriter:
    """Channel state of one task."""

    def __init__(self, max_open: int = DEFAULT_MAX_OPEN) -> None:
        assert max_open >= 1, max_open
        self._max_open = max_open
        self.collecting: dict[int, _Open] = {}
        """By checkpoint, oldest first: those opened, and neither taken nor aborted."""
        self._highest = -1

    # --- opening and closing --------------------------------------------------------------------------------------

    def open(self, checkpoint_id: int) -> None:
        """Begin to collect for ``checkpoint_id``."""
        assert checkpoint_id > self._highest, f"channel state of checkpoint {checkpoint_id} after {self._highest}"
        assert len(self.collecting) < self._max_open, f"channel state of {self._max_open} checkpoints is open already"
        self._highest = checkpoint_id
        self.collecting[checkpoint_id] = _Open()

    def abort(self, checkpoint_id: int) -> None:
        """Discard the collected records; harmless when there are none."""
        self.collecting.pop(checkpoint_id, None)

    def take(self, checkpoint_id: int) -> ChannelState:
        """Return the complete channel state, and forget it."""
        assert self.is_complete(checkpoint_id), checkpoint_id
        return self.collecting.pop(checkpoint_id).state

    # --- input side -----------------------------------------------------------------------------------------------

    def add_input(self, checkpoint_id: int, channel: int, batches: Iterable[Batch]) -> None:
        """Records of an input channel, after those added before."""
        one = self._known(checkpoint_id)
        if one is not None:
            assert not one.input_ended, f"input of checkpoint {checkpoint_id} has ended"
            one.state.inputs.setdefault(channel, []).extend(batches)

    def finish_input(self, checkpoint_id: int) -> None:
        """All barriers were received."""
        one = self._known(checkpoint_id)
        if one is not None:
            one.input_ended = True

    # --- output side ----------------------------------------------------------------------------------------------

    def add_output(self, checkpoint_id: int, channel: int, batches: Iterable[Batch]) -> None:
        """Records that the barrier has overtaken on an output channel."""
        one = self._known(checkpoint_id)
        if one is not None:
            assert not one.output_declared, f"output of checkpoint {checkpoint_id} has ended"
            one.state.outputs.setdefault(channel, []).extend(batches)

    def reserve_output(self, checkpoint_id: int, channel: int) -> None:
        """A timeoutable barrier is queued on an output channel: records before it may still become state."""
        one = self._known(checkpoint_id)
        if one is not None:
            assert not one.output_declared, f"output of checkpoint {checkpoint_id} has ended"
            assert channel not in one.reserved, channel
            one.reserved[channel] = None

    def fill_output(self, checkpoint_id: int, channel: int, batches: Iterable[Batch] = ()) -> None:
        """The reserved slot's content: empty when the consumer took the barrier in time."""
        one = self._known(checkpoint_id)
        if one is not None:
            del one.reserved[channel]
            one.state.outputs.setdefault(channel, []).extend(batches)

    def fail_output(self, checkpoint_id: int, channel: int) -> None:
        """The reserved slot can never be filled: the next timeoutable barrier is queued after this one."""
        one = self._known(checkpoint_id)
        if one is not None:
            del one.reserved[channel]
            one.failed = True

    def finish_output(self, checkpoint_id: int) -> None:
        """Barriers are on all outputs; only reserved slots keep the output part open."""
        one = self._known(checkpoint_id)
        if one is not None:
            one.output_declared = True

    # --- queries --------------------------------------------------------------------------------------------------

    def is_complete(self, checkpoint_id: int) -> bool:
        """Whether both parts have ended."""
        return checkpoint_id in self.collecting and self.collecting[checkpoint_id].complete

    def is_failed(self, checkpoint_id: int) -> bool:
        """Whether a part of it can never be completed."""
        return checkpoint_id in self.collecting and self.collecting[checkpoint_id].failed

    def captured(self, checkpoint_id: int) -> ChannelState:
        """The records collected so far, for inspection."""
        one = self.collecting.get(checkpoint_id)
        return ChannelState() if one is None else one.state

    def _known(self, checkpoint_id: int) -> _Open | None:
        assert checkpoint_id <= self._highest, f"channel state of checkpoint {checkpoint_id} was never opened"
        return self.collecting.get(checkpoint_id)

    def validate(self) -> None:
        assert len(self.collecting) <= self._max_open, len(self.collecting)
        assert list(self.collecting) == sorted(self.collecting), list(self.collecting)

    def fingerprint(self) -> tuple[object, ...]:
        return (
            self._highest,
            tuple(
                (
                    checkpoint_id,
                    one.input_ended,
                    one.output_declared,
                    tuple(one.reserved),
                    one.failed,
                    _contents(one.state.inputs),
                    _contents(one.state.outputs),
                )
                for checkpoint_id, one in self.collecting.items()
            ),
        )


def _contents(channels: dict[int, list[Batch]]) -> tuple[tuple[int, str], ...]:
    return tuple(
        (channel, repr([(batch.values, batch.timestamps) for batch in batches]))
        for channel, batches in sorted(channels.items())
    )


class UpstreamRecoveryTracker:
    """When the ``channels`` channels of a gate may go on after their restored output (Flink:
    ``UpstreamRecoveryTracker``).

    A sender first sends the records of its output queues, then an end-of-channel-state marker. The marker leaves its
    channel blocked. Only when the markers of all channels were handled is every one of them resumed, once: no new
    record is processed before all restored ones, on any channel.
    """

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
