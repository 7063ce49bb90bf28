"""The input side of a task: which channel is read next, what barriers do to channels, what becomes channel state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoint.aligned import AlignedBarrierHandler
from engine.checkpoint.alternating import AlternatingBarrierHandler
from engine.checkpoint.barrier_handler import BarrierHandler
from engine.checkpoint.channel_capture import InputCapture
from engine.checkpoint.channel_state import ChannelStateWriter
from engine.checkpoint.instructions import AbortCheckpoint, AlignmentFinished, ResumeChannels, TriggerSnapshot
from engine.elements.batch import Batch
from engine.elements.events import (
    AlignmentType,
    BarrierAnnouncement,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfChannelState,
    EndOfPartition,
    Watermark,
)
from engine.graph.plan import ChannelPlan
from engine.observe.events import ChannelResumed, RecordsCaptured
from engine.runtime.channel import Channel
from engine.runtime.checkpointed_input_gate import CheckpointedInputGate
from engine.runtime.choices import ChoiceRecorder
from engine.runtime.cost import CostModel
from engine.runtime.kernel import START_NS, Kernel
from engine.runtime.output_queue import Element
from tests.runtime.links import aligned, flat, records, timeoutable, unaligned

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
        """Send."""
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

    def credit_returned(self) -> None:
        """As a task does."""
        self.full_outputs -= 1

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """As a task is told."""

    def captured(self, checkpoint_id: int) -> list[Any]:
        """The sender's part of a checkpoint."""
        return flat(self.state.captured(checkpoint_id).outputs.get(self.channel.index, []))


class Receiver:
    """A task that only reads: keeps what it has processed and what the gate told it."""

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
                kernel=self.kernel,
                cost=CostModel() if cost is None else cost,
                latency_ns=latencies_ns[number] if latencies_ns else 0,
                capacity=capacity,
                output_capacity=output_capacity,
                attempt=1,
                instrument=self.seen.append,
            )

        def handler(count: int, capture: InputCapture) -> BarrierHandler:
            if not captures:
                return AlignedBarrierHandler(count)
            return AlternatingBarrierHandler(count, capture=capture, source_channels=sources)

        self.channels = [sender.channel for sender in self.senders]
        self.gate = CheckpointedInputGate(
            self, self.channels, handler, self.state, captures=captures, local_channels=local
        )

    # --- what the gate tells ---

    def wake(self) -> None:
        """Noted."""
        self.wakes += 1

    def priority_event_arrived(self) -> None:
        """Noted."""
        self.told.append("priority")

    def trigger_snapshot(self, due: TriggerSnapshot) -> None:
        """The cut on this side."""
        checkpoint_id = due.barrier.checkpoint_id
        assert checkpoint_id not in self.snapshots, f"checkpoint {checkpoint_id} is triggered twice"
        self.snapshots[checkpoint_id] = list(map(len, self.processed))
        self.told.append(("snapshot", checkpoint_id, due.barrier.is_priority))
        if not due.barrier.is_priority:
            self.completed.append(checkpoint_id)

    def abort_checkpoint(self, abort: AbortCheckpoint) -> None:
        """What was captured is not wanted."""
        self.told.append(("abort", abort.checkpoint_id))
        self.state.abort(abort.checkpoint_id)

    def alignment_finished(self, finished: AlignmentFinished) -> None:
        """Noted."""
        self.completed.append(finished.checkpoint_id)
        self.told.append(("finished", finished.checkpoint_id))

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """Noted."""
        self.told.append(("input part", checkpoint_id))

    def capture_failed(self, checkpoint_id: int) -> None:
        """As a task does."""
        self.told.append(("failed", checkpoint_id))
        self.state.abort(checkpoint_id)

    def arm_alignment_timer(self, checkpoint_id: int, at_ns: int) -> None:
        """As a task does."""
        self.kernel.schedule(max(at_ns, self.kernel.now_ns), "time_out", self, checkpoint_id)

    def time_out(self, checkpoint_id: int) -> None:
        """The alignment timer (kernel event)."""
        self.gate.on_timeout(checkpoint_id, self.kernel.now_ns)

    def input_recovered(self) -> None:
        """Noted."""
        self.told.append("recovered")

    # --- reading ---

    def read(self, most: int | None = None) -> list[Any]:
        """Handle one element, of a batch at most ``most`` records; gives what was taken."""
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
        """Handle everything that is here or comes of it."""
        taken: list[Any] = []
        while self.gate.next_channel() is not None:
            taken += self.read()
        return taken

    def inputs(self, checkpoint_id: int, channel: int) -> list[Any]:
        """The records of one channel in the input part of a checkpoint."""
        return flat(self.state.captured(checkpoint_id).inputs.get(FIRST_INDEX + channel, []))


