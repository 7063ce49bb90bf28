"""The sender's half of a channel: what waits there, what overtakes it, and what becomes channel state."""

from __future__ import annotations

import pytest

from engine.elements.batch import Batch
from engine.elements.events import (
    AlignmentType,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfChannelState,
    EndOfData,
    Watermark,
)
from engine.observe.trace_events import Departed, RecordsCaptured
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS
from tests.runtime.channels.links import INDEX, Link, aligned, flat, records, timeoutable, unaligned

SLOW = CostModel(record_bytes=100, link_bytes_per_s=100_000_000)
"""1 µs per record."""


def stuck(*elements: Batch | Watermark) -> Link:
    """A channel whose receiver holds one record and grants no more credit: every element waits on the sender's side."""
    link = Link(capacity=1, output_capacity=100)
    link.put(records("first"), *elements)
    return link


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_elements_leave_at_once_while_there_is_credit() -> None:
    """No element waits on the sender's side without a reason, and no queue is built for it."""
    link = Link(capacity=3)

    link.put(records(1, 2), Watermark(1), records(3))

    assert link.arrived == [1, 2, Watermark(1), 3]
    assert link.channel.outgoing is None


def test_records_without_credit_wait_at_the_sender() -> None:
    """Records without credit do not reach the receiver; they come as soon as it grants credit."""
    link = Link(capacity=2, output_capacity=10)

    link.put(records(1, 2), records(3), records(4))
    assert (link.arrived, link.waiting) == ([1, 2], [3, 4])

    link.channel.take_records(1)
    assert (link.arrived, link.waiting) == ([2, 3], [4])


def test_an_event_does_not_overtake_waiting_records() -> None:
    """Events need no credit, but they keep their place."""
    link = stuck(records(1), Watermark(5))
    link.put(EndOfData())

    assert link.waiting == [1, Watermark(5), EndOfData()]
    assert flat(link.take_all()) == ["first", 1, Watermark(5), EndOfData()]


def test_events_leave_without_credit() -> None:
    """When the records before them use up exactly the credit, events still go."""
    link = Link(capacity=1)

    link.put(records(1), Watermark(5))

    assert link.arrived == [1, Watermark(5)]


@pytest.mark.parametrize("barrier", [aligned(1), timeoutable(1)])
@pytest.mark.parametrize("waits", [False, True])
def test_a_barrier_in_aligned_form_blocks_the_queue_as_it_leaves(barrier: CheckpointBarrier, waits: bool) -> None:
    """Not even an event follows it until the receiver resumes, whether it left at once or had to wait."""
    link = stuck(records(1)) if waits else Link()
    link.put(barrier, Watermark(1), records("late"))

    link.take_all()
    assert link.channel.sender_blocked
    assert link.waiting == [Watermark(1), "late"]

    link.channel.resume_sender()
    assert link.arrived == [Watermark(1), "late"]


@pytest.mark.parametrize("kind", [AlignmentType.AT_LEAST_ONCE, AlignmentType.UNALIGNED])
@pytest.mark.parametrize("waits", [False, True])
def test_other_barriers_block_nothing(kind: AlignmentType, waits: bool) -> None:
    """Elements follow a barrier that needs no alignment."""
    link = stuck(records(1)) if waits else Link()

    link.put(CheckpointBarrier(1, START_NS, CheckpointOptions(kind)), records(2))

    assert flat(link.take_all())[-1] == 2
    assert not link.channel.sender_blocked


def test_a_disconnected_queue_keeps_everything() -> None:
    """Until the receiver is ready no element leaves, not even an event; then all do, in order."""
    link = Link()
    link.channel.disconnect()

    link.put(records(1), Watermark(1), records(2))
    link.channel.pump()
    assert link.arrived == []

    link.channel.connect()
    assert link.arrived == [1, Watermark(1), 2]


def test_a_resume_does_not_connect() -> None:
    """An empty queue that is disconnected stays so, even if a resume arrives."""
    link = Link()
    link.channel.disconnect()
    link.channel.resume_sender()

    link.put(records(1))

    assert (link.arrived, link.waiting) == ([], [1])


def test_nothing_overtakes_the_batch_under_transfer() -> None:
    """A resume while the link is busy lets no element overtake the batch."""
    link = Link(cost=SLOW)
    link.put(records(1, 2))
    link.channel.resume_sender()

    link.put(Watermark(1))
    assert link.waiting == [Watermark(1)]
    link.kernel.run()

    assert link.arrived == [1, 2, Watermark(1)]


