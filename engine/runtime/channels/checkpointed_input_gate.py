"""The input side of a task: its channels, the choice of the next one to read, and the handling of their barriers.

The gate spans all inputs of a task (Flink: ``CheckpointedInputGate`` over a ``UnionInputGate``). It carries out the
instructions of the barrier handler that concern channels, and hands the others to the checkpoints of the task.

Rules.
1. Channels that hold priority events are read before all others; the others take turns, one element each.
2. Records in flight are captured between ``StartCapture`` and ``StopCapture``, on every channel by its own state.
3. After a restore with channel state the gate first reads the receivers' part on all channels. Then these connect and
   the senders' part comes; then the gate waits until the markers of all channels are here. Back edges hold no marker.
4. Back edges come before other channels while a whole channel's worth of records waits on them: a loop takes nothing
   new before it has handled the records it holds.
5. Nothing arrives between two instructions of the handler: resumed channels go on after the last of them. Otherwise one
   could bring the barrier of a later checkpoint while an earlier one, which the handler has just begun, is about to
   capture (Flink: a resume takes a message to the sender).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from engine.checkpoint.barriers import (
    AbortCheckpoint,
    AlignmentFinished,
    ArmAlignmentTimer,
    BarrierHandler,
    BlockChannel,
    HandlerInstruction,
    InputCapture,
    PromoteBarrier,
    ResumeChannels,
    StartCapture,
    StopCapture,
    TriggerSnapshot,
)
from engine.checkpoint.subtask import ChannelStateWriter, UpstreamRecoveryTracker
from engine.elements.batch import Batch
from engine.elements.events import (
    BarrierAnnouncement,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfChannelState,
    EndOfPartition,
)
from engine.runtime.channels.channel import Channel
from engine.runtime.channels.debloating import TaskDebloater
from engine.runtime.channels.output_queue import Element
from engine.runtime.kernel import TaskHook, nothing_around


class GateCheckpoints(Protocol):
    """Takes the snapshots that the barriers on a gate ask for."""

    def snapshot_due(self, due: TriggerSnapshot) -> None:
        """Take the snapshot, now."""

    def barrier_aborted(self, abort: AbortCheckpoint) -> None:
        """The handler gave up on a checkpoint."""

    def alignment_finished(self, finished: AlignmentFinished) -> None:
        """All barriers of an unaligned checkpoint are here."""

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """A part of the checkpoint's channel state has ended."""

    def capture_failed(self, checkpoint_id: int) -> None:
        """Not all barriers of the checkpoint will come: its channel state can never be whole."""

    def input_recovered(self) -> None:
        """The task has read all restored records in flight."""

    def arm_alignment_timer(self, checkpoint_id: int, at_ns: int) -> None:
        """Call :meth:`CheckpointedInputGate.on_timeout` at ``at_ns``."""


HandlerFactory = Callable[[int, InputCapture | None], BarrierHandler]
"""Makes the handler for a number of channels and their capture, if records are captured."""


