"""Trees of tuples against an explicit model: the acker calls one complete exactly when no tuple of it is left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, strategies as st

from engine.protocols.acking.acker import Acker
from engine.protocols.acking.anchoring import (
    ACK,
    UNTRACKED,
    Ack,
    AckerMessage,
    AnchoredTuple,
    Fail,
    IdStream,
    Init,
    Reset,
    acks_of,
    child_of,
    fails_of,
    resets_of,
    root_tuples,
)


def _ids() -> IdStream:
    return IdStream("test")


def test_a_root_is_sent_in_a_tuple_per_receiver() -> None:
    """Each has an edge of its own, and INIT the exclusive or of all; without receivers it is complete at once."""
    tuples, value = root_tuples(7, 2, _ids())
    first, second = (one.edges[7] for one in tuples)
    assert first != second
    assert value == first ^ second
    assert root_tuples(7, 0, _ids()) == ([], 0)


def test_a_tuple_leaves_the_tree_in_the_message_that_adds_its_children() -> None:
    """Its acknowledgement holds its own edge and those of all that was anchored to it."""
    (parent,), _ = root_tuples(7, 1, _ids())
    new_id = IdStream("bolt")
    children = [child_of([parent], new_id) for _ in range(3)]
    expected = parent.edges[7]
    for child in children:
        expected ^= child.edges[7]
    assert acks_of(parent) == [Ack(7, expected)]


def test_an_anchor_that_is_named_twice_counts_twice() -> None:
    """Two edges, and both are in the child's entry and in the anchor's sum, so that the tree still completes."""
    (parent,), value = root_tuples(7, 1, _ids())
    child = child_of([parent, parent], IdStream("bolt"))
    assert parent.out == child.edges[7]
    acker = Acker()
    assert acker.receive(Init(7, value, "spout")) is None
    assert acker.receive(*acks_of(parent)) is None
    reply = acker.receive(*acks_of(child))
    assert reply is not None
    assert reply.kind == ACK


def test_several_roots_have_a_message_each() -> None:
    """A tuple that is anchored to two roots is acknowledged, failed and kept alive at both."""
    (first,), _ = root_tuples(1, 1, _ids())
    (second,), _ = root_tuples(2, 1, IdStream("other"))
    both = child_of([first, second], IdStream("bolt"))
    assert [message.root for message in acks_of(both)] == [1, 2]
    assert fails_of(both) == [Fail(1), Fail(2)]
    assert resets_of(both) == [Reset(1), Reset(2)]


def test_without_anchors_nothing_is_tracked() -> None:
    """A tuple without anchors is not tracked, nor one whose anchors have no roots; no message tells of it."""
    assert child_of([], _ids()) is UNTRACKED
    assert child_of([UNTRACKED], _ids()) is UNTRACKED
    assert acks_of(UNTRACKED) == []
    assert UNTRACKED.out == 0


def test_ids_differ_within_a_stream_and_between_streams() -> None:
    """No edge is used twice, and none is 0."""
    drawn = [stream() for stream in (IdStream("a"), IdStream("b")) for _ in range(2_000)]
    assert len(set(drawn)) == len(drawn)
    assert all(0 < one < 1 << 64 for one in drawn)
    assert max(drawn) > 1 << 63
    again = IdStream("a")
    assert [again() for _ in range(3)] == drawn[:3]


@dataclass
class _Model:
    """The tuples of several roots, explicitly: which are left, and which messages are on their way."""

    left: Counter[int] = field(default_factory=Counter)
    """By root: tuples that were not acknowledged."""
    waiting: list[AnchoredTuple] = field(default_factory=list)
    messages: list[AckerMessage] = field(default_factory=list)
    unsaid: Counter[int] = field(default_factory=Counter)
    """By root: messages that have not arrived."""

    def add(self, one: AnchoredTuple) -> None:
        self.waiting.append(one)
        self.left.update(one.edges.keys())

    def say(self, message: AckerMessage) -> None:
        self.messages.append(message)
        self.unsaid[message.root] += 1


@given(st.data())
def test_the_value_is_zero_exactly_when_init_and_all_acknowledgements_have_arrived(data: st.DataObject) -> None:
    """Any trees over any roots, with fan-out, several anchors and the same anchor twice, and any order of deliveries:
    the acker says ACK for a root with its very last message, and never before."""
    model, new_id, acker = _Model(), IdStream(str(data.draw(st.integers(0, 1_000)))), Acker()
    roots = range(1, 1 + data.draw(st.integers(1, 3)))
    for root in roots:
        tuples, value = root_tuples(root, data.draw(st.integers(0, 3)), new_id)
        for one in tuples:
            model.add(one)
        model.say(Init(root, value, "spout"))
    complete: list[int] = []
    steps, emitted = 0, 0
    while model.waiting or model.messages:
        steps += 1
        deliver = model.messages and (not model.waiting or data.draw(st.booleans()))
        if deliver:
            message = model.messages.pop(data.draw(st.integers(0, len(model.messages) - 1)))
            model.unsaid[message.root] -= 1
            reply = acker.receive(message)
            is_over = not model.left[message.root] and not model.unsaid[message.root]
            assert (reply is not None) == is_over, (message, model.left, model.unsaid)
            if reply is not None:
                assert reply.kind == ACK
                complete.append(reply.root)
            continue
        # A bolt takes one or two tuples, emits some anchored to any of them, and acknowledges them.
        count = data.draw(st.integers(1, min(2, len(model.waiting))))
        inputs = [model.waiting.pop(data.draw(st.integers(0, len(model.waiting) - 1))) for _ in range(count)]
        for _ in range(data.draw(st.integers(0, 2)) if emitted < 12 else 0):
            emitted += 1
            anchors = data.draw(st.lists(st.sampled_from(inputs), max_size=3))
            model.add(child_of(anchors, new_id))
        for one in inputs:
            for ack in acks_of(one):
                model.left[ack.root] -= 1
                model.say(ack)
    assert sorted(complete) == list(roots)
    assert len(acker) == 0