def test_polling_takes_what_may_leave_whatever_the_credit() -> None:
    """A consumer that reads the queue itself gets one element at a time, and none while it is blocked or empty."""
    link = Link(capacity=1, output_capacity=9)
    link.channel.disconnect()
    link.put(records(1, 2), aligned(1), records(3))

    assert [link.channel.poll(), link.channel.poll(), link.channel.poll()] == [
        (1, records(1, 2)),
        (2, aligned(1)),
        None,
    ]
    link.channel.sender_blocked = False
    assert link.channel.poll() == (3, records(3))
    assert link.channel.poll() is None


# --- unaligned barriers -----------------------------------------------------------------------------------------------


def test_an_unaligned_barrier_overtakes_and_captures() -> None:
    """It leaves first; the waiting records are its state, in order; events keep their place and are not state."""
    link = stuck(records(1, 2), Watermark(5), records(3))

    link.put(unaligned(1), records("behind"))

    assert link.outputs(1) == [1, 2, 3]
    assert link.channel.priority_events == 1
    assert flat(link.take_all()) == [unaligned(1), "first", 1, 2, Watermark(5), 3, "behind"]


def test_an_unaligned_barrier_on_an_empty_queue_captures_nothing() -> None:
    """There is no record to overtake."""
    link = Link()

    link.put(records(1), unaligned(1))

    assert link.outputs(1) == []
    assert link.state.is_complete(1)


def test_an_unaligned_barrier_waits_in_a_blocked_queue() -> None:
    """A blocked queue sends unaligned barriers after the resume, before all records; each captures all that wait."""
    link = Link()
    link.put(aligned(1), records(1), Watermark(1))

    link.put(unaligned(2), records(2), unaligned(3))

    assert flat(link.take_all()) == [aligned(1)]
    assert link.waiting == [unaligned(2), unaligned(3), 1, Watermark(1), 2]
    assert (link.outputs(2), link.outputs(3)) == ([1], [1, 2])
    link.channel.resume_sender()
    assert flat(link.take_all()) == [unaligned(2), unaligned(3), 1, Watermark(1), 2]


def test_a_barrier_overtakes_those_of_aligned_form() -> None:
    """Older barriers that wait with the records are overtaken like any event."""
    link = stuck(records(1))
    link.put(aligned(1), records(2))

    link.put(unaligned(2))

    assert link.outputs(2) == [1, 2]
    assert flat(link.take_all()) == [unaligned(2), "first", 1, aligned(1)]


def test_without_a_writer_nothing_is_captured() -> None:
    """On an edge without channel state a barrier may still be a priority event of its own kind."""
    link = stuck(records(1))

    link.channel.put_barrier(unaligned(1), None)

    assert not link.state.collecting
    assert flat(link.take_all()) == [unaligned(1), "first", 1]


@pytest.mark.parametrize(
    ("elapsed_ns", "passed"), [(0, []), (999, []), (1_000, [1]), (2_500, [1, 2]), (4_000, [1, 2, 3, 4])]
)
def test_an_unaligned_barrier_cuts_the_batch_under_transfer(elapsed_ns: int, passed: list[int]) -> None:
    """Records over the link are the receiver's; the record that is crossing it is state, like the rest."""
    link = Link(cost=SLOW)
    link.put(records(1, 2, 3, 4))
    _run_until(link, elapsed_ns)

    link.put(unaligned(1))

    rest = [1, 2, 3, 4][len(passed) :]
    assert link.outputs(1) == rest
    assert link.arrived == [unaligned(1), *passed]
    link.channel.validate()
    link.kernel.run()
    assert flat(link.take_all()) == [unaligned(1), *passed, *rest]


def test_a_cut_transfer_arrives_when_its_rest_is_over() -> None:
    """The rest of a cut batch takes its own time from the cut on; the cancelled transfer has no effect."""
    link = Link(cost=SLOW)
    link.put(records(1, 2, 3))
    _run_until(link, 1_500)

    link.put(unaligned(1))
    _run_until(link, 3_499)
    assert link.arrived == [unaligned(1), 1]

    _run_until(link, 3_500)
    assert link.arrived == [unaligned(1), 1, 2, 3]


