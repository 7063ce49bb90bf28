"""Replays a vector on the sending side: real output queues, their slots of channel state and the timeout of barriers.

Elements leave a queue only by ``poll``, which stands for the consumer. ``["ckpt", id]`` is where the barrier is taken.
"""

from __future__ import annotations

from engine.checkpoint.subtask import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.events import CheckpointBarrier, EndOfPartition, Watermark
from engine.runtime.channels import Numbered
from tests.conformance.barrier.observed import ABORT_NOTIFICATION, Observed, Operation, Vector, kind_of
from tests.conformance.barrier.world import Clock, Tapped, barrier_of, element_of
from tests.conformance.compare import MalformedVector


class OutputReplay:
    """The output queues of one task; a vector's channels are its subpartitions."""

    def __init__(self, vector: Vector) -> None:
        self.observed = Observed()
        self._vector = vector
        self._clock = Clock()
        self._state = ChannelStateWriter()
        self._channels = [Tapped(index) for index in range(vector["channels"])]
        self._stamps: dict[tuple[int, int], int] = {}
        self._event_names: list[str] = []
        self._with_state: list[int] = []
        for channel in self._channels:
            channel.disconnect()

    def run(self) -> Observed:
        for operation in self._vector["input"]:
            self._apply(operation)
            self._look()
        for checkpoint_id in self._with_state:
            self._state.finish_output(checkpoint_id)
            if self._state.is_failed(checkpoint_id):
                self.observed.channel_state_failed.append(checkpoint_id)
            elif self._state.is_complete(checkpoint_id):
                self.observed.inflight[checkpoint_id] = self._captured(checkpoint_id)
        self.observed.channel_state_failed.sort()
        for channel in self._channels:
            for _, element in channel.outgoing or ():
                self._note_kind(element)
        return self.observed

    # --- operations -----------------------------------------------------------------------------------------------

    def _apply(self, operation: Operation) -> None:
        match operation:
            case ["barrier", index, checkpoint_id, *given]:
                self._put_barrier(index, barrier_of(self._vector, checkpoint_id, given, self._clock.now_ns))
            case ["rec", index, *_]:
                self._stamp(index)
                batch = element_of(operation)
                assert isinstance(batch, Batch)
                self._channels[index].put_batch(batch)
            case ["event", index, name]:
                self._stamp(index)
                self._channels[index].put_event(Watermark(len(self._event_names)))
                self._event_names.append(name)
            case ["eop" | "eod" | "cancel", index, *rest]:
                if operation[0] == "cancel":
                    # A task that has aborted sends it.
                    self._abandon(rest[0])
                self._stamp(index)
                event = element_of(operation)
                assert not isinstance(event, Batch)
                self._channels[index].put_event(event)
            case ["resume", index]:
                self._channels[index].resume_sender()
            case ["abort_rpc", checkpoint_id]:
                self.observed.abort(checkpoint_id, ABORT_NOTIFICATION)
                self._abandon(checkpoint_id)
            case ["barrier_timeout", checkpoint_id]:
                self._time_out(checkpoint_id)
            case _:
                if not self._clock.carries_out(operation, self._fire_timers):
                    self._apply_poll(operation)

    def _apply_poll(self, operation: Operation) -> None:
        match operation:
            case ["poll", count]:
                while count and self._consume_next(self._channels):
                    count -= 1
            case ["poll_channel", index]:
                self._consume_next([self._channels[index]])
            case ["poll_all"]:
                while self._consume_next(self._channels):
                    pass
            case ["expect_empty"]:
                if self._next(self._channels) is not None:
                    self.observed.problems.append("expect_empty: there is something to consume")
            case _:
                raise MalformedVector(f"unknown operation {operation} in scope 'output'")

    def _put_barrier(self, index: int, barrier: CheckpointBarrier) -> None:
        checkpoint_id, options = barrier.checkpoint_id, barrier.options
        has_state = barrier.is_priority or options.timeoutable
        if checkpoint_id not in self.observed.triggered:
            self.observed.triggered.append(checkpoint_id)
            if has_state:
                self._state.open(checkpoint_id)
                self._state.finish_input(checkpoint_id)
                self._with_state.append(checkpoint_id)
            if options.aligned_timeout_ns is not None:
                at_ns = max(self._clock.now_ns, barrier.timestamp_ns + options.aligned_timeout_ns)
                self._clock.arm(at_ns, checkpoint_id)
        self._stamp(index)
        self._channels[index].put_barrier(barrier, self._state if has_state else None)

    def _time_out(self, checkpoint_id: int) -> None:
        for channel in self._channels:
            channel.barrier_timeout(checkpoint_id)

    def _fire_timers(self) -> None:
        for checkpoint_id in self._clock.take_due():
            self._time_out(checkpoint_id)

    def _abandon(self, checkpoint_id: int) -> None:
        for channel in self._channels:
            channel.abandon_slot(checkpoint_id)
        if checkpoint_id in self._state.collecting:
            self._state.abort(checkpoint_id)
            self.observed.channel_state_failed.append(checkpoint_id)

    # --- consumption ----------------------------------------------------------------------------------------------

    def _consume_next(self, channels: list[Tapped]) -> bool:
        index = self._next(channels)
        if index is None:
            return False
        taken = self._channels[index].poll()
        assert taken is not None
        match taken[1]:
            case Batch(values=[name]):
                self.observed.record(name)
            case CheckpointBarrier(checkpoint_id):
                self.observed.output.append(["ckpt", checkpoint_id])
                self.observed.events.append(["ckpt", checkpoint_id])
                self._note_kind(taken[1])
            case Watermark(number):
                self.observed.events.append(["event", self._event_names[number]])
            case EndOfPartition():
                self.observed.events.append(["eop", index])
        return True

    def _next(self, channels: list[Tapped]) -> int | None:
        """Which queue the consumer reads: one with a priority event, else the one with the earliest element."""
        waiting = [
            (*self._rank(channel, channel.outgoing[0]), channel.index)
            for channel in channels
            if channel.outgoing and not channel.sender_blocked
        ]
        return min(waiting)[2] if waiting else None

    def _rank(self, channel: Tapped, numbered: Numbered) -> tuple[bool, int]:
        number, element = numbered
        is_priority = isinstance(element, CheckpointBarrier) and element.is_priority
        return (not is_priority, self._stamps[channel.index, number])

    def _stamp(self, index: int) -> None:
        self._stamps[index, self._channels[index].sent_elements + 1] = len(self._stamps)

    # --- looking --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self.observed.blocked_after.append([one.index for one in self._channels if one.sender_blocked])
        self.observed.resumed = [one.index for one in self._channels if one.sender_resumes]
        self.observed.resumed_after.append(self.observed.resumed)
        counts: dict[int, int] = {}
        for checkpoint_id in self._with_state:
            for index, batches in self._state.captured(checkpoint_id).outputs.items():
                counts[index] = counts.get(index, 0) + sum(map(len, batches))
        self.observed.inflight_counts_after.append(counts)

    def _captured(self, checkpoint_id: int) -> list[str]:
        outputs = self._state.captured(checkpoint_id).outputs
        return [name for index in sorted(outputs) for batch in outputs[index] for name in batch.values]

    def _note_kind(self, element: object) -> None:
        if isinstance(element, CheckpointBarrier):
            kinds = self.observed.kinds
            # One queue that had to convert it makes the checkpoint unaligned.
            if kinds.get(element.checkpoint_id) != "unaligned":
                kinds[element.checkpoint_id] = kind_of(element)
