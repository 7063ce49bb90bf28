"""The input side of a task: which channel is read next, how barriers affect channels, what becomes channel state."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.barriers import ResumeChannels
from engine.elements.events import (
    BarrierAnnouncement,
    CancelCheckpointMarker,
    EndOfChannelState,
    EndOfPartition,
    Watermark,
)
from engine.observe.trace_events import ChannelResumed, RecordsCaptured
from engine.runtime.channels import Element
from engine.runtime.kernel import START_NS
from tests.runtime.channels.gates import FIRST_INDEX, Receiver
from tests.runtime.channels.links import aligned, records, timeoutable, unaligned

# --- which channel is next --------------------------------------------------------------------------------------------


def test_channels_take_turns() -> None:
    """One element each, in the order in which they became readable."""
    task = Receiver(3)
    task.senders[1].put(records("b1"), records("b2"), records("b3"))
    task.senders[0].put(records("a1"), records("a2"))
    task.senders[2].put(Watermark(1), records("c1"))

    assert task.read_all() == ["b1", "a1", Watermark(1), "b2", "a2", "c1", "b3"]


def test_priority_events_are_read_before_all_others() -> None:
    """Whatever waits on other channels, and whichever channel's turn it is."""
    task = Receiver()
    task.senders[0].put(records("a1"), records("a2"))
    task.senders[1].put(records("b1"), unaligned(1))

    assert task.gate.has_priority_event
    assert task.gate.next_channel() is task.channels[1]
    assert task.read_all() == [unaligned(1), "a1", "b1", "a2"]
    assert not task.gate.has_priority_event


def test_the_owner_is_woken_by_records_and_by_each_priority_event() -> None:
    """A priority event wakes its owner at once, even if records have woken it before."""
    task = Receiver()

    task.senders[0].put(records(1))
    assert task.wakes == 1
    task.senders[0].put(unaligned(1))

    assert task.wakes == 2


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
    """The gate lists a channel for its priority events whenever it has any."""
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
    """The gate lists a channel whenever it has elements, and once."""
    task = Receiver()
    task.senders[0].put(records(1))
    assert task.read_all() == [1]

    task.senders[0].put(records(2))

    assert task.read_all() == [2]


def test_a_channel_that_ran_empty_has_no_place_in_the_queue() -> None:
    """Its next element queues up behind the channels that became readable before."""
    task = Receiver()
    task.senders[0].put(records("a1"))
    assert task.read() == ["a1"]

    task.senders[1].put(records("b1"), records("b2"))
    task.senders[0].put(records("a2"))

    assert task.read_all() == ["b1", "a2", "b2"]


def test_an_event_that_no_stream_has_is_a_bug() -> None:
    """Elements that the task must handle itself do not reach the gate."""
    task = Receiver()

    with pytest.raises(AssertionError, match="no event of a stream"):
        task.gate.handle(task.channels[0], records(1), START_NS)


def test_an_unknown_instruction_is_a_bug() -> None:
    """The gate ignores no instruction of a handler."""
    with pytest.raises(AssertionError, match="unknown instruction"):
        Receiver().gate.execute(["resume"])  # type: ignore[list-item]


# --- barriers ---------------------------------------------------------------------------------------------------------


def test_an_aligned_checkpoint_blocks_and_resumes() -> None:
    """The first barrier's channel waits for the last one; the snapshot comes before any later element."""
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
    """Queued and arriving records of every channel, up to its barrier; the input part ends with the last barrier."""
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
    assert task.told == [
        ("snapshot", 1, True),
        ("input part", 1),
        ("finished", 1),
    ]
    assert task.snapshots[1] == [0, 0, 0]
    task.state.finish_output(1)
    assert task.state.is_complete(1)


def test_the_trace_tells_what_the_input_side_captured() -> None:
    """Queued records at once, arriving ones as they arrive; records of no open checkpoint are not reported."""
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
    """Captured records are dropped, and no more are captured."""
    task = Receiver()
    task.senders[0].put(records(1), unaligned(1))
    task.read()
    task.senders[1].put(CancelCheckpointMarker(1), records(2))
    task.read_all()

    assert task.told == [("snapshot", 1, True), ("failed", 1), ("abort", 1)]
    assert 1 not in task.state.collecting
    assert not any(channel.capturing for channel in task.channels)


