"""Patterns over keyed records: order by event time, lateness, timeouts, snapshots, other patterns."""

from __future__ import annotations

from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, JobChangedError
from operators.patterns import Pattern, pattern_operator
from tests.operators.harness import START_NS, Checkpoint, Harness


def is_(letter: str) -> Any:
    return lambda value: value[1] == letter


A_THEN_B = Pattern.begin("a").where(is_("a")).followed_by("b").where(is_("b"))


def harness(
    pattern: Pattern = A_THEN_B,
    *,
    event_time: bool = True,
    order_by: Any = None,
    late: str | None = None,
    timeout: str | None = None,
    **kwargs: Any,
) -> Harness:
    operator = pattern_operator(pattern, event_time, order_by, late, timeout)()
    return Harness(operator, key=lambda value: value[0], **kwargs)


def text(match: dict[str, list[Any]]) -> str:
    return " ".join(f"{name}={''.join(value[1] + str(value[2]) for value in match[name])}" for name in match)


def found(harness: Harness) -> list[Any]:
    """Matches as (text, timestamp), side outputs as (tag, ...), watermarks as ints."""
    out: list[Any] = []
    for event in harness.take():
        tag, batch = ("match", event) if isinstance(event, Batch) else event
        if tag == "watermark":
            out.append(batch)
            continue
        stamps = batch.timestamps or [None] * len(batch)
        shown = [text(value) if isinstance(value, dict) else value for value in batch.values]
        out += [(tag, one, stamp) for one, stamp in zip(shown, stamps, strict=True)]
    return out


def test_records_are_taken_in_the_order_of_their_times() -> None:
    """A b that comes first but is later is matched, only after the watermark, with the time of the last record."""
    one = harness()
    one.process([("k", "b", 2), ("k", "a", 1)], [20, 10])
    assert found(one) == []
    one.watermark(19)
    assert found(one) == [19]
    one.watermark(20)
    assert found(one) == [("match", "a=a1 b=b2", 20), 20]


def test_keys_do_not_meet() -> None:
    """An a of one key and a b of another make no match."""
    one = harness()
    one.process([("k", "a", 1), ("l", "b", 2)], [1, 2])
    one.watermark(10)
    assert found(one) == [10]


def test_records_of_one_time_are_in_order_as_they_came_or_as_told() -> None:
    """Without order_by the order of arrival decides; with it the records do."""
    for order_by, wanted in ((None, []), (lambda value: value[2], [("match", "a=a1 b=b2", 5)])):
        one = harness(order_by=order_by)
        one.process([("k", "b", 2), ("k", "a", 1)], [5, 5])
        one.watermark(5)
        assert found(one) == [*wanted, 5]


def test_late_records_leave_by_their_own_door() -> None:
    """A record at the watermark is late: with a tag it goes to its side output, without one it is counted."""
    one = harness(late="late")
    one.watermark(10)
    one.process([("k", "a", 1), ("k", "a", 2)], [10, 11])
    assert found(one) == [10, ("late", ("k", "a", 1), 10)]
    one = harness()
    one.watermark(10)
    one.process([("k", "a", 1)], [10])
    assert one.counter("numLateRecordsDropped") == 1


def test_what_runs_out_of_time_is_told_when_it_does() -> None:
    """Only event time times a partial match out, before the records of that very millisecond."""
    one = harness(A_THEN_B.within(10), timeout="over")
    one.process([("k", "a", 1), ("k", "b", 2)], [5, 15])
    one.watermark(14)
    assert found(one) == [14]
    one.watermark(15)
    assert found(one) == [("over", "a=a1", 15), 15]
    one.process([("k", "a", 3)], [20])
    one.watermark(40)
    assert found(one) == [("over", "a=a3", 30), 40]


def test_a_key_with_nothing_begun_has_no_state() -> None:
    """A key is forgotten when its partial matches are matched or timed out."""
    one = harness(A_THEN_B.within(10))
    one.process([("k", "a", 1), ("k", "b", 2), ("k", "c", 3)], [5, 6, 7])
    one.watermark(6)
    one.watermark(100)
    assert one.context.keyed.num_entries("automaton") == 0
    assert one.context.keyed.num_entries("waiting") == 0


