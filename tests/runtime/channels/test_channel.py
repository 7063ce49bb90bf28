"""A channel is a FIFO bounded by credit; its consumer can block it, and it counts elements on both sides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.barriers.channel_capture import CaptureStatus
from engine.elements.batch import Batch
from engine.elements.events import (
    BarrierAnnouncement,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfChannelState,
    EndOfData,
    Watermark,
)
from engine.observe.trace_events import ChannelBlocked, ChannelResumed, CreditChanged, Receive, Send
from engine.runtime.channels import Channel, Element, Numbered
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS
from tests.runtime.channels.links import INDEX, Link, aligned, flat, records, timeoutable, unaligned


def test_a_channel_knows_its_place() -> None:
    """Name, index and input index come from the plan and the tasks at both ends."""
    channel = Link().channel

    assert (channel.name, channel.index, channel.input_index) == ("map[0]->sink[1]", 7, 3)


def test_credit_ends_when_the_capacity_is_reached() -> None:
    """The sender is told once when its credit is used up, and once when there is some again."""
    link = Link(capacity=3)

    link.put(records(1, 2))
    assert (link.channel.full, link.sender.full_outputs) == (False, 0)
    link.put(records(3), records(4))
    assert (link.channel.full, link.sender.full_outputs) == (True, 1)

    link.channel.take()
    assert (link.channel.full, link.sender.credit_returns) == (False, 1)
    link.channel.take()
    assert (link.sender.full_outputs, link.sender.credit_returns) == (0, 1)


def test_an_element_may_overshoot() -> None:
    """The output of one element is sent whole; the channel is full until enough of it was taken."""
    link = Link(capacity=3)

    link.put(records(*range(8)))
    link.channel.take_records(5)
    assert link.channel.full
    link.channel.take_records(1)

    assert not link.channel.full
    assert link.channel.queued_records == 2


def test_events_need_no_credit() -> None:
    """Events fill no channel, and pass a full one."""
    link = Link(capacity=1)

    link.put(Watermark(1), CancelCheckpointMarker(1))
    assert not link.channel.full
    link.put(records("a"), EndOfData())

    assert link.channel.full
    assert link.channel.queued_records == 1
    assert len(link.channel.queue) == 4


def test_credit_counts_records_under_way() -> None:
    """Records use up credit from the moment they are sent, not when they arrive."""
    link = Link(capacity=2, latency_ns=1_000)

    link.put(records(1, 2))

    assert link.channel.full
    assert not link.channel.queue


def test_taking_part_of_a_batch_leaves_the_rest_at_the_head() -> None:
    """A batch is cut at any record; both parts keep order, timestamps and keys."""
    link = Link()
    link.put(Batch([1, 2, 3], [10, 20, 30], ["a", "b", "c"]), EndOfData())

    first = link.channel.take_records(1)

    assert first == Batch([1], [10], ["a"])
    assert link.channel.head() == Batch([2, 3], [20, 30], ["b", "c"])
    assert link.channel.take_records(2) == Batch([2, 3], [20, 30], ["b", "c"])
    assert link.channel.take() == EndOfData()


@pytest.mark.parametrize("latency_ns", [0, 300])
def test_an_instrument_hears_records_only_of_the_channels_that_it_names(latency_ns: int) -> None:
    """Events are heard all the same, under the numbers that they have anyway; what is named may change meanwhile."""
    named: set[int] = set()
    link = Link(latency_ns=latency_ns, records_of=named)
    for heard in ((), (INDEX + 1,), (INDEX,), ()):
        named.clear()
        named.update(heard)
        link.put(records(1, 2), Watermark(5))
        link.kernel.run()
        link.take_all()

    both = [("records", 5), ("Watermark", 6)]
    for kind in (Send, Receive):
        told = [(one.kind, one.element) for one in link.seen if isinstance(one, kind)]
        assert told == [("Watermark", 2), ("Watermark", 4), *both, ("Watermark", 8)]


def test_parts_of_a_batch_are_traced_as_one_element() -> None:
    """Every part carries the number of its batch, and the parts' records add up to the records sent."""
    link = Link()
    link.put(Watermark(1), records(1, 2, 3))

    link.channel.take()
    link.channel.take_records(1)
    link.channel.take_records(2)

    sends = [(one.element, one.records, one.queued) for one in link.seen if isinstance(one, Send)]
    receives = [(one.element, one.records, one.queued) for one in link.seen if isinstance(one, Receive)]
    assert sends == [(1, 0, 0), (2, 3, 3)]
    assert receives == [(1, 0, 3), (2, 1, 2), (2, 2, 0)]