# --- which channel is next --------------------------------------------------------------------------------------------


def test_channels_take_turns() -> None:
    """One element each, in the order in which they had something first."""
    task = Receiver(3)
    task.senders[1].put(records("b1"), records("b2"), records("b3"))
    task.senders[0].put(records("a1"), records("a2"))
    task.senders[2].put(Watermark(1), records("c1"))

    assert task.read_all() == ["b1", "a1", Watermark(1), "b2", "a2", "c1", "b3"]


def test_priority_events_are_read_before_all_others() -> None:
    """Whatever waits on other channels, and whoever's turn it is."""
    task = Receiver()
    task.senders[0].put(records("a1"), records("a2"))
    task.senders[1].put(records("b1"), unaligned(1))

    assert task.gate.has_priority_event
    assert task.gate.next_priority_channel() is task.channels[1]
    assert task.read_all() == [unaligned(1), "a1", "b1", "a2"]
    assert not task.gate.has_priority_event
    assert task.gate.next_priority_channel() is None


def test_the_owner_is_told_of_priority_events_and_woken_for_the_rest() -> None:
    """It may be busy with a batch: only the first concerns it at once."""
    task = Receiver()

    task.senders[0].put(records(1))
    assert (task.wakes, task.told) == (1, [])
    task.senders[0].put(unaligned(1))

    assert task.told == ["priority"]


def test_the_owner_is_woken_as_long_as_there_is_something_to_read() -> None:
    """Each element read leads to the next one, priority events too."""
    task = Receiver()
    task.senders[0].put(records(1), records(2))
    task.senders[1].put(unaligned(1), unaligned(2))

    for _ in range(4):
        before = task.wakes
        task.read()
        assert task.wakes > before

    assert task.gate.next_channel() is None


def test_priority_events_alone_keep_the_owner_awake() -> None:
    """There may be no record anywhere."""
    task = Receiver()
    task.senders[1].put(unaligned(1), unaligned(2))

    before = task.wakes
    task.read()

    assert task.wakes > before


def test_a_later_priority_event_of_the_same_channel_comes_first_too() -> None:
    """The gate lists a channel for its priority events whenever it has some."""
    task = Receiver()
    task.senders[0].put(unaligned(1), records("a1"), records("a2"))
    assert task.read() == [unaligned(1)]
    assert task.read() == ["a1"]
    task.senders[1].put(records("b1"), unaligned(1))
    task.read()
    task.read()

    task.senders[0].put(unaligned(2))

    assert task.read() == [unaligned(2)]


def test_a_channel_is_readable_again_after_it_ran_empty() -> None:
    """The gate lists a channel whenever it has something, and once."""
    task = Receiver()
    task.senders[0].put(records(1))
    assert task.read_all() == [1]

    task.senders[0].put(records(2))

    assert task.read_all() == [2]


def test_an_event_that_no_stream_has_is_a_bug() -> None:
    """Elements that the task must handle itself do not reach the gate."""
    task = Receiver()

    with pytest.raises(AssertionError, match="no event of a stream"):
        task.gate.handle(task.channels[0], records(1), START_NS)


def test_an_unknown_instruction_is_a_bug() -> None:
    """Nothing that a handler says is passed over."""
    with pytest.raises(AssertionError, match="unknown instruction"):
        Receiver().gate.execute(["resume"])  # type: ignore[list-item]


# --- barriers ---------------------------------------------------------------------------------------------------------