class CheckpointedInputGate:
    """All input channels of one task."""

    def __init__(
        self,
        wake: Callable[[], None],
        checkpoints: GateCheckpoints,
        channels: Iterable[Channel],
        handler: HandlerFactory,
        state: ChannelStateWriter,
        *,
        captures: bool,
        local_channels: Collection[int] = (),
        back_edges: Collection[int] = (),
        hook: TaskHook | None = None,
    ) -> None:
        """``wake`` tells the task that something may be readable. ``state``: where captured records go. ``captures``:
        whether checkpoints of this job may have channel state. ``local_channels``: input indices of channels that
        announce no barriers. ``back_edges``: those of channels that lead back here."""
        self.channels = list(channels)
        self.state = state
        capture = InputCapture(len(self.channels)) if captures or back_edges else None
        self.handler = handler(len(self.channels), capture)
        self._wake = wake
        self._checkpoints = checkpoints
        self._local = frozenset(local_channels)
        self._captures = captures
        self._readable: deque[Channel] = deque()
        self.priority: deque[Channel] = deque()
        """Channels that hold a priority event, or have held one since it was last looked at."""
        self._recovery: UpstreamRecoveryTracker | None = None
        self._undrained = 0
        self._hook = hook
        self._around = nothing_around if hook is None else hook.around
        self.debloater: TaskDebloater | None = None
        """Learns when there is nothing to read."""
        self._back_edges = [self.channels[index] for index in sorted(back_edges)]
        self._backlog_limit = 0
        if back_edges:
            others = (channel.capacity for channel in self.channels if channel not in self._back_edges)
            self._backlog_limit = min(others, default=0)
        for channel in self.channels:
            channel.gate = self
            if capture is not None:
                channel.capture = capture.channels[channel.input_index]

    # -- reports of channels --------------------------------------------------------------------------------------

    def channel_readable(self, channel: Channel) -> None:
        """``channel`` has an element and is not listed yet."""
        channel.listed = True
        self._readable.append(channel)
        if self.debloater is not None:
            self.debloater.input_available()
        self._wake()

    def priority_arrived(self, channel: Channel) -> None:
        """``channel`` holds a priority event."""
        if not channel.priority_listed:
            channel.priority_listed = True
            self.priority.append(channel)
        self._wake()

    def announces(self, channel: Channel) -> bool:
        """Whether timeoutable barriers in the queue of ``channel`` are announced: not on a channel that has no queue
        of its own, nor in a job that never goes unaligned."""
        return self._captures and channel.input_index not in self._local

    def capture(self, channel: Channel, batches: Sequence[Batch]) -> None:
        """Records arrived on ``channel`` while it captures."""
        assert channel.capture is not None
        if self._hook is None:
            self._add_input(channel.capture.last, channel, batches)
        else:
            # The sender goes on with its step.
            with self._hook.alone():
                self._add_input(channel.capture.last, channel, batches)

    def _add_input(self, checkpoint_id: int, channel: Channel, batches: Sequence[Batch]) -> None:
        if self._hook is None:
            self._keep_input(checkpoint_id, channel, batches)
        else:
            is_open = checkpoint_id in self.state.collecting
            with self._hook.around("channel-state.append" if is_open and batches else None):
                self._keep_input(checkpoint_id, channel, batches)

    def _keep_input(self, checkpoint_id: int, channel: Channel, batches: Sequence[Batch]) -> None:
        self.state.add_input(checkpoint_id, channel.index, batches)
        if batches and checkpoint_id in self.state.collecting:
            channel.trace_captured(checkpoint_id, "input", batches)

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def has_priority_event(self) -> bool:
        """Whether a priority event waits to be read."""
        while self.priority:
            channel = self.priority[0]
            if channel.priority_events:
                return True
            channel.priority_listed = False
            self.priority.popleft()
        return False

    def next_channel(self) -> Channel | None:
        """The channel to read next; ``None`` when there is nothing to read."""
        if self.priority and (self.priority[0].priority_events or self.has_priority_event):
            return self.priority[0]
        readable = self._readable
        while readable:
            channel = readable[0]
            if channel.queue:
                return channel if not self._back_edges else self._admitted(channel)
            channel.listed = False
            readable.popleft()
        if self.debloater is not None:
            self.debloater.input_idle()
        return None

    def _admitted(self, channel: Channel) -> Channel:
        """``channel``, or the back edge to read instead of it; see rule 4."""
        waiting = [one for one in self._readable if one.queue and one in self._back_edges]
        if not waiting or channel in waiting:
            return channel
        if sum(one.occupied for one in self._back_edges) < self._backlog_limit:
            return channel
        # Put it in front: the turn is passed on from there.
        self._readable.remove(waiting[0])
        self._readable.appendleft(waiting[0])
        return waiting[0]

    def next_back_edge(self) -> Channel | None:
        """A back edge with something to read, even if elements wait on other channels."""
        for channel in self._back_edges:
            if channel.queue:
                return channel
            if channel.listed:
                # Otherwise its next element would not wake the task.
                channel.listed = False
                self._readable.remove(channel)
        return None

    def pass_turn(self, channel: Channel) -> None:
        """Fairness: the channel just read goes to the end of the queue, if it has more (Flink: ``moreAvailable``).
        Otherwise it queues up again with its next element."""
        readable = self._readable
        if readable:
            if readable[0] is channel:
                if channel.queue:
                    readable.rotate(-1)
                else:
                    channel.listed = False
                    readable.popleft()
            self._wake()
        elif self.priority:
            self._wake()

    # -- events -----------------------------------------------------------------------------------------------------

    def handle(self, channel: Channel, event: Element, now_ns: int) -> None:
        """An event about barriers, or the end of a channel, was taken from ``channel``."""
        index = channel.input_index
        match event:
            case CheckpointBarrier():
                self.handle_barrier(channel, event, now_ns)
            case BarrierAnnouncement(barrier):
                self.execute(self.handler.on_announcement(index, barrier, now_ns))
            case CancelCheckpointMarker():
                self.execute(self.handler.on_cancel(index, event, now_ns))
            case EndOfPartition():
                self.execute(self.handler.on_end_of_partition(index, now_ns))
            case EndOfChannelState():
                self._end_of_channel_state(index)
            case _:
                raise AssertionError(f"{event!r} is no event of a stream")

    def handle_barrier(self, channel: Channel, barrier: CheckpointBarrier, now_ns: int) -> None:
        """The same for a barrier: the most frequent event of a task with many channels."""
        instructions = self.handler.on_barrier(channel.input_index, barrier, now_ns)
        if not instructions:
            return
        first = instructions[0] if len(instructions) == 1 else None
        if self._hook is None and isinstance(first, BlockChannel):
            # So it is with nearly all barriers of a task with many channels.
            self.channels[first.channel].block()
        else:
            self.execute(instructions)

    def on_trigger(self, barrier: CheckpointBarrier, now_ns: int) -> None:
        """The coordinator triggers the task itself."""
        self.execute(self.handler.on_trigger(barrier, now_ns))

    def on_timeout(self, checkpoint_id: int, now_ns: int) -> None:
        """The alignment timer of a checkpoint fires."""
        self.execute(self.handler.on_timeout(checkpoint_id, now_ns))

    def execute(self, instructions: Iterable[HandlerInstruction]) -> None:
        """Carry out the barrier handler's instructions, in their order."""
        channels, checkpoints = self.channels, self._checkpoints
        resumed: dict[int, None] = {}
        for instruction in instructions:
            match instruction:
                case BlockChannel(index):
                    if index in resumed:
                        # A chained source: one checkpoint holds it back, and the next one does so at once.
                        del resumed[index]
                    else:
                        with self._around("align.block"):
                            channels[index].block()
                case ResumeChannels(indices):
                    resumed.update(dict.fromkeys(indices))
                case TriggerSnapshot():
                    checkpoints.snapshot_due(instruction)
                case AbortCheckpoint():
                    checkpoints.barrier_aborted(instruction)
                case StartCapture(checkpoint_id):
                    self._start_capture(checkpoint_id)
                case StopCapture(checkpoint_id, failed):
                    self._stop_capture(checkpoint_id, failed)
                case PromoteBarrier(index):
                    channels[index].promote_barrier(self.handler.latest_checkpoint_id)
                case ArmAlignmentTimer(checkpoint_id, at_ns):
                    checkpoints.arm_alignment_timer(checkpoint_id, at_ns)
                case AlignmentFinished():
                    checkpoints.alignment_finished(instruction)
                case _:
                    raise AssertionError(f"unknown instruction {instruction!r}")
        if resumed:
            self._resume([channels[index] for index in resumed])

    def _resume(self, channels: Iterable[Channel]) -> None:
        with self._around("align.release"):
            for channel in channels:
                channel.resume()

    def _start_capture(self, checkpoint_id: int) -> None:
        self.state.open(checkpoint_id)
        for index in self.handler.captured_channels:
            channel = self.channels[index]
            waiting = channel.start_capture(checkpoint_id)
            if waiting or self._hook is not None:
                self._add_input(checkpoint_id, channel, waiting)

    def _stop_capture(self, checkpoint_id: int, failed: bool) -> None:
        for channel in self.channels:
            channel.stop_capture(checkpoint_id)
        if failed:
            self._checkpoints.capture_failed(checkpoint_id)
        else:
            self.state.finish_input(checkpoint_id)
            self._checkpoints.channel_state_changed(checkpoint_id)

    # -- restored records in flight -----------------------------------------------------------------------------------

    @property
    def is_recovered(self) -> bool:
        """Whether no restored record in flight is left."""
        return self._recovery is None

    def recover(self) -> None:
        """Channels hold restored records and markers; read them first."""
        self._recovery = UpstreamRecoveryTracker(len(self.channels))
        for channel in self._back_edges:
            self._recovery.on_end_of_channel_state(channel.input_index)
        self._undrained = sum(1 for channel in self.channels if channel.restored_records)
        for channel in self.channels:
            channel.disconnect()
            if channel.queue:
                self.channel_readable(channel)
        if not self._undrained:
            self._connect()

    def input_state_drained(self) -> None:
        """The last restored record of one more channel was read."""
        self._undrained -= 1
        if not self._undrained:
            self._connect()

    def _connect(self) -> None:
        for channel in self.channels:
            channel.connect()

    def _end_of_channel_state(self, index: int) -> None:
        assert self._recovery is not None
        resumed = self._recovery.on_end_of_channel_state(index)
        if resumed:
            self._recovery = None
            # Before the first of them is resumed: no new record may be taken for a restored one.
            self._checkpoints.input_recovered()
            for channel in resumed:
                self.channels[channel].resume_sender()

    # -- inspection ---------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        for channel in self.channels:
            channel.validate()
        self.handler.validate()
        self.state.validate()
        if self.debloater is not None:
            self.debloater.validate()

    def fingerprint(self) -> object:
        return (
            tuple(channel.fingerprint() for channel in self.channels),
            tuple(channel.input_index for channel in self._readable),
            tuple(channel.input_index for channel in self.priority),
            self.handler.fingerprint(),
            self.state.fingerprint(),
            None if self._recovery is None else self._recovery.fingerprint(),
            self._undrained,
            None if self.debloater is None else self.debloater.fingerprint(),
        )