def test_the_trace_names_kinds_and_details() -> None:
    """Events are traced by class name, with checkpoint id or watermark as detail."""
    link = Link()
    link.put(records("a"), Watermark(5), EndOfData(), CheckpointBarrier(9, 0))

    link.take_all()

    expected = [("records", None), ("Watermark", 5), ("EndOfData", None), ("CheckpointBarrier", 9)]
    for kind in (Send, Receive):
        assert [(one.kind, one.detail) for one in link.seen if isinstance(one, kind)] == expected


def test_a_blocked_channel_announces_nothing() -> None:
    """Elements sent after an aligned barrier wait on the sender's side; the resume sends them, announced once."""
    link = Link()
    barrier = CheckpointBarrier(1, 0)
    link.put(barrier)
    assert link.take_all() == [barrier]
    link.channel.block()
    link.channel.listed = False

    link.put(records("a"), records("b"))
    assert (link.receiver.readable_calls, len(link.channel.queue)) == (1, 0)
    link.channel.resume()

    assert link.receiver.readable_calls == 2
    assert flat(link.take_all()) == ["a", "b"]
    assert link.of(ChannelBlocked) == [ChannelBlocked(START_NS, 1, INDEX)]
    assert link.of(ChannelResumed) == [ChannelResumed(START_NS, 1, INDEX)]


def test_resuming_an_empty_channel_announces_nothing() -> None:
    """There is no element to read, so the receiver is not woken."""
    link = Link()
    link.channel.block()

    link.channel.resume()

    assert link.receiver.readable_calls == 0


def test_blocking_twice_and_resuming_an_open_channel_are_bugs() -> None:
    """Block and resume come in pairs."""
    channel = Link().channel

    with pytest.raises(AssertionError, match="not blocked"):
        channel.resume()
    channel.block()
    with pytest.raises(AssertionError, match="blocked already"):
        channel.block()


def test_a_channel_is_announced_once_while_it_is_listed() -> None:
    """Further elements do not wake a receiver that is already awake."""
    link = Link()

    link.put(records(1), records(2), EndOfData())

    assert link.receiver.readable_calls == 1


def test_priority_events_overtake_data_but_not_each_other() -> None:
    """Unaligned barriers come first, in their own order; all other elements keep their place."""
    link = Link()
    first, second = unaligned(1), unaligned(2)

    link.put(records("a"), Watermark(1), first, records("b"), second)

    assert flat(link.take_all()) == [first, second, "a", Watermark(1), "b"]
    assert link.channel.priority_events == 0


ELEMENTS_OF_ANY_KIND = st.one_of(
    st.integers(1, 5).map(lambda count: records(*range(count))),
    st.integers(0, 9).map(Watermark),
    st.just(CancelCheckpointMarker(1)),
)


class LaterSender:
    """Sends an element at a kernel event."""

    name = "later sender"

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(self, element: Element) -> None:
        self._link.put(element)


@given(
    st.lists(st.tuples(ELEMENTS_OF_ANY_KIND, st.sampled_from((0, 0, 1, 700, 2_000))), max_size=25),
    st.sampled_from((0, 1, 700)),
    st.sampled_from((None, 50_000_000, 10**12)),
    st.integers(0, 50),
)
def test_order_is_kept_at_any_latency_and_bandwidth(
    timed: list[tuple[Element, int]], latency_ns: int, bytes_per_s: int | None, seed: int
) -> None:
    """Whatever the link costs and whenever elements are sent, they arrive in the order they were sent."""
    link = Link(capacity=10**6, cost=CostModel(link_bytes_per_s=bytes_per_s), latency_ns=latency_ns, seed=seed)
    sender, at_ns = LaterSender(link), START_NS
    for element, gap_ns in timed:
        at_ns += gap_ns
        link.kernel.schedule(at_ns, "send", sender, element)

    link.kernel.run()

    assert flat(link.take_all()) == flat([element for element, _ in timed])
    link.channel.validate()


