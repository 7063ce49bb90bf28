"""The acker: messages in any order, its answers, and the roots that it forgets."""

from __future__ import annotations

from hypothesis import given, strategies as st

from engine.protocols.acking.acker import Acker, acker_for
from engine.protocols.acking.anchoring import ACK, FAIL, RESET, Ack, AckerMessage, Fail, Init, Reply, Reset

SPOUT = "numbers[0]"


def test_a_tree_is_complete_when_everything_that_was_said_cancels_out() -> None:
    """The spout hears of it with the last message, whichever that is."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        acker = Acker()
        messages: list[AckerMessage] = [Init(1, 6, SPOUT), Ack(1, 2), Ack(1, 4)]
        replies = [acker.receive(messages[at]) for at in order]
        assert replies == [None, None, Reply(ACK, SPOUT, 1)]
        assert len(acker) == 0


def test_nothing_is_said_before_the_spout_is_known() -> None:
    """A value of 0 without INIT has no meaning: two acknowledgements may cancel out on their way."""
    acker = Acker()
    assert acker.receive(Ack(1, 5)) is None
    assert acker.receive(Ack(1, 5)) is None
    assert acker.receive(Init(1, 3, SPOUT)) is None
    assert acker.receive(Ack(1, 3)) == Reply(ACK, SPOUT, 1)


def test_a_late_init_turns_a_failed_tree_into_a_complete_one() -> None:
    """The value is looked at before the failure."""
    acker = Acker()
    acker.receive(Fail(1))
    acker.receive(Ack(1, 9))
    assert acker.receive(Init(1, 9, SPOUT)) == Reply(ACK, SPOUT, 1)


def test_a_failed_tree_is_told_as_soon_as_the_spout_is_known() -> None:
    """FAIL before INIT waits; FAIL after it is told at once."""
    early = Acker()
    early.receive(Fail(1))
    assert early.receive(Init(1, 9, SPOUT)) == Reply(FAIL, SPOUT, 1)
    late = Acker()
    late.receive(Init(1, 9, SPOUT))
    assert late.receive(Fail(1)) == Reply(FAIL, SPOUT, 1)


def test_reset_is_passed_on_only_when_the_spout_is_known_and_nothing_else_is_to_be_said() -> None:
    """RESET of a root that failed is told as the failure."""
    acker = Acker()
    assert acker.receive(Reset(1)) is None
    acker.receive(Init(1, 9, SPOUT))
    assert acker.receive(Reset(1)) == Reply(RESET, SPOUT, 1)
    failed = Acker()
    failed.receive(Fail(2))
    failed.receive(Reset(2))
    assert failed.receive(Init(2, 9, SPOUT)) == Reply(FAIL, SPOUT, 2)


def test_an_acknowledgement_does_not_keep_an_entry() -> None:
    """Only its creation, FAIL and RESET begin its time anew."""
    acker = Acker()
    acker.receive(Init(1, 6, SPOUT))
    acker.receive(Init(2, 6, SPOUT))
    for tick in range(2):
        assert acker.tick() == (), tick
        acker.receive(Ack(1, 2))
        acker.receive(Reset(2))
    assert acker.tick() == (1,)
    assert acker.pending_roots == (2,)


def test_expiry_is_silent_and_what_comes_after_it_never_completes() -> None:
    """The spout's own timeout is shorter; an acknowledgement that comes later leaves an entry without a spout."""
    acker = Acker()
    acker.receive(Init(1, 5, SPOUT))
    assert [acker.tick() for _ in range(3)] == [(), (), (1,)]
    assert acker.receive(Ack(1, 5)) is None
    assert acker.pending_roots == (1,)
    assert [acker.tick() for _ in range(3)] == [(), (), (1,)]


def test_a_root_always_has_the_same_acker_and_all_of_them_have_work() -> None:
    """Roots are spread by Java's hash of a list of one long, negative numbers included."""
    assert acker_for(0, 3) == 31 % 3
    assert acker_for((1 << 64) - 1, 3) == 31 % 3  # the halves of -1 cancel out
    assert acker_for(0x8000_0000, 7) == (31 - 2**31) % 7
    assert {acker_for(root, 4) for root in range(40)} == {0, 1, 2, 3}


@given(
    st.lists(st.integers(1, (1 << 64) - 1), min_size=1, max_size=8),
    st.randoms(use_true_random=False),
    st.integers(0, 4),
)
def test_any_order_completes_with_the_last_message_and_no_sooner(values: list[int], random: object, fails: int) -> None:
    """Whatever the order of INIT and acknowledgements: the reply comes with the last of them, and only then, unless
    values cancel out on the way; a failure behind INIT ends the tree at once."""
    total = 0
    for value in values:
        total ^= value
    messages: list[AckerMessage] = [Init(1, total, SPOUT), *(Ack(1, value) for value in values)]
    messages += [Fail(1)] * fails
    random.shuffle(messages)  # type: ignore[attr-defined]
    acker = Acker()
    value, known, failed, over = 0, False, False, False
    for message in messages:
        if over:
            break
        value ^= 0 if isinstance(message, Fail | Reset) else message.value
        known |= isinstance(message, Init)
        failed |= isinstance(message, Fail)
        reply = acker.receive(message)
        wanted = None
        if known:
            wanted = Reply(ACK, SPOUT, 1) if value == 0 else Reply(FAIL, SPOUT, 1) if failed else None
        assert reply == wanted
        over = reply is not None
    assert over
