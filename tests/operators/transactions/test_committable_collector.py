"""The books of one committer: their state, and the result of a restore."""

from __future__ import annotations

from typing import Any

import pytest

from operators.transactions import messages, summary
from operators.transactions.committable_collector import RESTORED, CommittableCollector
from operators.transactions.committables import CommittableProtocolError, committable


def collector(*messages_: tuple[Any, ...]) -> CommittableCollector:
    made = CommittableCollector()
    for message in messages_:
        made.add(message)
    return made


def restored(*states: list[Any], label: int | None = None) -> CommittableCollector:
    made = CommittableCollector()
    for state in states:
        made.restore(state, label)
    return made


def test_messages_are_booked_by_the_checkpoint_that_they_name() -> None:
    """Committables of the next checkpoint may come before those of this one."""
    books = collector(*messages(2, 0, 1, ["late"]), *messages(1, 0, 1, ["early"]))

    assert [checkpoint.checkpoint_id for checkpoint in books.up_to(2)] == [1, 2]
    assert [request.committable for request in books.up_to(1)[0].requests(only_fully_received=True)] == ["early"]


def test_a_message_of_another_kind_is_refused() -> None:
    """A stream of records must not lead to a committer."""
    with pytest.raises(CommittableProtocolError, match="takes summaries and committables"):
        collector(("record", 1, 0, "a"))


def test_a_committable_of_an_unknown_checkpoint_is_refused() -> None:
    """Its summary should have come first."""
    with pytest.raises(CommittableProtocolError, match="without a summary for checkpoint 1"):
        collector(committable(1, 0, "a"))


def test_state_has_one_element_for_each_book() -> None:
    """A change of parallelism distributes whole books."""
    books = collector(*messages(1, 0, 2, ["a", "b"]), *messages(1, 1, 2, ["c"]), *messages(2, 0, 2, []))

    assert books.state() == [
        (1, 0, 2, 2, 0, 0, [("a", 0), ("b", 0)]),
        (1, 1, 2, 1, 0, 0, [("c", 0)]),
        (2, 0, 2, 0, 0, 0, []),
    ]


def test_whole_books_are_merged_and_others_keep_their_subtask() -> None:
    """The rest of a book reaches it, whichever committer has it now."""
    books = restored(
        collector(*messages(1, 0, 2, ["a"])).state(),
        collector(*messages(1, 1, 2, ["b"])).state(),
        collector(summary(1, 2, 3, 2), committable(1, 2, "c")).state(),
    )
    checkpoint = books.up_to(1)[0]
    assert sorted(checkpoint.books) == [RESTORED, 2]
    assert checkpoint.books[RESTORED].expected == 2

    books.add(committable(1, 2, "d"))

    assert checkpoint.is_fully_received
    assert [request.committable for request in checkpoint.requests(only_fully_received=True)] == ["a", "b", "c", "d"]


def test_a_label_takes_all_books() -> None:
    """By Flink's rules all restored books are filed under the committer's own number."""
    states = [collector(*messages(1, subtask, 3, [subtask])).state() for subtask in range(3)]

    books = restored(*states, label=5)

    assert list(books.up_to(1)[0].books) == [5]
    assert books.up_to(1)[0].books[5].expected == 3


def test_what_was_put_off_is_restored_with_its_retries() -> None:
    """The committer may use their number."""
    books = collector(*messages(1, 0, 1, ["a"]))
    books.up_to(1)[0].requests(only_fully_received=True)[0].retry_later()

    (request,) = restored(books.state()).up_to(1)[0].requests(only_fully_received=True)

    assert (request.committable, request.retries) == ("a", 1)


def test_a_new_summary_may_come_on_top_of_restored_books() -> None:
    """An attempt that reuses the number of a checkpoint does not meet the books of an earlier one."""
    books = restored(collector(*messages(2, 0, 1, ["old"])).state())

    books.add(summary(2, 0, 1, 0))

    assert sorted(books.up_to(2)[0].books) == [RESTORED, 0]


def test_what_lies_behind_a_checkpoint_can_be_dropped() -> None:
    """Dropping returns the number of committables dropped."""
    books = collector(*messages(1, 0, 1, ["a"]), *messages(2, 0, 1, ["b", "c"]), *messages(3, 0, 1, []))

    assert books.drop_behind(1) == 2
    assert [checkpoint.checkpoint_id for checkpoint in books.up_to(9)] == [1]
