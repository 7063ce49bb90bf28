"""Interval join: which pairs it makes, when they leave, which records are late, and which are forgotten."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, UserFunctionError
from operators.joins import Interval, IntervalJoinOperator
from state_backends.base import MapStateDescriptor
from tests.operators.harness import Harness


def key_of(value: Any) -> str:
    return str(value[0])


def pair(left: Any, right: Any, ctx: Any) -> list[Any]:
    return [(left[1], right[1])]


def harness(lower: int = -2, upper: int = 1, process: Any = pair, late: Any = (None, None), **kwargs: Any) -> Harness:
    return Harness(IntervalJoinOperator(Interval.of(lower, upper), process, *late), key=key_of, **kwargs)


def left(one: Harness, *records: tuple[str, int]) -> None:
    one.process([(key, f"l{time}") for key, time in records], [time for _, time in records])


def right(one: Harness, *records: tuple[str, int]) -> None:
    one.process_2([(key, f"r{time}") for key, time in records], [time for _, time in records], key_of)


def test_both_bounds_are_included() -> None:
    """From 2 ms before to 1 ms after: neither 3 before nor 2 after."""
    one = harness()
    left(one, ("k", 10))
    right(one, ("k", 7), ("k", 8), ("k", 10), ("k", 11), ("k", 12))
    assert one.take_values() == [("l10", "r8"), ("l10", "r10"), ("l10", "r11")]


@pytest.mark.parametrize(
    ("lower", "upper", "wanted"), [(False, True, (-1, 1)), (True, False, (-2, 0)), (False, False, (-1, 0))]
)
def test_a_bound_may_be_excluded(lower: bool, upper: bool, wanted: tuple[int, int]) -> None:
    """An exclusive bound is the inclusive one moved by a millisecond."""
    assert Interval.of(-2, 1, lower_inclusive=lower, upper_inclusive=upper) == wanted


@pytest.mark.parametrize(
    ("lower", "upper", "inclusive"),
    [(2, 1, True), (1, 1, False), (0.5, 1, True), (0, "1", True), (0, 2**63, True), (-(2**63), 0, True)],
)
def test_an_interval_with_nothing_in_it_is_refused(lower: Any, upper: Any, inclusive: bool) -> None:
    """So is a bound that is not a whole number, or that is further than any two times can be apart."""
    with pytest.raises(ConfigurationError, match="interval join"):
        Interval.of(lower, upper, lower_inclusive=inclusive)


def test_a_pair_carries_the_greater_time_and_keys_stay_apart() -> None:
    """It does not matter which side comes second; another key makes no pair."""
    one = harness()
    left(one, ("k", 10), ("other", 10))
    right(one, ("k", 9))
    assert one.take_stamped() == [(("l10", "r9"), 10)]
    right(one, ("k", 11))
    assert one.take_stamped() == [(("l10", "r11"), 11)]


def test_late_is_below_the_watermark_and_not_at_it() -> None:
    """A record at the watermark is joined, one below it goes to the side output of its side."""
    one = harness(late=("late left", "late right"))
    left(one, ("k", 10))
    one.watermark(9)
    right(one, ("k", 8), ("k", 9))
    left(one, ("k", 8))
    watermark, late_right, joined, late_left = one.take()
    assert watermark == ("watermark", 9)
    assert late_right == ("late right", Batch([("k", "r8")], [8]))
    assert joined == Batch([("l10", "r9")], [10])
    assert late_left == ("late left", Batch([("k", "l8")], [8]))


def test_without_a_tag_late_records_are_counted() -> None:
    """They are joined with nothing."""
    one = harness()
    left(one, ("k", 10))
    one.watermark(10)
    right(one, ("k", 9))
    assert one.counter("numLateRecordsDropped") == 1
    assert one.take_values() == []


@pytest.mark.parametrize(
    ("lower", "upper", "left_gone", "right_gone"), [(-2, 1, 11, 12), (1, 3, 13, 10), (-3, -1, 10, 13), (0, 0, 10, 10)]
)
def test_a_record_is_forgotten_when_nothing_can_meet_it(
    lower: int, upper: int, left_gone: int, right_gone: int
) -> None:
    """It is forgotten at l + upper and r - lower, never before the record's own time."""
    one = harness(lower, upper)
    left(one, ("k", 10))
    right(one, ("j", 10))
    for watermark in range(9, 15):
        one.watermark(watermark)
        assert one.context.keyed.num_entries("left-buffer") == (watermark < left_gone), watermark
        assert one.context.keyed.num_entries("right-buffer") == (watermark < right_gone), watermark