def test_records_of_a_chained_source_are_not_captured() -> None:
    """Its position is in its state; the gate leaves out the channel that represents it."""
    task = Receiver(2, sources=(1,))
    task.senders[0].put(unaligned(1))
    task.senders[1].put(records("of the source"))
    task.read()

    assert task.inputs(1, 1) == []
    assert not task.channels[1].capturing


def test_an_alignment_that_times_out_goes_on_unaligned() -> None:
    """The records that the promoted barrier overtook are captured, and those that the late channel still delivers."""
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
    """A newer barrier on a channel that an abort releases does not meet the capture that just starts."""
    task = Receiver()
    task.senders[0].put(records("a1"), aligned(1))
    task.read_all()
    task.senders[0].put(records("a2"), unaligned(3))
    task.senders[1].put(records("b1"), unaligned(2))

    assert task.read() == [unaligned(2)]
    assert task.read() == [unaligned(3)]
    task.senders[1].put(unaligned(3))
    task.read_all()

    assert task.told == [
        ("abort", 1),
        ("snapshot", 2, True),
        ("failed", 2),
        ("abort", 2),
        ("snapshot", 3, True),
        ("input part", 3),
        ("finished", 3),
    ]
    # Records put before barrier 3, but after the sender was blocked, are in the sender's part.
    assert (task.inputs(3, 0), task.senders[0].captured(3), task.inputs(3, 1)) == ([], ["a2"], ["b1"])


def test_a_chained_source_may_be_held_back_by_two_checkpoints_in_a_row() -> None:
    """The abort of one resumes it and the next blocks it, in one step: it never got to emit a record."""
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
    """No barrier was taken yet: the timeout does not trigger the snapshot, but the barrier now precedes the records."""
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
    """No channel is blocked, and barriers that come later have no effect."""
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
    """All channels connect together, once the last restored input was read."""
    task = recovering((["a1", "a2"], ["a3"]), ([], ["b1"]), (["c1"], []))

    assert task.read() == ["a1", "a2"]
    assert [channel.connected for channel in task.channels] == [False] * 3
    assert task.read() == ["c1"]

    assert [channel.connected for channel in task.channels] == [True] * 3
    restored = [one for one in task.read_all() if one != EndOfChannelState()][:2]
    assert sorted(restored) == ["a3", "b1"]


def test_nothing_new_comes_before_all_that_was_restored() -> None:
    """Every marker leaves its channel blocked until the last marker was handled; then all channels go on, once each."""
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
    """There are no records to read first; the markers still have to come."""
    task = recovering(([], ["a1"]), ([], []))

    assert [channel.connected for channel in task.channels] == [True, True]
    assert not task.gate.is_recovered
    taken = task.read_all()
    assert taken[:3].count(EndOfChannelState()) == 2
    assert taken[:3].count("a1") == 1
    assert sorted(taken[3:]) == ["new 0", "new 1"]


def test_a_gate_that_was_not_restored_is_recovered() -> None:
    """It has no records to wait for, and a marker on its channels would be a bug."""
    task = Receiver()
    assert task.gate.is_recovered

    with pytest.raises(AssertionError):
        task.gate.handle(task.channels[0], EndOfChannelState(), START_NS)


# --- looking at it ----------------------------------------------------------------------------------------------------


def test_the_fingerprint_tells_states_apart() -> None:
    """The next channel, the captured records and the records to recover decide how the input goes on."""

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
    """The gate carries out the instructions of a handler exactly, no more and no less."""
    task = Receiver()
    task.channels[0].block()
    task.channels[1].block()

    task.gate.execute((ResumeChannels((0, 1)),))

    assert [one.channel for one in task.seen if isinstance(one, ChannelResumed)] == [FIRST_INDEX, FIRST_INDEX + 1]