class _Sender:
    name = "sender"

    def put(self, payload: tuple[Link, CheckpointBarrier]) -> None:
        link, barrier = payload
        link.put(barrier)


@pytest.mark.parametrize("seed", range(4))
def test_a_barrier_at_the_end_of_a_transfer_finds_nothing_to_cut(seed: int) -> None:
    """Whichever comes first at that instant, the batch is over the link, and it is sent once."""
    link = Link(cost=SLOW, seed=seed)
    link.put(records(1, 2, 3))
    link.kernel.schedule(START_NS + 3_000, "put", _Sender(), (link, unaligned(1)))

    link.kernel.run()

    assert link.outputs(1) == []
    assert link.arrived == [unaligned(1), 1, 2, 3]
    link.channel.validate()


class _Alarm:
    name = "alarm"

    def ring(self, link: Link) -> None:
        link.kernel.stop()


def _run_until(link: Link, ns: int) -> None:
    """Run all events that are due at ``ns`` after the start."""
    for due_ns in (ns, ns):
        # Twice: the first alarm may ring before the other events of its instant.
        link.kernel.schedule(START_NS + due_ns, "ring", _Alarm(), link)
    while any(event.time_ns <= START_NS + ns for event in link.kernel.pending()):
        link.kernel.run(1)


# --- barriers with a timeout ------------------------------------------------------------------------------------------


def test_a_timeoutable_barrier_that_leaves_at_once_reserves_nothing() -> None:
    """There is no record that it could overtake."""
    link = Link()

    link.put(records(1), timeoutable(1))

    assert link.state.is_complete(1)
    assert link.outputs(1) == []


def test_a_timeoutable_barrier_that_is_taken_in_time_captures_nothing() -> None:
    """The slot it reserved while it had to wait is completed empty as it leaves, and the sender is told."""
    link = stuck(records(1))
    link.put(timeoutable(1), records(2))
    assert not link.state.is_complete(1)

    link.take_all()

    assert link.state.is_complete(1)
    assert link.outputs(1) == []
    assert link.sender.slots_filled == [1]
    link.channel.barrier_timeout(1)
    assert link.waiting == [2]


def test_a_timeout_lets_the_barrier_overtake() -> None:
    """It moves to the front as an unaligned one; the records it overtakes are its state, those behind it are not."""
    link = stuck(records(1), Watermark(1))
    link.put(timeoutable(1), records(2))

    link.channel.barrier_timeout(1)

    assert link.outputs(1) == [1]
    assert link.state.is_complete(1)
    assert link.sender.slots_filled == [1]
    assert flat(link.take_all()) == [timeoutable(1).as_unaligned(), "first", 1, Watermark(1), 2]
    assert not link.channel.sender_blocked


def test_a_timeout_in_a_blocked_queue_waits_for_the_resume() -> None:
    """The timeout fixes what it captures; that the queue is blocked delays only the barrier."""
    link = Link()
    link.put(aligned(1), records(1), timeoutable(2), records(2))

    link.channel.barrier_timeout(2)
    link.put(records(3))

    assert link.outputs(2) == [1]
    assert flat(link.take_all()) == [aligned(1)]
    link.channel.resume_sender()
    assert flat(link.take_all()) == [timeoutable(2).as_unaligned(), 1, 2, 3]


def test_a_timeout_goes_behind_priority_events() -> None:
    """Priority events keep their order among themselves."""
    link = Link()
    link.put(aligned(1), records(1), timeoutable(2), unaligned(3))

    link.channel.barrier_timeout(2)

    assert link.waiting == [unaligned(3), timeoutable(2).as_unaligned(), 1]


def test_a_timeout_cuts_the_batch_under_transfer() -> None:
    """Like an unaligned barrier, it overtakes all records that are not over the link yet."""
    link = Link(cost=SLOW)
    link.put(records(1, 2, 3), timeoutable(1))
    _run_until(link, 1_000)

    link.channel.barrier_timeout(1)

    assert link.outputs(1) == [2, 3]
    assert link.arrived == [timeoutable(1).as_unaligned(), 1]
    link.channel.validate()


