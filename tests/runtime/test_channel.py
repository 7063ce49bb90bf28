"""A channel is a FIFO bounded by credit, blockable by its consumer, that counts what passes on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.checkpoint.channel_state import ChannelStateWriter
from engine.elements.batch import Batch
from engine.elements.events import (
    AlignmentType,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    Watermark,
)
from engine.graph.plan import ChannelPlan
from engine.observe.events import ChannelBlocked, ChannelResumed, Receive, Send
from engine.runtime.channel import Channel
from engine.runtime.choices import ChoiceRecorder
from engine.runtime.cost import CostModel
from engine.runtime.kernel import START_NS, Kernel
from engine.runtime.output_queue import Element, Numbered

PRIORITY = CheckpointOptions(AlignmentType.UNALIGNED)


class End:
    """Both ends of a channel in one: counts the calls that a channel makes to its tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.full_outputs = 0
        self.credit_returns = 0
        self.readable_calls = 0
        self.priority_calls = 0
        self.captured: list[Any] = []
        self.slots_filled: list[int] = []
        self.drained = 0

    def credit_returned(self) -> None:
        """As a task does."""
        self.full_outputs -= 1
        self.credit_returns += 1

    def channel_readable(self, channel: Channel) -> None:
        """As a gate does, without waking anybody."""
        channel.listed = True
        self.readable_calls += 1

    def priority_arrived(self, channel: Channel) -> None:
        """As a gate does."""
        self.priority_calls += 1

    def announces(self, channel: Channel) -> bool:
        """Timeoutable barriers are announced."""
        return True

    def capture(self, channel: Channel, batches: Sequence[Batch]) -> None:
        """Records that arrived while the channel captures."""
        self.captured += [value for batch in batches for value in batch.values]

    def channel_state_changed(self, checkpoint_id: int) -> None:
        """As a task is told."""
        self.slots_filled.append(checkpoint_id)

    def input_state_drained(self) -> None:
        """As a gate is told."""
        self.drained += 1


class Link:
    """A channel between two ends, with its kernel and what an instrument saw."""

    def __init__(
        self, *, capacity: int = 10, cost: CostModel | None = None, latency_ns: int = 0, seed: int = 0
    ) -> None:
        self.sender, self.receiver = End("map[0]"), End("sink[1]")
        self.kernel = Kernel(choices=ChoiceRecorder(str(seed)))
        self.state = ChannelStateWriter()
        self.seen: list[Any] = []
        plan = ChannelPlan(7, 0, 0, 0, 0, 1, 1, 3)
        self.channel = Channel(
            plan,
            self.sender,  # type: ignore[arg-type]
            self.receiver.name,
            kernel=self.kernel,
            cost=CostModel() if cost is None else cost,
            latency_ns=latency_ns,
            capacity=capacity,
            attempt=1,
            instrument=self.seen.append,
        )
        self.channel.gate = self.receiver  # type: ignore[assignment]

    def put(self, *elements: Element) -> None:
        """Send batches and events."""
        for element in elements:
            if isinstance(element, Batch):
                self.channel.put_batch(element)
            elif isinstance(element, CheckpointBarrier):
                if element.is_priority:
                    self.state.open(element.checkpoint_id)
                self.channel.put_barrier(element, self.state)
            else:
                self.channel.put_event(element)

    def take_all(self) -> list[Element]:
        """Receive everything that has arrived, and what comes as credit returns."""
        taken = []
        while self.channel.queue:
            taken.append(self.channel.take())
        return taken


def records(*values: Any) -> Batch:
    """A batch."""
    return Batch(list(values))


def flat(elements: list[Element]) -> list[Any]:
    """Records and events in order, whatever batches they travelled in."""
    return [one for element in elements for one in (element.values if isinstance(element, Batch) else [element])]


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
    """What an element emits is sent whole; the channel is full until enough of it was taken."""
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


def test_parts_of_a_batch_are_traced_as_one_element() -> None:
    """Every part carries the number of its batch, and the parts' records add up to what was sent."""
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
    """What is sent behind an aligned barrier waits on the sender's side; the resume lets it come, announced once."""
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
    assert [type(one) for one in link.seen if not isinstance(one, (Send, Receive))] == [
        ChannelBlocked,
        ChannelResumed,
    ]


def test_resuming_an_empty_channel_announces_nothing() -> None:
    """There is nothing to read, so nobody is woken."""
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
    """Further elements do not wake a receiver that knows already."""
    link = Link()

    link.put(records(1), records(2), EndOfData())

    assert link.receiver.readable_calls == 1


def test_priority_events_overtake_data_but_not_each_other() -> None:
    """Unaligned barriers come first, in their own order; everything else keeps its place."""
    link = Link()
    first, second = CheckpointBarrier(1, 0, PRIORITY), CheckpointBarrier(2, 0, PRIORITY)

    link.put(records("a"), Watermark(1), first, records("b"), second)

    assert flat(link.take_all()) == [first, second, "a", Watermark(1), "b"]
    assert link.channel.priority_events == 0


ELEMENTS_OF_ANY_KIND = st.one_of(
    st.integers(1, 5).map(lambda count: records(*range(count))),
    st.integers(0, 9).map(Watermark),
    st.just(CancelCheckpointMarker(1)),
)


class LaterSender:
    """Sends an element when the kernel says so."""

    name = "later sender"

    def __init__(self, link: Link) -> None:
        self._link = link

    def send(self, element: Element) -> None:
        """Send."""
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
    link.channel.queued_records -= 1

    with pytest.raises(AssertionError):
        link.channel.validate()


def test_fingerprints_tell_contents_and_blocking_apart() -> None:
    """Two channels have one fingerprint exactly when the same elements wait and both are blocked or not."""

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
    """The consumer still gets its records of the batch it began with, and the event stays in front of the rest."""
    link = Link()
    barrier = CheckpointBarrier(1, START_NS, PRIORITY)
    link.put(Batch([1, 2, 3]), Batch([4]), barrier)

    assert link.channel.take_records(count) == Batch([1, 2, 3][:count])

    link.channel.validate()
    rest = [Batch([3])] if count == 2 else []
    assert link.take_all() == [barrier, *rest, Batch([4])]
