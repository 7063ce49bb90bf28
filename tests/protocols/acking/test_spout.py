"""The spout's book: pending records, their outcomes, and the position up to which a split may be committed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.elements.errors import ConfigurationError
from engine.protocols.acking.anchoring import ACK, FAIL, RESET, UNTRACKED, IdStream, Init, Reply
from engine.protocols.acking.settings import AckingSettings
from engine.protocols.acking.spout_book import ACKED, FAILED, TIMED_OUT, Outcome, SplitProgress, SpoutBook

SPOUT = "numbers[0]"


def _emitted(book: SpoutBook[str], message: str) -> int:
    init = book.emit(message, 1, IdStream(message)).init
    assert init is not None
    return init.root


def test_an_emit_is_pending_until_the_acker_answers() -> None:
    """ACK and FAIL end it; messages for a root that is not pending are ignored."""
    book: SpoutBook[str] = SpoutBook(SPOUT)
    first, second = _emitted(book, "a"), _emitted(book, "b")
    assert book.pending == ("a", "b")
    assert book.on_reply(Reply(ACK, SPOUT, first)) == Outcome("a", ACKED, first)
    assert book.on_reply(Reply(FAIL, SPOUT, second)) == Outcome("b", FAILED, second)
    assert book.on_reply(Reply(ACK, SPOUT, second)) is None
    assert len(book) == 0


def test_a_root_times_out_between_one_and_two_timeouts() -> None:
    """With the second tick after the emit, or after the last RESET, which changes nothing else."""
    book: SpoutBook[str] = SpoutBook(SPOUT)
    first, second = _emitted(book, "a"), _emitted(book, "b")
    assert book.tick() == ()
    assert book.on_reply(Reply(RESET, SPOUT, second)) is None
    assert book.tick() == (Outcome("a", TIMED_OUT, first),)
    assert book.tick() == (Outcome("b", TIMED_OUT, second),)
    assert book.on_reply(Reply(RESET, SPOUT, first)) is None
    assert len(book) == 0


def test_without_a_message_id_nothing_is_tracked() -> None:
    """The spout sends no message to the ackers, and is never told of an outcome."""
    emission = SpoutBook[str](SPOUT).emit(None, 2, IdStream("x"))
    assert emission.tuples == [UNTRACKED, UNTRACKED]
    assert emission.init is None
    assert emission.outcome is None


def test_without_ackers_an_emit_is_acknowledged_at_once() -> None:
    """No record is pending, and the outcome is known already."""
    book: SpoutBook[str] = SpoutBook(SPOUT, has_ackers=False)
    emission = book.emit("a", 1, IdStream("x"))
    assert emission.outcome == Outcome("a", ACKED, None)
    assert emission.init is None
    assert emission.tuples == [UNTRACKED]
    assert len(book) == 0


def test_a_message_to_nobody_is_complete_with_its_init() -> None:
    """INIT says 0, so that the acker answers at once."""
    emission = SpoutBook[str](SPOUT).emit("a", 0, IdStream("x"))
    assert emission.tuples == []
    assert isinstance(emission.init, Init)
    assert emission.init.value == 0


def test_a_full_book_says_so() -> None:
    """As long as the most that may be pending is."""
    book: SpoutBook[str] = SpoutBook(SPOUT, max_pending=2)
    root = _emitted(book, "a")
    assert not book.is_full
    _emitted(book, "b")
    assert book.is_full
    book.on_reply(Reply(ACK, SPOUT, root))
    assert not book.is_full


def test_one_record_that_is_pending_holds_back_the_position() -> None:
    """A position covers all records before it."""
    progress = SplitProgress("start")
    numbers = [progress.read(f"behind {number}") for number in range(3)]
    progress.acked(numbers[1])
    progress.acked(numbers[2])
    assert progress.position == "start"
    assert progress.open_records == 3
    progress.acked(numbers[0])
    assert progress.position == "behind 2"
    assert progress.open_records == 0
    progress.acked(numbers[0])
    assert progress.position == "behind 2"


@given(st.lists(st.integers(0, 9), max_size=40))
def test_the_position_is_behind_the_longest_prefix_that_is_acknowledged(order: list[int]) -> None:
    """For ten records that are acknowledged in any order, some of them twice, some never."""
    progress = SplitProgress(0)
    for position in range(1, 11):
        progress.read(position)
    seen: set[int] = set()
    for number in order:
        progress.acked(number)
        seen.add(number)
        prefix = next(count for count in range(11) if count not in seen)
        assert progress.position == prefix
        assert progress.open_records == 10 - prefix


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ackers": -1}, "ackers is -1; it must be at least 0"),
        ({"timeout_ns": 0}, "timeout_ns is 0; it must be at least 1"),
        ({"timeout_ns": 1.5}, "timeout_ns is 1.5; it must be a whole number"),
        ({"max_pending": 0}, "max_pending is 0; it must be at least 1"),
        ({"max_replays": None}, "max_replays is None; it must be a whole number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, object], message: str) -> None:
    """The error names the setting and what it may be."""
    with pytest.raises(ConfigurationError, match=message):
        AckingSettings(**settings)  # type: ignore[arg-type]
