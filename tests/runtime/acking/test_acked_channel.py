"""A channel whose ends are replaced: what is lost with them, and what is kept."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings, strategies as st

from engine.elements.batch import Batch
from engine.elements.events import EndOfData, EndOfPartition, Watermark, WatermarkStatus
from engine.graph.plan import ChannelPlan
from engine.runtime.acking.acked_channel import AckedChannel
from engine.runtime.channels import ChannelSettings
from engine.runtime.config import CostModel
from tests.runtime.channels.links import INDEX, End, Link, flat, records

LIMITED = CostModel(link_bytes_per_s=1_000_000, record_bytes=1)
"""A record takes a microsecond."""
IN_BYTES = CostModel(link_bytes_per_s=1_000_000, record_bytes=lambda number: number % 4 + 1)
"""A byte takes a microsecond, and credit is counted in bytes."""


class AckedLink(Link):
    """A channel of mode ``acking`` between two ends, both of which may be replaced."""

    channel: AckedChannel

    def __init__(
        self, *, capacity: int = 10, cost: CostModel | None = None, latency_ns: int = 0, in_bytes: bool = False
    ) -> None:
        super().__init__()
        cost = CostModel() if cost is None else cost
        self.channel = AckedChannel(
            ChannelPlan(INDEX, 0, 0, 0, 0, 1, 1, 3),
            self.sender,  # type: ignore[arg-type]
            self.receiver.name,
            ChannelSettings(
                self.kernel, cost, latency_ns, capacity, 1, self.seen.append, weigh=cost.bytes_of if in_bytes else None
            ),
        )
        self.channel.gate = self.receiver  # type: ignore[assignment]

    def replace_receiver(self) -> int:
        """Connects a new receiver. Returns how many records it has missed."""
        self.receiver = End("sink[1]")
        self.channel.gate = self.receiver  # type: ignore[assignment]
        return self.channel.receiver_replaced()

    def replace_sender(self) -> None:
        """Connects a new sender."""
        self.sender = End("map[0]")
        self.channel.sender_replaced(self.sender)  # type: ignore[arg-type]


def test_what_is_on_the_channel_is_lost_with_its_receiver() -> None:
    """Queued, waiting for credit, or sent while there is no receiver; the sender gets its credit back."""
    link = AckedLink(capacity=3)
    link.put(records(1, 2, 3), records(4))
    assert link.sender.full_outputs == 1

    assert link.channel.receiver_died() == 4
    assert (link.sender.full_outputs, link.channel.full) == (0, False)
    link.put(records(5, 6, 7, 8))
    assert link.sender.full_outputs == 0
    assert link.replace_receiver() == 4
    link.put(records(9))

    assert flat(link.take_all()) == [9]  # type: ignore[arg-type]
    link.channel.validate()
    assert link.channel.lost_records == 8


def test_what_is_under_way_is_lost_with_its_receiver() -> None:
    """It arrives after the receiver was replaced and is dropped. So is a record that is crossing a limited link."""
    for cost, latency_ns in ((CostModel(), 5_000), (LIMITED, 0), (LIMITED, 5_000)):
        link = AckedLink(cost=cost, latency_ns=latency_ns)
        link.put(records(1, 2), records(3))
        link.channel.receiver_died()
        link.replace_receiver()
        link.put(records(4))
        link.kernel.run()

        assert flat(link.take_all()) == [4], (cost, latency_ns)  # type: ignore[arg-type]
        link.channel.validate()


def test_a_new_receiver_is_told_what_was_promised() -> None:
    """Event time, idleness and the end of the data, in this order, even if the original events were lost."""
    link = AckedLink()
    link.put(Watermark(3), Watermark(7), records(1), WatermarkStatus(True))
    link.take_all()
    link.channel.receiver_died()
    link.put(EndOfData(), EndOfPartition())
    link.replace_receiver()

    assert link.take_all() == [Watermark(7), WatermarkStatus(True), EndOfData(), EndOfPartition()]


def test_a_new_sender_does_not_say_again_what_was_said() -> None:
    """Event time does not go back, a stream ends once, and no event follows its end."""
    link = AckedLink()
    link.put(Watermark(7))
    link.channel.sender_died()
    link.replace_sender()
    link.put(Watermark(3), Watermark(9), EndOfData())
    link.channel.sender_died()
    link.replace_sender()
    link.put(records(1), EndOfData(), EndOfPartition(), EndOfPartition())

    assert link.take_all() == [Watermark(7), Watermark(9), EndOfData(), EndOfPartition()]
    link.channel.validate()


def test_a_new_sender_is_not_idle() -> None:
    """The old sender may have announced idleness; the new one would never announce that it is active."""
    link = AckedLink()
    link.put(WatermarkStatus(True))
    link.channel.sender_died()
    link.replace_sender()
    link.put(WatermarkStatus(True))

    assert link.take_all() == [WatermarkStatus(True), WatermarkStatus(False), WatermarkStatus(True)]


def test_what_has_left_arrives_although_its_sender_is_dead() -> None:
    """Records that wait for credit are lost; watermarks, status and the end of the stream are not."""
    link = AckedLink(capacity=2, latency_ns=5_000)
    link.put(records(1), records(2), records(3), Watermark(5))
    assert link.channel.sender_died() == 1
    link.replace_sender()
    assert (link.channel.full, link.sender.full_outputs) == (True, 1)
    link.kernel.run()

    taken = link.take_all()
    assert flat([one for one in taken if isinstance(one, Batch)]) == [1, 2]
    assert taken[-1] == Watermark(5)
    assert link.sender.full_outputs == 0
    link.channel.validate()


def test_a_batch_that_is_passing_is_cut_where_its_sender_dies() -> None:
    """The records that have passed the link arrive, the others are lost."""
    link = AckedLink(cost=LIMITED)
    link.put(records(*range(6)), records(6))
    _run_until(link, link.kernel.now_ns + 4_000)
    assert link.channel.sender_died() == 3
    link.kernel.run()

    assert flat(link.take_all()) == [0, 1, 2, 3]  # type: ignore[arg-type]
    link.channel.validate()


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(1, 3)),
        st.tuples(st.just("wait"), st.integers(1, 9_000)),
        st.tuples(st.sampled_from(["receiver", "sender", "watermark", "idle"]), st.just(0)),
    ),
    max_size=40,
)


_COSTS = (None, LIMITED, IN_BYTES)


@settings(deadline=None)
@given(_STEPS, st.integers(1, 6), st.sampled_from([0, 3_000]), st.sampled_from(_COSTS), st.integers(0, 3))
@example([("put", 3), ("receiver", 0)], 3, 0, IN_BYTES, 0)
@example([("put", 3), ("put", 3), ("sender", 0)], 1, 0, IN_BYTES, 0)
def test_nothing_is_received_twice_out_of_order_or_by_the_wrong_one(
    steps: list[tuple[str, int]], capacity: int, latency_ns: int, cost: CostModel | None, away: int
) -> None:
    """Any sequence of sends, receptions, waits and deaths: a receiver gets, in order, only what was sent in its own
    time or later; the counts of records add up; event time never goes back; and who sends knows whether it may."""
    link = AckedLink(capacity=capacity, latency_ns=latency_ns, cost=cost, in_bytes=cost is IN_BYTES)
    sent, last_seen, watermark, seen_ms, oldest = 0, -1, 0, -1, 0
    dead_for: int | None = None

    def take() -> None:
        nonlocal last_seen, seen_ms
        one = link.channel.take()
        if isinstance(one, Watermark):
            assert one.timestamp_ms >= seen_ms
            seen_ms = one.timestamp_ms
        elif isinstance(one, Batch):
            assert one.values[0] > last_seen
            assert one.values[0] >= oldest
            assert one.values == sorted(one.values)
            last_seen = one.values[-1]

    for step, number in steps:
        if dead_for is not None:
            dead_for -= 1
            if dead_for < 0:
                link.replace_receiver()
                dead_for = None
        if step == "put":
            link.put(records(*range(sent, sent + number)))
            sent += number
            if dead_for is not None:
                oldest = sent
        elif step == "take":
            for _ in range(min(number, len(link.channel.queue))):
                take()
        elif step == "wait":
            _run_until(link, link.kernel.now_ns + number)
        elif step == "receiver" and dead_for is None:
            link.channel.receiver_died()
            oldest, dead_for, seen_ms = sent, away, -1
        elif step == "sender":
            link.channel.sender_died()
            link.replace_sender()
        elif step == "watermark":
            watermark += 1
            link.put(Watermark(watermark))
        elif step == "idle":
            link.put(WatermarkStatus(sent % 2 == 0))
        link.channel.validate()
        assert link.sender.full_outputs == int(link.channel.full)
    if dead_for is not None:
        link.replace_receiver()
    link.kernel.run()
    while link.channel.queue:
        take()
        link.kernel.run()
    link.channel.validate()
    assert link.channel.queued_records == 0
    if watermark:
        assert seen_ms == watermark


class _Alarm:
    name = "alarm"

    def ring(self, kernel: Any) -> None:
        kernel.stop()


def _run_until(link: Link, time_ns: int) -> None:
    link.kernel.schedule(time_ns, "ring", _Alarm(), link.kernel)
    link.kernel.run()
