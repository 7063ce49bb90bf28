"""Messages between writers and committers, requests, and the books of one subtask and of one checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from operators.transactions import END_OF_INPUT, CommitRequest, messages
from operators.transactions.committables import (
    CheckpointCommittables,
    CommitFailedError,
    CommittableProtocolError,
    SubtaskCommittables,
)


def test_messages_are_a_summary_and_what_it_announces() -> None:
    """The summary comes first and says how many follow; all are plain tuples."""
    assert messages(7, 1, 2, ["a", "b"]) == [
        ("summary", 7, 1, 2, 2),
        ("committable", 7, 1, "a"),
        ("committable", 7, 1, "b"),
    ]


def test_no_word_is_success() -> None:
    """A request is committed if the committer does not report otherwise."""
    request = CommitRequest("a")
    request.begin_round()
    request.end_round()

    assert request.is_finished
    assert request.is_committed
    assert not request.was_committed_before


def test_already_committed_is_success() -> None:
    """It counts as committed, and is told apart for the metrics."""
    request = CommitRequest("a")
    request.signal_already_committed()
    request.end_round()

    assert request.is_committed
    assert request.was_committed_before


def test_a_known_failure_is_finished_and_no_success() -> None:
    """The committable is given up."""
    request = CommitRequest("a")
    request.signal_failed_with_known_reason("expired")
    request.end_round()

    assert request.is_finished
    assert not request.is_committed


def test_an_unknown_failure_is_raised_with_its_cause() -> None:
    """The error names the committable, and has the original error as its cause."""
    cause = OSError("connection reset")
    with pytest.raises(CommitFailedError, match=r"'a': connection reset") as caught:
        CommitRequest("a").signal_failed_with_unknown_reason(cause)

    assert caught.value.kind == "unknown_failure"
    assert caught.value.__cause__ is cause


def test_what_is_put_off_is_open_until_a_round_without_a_word() -> None:
    """Retries are counted; the committable may be replaced by another one from then on."""
    request = CommitRequest(["a", "b"])
    request.begin_round()
    request.update_and_retry_later(["b"])
    request.end_round()
    assert (request.committable, request.retries, request.is_finished) == (["b"], 1, False)

    request.begin_round()
    request.end_round()

    assert (request.committable, request.is_committed) == (["b"], True)


def test_a_book_takes_no_more_than_was_announced() -> None:
    """The error names the first committable beyond the announced number."""
    book = SubtaskCommittables(1)
    book.add("a")

    with pytest.raises(CommittableProtocolError, match="'b' comes after all 1") as caught:
        book.add("b")

    assert caught.value.kind == "not_announced"


def test_drained_committables_still_count_as_received() -> None:
    """A drained book does not wait for them again."""
    book = SubtaskCommittables(2)
    for payload in "ab":
        book.add(payload)
    book.requests[0].end_round()
    assert book.drain() == ["a"]

    assert book.is_fully_received
    assert not book.is_finished
    assert [request.committable for request in book.pending] == ["b"]


@given(st.lists(st.sampled_from(["committed", "failed", "put off", "not asked"]), max_size=8), st.integers(0, 3))
def test_a_book_is_finished_when_everything_announced_has_an_end(outcomes: list[str], missing: int) -> None:
    """Drained and failed together make up what was announced, whatever the order."""
    book = SubtaskCommittables(len(outcomes) + missing)
    for number in range(len(outcomes)):
        book.add(number)
    for request, outcome in zip(list(book.requests), outcomes, strict=True):
        if outcome == "failed":
            request.signal_failed_with_known_reason("")
        elif outcome == "put off":
            request.retry_later()
        if outcome != "not asked":
            request.end_round()
    drained = book.drain()

    ended = [outcome in ("committed", "failed") for outcome in outcomes]
    assert drained == [number for number, outcome in enumerate(outcomes) if outcome == "committed"]
    assert book.is_finished == (all(ended) and not missing)
    assert book.is_fully_received == (not missing)
    assert book.received == len(outcomes)


def test_only_the_end_of_the_input_may_be_announced_twice() -> None:
    """There the announcements add up; for a checkpoint the second one is an error."""
    checkpoint = CheckpointCommittables(3, 1)
    checkpoint.announce(0, 1)
    with pytest.raises(CommittableProtocolError, match="two summaries of subtask 0 for checkpoint 3"):
        checkpoint.announce(0, 1)

    end = CheckpointCommittables(END_OF_INPUT, 1, is_end_of_input=True)
    end.announce(0, 1)
    end.announce(0, 2)

    assert end.books[0].expected == 3


def test_a_committable_needs_its_summary() -> None:
    """Without one, it is unknown which checkpoint it belongs to."""
    checkpoint = CheckpointCommittables(3, 2)
    checkpoint.announce(0, 1)

    with pytest.raises(CommittableProtocolError, match="of subtask 1 for checkpoint 3 comes without"):
        checkpoint.add(1, "a")