def test_an_aligned_checkpoint_blocks_and_resumes() -> None:
    """The first barrier holds its channel back until the last one is here, and the snapshot comes before anything
    that follows a barrier."""
    task = Receiver()
    task.senders[0].put(records("a"), aligned(1), records("late"))
    task.senders[1].put(records("b"))
    assert task.read_all() == ["a", "b", aligned(1)]
    assert task.channels[0].blocked

    task.senders[1].put(aligned(1))
    assert task.read_all() == [aligned(1), "late"]

    assert task.told == [("snapshot", 1, False)]
    assert task.snapshots[1] == [1, 1]
    assert not task.channels[0].blocked


def test_an_unaligned_checkpoint_captures_all_channels_until_their_barriers() -> None:
    """Queued and arriving records of every channel, none behind its barrier; the input part ends with the last one."""
    task = Receiver(3)
    task.senders[0].put(records("a1"), unaligned(1), records("a2"))
    task.senders[1].put(records("b1"))
    assert task.read() == [unaligned(1)]

    task.read_all()
    task.senders[1].put(records("b2"), unaligned(1), records("b3"))
    task.senders[2].put(records("c1"))
    task.read_all()
    task.senders[2].put(unaligned(1), records("c2"))
    task.read_all()

    assert [task.inputs(1, number) for number in range(3)] == [["a1"], ["b1", "b2"], ["c1"]]
    assert [one for one in task.told if one != "priority"] == [
        ("snapshot", 1, True),
        ("input part", 1),
        ("finished", 1),
    ]
    assert task.snapshots[1] == [0, 0, 0]
    task.state.finish_output(1)
    assert task.state.is_complete(1)


def test_the_trace_tells_what_the_input_side_captured() -> None:
    """What was queued at once, what arrives as it arrives; what belongs to no open checkpoint is not told."""
    task = Receiver()
    task.senders[0].put(records(1, 2), unaligned(4))
    task.read()
    task.senders[1].put(records(3))
    task.state.abort(4)
    task.senders[1].put(records(4, 5))

    assert [one for one in task.seen if isinstance(one, RecordsCaptured)] == [
        RecordsCaptured(START_NS, 1, 4, FIRST_INDEX, "input", 2),
        RecordsCaptured(START_NS, 1, 4, FIRST_INDEX + 1, "input", 1),
    ]


def test_a_cancelled_unaligned_checkpoint_stops_its_capture() -> None:
    """What was captured is thrown away, and nothing more is captured."""
    task = Receiver()
    task.senders[0].put(records(1), unaligned(1))
    task.read()
    task.senders[1].put(CancelCheckpointMarker(1), records(2))
    task.read_all()

    assert [one for one in task.told if one != "priority"] == [("snapshot", 1, True), ("failed", 1), ("abort", 1)]
    assert not task.state.is_open(1)
    assert not any(channel.capturing for channel in task.channels)


def test_records_of_a_chained_source_are_not_captured() -> None:
    """Its position is in its state; the channel that stands for it is left out."""
    task = Receiver(2, sources=(1,))
    task.senders[0].put(unaligned(1))
    task.senders[1].put(records("of the source"))
    task.read()

    assert task.inputs(1, 1) == []
    assert not task.channels[1].capturing


def test_an_alignment_that_times_out_goes_on_unaligned() -> None:
    """The announced barrier is promoted; what it jumped over is captured, and so is what the other channel has yet to
    deliver; the channel whose barrier was taken contributes nothing."""
    task = Receiver(3)
    task.senders[0].put(records("a1"), timeoutable(1), records("a2"))
    task.senders[1].put(records("b1"), timeoutable(1), records("b2"))
    task.senders[2].put(records("c1"))
    while not task.channels[0].blocked:
        task.read(most=1)
    task.senders[1].put(records("b3"))
    taken = list(map(len, task.processed))

    task.kernel.run()
    task.senders[2].put(records("c2"), timeoutable(1).as_unaligned(), records("c3"))
    task.read_all()

    assert ("snapshot", 1, True) in task.told
    assert task.completed == [1]
    assert task.snapshots[1] == taken
    for number, before in enumerate((["a1"], ["b1"], ["c1", "c2"])):
        assert task.processed[number][: taken[number]] + task.inputs(1, number) == before
    assert task.processed == [["a1", "a2"], ["b1", "b2", "b3"], ["c1", "c2", "c3"]]