def test_a_timeout_without_its_barrier_does_nothing() -> None:
    """Neither that of another checkpoint, nor a second one, nor one without any barrier here."""
    link = stuck(records(1))
    link.channel.barrier_timeout(1)
    link.put(timeoutable(1))
    link.channel.barrier_timeout(2)
    assert link.waiting == [1, timeoutable(1)]

    link.channel.barrier_timeout(1)
    link.put(records(2))
    link.channel.barrier_timeout(1)

    assert link.outputs(1) == [1]
    assert link.waiting == [1, 2]


def test_a_second_timeoutable_barrier_fails_the_slot_of_the_first() -> None:
    """One checkpoint at a time can have channel state: the first one fails, the second one has a slot of its own."""
    link = stuck(records(1))
    link.put(timeoutable(1), records(2), timeoutable(2))

    assert link.state.is_failed(1)
    assert link.sender.slots_filled == [1]
    link.channel.barrier_timeout(1)
    assert link.waiting == [1, timeoutable(1), 2, timeoutable(2)]

    link.channel.barrier_timeout(2)
    assert link.outputs(2) == [1, 2]
    assert link.state.is_complete(2)


def test_an_abandoned_slot_leaves_the_barrier_in_its_place() -> None:
    """After the abort no timeout moves it, no record is captured, and a later barrier is not told of the slot."""
    link = stuck(records(1))
    link.receiver.has_announcements = False
    link.put(timeoutable(1))

    link.channel.abandon_slot(1)
    link.state.abort(1)
    link.channel.barrier_timeout(1)
    assert link.waiting == [1, timeoutable(1)]

    link.put(timeoutable(2))
    assert link.sender.slots_filled == []
    assert flat(link.take_all()) == ["first", 1, timeoutable(1)]


def test_the_abort_of_another_checkpoint_leaves_the_slot() -> None:
    """Only its own abort gives a slot up."""
    link = stuck(records(1))
    link.put(timeoutable(3))

    link.channel.abandon_slot(2)
    link.channel.barrier_timeout(3)

    assert link.outputs(3) == [1]


def test_an_aligned_barrier_without_a_timeout_reserves_nothing() -> None:
    """Savepoints hold no records in flight, however long their barriers wait."""
    link = stuck(records(1))
    link.put(aligned(1))

    assert link.state.is_complete(1)
    link.channel.barrier_timeout(1)
    assert link.waiting == [1, aligned(1)]
    assert link.outputs(1) == []


# --- restored output --------------------------------------------------------------------------------------------------


def test_restored_output_leaves_first_and_its_marker_blocks() -> None:
    """The receiver gets the records of the sender's queue, then the marker, and no new record before it resumes."""
    link = Link()
    link.channel.restore([], [records(1), records(2)])
    link.put(records("new"))
    link.channel.pump()

    assert flat(link.take_all()) == [1, 2, EndOfChannelState()]
    assert link.channel.sender_blocked
    assert link.waiting == ["new"]

    link.channel.resume_sender()
    assert link.arrived == ["new"]


def test_restored_output_is_held_to_the_credit() -> None:
    """Being restored does not let it leave all at once."""
    link = Link(capacity=2)

    link.channel.restore([], [records(1, 2), records(3)])
    link.channel.pump()

    assert (link.arrived, link.waiting) == ([1, 2], [3, EndOfChannelState()])
    assert link.sender.full_outputs == 1


# --- the trace --------------------------------------------------------------------------------------------------------


def test_the_trace_tells_what_waited() -> None:
    """The trace shows elements that waited as they leave, with their number; it does not show the others."""
    link = stuck(records(1, 2), Watermark(9))
    assert link.of(Departed) == []

    link.channel.take()
    link.put(Watermark(10))

    assert link.of(Departed) == [
        Departed(START_NS, 1, INDEX, 2, "records", 2, None, 2),
        Departed(START_NS, 1, INDEX, 3, "Watermark", 0, 9, 2),
    ]


def test_the_trace_tells_what_the_output_side_captured() -> None:
    """For an unaligned barrier and for a timeout; an empty capture is not traced."""
    link = stuck(records(1, 2), records(3))

    link.put(unaligned(1), timeoutable(2))
    link.channel.barrier_timeout(2)
    link.take_all()
    link.put(unaligned(3))

    assert link.of(RecordsCaptured) == [
        RecordsCaptured(START_NS, 1, 1, INDEX, "output", 3),
        RecordsCaptured(START_NS, 1, 2, INDEX, "output", 3),
    ]