def test_a_pair_function_may_emit_any_number_and_use_side_outputs() -> None:
    """It gets all three times; the error of its exception names the record."""

    def process(first: Any, second: Any, ctx: Any) -> Any:
        if second[1] == "r8":
            raise ValueError("no eights")
        ctx.side_output("times", (ctx.left_timestamp_ms, ctx.right_timestamp_ms, ctx.timestamp_ms))
        return [first[1], second[1]]

    one = harness(process=process)
    left(one, ("k", 10))
    right(one, ("k", 11))
    assert one.take() == [("times", Batch([(10, 11, 11)], [11])), Batch(["l10", "r11"], [11, 11])]
    with pytest.raises(UserFunctionError, match="'r8'"):
        right(one, ("k", 8))


def test_a_record_looks_at_its_interval_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of a key are read from the state once for each side, also after a restore, and forgotten with it."""
    before = harness(-2, 2)
    left(before, *[("k", time) for time in range(200)])
    one = harness(-2, 2, restored=before.snapshot(1))
    state = type(one.context.keyed.map_state(MapStateDescriptor("left-buffer")))
    reads: Counter[str] = Counter()
    for name in ("keys", "get"):
        plain = getattr(state, name)

        def counted(self: Any, *args: Any, name: str = name, plain: Any = plain) -> Any:
            reads[name] += 1
            return plain(self, *args)

        monkeypatch.setattr(state, name, counted)
    right(one, *[("k", time) for time in range(200)])
    assert len(one.take_values()) == 5 * 200 - 6
    assert reads == {"keys": 2, "get": 5 * 200 - 6}
    left(one, *[("k", time) for time in range(200, 400)])
    assert reads["keys"] == 2
    one.watermark(1_000)
    right(one, ("k", 1_000))
    left(one, ("k", 1_001))
    assert one.take_values()[-1] == ("l1001", "r1000")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_what_waits_for_its_other_half_survives(after: int) -> None:
    """A restore at any parallelism brings records and timers to the subtask of their key."""
    before = harness()
    left(before, *[(key, 10) for key in "abcdef"])
    checkpoint = before.snapshot(1)
    found: list[Any] = []
    for subtask in range(after):
        one = harness(restored=checkpoint, subtask=subtask, parallelism=after, attempt=2)
        groups = one.context.keyed
        own = [key for key in "abcdef" if key in groups.keys("left-buffer")]
        right(one, *[(key, 10) for key in own])
        found += one.take_values()
        one.watermark(100)
        assert groups.num_entries() == 0
    assert found == [("l10", "r10")] * 6


def test_what_was_late_before_a_failure_is_late_behind_it() -> None:
    """The watermark is part of the state: a late record must not meet records that the first run kept from it."""
    before = harness()
    left(before, ("k", 10))
    before.watermark(10)
    one = harness(restored=before.snapshot(1))
    right(one, ("k", 9))
    assert one.take_values() == []
    assert one.counter("numLateRecordsDropped") == 1


RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 20), st.booleans()), max_size=20)


@given(RECORDS, st.integers(-6, 6), st.integers(0, 6), st.integers(1, 5), st.lists(st.integers(-20, 20), max_size=3))
def test_the_pairs_are_those_of_a_nested_loop(
    records: list[tuple[str, int, bool]], lower: int, width: int, size: int, watermarks: list[int]
) -> None:
    """Whatever order, batches and watermarks: each pair of records in time once, cleaning up loses none."""
    one = harness(lower, lower + width, lambda a, b, ctx: [(a, b)])
    watermark, taken = -(2**63), []
    for start in range(0, len(records), size):
        piece = records[start : start + size]
        for is_left in (True, False):
            side = [(key, time, start + at) for at, (key, time, which) in enumerate(piece) if which == is_left]
            feed = one.process if is_left else lambda values, stamps: one.process_2(values, stamps, key_of)
            feed(side, [time for _, time, _ in side])
            taken += [(is_left, value) for value in side if value[1] >= watermark]
        if watermarks:
            watermark = max(watermark, watermarks.pop())
            one.watermark(watermark)
    wanted = Counter(
        (a, b)
        for a_left, a in taken
        for b_left, b in taken
        if a_left and not b_left and a[0] == b[0] and lower <= b[1] - a[1] <= lower + width
    )
    assert Counter(one.take_values()) == wanted
    one.watermark(1_000)
    assert one.context.keyed.num_entries() == 0