def test_by_processing_time_records_are_taken_as_they_come() -> None:
    """No watermark is needed; the virtual clock times out partial matches."""
    one = harness(A_THEN_B.within(10), event_time=False, timeout="over")
    one.process([("k", "a", 1), ("k", "b", 2), ("k", "a", 3)])
    assert found(one) == [("match", "a=a1 b=b2", None)]
    one.advance_to_ns(START_NS + 9_000_000)
    assert found(one) == []
    one.advance_to_ns(START_NS + 10_000_000)
    assert found(one) == [("over", "a=a3", None)]


@pytest.mark.parametrize("after", [1, 3])
def test_a_match_may_begin_before_a_failure_and_end_behind_it(after: int) -> None:
    """Waiting records and partial matches are in the snapshot, with their timers, at any parallelism."""
    pattern = A_THEN_B.within(50)
    before = harness(pattern, timeout="over")
    before.process([(key, "a", 1) for key in "klmn"], [10] * 4)
    before.watermark(20)
    before.process([(key, "b", 2) for key in "kl"], [30] * 2)
    checkpoint = before.snapshot(1)
    events: list[Any] = []
    for subtask in range(after):
        one = harness(pattern, timeout="over", restored=checkpoint, subtask=subtask, parallelism=after, attempt=2)
        one.watermark(100)
        events += [event for event in found(one) if event != 100]
    assert sorted(events) == [("match", "a=a1 b=b2", 30)] * 2 + [("over", "a=a1", 60)] * 2


def test_another_pattern_under_the_same_uid_is_refused() -> None:
    """Partial matches know their stages by number; the error shows both patterns."""
    checkpoint: Checkpoint = harness().snapshot(1)
    harness(restored=checkpoint)
    with pytest.raises(JobChangedError, match="has the pattern"):
        harness(A_THEN_B.next("c"), restored=checkpoint)


def test_event_times_are_needed() -> None:
    """Without timestamps the error says what to do, and does not blame a function: a restart would not help."""
    with pytest.raises(ConfigurationError, match=r"no timestamps\n  give the source a watermark strategy"):
        harness().process([("k", "a", 1)])


def test_a_pattern_that_cannot_match_is_refused_where_the_job_is_built() -> None:
    """The factory already checks it."""
    with pytest.raises(ConfigurationError, match="optional"):
        pattern_operator(Pattern.begin("a").optional(), True, None, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((True, None, None, "over"), "within"),
        ((True, "time", None, None), "order_by takes a function"),
        ((False, None, None, None), ""),
        ((False, len, None, None), "order_by= is for event time"),
        ((False, None, "late", None), "late_tag= is for event time"),
    ],
)
def test_what_would_never_be_used_is_refused(arguments: Any, message: str) -> None:
    """A side output for records that cannot be late or time out, and an order for records taken as they come."""
    if message:
        with pytest.raises(ConfigurationError, match=message):
            pattern_operator(A_THEN_B, *arguments)
    else:
        pattern_operator(A_THEN_B, *arguments)


def test_what_is_forbidden_goes_by_event_time_and_survives() -> None:
    """A record that lies between by its time ends a partial match, though it comes last, and after a restore."""
    begun = Pattern.begin("a").where(is_("a")).not_followed_by("c").where(is_("c"))
    paid = begun.followed_by("b").where(is_("b")).within(100)
    one = harness(paid, timeout="over")
    one.process([("k", "a", 1), ("j", "a", 2)], [10, 10])
    one.watermark(10)
    one = harness(paid, timeout="over", restored=one.snapshot(1))
    one.process([("k", "b", 3), ("j", "b", 4), ("k", "c", 5)], [30, 30, 20])
    one.watermark(200)
    assert found(one) == [("match", "a=a2 b=b4", 30), 200]
