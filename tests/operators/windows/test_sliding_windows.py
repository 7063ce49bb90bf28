"""Sliding event-time windows: overlaps, gaps, lateness, restore, and all of it against a naive model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.errors import JobChangedError
from engine.elements.operator import Operator
from operators.basic import aggregates
from operators.windows import (
    SlidingEventTimeWindows,
    SlidingWindowOperator,
    TriggeredWindowOperator,
    TumblingEventTimeWindows,
    WindowOperator,
)
from tests.operators.harness import Harness
from tests.operators.keyed_cluster import KeyedCluster
from tests.operators.windows.models import NaiveWindows, assert_agreement, first, sorted_values, steps

pytestmark = pytest.mark.usefixtures("few_records")

TENS_BY_FIVE = SlidingEventTimeWindows.of(10, 5)


def sums(assigner: SlidingEventTimeWindows = TENS_BY_FIVE, **options: Any) -> SlidingWindowOperator:
    return SlidingWindowOperator(assigner, aggregates.total(lambda record: record[1]), **options)


def test_a_record_counts_in_each_of_its_windows() -> None:
    """Windows that overlap share records; each fires at its own end."""
    harness = Harness(sums(), key=first)
    harness.process([("a", 1), ("a", 2), ("b", 4)], [3, 7, 12])

    harness.watermark(9)
    assert harness.take() == [Batch([("a", -5, 5, 1), ("a", 0, 10, 3)], [4, 9]), ("watermark", 9)]
    harness.watermark(MAX_TIMESTAMP_MS)
    assert harness.take_values() == [("a", 5, 15, 2), ("b", 5, 15, 4), ("b", 10, 20, 4)]
    assert harness.context.keyed.num_entries() == 0


def test_a_record_is_late_only_when_all_of_its_windows_are_gone() -> None:
    """A record that still has a window goes there and is not counted as dropped."""
    harness = Harness(sums(late_tag="late"), key=first)
    harness.watermark(9)
    harness.take()
    harness.process([("a", 1), ("a", 2)], [7, 4])

    assert harness.take() == [("late", Batch([("a", 2)], [4]))]
    harness.watermark(14)
    assert harness.take_values() == [("a", 5, 15, 1)]


def test_late_records_fire_the_windows_that_are_kept() -> None:
    """Within the allowed lateness: the windows that have fired do so again at once, the others at their end."""
    harness = Harness(sums(allowed_lateness_ms=5), key=first)
    harness.process([("a", 1)], [7])
    harness.watermark(9)
    harness.take()

    harness.process([("a", 10)], [8])
    assert harness.take_stamped() == [(("a", 0, 10, 11), 9)]
    harness.watermark(14)
    assert harness.take_values() == [("a", 5, 15, 11)]
    harness.process([("a", 100)], [8])
    assert harness.take_stamped() == [(("a", 5, 15, 111), 14)]


def test_records_between_windows_belong_to_none() -> None:
    """With a slide above the size there are gaps: records in a gap are dropped, and counted only when they are late."""
    harness = Harness(sums(SlidingEventTimeWindows.of(2, 10)), key=first)
    harness.watermark(3)
    harness.process([("a", 1), ("a", 2), ("a", 3)], [5, 11, 3])
    harness.process([("a", 4)], [8])
    harness.watermark(MAX_TIMESTAMP_MS)

    assert harness.take_values() == [("a", 10, 12, 2)]
    assert harness.counter("numLateRecordsDropped") == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda: sums(SlidingEventTimeWindows.of(10, 2)),
        lambda: sums(SlidingEventTimeWindows.of(20, 5)),
        lambda: sums(SlidingEventTimeWindows.of(10, 5, 1)),
        lambda: WindowOperator(TumblingEventTimeWindows.of(10), max),
        lambda: TriggeredWindowOperator(TENS_BY_FIVE, max),
    ],
)
def test_other_windows_are_a_changed_job(other: Callable[[], Operator]) -> None:
    """A checkpoint with other windows, or windows kept in another way, is refused; the error says what it has."""
    checkpoint = Harness(sums(), key=first).snapshot(1)

    with pytest.raises(JobChangedError, match=r"checkpoint has SlidingEventTimeWindows\(size_ms=10, slide_ms=5, off"):
        Harness(other(), key=first, restored=checkpoint)


def test_a_checkpoint_of_tumbling_windows_is_refused() -> None:
    """The opposite direction is refused, too."""
    checkpoint = Harness(WindowOperator(TumblingEventTimeWindows.of(10), max), key=first).snapshot(1)

    with pytest.raises(JobChangedError, match=r"its checkpoint has windows of 10 ms \(offset 0 ms\)"):
        Harness(sums(), key=first, restored=checkpoint)


@pytest.mark.parametrize("operator", [SlidingWindowOperator, TriggeredWindowOperator])
@given(steps(), st.integers(1, 30), st.integers(1, 30), st.integers(0, 40), st.data())
def test_sliding_windows_agree_with_the_naive_model(
    operator: Callable[..., Operator],
    steps: list[tuple[str, Any]],
    size_ms: int,
    slide_ms: int,
    lateness_ms: int,
    data: st.DataObject,
) -> None:
    """Random records, watermarks and restarts at random parallelism, by batch and by record: same results and drops."""
    offset_ms = data.draw(st.integers(-slide_ms + 1, slide_ms - 1))
    assigner = SlidingEventTimeWindows.of(size_ms, slide_ms, offset_ms)
    model = NaiveWindows(size_ms, lambda stamp: list(assigner.starts_of(stamp)), lateness_ms)
    windows = KeyedCluster(
        lambda: operator(assigner, None, process_function=sorted_values, allowed_lateness_ms=lateness_ms), first
    )

    assert_agreement(windows, model, steps)