def test_what_is_resumed_comes_after_the_last_instruction() -> None:
    """A barrier aborts an aligned checkpoint and begins its own; the channel released by the abort holds a still newer
    barrier, which must not meet the capture that is just being started, but comes next."""
    task = Receiver()
    task.senders[0].put(records("a1"), aligned(1))
    task.read_all()
    task.senders[0].put(records("a2"), unaligned(3))
    task.senders[1].put(records("b1"), unaligned(2))

    assert task.read() == [unaligned(2)]
    assert task.read() == [unaligned(3)]
    task.senders[1].put(unaligned(3))
    task.read_all()

    assert [one for one in task.told if one != "priority"] == [
        ("abort", 1),
        ("snapshot", 2, True),
        ("failed", 2),
        ("abort", 2),
        ("snapshot", 3, True),
        ("input part", 3),
        ("finished", 3),
    ]
    # What was put before barrier 3, but after the sender was blocked, is in the sender's part.
    assert (task.inputs(3, 0), task.senders[0].captured(3), task.inputs(3, 1)) == ([], ["a2"], ["b1"])


def test_a_chained_source_may_be_held_back_by_two_checkpoints_in_a_row() -> None:
    """The abort of one resumes it and the next blocks it, in one go: it never got to emit anything."""
    task = Receiver(2, sources=(1,))
    task.senders[0].put(unaligned(1))
    task.read()
    assert task.channels[1].blocked

    task.senders[0].put(unaligned(2))
    task.read()

    assert task.told[-3:] == [("failed", 1), ("abort", 1), ("snapshot", 2, True)]
    assert task.channels[1].blocked
    assert not [one for one in task.seen if isinstance(one, ChannelResumed)]


def test_a_timeout_with_announcements_only_waits_for_the_promoted_barrier() -> None:
    """No barrier was taken yet: the timeout itself triggers nothing, but the barrier comes before the records now."""
    task = Receiver()
    task.senders[0].put(records(1), timeoutable(1), records(2))
    assert task.read() == [BarrierAnnouncement(timeoutable(1))]

    task.kernel.run()
    assert task.snapshots == {}

    assert task.read() == [timeoutable(1)]
    assert task.inputs(1, 0) == [1]
    assert task.snapshots == {1: [0, 0]}


def test_local_channels_are_not_announced() -> None:
    """Nor is any channel of a job that never goes unaligned."""
    task, plain = Receiver(2, local=(0,)), Receiver(2, captures=False)
    for sender in (*task.senders, *plain.senders):
        sender.put(timeoutable(1))

    assert [channel.priority_events for channel in (*task.channels, *plain.channels)] == [0, 1, 0, 0]


def test_the_coordinator_may_trigger_the_task_itself() -> None:
    """Nobody is blocked, and the barriers that come later find nothing to do."""
    task = Receiver()

    task.gate.on_trigger(aligned(3), START_NS)
    task.senders[0].put(aligned(3), records(1))

    assert task.told == [("snapshot", 3, False)]
    assert task.read_all() == [aligned(3), 1]


def test_the_end_of_a_channel_counts_as_its_barrier() -> None:
    """The gate hands it to the handler like a barrier."""
    task = Receiver()
    task.senders[0].put(aligned(1))
    task.senders[1].put(EndOfPartition())

    task.read_all()

    assert task.completed == [1]


# --- restored records in flight ---------------------------------------------------------------------------------------


def recovering(*in_flight: tuple[list[Any], list[Any]]) -> Receiver:
    """A task whose channels hold these (receiver's, sender's) records, and whose senders go on at once."""
    task = Receiver(len(in_flight))
    for number, (inputs, outputs) in enumerate(in_flight):
        task.channels[number].restore([records(*inputs)] if inputs else [], [records(*outputs)] if outputs else [])
    task.gate.recover()
    for number, sender in enumerate(task.senders):
        sender.put(records(f"new {number}"))
    return task


