"""Deduplication: which record of a key is kept, when it leaves, and as what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from operators.ranking import deduplicator, materialize
from tests.operators.harness import Harness


def harness(
    keep: str = "first", time: str = "processing", append_only: bool = False, ttl_ms: int | None = None, **kwargs: Any
) -> Harness:
    return Harness(deduplicator(keep, time, append_only, ttl_ms)(), key=lambda value: str(value[0]), **kwargs)


def test_the_first_by_processing_time_goes_on_as_it_is() -> None:
    """It keeps its own timestamp, within a batch and over batches, for each key by itself."""
    one = harness()
    one.process([("k", 1), ("j", 2), ("k", 3)], [30, 20, 10])
    one.process([("k", 4), ("l", 5)], [1, 2])
    assert one.take() == [Batch([("k", 1), ("j", 2)], [30, 20]), Batch([("l", 5)], [2])]


def test_the_last_by_processing_time_replaces_the_one_before() -> None:
    """The change is an update in two halves, each with the time of the record that causes it."""
    one = harness("last")
    one.process([("k", 1), ("k", 2)], [30, 20])
    assert one.take_stamped() == [(("+I", ("k", 1)), 30), (("-U", ("k", 1)), 20), (("+U", ("k", 2)), 20)]


def test_the_first_by_event_time_is_replaced_by_an_earlier_one() -> None:
    """A record of the same time does not replace it."""
    one = harness("first", "event")
    one.process([("k", 1), ("k", 2), ("k", 3)], [30, 30, 20])
    assert one.take_values() == [("+I", ("k", 1)), ("-U", ("k", 1)), ("+U", ("k", 3))]


def test_the_last_by_event_time_is_replaced_by_a_later_one() -> None:
    """A record of the same time replaces it, too; an earlier one changes nothing."""
    one = harness("last", "event")
    one.process([("k", 1), ("k", 2), ("k", 3)], [30, 30, 20])
    assert one.take_values() == [("+I", ("k", 1)), ("-U", ("k", 1)), ("+U", ("k", 2))]


def test_append_only_waits_for_the_watermark() -> None:
    """The first by event time leaves once, before the watermark that makes it certain; late records are counted."""
    one = harness("first", "event", append_only=True)
    one.process([("k", 1), ("k", 2), ("j", 3)], [30, 20, 25])
    one.watermark(19)
    one.watermark(25)
    one.process([("k", 4), ("k", 5)], [25, 26])
    one.watermark(100)
    assert one.take() == [
        ("watermark", 19),
        Batch([("k", 2), ("j", 3)], [20, 25]),
        ("watermark", 25),
        ("watermark", 100),
    ]
    assert one.counter("numLateRecordsDropped") == 1
    one.context.keyed.set_current_key("k")
    assert one.operator._kept.get() == (True, None, None)  # type: ignore[attr-defined]


@pytest.mark.parametrize("keep", ["first", "last"])
def test_a_key_that_has_expired_is_new_again(keep: str) -> None:
    """It expires that long after its last write, and not a millisecond earlier."""
    one = harness(keep, ttl_ms=10)
    one.process([("k", 1)])
    one.advance_ms(9)
    if keep == "first":
        one.process([("k", 2)])
    one.advance_ms(1)
    one.process([("k", 3)])
    assert one.take_values() == ([("k", 1), ("k", 3)] if keep == "first" else [("+I", ("k", 1)), ("+I", ("k", 3))])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("some", "event", False, None), "keep must be"),
        (("first", "no", False, None), "time must be"),
        (("last", "event", True, None), "append_only"),
    ],
)
def test_what_there_is_not_is_refused(arguments: Any, message: str) -> None:
    """It is refused where the job is built."""
    with pytest.raises(ConfigurationError, match=message):
        deduplicator(*arguments)


@pytest.mark.parametrize("append_only", [True, False])
def test_event_time_needs_timestamps(append_only: bool) -> None:
    """The error says where they come from."""
    with pytest.raises(ConfigurationError, match="no timestamps"):
        harness("first", "event", append_only).process([("k", 1)])


@pytest.mark.parametrize("after", [1, 2])
def test_append_only_waits_over_a_failure(after: int) -> None:
    """Waiting records are in the snapshot with their timers, emitted ones are remembered, and late stays late."""
    before = harness("first", "event", append_only=True)
    before.process([("gone", 1), *((key, 2) for key in "abcd")], [10, 30, 30, 30, 30])
    before.watermark(20)
    checkpoint = before.snapshot(1)
    found: list[Any] = []
    for subtask in range(after):
        one = harness("first", "event", True, restored=checkpoint, subtask=subtask, parallelism=after)
        own = [key for key in (*"abcd", "gone") if key in one.context.keyed.keys("kept")]
        one.process([(key, 3) for key in own], [20] * len(own))
        assert one.counter("numLateRecordsDropped") == len(own)
        one.process([(key, 4) for key in own], [25 if key == "a" else 40 for key in own])
        one.watermark(100)
        found += one.take_stamped()
    assert sorted(found) == [(("a", 4), 25), *(((key, 2), 30) for key in "bcd")]


RECORDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=20)


@given(RECORDS, st.sampled_from(["first", "last"]), st.sampled_from(["processing", "event"]), st.integers(1, 20))
def test_what_is_left_is_one_record_of_each_key(
    records: list[tuple[str, int]], keep: str, time: str, size: int
) -> None:
    """By the definition, whatever the batches, over a restart after every batch at other parallelisms too."""
    numbered = [(key, time_ms, number) for number, (key, time_ms) in enumerate(records)]
    emitted: list[Any] = []
    checkpoint = None
    for start in range(0, len(numbered), size):
        piece = numbered[start : start + size]
        one = harness(keep, time, restored=checkpoint)
        one.process(piece, [value[1] for value in piece])
        emitted += one.take_values()
        checkpoint = one.snapshot(start + 1)
    rows = emitted if (keep, time) == ("first", "processing") else materialize(emitted)
    wanted = []
    for key in sorted({key for key, _ in records}):
        own = [value for value in numbered if value[0] == key]
        order = (lambda value: value[2]) if time == "processing" else (lambda value: (value[1], value[2]))
        wanted.append(min(own, key=order) if keep == "first" else max(own, key=order))
    assert sorted(rows) == wanted
