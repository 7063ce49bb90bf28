"""Replays a vector on the receiving side: the real input gate, its channels and handler, and the task's protocol.

Elements are put into real channels whose sender never waits. They are at the receiver at once, also on a blocked
channel, where the vectors expect them. A local channel has no queue: its elements stay with the sender until they are
consumed. The order of consumption is decided here, by the rules of ``delivery``; everything that follows from it is the
engine's work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from engine.checkpoint.barriers import (
    AbortCheckpoint,
    AlignmentFinished,
    AtLeastOnceTracker,
    BarrierHandler,
    InputCapture,
    SingleCheckpointHandler,
    TriggerSnapshot,
)
from engine.checkpoint.subtask import (
    BroadcastCancelMarker,
    CancelSnapshot,
    ChannelStateWriter,
    TakeSnapshot,
    TaskCheckpointProtocol,
)
from engine.checkpoint.subtask.task_instructions import TaskInstruction
from engine.elements.batch import Batch
from engine.elements.events import BarrierAnnouncement, CheckpointBarrier, EndOfChannelState, EndOfData, EndOfPartition
from engine.runtime.channels import CheckpointedInputGate, Element
from tests.conformance.barrier.observed import ABORT_NOTIFICATION, Observed, Operation, Vector
from tests.conformance.barrier.world import Clock, Tapped, barrier_of, element_of
from tests.conformance.compare import MalformedVector


class TappedWriter(ChannelStateWriter):
    """Channel state that also records what was captured in which order, for aborted checkpoints too."""

    def __init__(self, observed: Observed) -> None:
        super().__init__()
        self._observed = observed
        self.in_order: list[tuple[int, str]] = []

    def add_input(self, checkpoint_id: int, channel: int, batches: Iterable[Batch]) -> None:
        """Note the names, and go on."""
        batches = list(batches)
        names = [name for batch in batches for name in batch.values]
        if checkpoint_id in self.collecting:
            self._observed.inflight.setdefault(checkpoint_id, []).extend(names)
            self.in_order += [(channel, name) for name in names]
        super().add_input(checkpoint_id, channel, batches)


class InputReplay:
    """One task's input side. ``handler``: replaces the one that the vector's mode asks for."""

    def __init__(self, vector: Vector, handler: Callable[[int, InputCapture], BarrierHandler] | None = None) -> None:
        self.observed = Observed()
        self.completed: list[int] = []
        """Checkpoints that all barriers came for."""
        self._vector = vector
        self._clock = Clock()
        self._sizes: dict[str, int] = {}
        self._state = TappedWriter(self.observed)
        self._protocol = TaskCheckpointProtocol()
        self._is_task = vector["scope"] == "task" or any(op[0] == "abort_rpc" for op in vector["input"])
        self._is_recovering = vector["scope"] == "recovery"
        self.channels = [Tapped(index) for index in range(vector["channels"])]
        self._stamps: dict[tuple[int, int | str], int] = {}
        self._blocked_behind: dict[int, int] = {}
        """When the barrier arrived that was taken last, by channel."""
        self._directly = vector["delivery"] == "direct"
        self._eagerly = vector["delivery"] == "eager" or (
            self._is_task and not any(op[0].startswith("poll") for op in vector["input"])
        )
        local = range(vector["channels"]) if self._directly else vector.get("local_channels", ())
        self._unsent: dict[int, list[tuple[bool, int, Element]]] = {} if self._directly else {one: [] for one in local}
        """What waits at the sender of a local channel: whether it is a priority event, when it came, what it is."""
        self._gate = CheckpointedInputGate(
            self.wake,
            self,
            self.channels,
            handler or self._handler,
            self._state,
            captures=vector["mode"] in ("unaligned", "aligned_timeout"),
            local_channels=local,
        )
        if self._is_recovering:
            self._gate.recover()

    @property
    def handler(self) -> BarrierHandler:
        return self._gate.handler

    @property
    def blocked(self) -> set[int]:
        return {channel.index for channel in self.channels if channel.blocked}

    @property
    def local_channels(self) -> frozenset[int]:
        """Channels without a queue of their own: elements wait at the sender until they are consumed."""
        return frozenset(self._unsent)

    @property
    def waiting(self) -> int:
        """Elements that were not consumed yet."""
        return sum(len(channel.queue) for channel in self.channels) + sum(map(len, self._unsent.values()))

    @property
    def armed(self) -> list[int]:
        """Checkpoints that ever had an alignment timer."""
        return self._clock.armed

    @property
    def now_ns(self) -> int:
        return self._clock.now_ns

    def _handler(self, channels: int, capture: InputCapture) -> BarrierHandler:
        counts_ends = self._vector["checkpoints_after_tasks_finish"]
        sources = source_channels(self._vector)
        match self._vector["mode"]:
            case "aligned":
                return SingleCheckpointHandler(channels, counts_ends, source_channels=sources)
            case "unaligned" | "aligned_timeout":
                return SingleCheckpointHandler(channels, counts_ends, capture=capture, source_channels=sources)
            case "at_least_once":
                return AtLeastOnceTracker(channels, counts_ends)
            case mode:
                raise MalformedVector(f"unknown mode {mode!r}")

    def run(self) -> Observed:
        for operation in self._vector["input"]:
            self.apply(operation)
        return self.observed

    def apply(self, operation: Operation) -> None:
        """Replay one operation, consume elements by ``delivery``, and check the result."""
        self._apply(operation)
        if self._eagerly:
            self._consume_all(with_announcements=True)
        self._look()

    # --- operations -----------------------------------------------------------------------------------------------

    def _apply(self, operation: Operation) -> None:
        now_ns = self._clock.now_ns
        match operation:
            case ["barrier", index, checkpoint_id, *given]:
                self._put(index, barrier_of(self._vector, checkpoint_id, given, now_ns))
            case ["rec", index, name, *given]:
                self._sizes[name] = given[0].get("bytes", 0) if given else 0
                self._put(index, element_of(operation))
            case ["cancel" | "eop" | "eod", index, *_]:
                self._put(index, element_of(operation))
            case ["end_of_state", index]:
                self._put_marker(index)
            case ["source_barrier", index, checkpoint_id, *given]:
                barrier = barrier_of(self._vector, checkpoint_id, given, now_ns)
                self._gate.execute(self._gate.handler.on_barrier(index, barrier, now_ns))
            case ["rpc_trigger", checkpoint_id, *given]:
                self._gate.on_trigger(barrier_of(self._vector, checkpoint_id, given, now_ns), now_ns)
            case ["abort_rpc", checkpoint_id]:
                self._carry_out(self._protocol.on_abort(checkpoint_id))
            case ["close"]:
                self._gate.handler.close()
            case _:
                if not self._clock.carries_out(operation, self._fire_timers):
                    self._apply_poll(operation)

    def _apply_poll(self, operation: Operation) -> None:
        match operation:
            case ["poll", count]:
                while count and self._consume_next(self.channels, with_announcements=False):
                    count -= 1
            case ["poll_channel", index]:
                self._consume_next([self.channels[index]], with_announcements=False)
            case ["poll_all"]:
                self._consume_all(with_announcements=False)
            case ["poll_announcement", index]:
                if not self._consume_announcement(self.channels[index]):
                    self.observed.problems.append(f"poll_announcement: channel {index} holds none")
            case ["poll_announcements"]:
                for channel in self.channels:
                    while not channel.blocked and self._consume_announcement(channel):
                        pass
            case ["expect_empty"]:
                if self._next(self.channels, with_announcements=False) is not None:
                    self.observed.problems.append("expect_empty: there is something to consume")
            case _:
                raise MalformedVector(f"unknown operation {operation} in scope {self._vector['scope']!r}")

    def _fire_timers(self) -> None:
        for checkpoint_id in self._clock.take_due():
            self._gate.on_timeout(checkpoint_id, self._clock.now_ns)

    # --- arrival --------------------------------------------------------------------------------------------------

    def _put(self, index: int, element: Element) -> None:
        unsent = self._unsent.get(index)
        if unsent is None:
            self._stamp(index, self.channels[index].sent_elements + 1)
            self._send(index, element)
            return
        stamp = self._stamp(index, f"local {len(self._stamps)}")
        overtakes = isinstance(element, CheckpointBarrier) and element.is_priority
        position = sum(1 for is_priority, _, _ in unsent if is_priority) if overtakes else len(unsent)
        unsent.insert(position, (overtakes, stamp, element))

    def _hand_over(self, index: int) -> None:
        """The next element at the sender of a local channel goes to the task."""
        _, stamp, element = self._unsent[index].pop(0)
        self._stamps[index, self.channels[index].sent_elements + 1] = stamp
        self._send(index, element)

    def _send(self, index: int, element: Element) -> None:
        channel = self.channels[index]
        if isinstance(element, Batch):
            channel.put_batch(element)
        elif isinstance(element, CheckpointBarrier):
            self._stamp(index, f"announcement of {element.checkpoint_id}")
            channel.put_barrier(element, None)
            # The vectors put elements after an aligned barrier into the receiver's queue; there they await the resume.
            super(Tapped, channel).resume_sender()
        else:
            channel.put_event(element)
        if self._directly:
            self._consume(channel)

    def _put_marker(self, index: int) -> None:
        channel = self.channels[index]
        # Restored output leaves through the sender's queue, which its marker blocks.
        channel.disconnect()
        channel.put_event(EndOfChannelState())
        self._stamp(index, channel.sent_elements)
        channel.connect()
        if len(channel.queue) == 1:
            self._consume(channel)

    def _stamp(self, index: int, what: int | str) -> int:
        self._stamps[index, what] = stamp = len(self._stamps)
        return stamp

    # --- consumption ----------------------------------------------------------------------------------------------

    def _consume_all(self, with_announcements: bool) -> None:
        while self._consume_next(self.channels, with_announcements):
            pass

    def _consume_next(self, channels: Sequence[Tapped], with_announcements: bool) -> bool:
        """Consume one element: priority events first, then the earliest that arrived; whether there was one."""
        channel = self._next(channels, with_announcements)
        if channel is None:
            return False
        held: list[Element] = []
        while not with_announcements and channel.queue and isinstance(channel.head(), BarrierAnnouncement):
            held.append(channel.take())
        self._consume(channel)
        for position, announcement in enumerate(held):
            channel.within_queue().insert(position, (0, announcement))
            channel.priority_events += 1
        return True

    def _next(self, channels: Sequence[Tapped], with_announcements: bool) -> Tapped | None:
        heads = [self._head(channel, with_announcements) for channel in channels]
        waiting = [head for head in heads if head is not None]
        return self.channels[min(waiting)[2]] if waiting else None

    def _head(self, channel: Tapped, with_announcements: bool) -> tuple[bool, int, int] | None:
        """``(no priority event, time of arrival, channel)`` of the next element, if it may be consumed."""
        if unsent := self._unsent.get(channel.index):
            is_priority, stamp, _ = unsent[0]
            return None if channel.blocked else (not is_priority, stamp, channel.index)
        for position, (number, element) in enumerate(channel.queue):
            if isinstance(element, BarrierAnnouncement):
                if not with_announcements:
                    continue
                stamp = self._stamps[channel.index, f"announcement of {element.checkpoint_id}"]
            else:
                stamp = self._stamps[channel.index, number]
            # Records that a barrier was promoted past are before it: they go on although it blocks its channel.
            if channel.blocked and stamp > self._blocked_behind.get(channel.index, -1):
                return None
            return (position >= channel.priority_events, stamp, channel.index)
        return None

    def _consume_announcement(self, channel: Tapped) -> bool:
        for position, (_, element) in enumerate(channel.queue):
            if isinstance(element, BarrierAnnouncement):
                del channel.within_queue()[position]
                channel.priority_events -= 1
                self._gate.handle(channel, element, self._clock.now_ns)
                return True
        return False

    def _consume(self, channel: Tapped) -> None:
        if channel.index in self._unsent:
            self._hand_over(channel.index)
        number, element = channel.queue[0]
        if self._directly and channel.blocked and isinstance(element, CheckpointBarrier):
            self._let_through(channel, element)
        channel.take()
        match element:
            case Batch():
                (name,) = element.values
                self.observed.record(name)
                self.observed.downstream.append(name)
                self._gate.handler.clock.bytes_taken += self._sizes[name]
            case EndOfData():
                pass
            case CheckpointBarrier():
                self._blocked_behind[channel.index] = self._stamps[channel.index, number]
                self._gate.handle(channel, element, self._clock.now_ns)
            case _:
                if isinstance(element, EndOfPartition):
                    self.observed.events.append(["eop", channel.index])
                self._gate.handle(channel, element, self._clock.now_ns)

    def _let_through(self, channel: Tapped, barrier: CheckpointBarrier) -> None:
        """Direct delivery ignores blocking: the handler gets a barrier from a channel that it has blocked, which a gate
        would never give it. The channel must have been open, and the barrier may block it again."""
        if barrier.options.needs_alignment:
            channel.resume()
            assert isinstance(self._gate.handler, SingleCheckpointHandler)
            self._gate.handler._alignment.resume((channel.index,), [])

    # --- what the gate tells its task -----------------------------------------------------------------------------

    def wake(self) -> None:
        """There may be an element to read; the vector decides when."""

    def snapshot_due(self, due: TriggerSnapshot) -> None:
        barrier = due.barrier
        if barrier.is_priority:
            self.observed.inflight.setdefault(barrier.checkpoint_id, [])
        else:
            self.completed.append(barrier.checkpoint_id)
            if barrier.options.timeoutable:
                self._state.open(barrier.checkpoint_id)
                self._state.finish_input(barrier.checkpoint_id)
        if not self._is_task:
            self.observed.checkpoint(barrier)
        self.observed.measure(barrier.checkpoint_id, due.metrics)
        self._carry_out(self._protocol.on_snapshot_due(barrier, due.metrics), due)

    def barrier_aborted(self, abort: AbortCheckpoint) -> None:
        """The handler aborted the checkpoint."""
        if self._state.is_complete(abort.checkpoint_id) or self._state.is_failed(abort.checkpoint_id):
            self.observed.told_before_channel_state_ended = False
        self.observed.abort(abort.checkpoint_id, abort.reason)
        self._state.abort(abort.checkpoint_id)
        self._carry_out(self._protocol.on_alignment_aborted(abort.checkpoint_id, abort.reason))

    def capture_failed(self, checkpoint_id: int) -> None:
        """Not all barriers will come. A task lets the channel state fail when the gate is done, not before."""

    def alignment_finished(self, finished: AlignmentFinished) -> None:
        """All barriers of an unaligned checkpoint are here: its channel state must be whole."""
        checkpoint_id = finished.checkpoint_id
        self.completed.append(checkpoint_id)
        self.observed.measure(checkpoint_id, finished.metrics)
        if checkpoint_id in self._state.collecting:
            self._state.finish_output(checkpoint_id)
            stored = self._state.take(checkpoint_id).inputs
            names = [name for channel in sorted(stored) for batch in stored[channel] for name in batch.values]
            if sorted(names) != sorted(self.observed.inflight[checkpoint_id]):
                self.observed.problems.append(f"channel state of {checkpoint_id} holds {names}")

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """A part of the channel state has ended."""

    def arm_alignment_timer(self, checkpoint_id: int, at_ns: int) -> None:
        self._clock.arm(at_ns, checkpoint_id)

    def input_recovered(self) -> None:
        """All restored records have been read."""

    # --- the task's protocol --------------------------------------------------------------------------------------

    def _carry_out(self, instructions: Iterable[TaskInstruction], due: TriggerSnapshot | None = None) -> None:
        for instruction in instructions:
            match instruction:
                case TakeSnapshot(barrier):
                    if self._is_task:
                        self.observed.checkpoint(barrier)
                    self.observed.downstream.append(["barrier", barrier.checkpoint_id])
                case BroadcastCancelMarker(checkpoint_id):
                    if due is not None and self._is_task:
                        self.observed.abort(checkpoint_id, ABORT_NOTIFICATION)
                        self.observed.inflight.pop(checkpoint_id, None)
                        self._state.abort(checkpoint_id)
                    self.observed.downstream.append(["cancel_marker", checkpoint_id])
                case CancelSnapshot(checkpoint_id):
                    if checkpoint_id not in self.observed.aborted:
                        self.observed.abort(checkpoint_id, ABORT_NOTIFICATION)

    # --- looking --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._gate.handler.validate()
        for channel in self.channels:
            channel.validate()
        # An ended channel needs no resume, although with direct delivery its end comes while it is blocked.
        is_open = self._gate.handler.open_channels
        blocked = [channel.index for channel in self.channels if channel.blocked and channel.index in is_open]
        self.observed.blocked_after.append(blocked)
        counts: dict[int, int] = {}
        for index, _ in self._state.in_order:
            counts[index] = counts.get(index, 0) + 1
        self.observed.inflight_counts_after.append(counts)
        resumes = [self._resumes(channel) for channel in self.channels]
        # Every other resume of a sender belongs to an alignment.
        if self._is_recovering and any(channel.sender_resumes - channel.resumes > 1 for channel in self.channels):
            self.observed.problems.append("a channel was resumed twice")
        self.observed.resumed = [index for index, count in enumerate(resumes) if count]
        self.observed.resumed_after.append(self.observed.resumed)
        self.observed.pending = list(self._gate.handler.pending_checkpoint_ids)

    def _resumes(self, channel: Tapped) -> int:
        return channel.sender_resumes if self._is_recovering else channel.resumes


def source_channels(vector: Vector) -> tuple[int, ...]:
    named = set(vector["expect"].get("source_channels", ()))
    named |= {operation[1] for operation in vector["input"] if operation[0] == "source_barrier"}
    return tuple(sorted(named))