def test_restored_input_of_all_channels_comes_before_any_restored_output() -> None:
    """The channels connect when the last of it was read, all together."""
    task = recovering((["a1", "a2"], ["a3"]), ([], ["b1"]), (["c1"], []))

    assert task.read() == ["a1", "a2"]
    assert [channel.connected for channel in task.channels] == [False] * 3
    assert task.read() == ["c1"]

    assert [channel.connected for channel in task.channels] == [True] * 3
    restored = [one for one in task.read_all() if one != EndOfChannelState()][:2]
    assert sorted(restored) == ["a3", "b1"]


def test_nothing_new_comes_before_all_that_was_restored() -> None:
    """Every marker leaves its channel blocked until the last one was handled; then all go on, once each."""
    task = recovering((["a1"], ["a2"]), ([], ["b1"]), ([], []))
    assert not task.gate.is_recovered

    taken = [one for one in task.read_all() if one != EndOfChannelState()]

    assert sorted(taken[:3]) == ["a1", "a2", "b1"]
    assert sorted(taken[3:]) == ["new 0", "new 1", "new 2"]
    assert task.gate.is_recovered
    assert task.told == ["recovered"]


def test_the_owner_is_told_before_the_first_new_record_can_come() -> None:
    """Else a new record might be taken for a restored one."""
    task = recovering(([], []), ([], []))
    order: list[Any] = []
    task.input_recovered = lambda: order.append([list(channel.queue) for channel in task.channels])  # type: ignore[method-assign]

    task.read_all()

    assert order == [[[], []]]


def test_a_gate_without_restored_input_connects_at_once() -> None:
    """Nothing has to be read first; the markers still have to come."""
    task = recovering(([], ["a1"]), ([], []))

    assert [channel.connected for channel in task.channels] == [True, True]
    assert not task.gate.is_recovered
    taken = task.read_all()
    assert taken[:3].count(EndOfChannelState()) == 2
    assert taken[:3].count("a1") == 1
    assert sorted(taken[3:]) == ["new 0", "new 1"]


def test_a_gate_that_was_not_restored_is_recovered() -> None:
    """There is nothing to wait for, and a marker on its channels would be a bug."""
    task = Receiver()
    assert task.gate.is_recovered

    with pytest.raises(AssertionError):
        task.gate.handle(task.channels[0], EndOfChannelState(), START_NS)


# --- the law ----------------------------------------------------------------------------------------------------------

TIMEOUT_NS = 700

KINDS = {
    "aligned": CheckpointOptions(),
    "unaligned": CheckpointOptions(AlignmentType.UNALIGNED),
    "timeoutable": CheckpointOptions(aligned_timeout_ns=TIMEOUT_NS),
}

STEPS = st.one_of(
    st.tuples(st.just("records"), st.integers(1, 4)),
    st.tuples(st.just("barrier"), st.integers(0, 5)),
    st.tuples(st.sampled_from(("cancel", "skip", "watermark", "end")), st.just(0)),
)
WEIGHTED_STEPS = st.one_of(STEPS, STEPS.filter(lambda step: step[0] in ("records", "barrier")))


