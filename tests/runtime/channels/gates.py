"""A task that only reads, with real channels, gate and handler, and the senders at the other ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from engine.checkpoint.barriers import (
    AbortCheckpoint,
    AlignmentFinished,
    BarrierHandler,
    InputCapture,
    SingleCheckpointHandler,
    TriggerSnapshot,
)
from engine.checkpoint.subtask import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.events import AlignmentType, CheckpointBarrier, EndOfPartition, Watermark
from engine.graph.plan import ChannelPlan
from engine.runtime.channels import Channel, ChannelSettings, CheckpointedInputGate, Element
from engine.runtime.config import CostModel
from engine.runtime.kernel import ChoiceRecorder, Kernel
from tests.runtime.channels.links import flat

FIRST_INDEX = 10
"""Of the first channel in the plan: not its input index."""


class Sender:
    """A task with one output channel: puts barriers on it as a task does that has just taken its snapshot."""

    def __init__(self, kernel: Kernel, subtask: int) -> None:
        self.name = f"map[{subtask}]"
        self.full_outputs = 0
        self.state = ChannelStateWriter()
        self.channel: Channel
        self.sent: list[Any] = []
        self.cuts: dict[int, int] = {}
        """By checkpoint: how many records were sent before its barrier."""
        self.has_ended = False
        self._kernel = kernel

    def put(self, *elements: Element) -> None:
        for element in elements:
            if isinstance(element, Batch):
                self.sent += element.values
                self.channel.put_batch(element)
            elif isinstance(element, CheckpointBarrier):
                self._put_barrier(element)
            else:
                self.has_ended = isinstance(element, EndOfPartition)
                self.channel.put_event(element)

    def _put_barrier(self, barrier: CheckpointBarrier) -> None:
        checkpoint_id, options = barrier.checkpoint_id, barrier.options
        self.cuts[checkpoint_id] = len(self.sent)
        is_forced = options.alignment is AlignmentType.FORCED_ALIGNED
        self.state.open(checkpoint_id)
        self.channel.put_barrier(barrier, None if is_forced else self.state)
        self.state.finish_input(checkpoint_id)
        self.state.finish_output(checkpoint_id)
        if options.timeoutable and options.aligned_timeout_ns is not None:
            due_ns = max(self._kernel.now_ns, barrier.timestamp_ns + options.aligned_timeout_ns)
            self._kernel.schedule(due_ns, "time_out", self, checkpoint_id)

    def time_out(self, checkpoint_id: int) -> None:
        """The timer of the outputs (kernel event)."""
        self.channel.barrier_timeout(checkpoint_id)

    def output_filled(self) -> None:
        self.full_outputs += 1

    def credit_returned(self) -> None:
        self.full_outputs -= 1

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """Called as in a task; has no effect here."""

    def captured(self, checkpoint_id: int) -> list[Any]:
        return flat(self.state.captured(checkpoint_id).outputs.get(self.channel.index, []))


class Receiver:
    """A task that only reads: records what it has processed and what the gate told it."""

    name = "sum[0]"

    def __init__(
        self,
        channels: int = 2,
        *,
        capacity: int = 100,
        output_capacity: int = 0,
        cost: CostModel | None = None,
        latencies_ns: Sequence[int] = (),
        seed: int = 0,
        local: Sequence[int] = (),
        sources: tuple[int, ...] = (),
        captures: bool = True,
        weigh: Callable[[Batch], int] | None = None,
        back_edges: Collection[int] = (),
    ) -> None:
        self.kernel = Kernel(choices=ChoiceRecorder(str(seed)))
        self.seen: list[Any] = []
        self.state = ChannelStateWriter()
        self.senders = [Sender(self.kernel, number) for number in range(channels)]
        self.told: list[Any] = []
        self.wakes = 0
        self.processed: list[list[Any]] = [[] for _ in range(channels)]
        self.snapshots: dict[int, list[int]] = {}
        """By checkpoint: how many records of each channel were processed before the snapshot."""
        self.completed: list[int] = []
        for number, sender in enumerate(self.senders):
            sender.channel = Channel(
                ChannelPlan(FIRST_INDEX + number, 0, 0, number, 0, 1, 0, number),
                sender,  # type: ignore[arg-type]
                self.name,
                ChannelSettings(
                    self.kernel,
                    CostModel() if cost is None else cost,
                    latencies_ns[number] if latencies_ns else 0,
                    capacity,
                    1,
                    self.seen.append,
                    output_capacity,
                    weigh=weigh,
                ),
            )

        def handler(count: int, capture: InputCapture | None) -> BarrierHandler:
            return SingleCheckpointHandler(
                count, capture=capture if captures else None, source_channels=sources, back_edges=back_edges
            )

        self.channels = [sender.channel for sender in self.senders]
        self.gate = CheckpointedInputGate(
            self.wake, self, self.channels, handler, self.state, captures=captures, local_channels=local,
            back_edges=back_edges,
        )  # fmt: skip

    # --- what the gate tells ---

    def wake(self) -> None:
        self.wakes += 1

    def snapshot_due(self, due: TriggerSnapshot) -> None:
        checkpoint_id = due.barrier.checkpoint_id
        assert checkpoint_id not in self.snapshots, f"checkpoint {checkpoint_id} is triggered twice"
        self.snapshots[checkpoint_id] = list(map(len, self.processed))
        self.told.append(("snapshot", checkpoint_id, due.barrier.is_priority))
        if not due.barrier.is_priority:
            self.completed.append(checkpoint_id)

    def barrier_aborted(self, abort: AbortCheckpoint) -> None:
        """Drops what was captured for it."""
        self.told.append(("abort", abort.checkpoint_id))
        self.state.abort(abort.checkpoint_id)

    def alignment_finished(self, finished: AlignmentFinished) -> None:
        self.completed.append(finished.checkpoint_id)
        self.told.append(("finished", finished.checkpoint_id))

    def channel_state_changed(self, checkpoint_id: int) -> None:
        self.told.append(("input part", checkpoint_id))

    def capture_failed(self, checkpoint_id: int) -> None:
        self.told.append(("failed", checkpoint_id))
        self.state.abort(checkpoint_id)

    def arm_alignment_timer(self, checkpoint_id: int, at_ns: int) -> None:
        self.kernel.schedule(max(at_ns, self.kernel.now_ns), "time_out", self, checkpoint_id)

    def time_out(self, checkpoint_id: int) -> None:
        """The alignment timer (kernel event)."""
        self.gate.on_timeout(checkpoint_id, self.kernel.now_ns)

    def input_recovered(self) -> None:
        self.told.append("recovered")

    # --- reading ---

    def read(self, most: int | None = None) -> list[Any]:
        """Handle one element, at most ``most`` records of a batch; returns the element taken."""
        channel = self.gate.next_channel()
        if channel is None:
            return []
        head = channel.head()
        if isinstance(head, Batch):
            taken: list[Any] = channel.take_records(len(head) if most is None else min(most, len(head))).values
            self.processed[channel.input_index] += taken
        else:
            event = channel.take()
            taken = [event]
            if not isinstance(event, Watermark):
                self.gate.handle(channel, event, self.kernel.now_ns)
        self.gate.pass_turn(channel)
        self.gate.validate()
        return taken

    def read_all(self) -> list[Any]:
        """Handle every element that is here or that arrives because of this."""
        taken: list[Any] = []
        while self.gate.next_channel() is not None:
            taken += self.read()
        return taken

    def inputs(self, checkpoint_id: int, channel: int) -> list[Any]:
        return flat(self.state.captured(checkpoint_id).inputs.get(FIRST_INDEX + channel, []))