@pytest.mark.parametrize(
    ("latency_ns", "bytes_per_s", "expected_ns"),
    [(500, None, [500, 500, 500]), (0, 100_000_000, [3_000, 3_000, 5_000]), (500, 100_000_000, [3_500, 3_500, 5_500])],
)
def test_latency_and_bandwidth_add_up(
    latency_ns: int, bytes_per_s: int | None, expected_ns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link is busy while records pass it and every element takes the latency on top; events take no room."""
    link = Link(cost=CostModel(link_bytes_per_s=bytes_per_s, record_bytes=100), latency_ns=latency_ns)

    arrivals: list[int] = []
    arrive = Channel.arrive

    def noting(channel: Channel, numbered: Numbered) -> None:
        arrivals.append(link.kernel.now_ns - START_NS)
        arrive(channel, numbered)

    monkeypatch.setattr(Channel, "arrive", noting)
    link.put(records(1, 2, 3), Watermark(1), records(4, 5))
    link.kernel.run()

    assert arrivals == expected_ns


@given(st.lists(st.one_of(st.integers(1, 6), st.integers(-6, -1), st.just(0)), max_size=40), st.integers(1, 8))
def test_counters_always_add_up(steps: list[int], capacity: int) -> None:
    """After any mix of sending, taking whole and taking parts: sent = received + queued, full iff at capacity."""
    link = Link(capacity=capacity)
    sent = 0
    for step in steps:
        if step > 0:
            link.put(records(*range(sent, sent + step)))
            sent += step
        elif link.channel.queue and step < 0:
            head = link.channel.head()
            link.channel.take_records(min(-step, len(head)))  # type: ignore[arg-type]
        elif link.channel.queue:
            link.channel.take()
        link.channel.validate()
        assert link.sender.full_outputs == int(link.channel.full)

    rest = flat(link.take_all())

    assert link.channel.sent_records == link.channel.received_records == sent
    assert rest == list(range(sent - len(rest), sent))


def test_validate_notices_a_wrong_counter() -> None:
    """The invariants are checked, not only written down."""
    link = Link()
    link.put(records(1, 2))
    link.channel.occupied -= 1

    with pytest.raises(AssertionError):
        link.channel.validate()


def test_fingerprints_tell_contents_and_blocking_apart() -> None:
    """Two channels have one fingerprint exactly when the same elements wait and both or neither are blocked."""

    def fingerprint(*elements: Element, blocked: bool = False) -> object:
        link = Link()
        link.put(*elements)
        if blocked:
            link.channel.block()
        return link.channel.fingerprint()

    assert fingerprint(records(1), Watermark(2)) == fingerprint(records(1), Watermark(2))
    different = (
        fingerprint(),
        fingerprint(blocked=True),
        fingerprint(records(1)),
        fingerprint(records(2)),
        fingerprint(records("1")),
        fingerprint(Watermark(1)),
        fingerprint(Batch([1], [5])),
    )
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("count", [2, 3])
def test_a_priority_event_may_overtake_a_batch_that_is_being_worked_on(count: int) -> None:
    """The consumer still gets the records it has asked for; the event precedes the rest of the batch."""
    link = Link()
    barrier = unaligned(1)
    link.put(Batch([1, 2, 3]), Batch([4]), barrier)

    assert link.channel.take_records(count) == Batch([1, 2, 3][:count])

    link.channel.validate()
    rest = [Batch([3])] if count == 2 else []
    assert link.take_all() == [barrier, *rest, Batch([4])]


# --- announcements and promotion --------------------------------------------------------------------------------------


def test_a_timeoutable_barrier_is_announced_ahead_of_the_records() -> None:
    """The announcement overtakes the queued records, the barrier keeps its place; the trace shows only the barrier."""
    link = Link()

    link.put(records(1), timeoutable(1))

    assert flat(link.take_all()) == [BarrierAnnouncement(timeoutable(1)), 1, timeoutable(1)]
    assert link.receiver.priority_calls == 1
    assert [one.kind for one in link.of(Receive)] == ["records", "CheckpointBarrier"]


@pytest.mark.parametrize("barrier", [aligned(1), unaligned(1)])
def test_other_barriers_are_not_announced(barrier: CheckpointBarrier) -> None:
    """Only a barrier that may still overtake is announced."""
    link = Link()

    link.put(barrier)

    assert link.arrived == [barrier]


def test_a_receiver_without_a_queue_of_its_own_gets_no_announcements() -> None:
    """A local channel sends no announcement."""
    link = Link()
    link.receiver.has_announcements = False

    link.put(records(1), timeoutable(1))

    assert link.arrived == [1, timeoutable(1)]


def test_a_promoted_barrier_overtakes_and_goes_on_to_block() -> None:
    """It keeps its form: the sender, blocked since the barrier left, still waits for the resume."""
    link = Link()
    link.receiver.has_announcements = False
    link.put(records(1), timeoutable(1))

    link.channel.promote_barrier(1)

    assert flat(link.take_all()) == [timeoutable(1), 1]
    assert link.channel.sender_blocked
    link.channel.validate()


def test_a_barrier_in_front_is_promoted_behind_other_priority_events_only() -> None:
    """Promoting a barrier twice, or promoting a priority event, changes nothing."""
    link = Link()
    link.put(unaligned(1))
    link.put(records(1), unaligned(2))
    link.channel.promote_barrier(2)
    link.channel.promote_barrier(2)

    assert flat(link.take_all()) == [unaligned(1), unaligned(2), 1]
    link.channel.validate()


def test_promoting_a_barrier_that_is_not_here_is_a_bug() -> None:
    """A barrier can be promoted only if it was announced, and it is announced only while it is queued."""
    link = Link()
    link.put(records(1), timeoutable(1))

    with pytest.raises(AssertionError, match="holds no barrier 2"):
        link.channel.promote_barrier(2)


# --- capturing the input side -----------------------------------------------------------------------------------------


def start(link: Link, checkpoint_id: int) -> list[Any]:
    """Start the capture and return the records that it begins with."""
    return flat(link.channel.start_capture(checkpoint_id))


def test_capture_begins_with_what_is_queued_and_goes_on_with_what_arrives() -> None:
    """Every record from before the barrier is in flight, taken or not; events and later records are not."""
    link = Link()
    link.put(records(1, 2), Watermark(1))
    link.channel.take_records(1)

    assert start(link, 1) == [2]
    link.put(records(3))
    link.take_all()
    link.put(Watermark(2), records(4), unaligned(1), records(5))

    assert link.receiver.captured == [3, 4]
    link.channel.stop_capture(1)
    link.put(records(6))
    assert link.receiver.captured == [3, 4]


def test_what_the_barrier_overtook_in_the_receivers_queue_is_captured() -> None:
    """A barrier that triggers the snapshot delimits at the place where it arrived."""
    link = Link()
    link.put(records(1), unaligned(1), records(2))

    assert link.channel.take() == unaligned(1)
    assert start(link, 1) == [1]
    assert link.receiver.captured == []


def test_an_aligned_barrier_in_the_queue_delimits_at_its_place() -> None:
    """Another channel has timed out; this one holds its barrier, with records before it."""
    link = Link()
    link.put(records(1), timeoutable(1), records(2))
    link.channel.resume_sender()
    assert link.arrived[-1] == 2

    assert start(link, 1) == [1]


def test_a_promoted_barrier_delimits_where_it_was() -> None:
    """The records it jumped over are in flight; those behind its old place in the queue are not."""
    link = Link()
    link.put(records(1), timeoutable(1), records(2))
    link.channel.resume_sender()

    link.channel.promote_barrier(1)

    assert start(link, 1) == [1]


def test_the_barrier_of_an_older_checkpoint_delimits_nothing() -> None:
    """Records behind it in the queue are before the new barrier, queued or still to come, and so in flight."""
    link = Link()
    link.put(records(1), aligned(1), records(2))
    link.channel.resume_sender()

    assert start(link, 3) == [1, 2]
    link.put(records(3), aligned(2))
    link.channel.resume_sender()
    link.put(records(4), unaligned(3), records(5))

    assert link.receiver.captured == [3, 4]


def test_a_promotion_ahead_of_the_mark_moves_the_mark() -> None:
    """After an older barrier was promoted in vain, no record from behind the newer one's old place is in flight."""
    link = Link()
    link.receiver.has_announcements = False
    link.put(records(1), timeoutable(1), records(2), timeoutable(2), records(3))
    link.channel.resume_sender()
    link.channel.resume_sender()

    link.channel.promote_barrier(1)
    link.channel.promote_barrier(2)

    assert start(link, 2) == [1, 2]


def test_a_taken_barrier_leaves_nothing_to_capture() -> None:
    """Its channel has delivered all records before it; the records queued now came after it."""
    link = Link()
    link.put(records(1), timeoutable(1))
    link.take_all()
    link.channel.resume_sender()
    link.put(records(2))

    assert start(link, 1) == []


def test_what_came_behind_a_taken_barrier_is_never_captured() -> None:
    """However many of them were taken already."""
    link = Link()
    link.put(timeoutable(1))
    link.channel.resume_sender()
    link.put(*(records(number) for number in range(8)))
    assert [type(link.channel.take()) for _ in range(4)][-1] is Batch

    assert start(link, 1) == []


def test_a_barrier_that_comes_after_the_end_of_its_checkpoint_is_nothing_new() -> None:
    """The checkpoint was aborted while its barrier was on its way."""
    link = Link()
    start(link, 1)
    link.channel.stop_capture(1)

    link.put(unaligned(1))

    assert link.channel.capture is not None
    assert link.channel.capture.status is CaptureStatus.IDLE


def test_a_stopped_capture_leaves_a_newer_barrier_alone() -> None:
    """The end of an old checkpoint does not make the channel forget that the next one's barrier is here."""
    link = Link()
    start(link, 1)
    link.put(records(1), unaligned(2), records(2))

    link.channel.stop_capture(1)

    assert link.channel.capture is not None
    assert link.channel.capture.status is CaptureStatus.RECEIVED
    assert start(link, 2) == [1]


# --- changing the credit ----------------------------------------------------------------------------------------------


def test_less_credit_drops_nothing() -> None:
    """Queued records stay; new ones come only once fewer than the new credit are left."""
    link = Link(capacity=10)
    link.put(records(1), records(2), records(3))

    link.channel.set_credit(2)
    link.put(records(4))
    assert (link.arrived, link.waiting) == ([1, 2, 3], [4])
    link.channel.take()
    assert link.waiting == [4]
    link.channel.take()

    assert (link.arrived, link.waiting) == ([3, 4], [])


def test_less_credit_fills_the_channel_and_more_empties_it() -> None:
    """The sender starts no element while the channel holds more than its credit, and is told when it may."""
    link = Link(capacity=10)
    link.put(records(1, 2, 3))

    link.channel.set_credit(3)
    assert (link.channel.full, link.sender.full_outputs, link.sender.credit_returns) == (True, 1, 0)
    link.channel.set_credit(2)
    assert link.sender.full_outputs == 1
    link.channel.set_credit(4)

    assert (link.channel.full, link.sender.full_outputs, link.sender.credit_returns) == (False, 0, 1)
    link.channel.validate()


def test_more_credit_lets_waiting_records_leave_at_once() -> None:
    """The receiver need not take a record first."""
    link = Link(capacity=10)
    link.channel.set_credit(1)
    link.put(records(1), records(2), records(3))
    assert link.arrived == [1]

    link.channel.set_credit(2)

    assert link.arrived == [1, 2]


def test_the_senders_side_is_held_to_the_same_proportion() -> None:
    """Half the credit also halves what may wait on the sender's side; setting the same credit again changes nothing."""
    link = Link(capacity=10, output_capacity=30)
    assert link.channel.capacity == 40

    link.channel.set_credit(5)
    link.channel.set_credit(5)
    assert link.channel.capacity == 20
    link.channel.set_credit(10)

    assert link.channel.capacity == 40
    assert link.of(CreditChanged) == [CreditChanged(START_NS, 1, INDEX, 5), CreditChanged(START_NS, 1, INDEX, 10)]


def test_there_is_always_some_credit() -> None:
    """A channel without any credit would never let a record pass."""
    with pytest.raises(AssertionError):
        Link().channel.set_credit(0)


# --- restored records -------------------------------------------------------------------------------------------------


def test_restored_input_is_read_first_and_counts_as_sent_and_received() -> None:
    """The receiver's part is in its queue at once, the sender's follows; the counters treat both like new records."""
    link = Link()
    link.channel.restore([records(1, 2)], [records(3)])

    assert (link.arrived, link.waiting) == ([1, 2], [3, EndOfChannelState()])
    assert (link.channel.sent_records, link.channel.received_records) == (3, 0)
    link.channel.validate()
    assert [(one.records, one.kind) for one in link.of(Send)] == [
        (2, "records"),
        (1, "records"),
        (0, "EndOfChannelState"),
    ]


def test_the_gate_learns_when_the_restored_input_is_read() -> None:
    """Once, at its last record, however it is cut; a channel without restored input never reports it."""
    link, other = Link(), Link()
    link.channel.restore([records(1, 2), records(3)], [])
    other.channel.restore([], [records(1)])

    link.channel.take_records(1)
    link.channel.take()
    assert link.receiver.drained == 0
    link.channel.take()
    assert link.receiver.drained == 1
    link.channel.pump()
    link.take_all()
    other.channel.pump()
    other.take_all()

    assert (link.receiver.drained, other.receiver.drained) == (1, 0)


def test_restored_records_use_up_credit() -> None:
    """The sender starts no element while the channel is full of restored records."""
    link = Link(capacity=2)

    link.channel.restore([records(1)], [records(2)])
    assert link.sender.full_outputs == 1
    link.take_all()

    assert link.sender.full_outputs == 0