class Job:
    """Senders that each carry out a program, one receiver, and what a checkpoint coordinator knows."""

    def __init__(self, kinds: Sequence[str], programs: Sequence[list[tuple[str, int]]], **settings: Any) -> None:
        self.task = Receiver(len(programs), **settings)
        self.programs = [list(program) for program in programs]
        self.reached = [0] * len(programs)
        self._kinds = kinds
        self._created_ns: dict[int, int] = {}

    def barrier(self, checkpoint_id: int, variant: int) -> CheckpointBarrier:
        """The barrier of a checkpoint in the form that one sender gives it: one that has gone unaligned already sends
        it unaligned, and an edge that nothing may overtake on has it forced."""
        created_ns = self._created_ns.setdefault(checkpoint_id, self.task.kernel.now_ns)
        barrier = CheckpointBarrier(
            checkpoint_id, created_ns, KINDS[self._kinds[checkpoint_id % len(self._kinds)]]
        )
        if barrier.options.alignment is AlignmentType.UNALIGNED or barrier.options.timeoutable:
            if variant == 0:
                return barrier.as_unaligned()
            if variant == 1:
                return barrier.with_options(replace(barrier.options, alignment=AlignmentType.FORCED_ALIGNED))
        return barrier

    def send(self, number: int) -> bool:
        """The next step of one sender; whether there was one."""
        sender, program = self.task.senders[number], self.programs[number]
        if sender.has_ended:
            return False
        step, argument = program.pop(0) if program else ("end", 0)
        match step:
            case "records":
                first = len(sender.sent)
                sender.put(records(*((number, first + position) for position in range(argument))))
            case "barrier":
                self.reached[number] += 1
                sender.put(self.barrier(self.reached[number], argument))
            case "cancel":
                self.reached[number] += 1
                sender.put(CancelCheckpointMarker(self.reached[number]))
            case "skip":
                self.reached[number] += 1
            case "watermark":
                sender.put(Watermark(1))
            case _:
                sender.put(EndOfPartition())
        return True

    def do(self, choice: int) -> None:
        """Let one sender go on, or the receiver, or the clock."""
        senders = len(self.programs)
        if choice < senders:
            self.send(choice)
        elif choice < senders + 3:
            self.task.read(most=choice - senders + 1)
        else:
            self.task.kernel.run(1)
        self.task.gate.validate()

    def finish(self) -> None:
        """Everybody goes on to the end."""
        going = True
        while going:
            went = [self.send(number) for number in range(len(self.programs))]
            going = any(went)
            self.task.kernel.run(2)
            self.task.read()
        while True:
            self.task.kernel.run()
            if not self.task.read():
                break

    def check_law(self) -> None:
        """For every completed checkpoint, on every channel: what was sent before the barrier is what was processed
        before the snapshot, then the input part, then the output part, in this order."""
        task = self.task
        for checkpoint_id in task.completed:
            for number, sender in enumerate(task.senders):
                if sender.state.is_failed(checkpoint_id):
                    continue
                cut = sender.cuts.get(checkpoint_id, len(sender.sent))
                processed = task.processed[number][: task.snapshots[checkpoint_id][number]]
                inputs = task.inputs(checkpoint_id, number)
                outputs = sender.captured(checkpoint_id)
                assert processed + inputs + outputs == sender.sent[:cut], (checkpoint_id, number)
                if checkpoint_id in sender.cuts:
                    assert sender.state.is_complete(checkpoint_id), (checkpoint_id, number)


@st.composite
def jobs(draw: st.DrawFn, kinds: Sequence[str], **fixed: Any) -> tuple[Job, list[int]]:
    """A job and an order in which its parts go on."""
    senders = draw(st.integers(1, 3))
    job = Job(
        draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4)),
        [draw(st.lists(WEIGHTED_STEPS, max_size=14)) for _ in range(senders)],
        capacity=draw(st.integers(1, 6)),
        output_capacity=draw(st.sampled_from((0, 0, 5))),
        cost=CostModel(link_bytes_per_s=draw(st.sampled_from((None, None, 1_000_000_000)))),
        latencies_ns=[draw(st.sampled_from((0, 0, 300, 900))) for _ in range(senders)],
        seed=draw(st.integers(0, 3)),
        local=draw(st.sampled_from(((), (0,)))),
        **fixed,
    )
    return job, draw(st.lists(st.integers(0, senders + 4), max_size=80))


def carry_out(job: Job, order: list[int]) -> None:
    """Run it and check everything that must hold in the end."""
    for choice in order:
        job.do(choice)
    job.finish()
    task = job.task
    assert task.processed == [sender.sent for sender in task.senders]
    assert not any(channel.sender_blocked or channel.blocked for channel in task.channels)
    assert task.gate.handler.pending_checkpoint_ids == ()
    assert task.state.open_ids == () or set(task.state.open_ids) <= set(task.completed)
    job.check_law()


@settings(max_examples=300)
@given(jobs(tuple(KINDS)))
def test_every_completed_checkpoint_is_a_consistent_cut(drawn: tuple[Job, list[int]]) -> None:
    """Whatever form barriers have, whatever the links cost, whoever is late, cancels, skips or ends, in any order of
    steps: the law of channel state holds, every record is processed once and in order, and nobody stays blocked."""
    carry_out(*drawn)


@settings(max_examples=150)
@given(jobs(("aligned",), captures=False))
def test_every_aligned_checkpoint_is_a_consistent_cut_without_channel_state(drawn: tuple[Job, list[int]]) -> None:
    """The same law, with nothing in flight: what was sent before the barrier was processed before the snapshot."""
    job, order = drawn
    carry_out(job, order)

    for checkpoint_id in job.task.completed:
        for number, sender in enumerate(job.task.senders):
            assert sender.captured(checkpoint_id) == job.task.inputs(checkpoint_id, number) == []


def test_the_law_is_checked_on_checkpoints_of_all_kinds() -> None:
    """The property is worth something: among a hundred such runs there are all kinds of checkpoints, with records on
    both sides, and all ways in which one is given up."""
    choices = ChoiceRecorder("all kinds")

    def drawn(bound: int) -> int:
        return choices.draw("test", bound)

    found: set[str] = set()
    for seed in range(100):
        steps = ("records", "records", "records", "barrier", "barrier", "barrier", "watermark", "cancel")
        job = Job(
            [tuple(KINDS)[drawn(3)] for _ in range(4)],
            [[(steps[drawn(8)], 1 + drawn(4)) for _ in range(12)] for _ in range(2)],
            capacity=1 + drawn(6),
            output_capacity=5,
            latencies_ns=[300 * drawn(3), 300 * drawn(3)],
            seed=seed,
        )
        carry_out(job, [drawn(7) for _ in range(80)])
        found |= _what_happened(job)

    assert found == {
        "aligned",
        "unaligned",
        "timed out",
        "input",
        "output",
        "both sides of one channel",
        "aborted",
        "aborted while capturing",
        "lost slot",
    }


def _what_happened(job: Job) -> set[str]:
    task, found = job.task, set()
    for _, checkpoint_id, was_unaligned in (one for one in task.told if one[0] == "snapshot"):
        kind = job.barrier(checkpoint_id, 5).options
        found.add("timed out" if was_unaligned and kind.timeoutable else "unaligned" if was_unaligned else "aligned")
    for checkpoint_id in task.completed:
        for number, sender in enumerate(task.senders):
            inputs, outputs = task.inputs(checkpoint_id, number), sender.captured(checkpoint_id)
            found |= {name for name, part in (("input", inputs), ("output", outputs)) if part}
            if inputs and outputs:
                found.add("both sides of one channel")
    found |= {"aborted" for one in task.told if one[0] == "abort"}
    found |= {"aborted while capturing" for one in task.told if one[0] == "failed"}
    lost = (sender.state.is_failed(one) for sender in task.senders for one in sender.cuts)
    return found | {"lost slot" for one in lost if one}


# --- looking at it ----------------------------------------------------------------------------------------------------


def test_the_fingerprint_tells_states_apart() -> None:
    """Whose turn it is, what is captured and what is still to be recovered decide how the input goes on."""

    def told(*steps: Any) -> object:
        task = Receiver()
        for step in steps:
            step(task)
        return task.gate.fingerprint()

    def put(number: int, *elements: Element) -> Any:
        return lambda task: task.senders[number].put(*elements)

    assert told(put(0, records(1)), put(1, records(1))) == told(put(0, records(1)), put(1, records(1)))
    different = [
        told(),
        told(put(0, records(1)), put(1, records(1))),
        told(put(1, records(1)), put(0, records(1))),
        told(put(0, unaligned(1))),
        told(put(0, unaligned(1)), lambda task: task.read()),
        told(lambda task: task.gate.recover()),
    ]
    assert len(set(map(repr, different))) == len(different)


def test_resuming_is_traced_once_per_channel() -> None:
    """The instructions of a handler are carried out as they stand, no more and no less."""
    task = Receiver()
    task.channels[0].block()
    task.channels[1].block()

    task.gate.execute((ResumeChannels((0, 1)),))

    assert [one.channel for one in task.seen if isinstance(one, ChannelResumed)] == [FIRST_INDEX, FIRST_INDEX + 1]
