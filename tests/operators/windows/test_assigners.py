"""Assignment of records to windows of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError
from operators.windows import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from operators.windows.triggers import EndOfStreamTrigger


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1), st.integers(1, 10**9), st.data())
def test_every_timestamp_lies_in_its_window(stamps: list[int], size_ms: int, data: st.DataObject) -> None:
    """A timestamp lies in its window, windows start at the offset plus multiples of the size; before 1970 too."""
    offset_ms = data.draw(st.integers(-size_ms + 1, size_ms - 1))
    assigner = TumblingEventTimeWindows.of(size_ms, offset_ms)

    for stamp, start in zip(stamps, assigner.starts(stamps), strict=True):
        window = assigner.window(start)

        assert window.start <= stamp < window.end
        assert (window.end - window.start, (window.start - offset_ms) % size_ms) == (size_ms, 0)
        assert window.max_timestamp == window.end - 1


def test_known_windows() -> None:
    """The examples of Flink's ``TumblingEventTimeWindowsTest``."""
    assert TumblingEventTimeWindows.of(5000).starts([0, 4999, 5000]) == [0, 0, 5000]
    assert TumblingEventTimeWindows.of(5000, 100).starts([100, 5099, 5100]) == [100, 100, 5100]
    assert TumblingEventTimeWindows.of(5000, -100).starts([0, 4899, 4900]) == [-100, -100, 4900]
    assert TumblingEventTimeWindows.of(5000).window(5000) == TimeWindow(5000, 10000)


def test_cleanup_time_does_not_run_past_the_end_of_time() -> None:
    """A huge allowed lateness means "keep until the end", not an overflow."""
    assert TumblingEventTimeWindows.of(10).cleanup_time(0, 5) == 14
    assert TumblingEventTimeWindows.of(10).cleanup_time(0, MAX_TIMESTAMP_MS) == MAX_TIMESTAMP_MS


@pytest.mark.parametrize(
    ("size_ms", "offset_ms", "message"),
    [
        (0, 0, r"size_ms of windows is 0; it must be a whole number from 1"),
        (1.5, 0, r"size_ms of windows is 1\.5; it must be a whole number from 1"),
        (10, 10, r"the offset of windows must be an int smaller than their size of 10 ms, got 10"),
    ],
)
def test_impossible_windows_are_refused(size_ms: int, offset_ms: int, message: str) -> None:
    """Sizes and offsets that give no windows are errors of the job's author."""
    with pytest.raises(ConfigurationError, match=rf"^{message}$"):
        TumblingEventTimeWindows.of(size_ms, offset_ms)


@given(st.integers(-(10**15), 10**15), st.integers(1, 1000), st.integers(1, 1000), st.data())
def test_a_time_lies_in_every_sliding_window_that_holds_it(
    stamp: int, size_ms: int, slide_ms: int, data: st.DataObject
) -> None:
    """All windows that hold the time and no others, latest first; they start at offset plus multiples of the slide."""
    offset_ms = data.draw(st.integers(-slide_ms + 1, slide_ms - 1))
    assigner = SlidingEventTimeWindows.of(size_ms, slide_ms, offset_ms)

    starts = list(assigner.starts_of(stamp))

    near = range(stamp - size_ms - slide_ms, stamp + slide_ms + 1)
    expected = [one for one in near if (one - offset_ms) % slide_ms == 0 and one <= stamp < one + size_ms]
    assert starts == sorted(expected, reverse=True)
    assert assigner.assign(None, stamp, 0) == [assigner.window(start) for start in starts]


def test_known_sliding_windows() -> None:
    """The examples of Flink's ``SlidingEventTimeWindowsTest``."""
    assigner = SlidingEventTimeWindows.of(5000, 1000)
    assert sorted(assigner.assign("x", 4999, 0)) == [TimeWindow(start, start + 5000) for start in range(0, 5000, 1000)]
    assert sorted(assigner.assign("x", 5000, 0)) == [
        TimeWindow(start, start + 5000) for start in range(1000, 6000, 1000)
    ]
    shifted = SlidingEventTimeWindows.of(5000, 1000, -100)
    assert max(shifted.assign("x", 0, 0)) == TimeWindow(-100, 4900)
    assert (assigner.cleanup_time(0, 5), assigner.cleanup_time(0, MAX_TIMESTAMP_MS)) == (5004, MAX_TIMESTAMP_MS)


def test_processing_time_windows_go_by_the_clock() -> None:
    """The timestamp of the record does not matter; the record need not have one."""
    assert TumblingProcessingTimeWindows.of(10, 3).assign("x", 500, 27) == (TimeWindow(23, 33),)
    assert SlidingProcessingTimeWindows.of(10, 5).assign("x", None, 27) == [TimeWindow(25, 35), TimeWindow(20, 30)]
    assert ProcessingTimeSessionWindows.with_gap(4).assign("x", None, 27) == (TimeWindow(27, 31),)
    for assigner in (TumblingProcessingTimeWindows.of(1), ProcessingTimeSessionWindows.with_gap(1)):
        assert (assigner.is_event_time, assigner.needs_timestamps) == (False, False)
        assert isinstance(assigner.default_trigger(), ProcessingTimeTrigger)


def test_sessions_begin_with_a_window_of_one_gap() -> None:
    """The gap is fixed, or each record gives its own; an invalid gap is refused."""
    dynamic = EventTimeSessionWindows.with_dynamic_gap(lambda value: value)
    assert EventTimeSessionWindows.with_gap(10).assign("x", 5, 0) == (TimeWindow(5, 15),)
    assert dynamic.assign(3, 5, 0) == (TimeWindow(5, 8),)
    assert ProcessingTimeSessionWindows.with_dynamic_gap(len).assign("abc", 5, 100) == (TimeWindow(100, 103),)
    assert isinstance(dynamic.default_trigger(), EventTimeTrigger)
    for gap in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="the gap of sessions must be an int of at least 1 ms"):
            dynamic.assign(gap, 5, 0)


def test_time_windows_that_touch_intersect() -> None:
    """As in Flink the end of one window may be the start of another."""
    assert TimeWindow(0, 5).intersects(TimeWindow(5, 9))
    assert TimeWindow(5, 9).intersects(TimeWindow(0, 5))
    assert not TimeWindow(0, 5).intersects(TimeWindow(6, 9))
    assert TimeWindow(0, 5).cover(TimeWindow(3, 4)) == TimeWindow(0, 5)
    assert TimeWindow(3, 4).cover(TimeWindow(0, 3)) == TimeWindow(0, 4)


def test_the_global_window() -> None:
    """One window for all records, at the end of time, equal to itself; the assigner chooses its trigger."""
    assigner = GlobalWindows.create()
    (window,) = assigner.assign("x", None, 0)
    assert window == GlobalWindow() == assigner.window_of(assigner.namespace_of(window))
    assert (window.max_timestamp, repr(window)) == (MAX_TIMESTAMP_MS, "GlobalWindow()")
    assert len({window, GlobalWindow()}) == 1
    assert window != TimeWindow(0, 1)
    assert isinstance(assigner.default_trigger(), NeverTrigger)
    at_end = GlobalWindows.create_with_end_of_stream_trigger()
    assert isinstance(at_end.default_trigger(), EndOfStreamTrigger)
    assert at_end.spec() == assigner.spec()


def test_specs_tell_windows_apart() -> None:
    """A checkpoint contains the class and its numbers, and no function."""
    assigners = [
        TumblingEventTimeWindows.of(10),
        TumblingProcessingTimeWindows.of(10),
        TumblingProcessingTimeWindows.of(10, 1),
        SlidingEventTimeWindows.of(10, 5),
        SlidingEventTimeWindows.of(10, 2),
        EventTimeSessionWindows.with_gap(10),
        EventTimeSessionWindows.with_dynamic_gap(len),
        ProcessingTimeSessionWindows.with_gap(10),
        GlobalWindows.create(),
        WindowAssigner(),
    ]

    specs = [assigner.spec() for assigner in assigners]

    assert len(set(specs)) == len(specs)
    assert specs[3] == "SlidingEventTimeWindows(size_ms=10, slide_ms=5, offset_ms=0)"
    assert specs[6] == "EventTimeSessionWindows(dynamic gap)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlidingEventTimeWindows.of(0, 1), "size_ms of windows is 0; it must be a whole number from 1"),
        (lambda: SlidingEventTimeWindows.of(5, 0), "slide_ms of windows is 0; it must be a whole number from 1"),
        (lambda: SlidingProcessingTimeWindows.of(5, 2, 2), "must be an int smaller than their slide of 2 ms, got 2"),
        (lambda: EventTimeSessionWindows.with_gap(0), "gap_ms of sessions is 0; it must be a whole number from 1"),
        (lambda: EventTimeSessionWindows.with_dynamic_gap(5), "must be a function of the record, got 5"),
        (EventTimeSessionWindows, "sessions have one gap, with_gap"),
        (lambda: EventTimeSessionWindows(5, len), "sessions have one gap, with_gap"),
    ],
)
def test_other_impossible_windows_are_refused(make: Callable[[], object], message: str) -> None:
    """Numbers that give no windows are errors of the job's author."""
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_an_assigner_of_ones_own_must_assign() -> None:
    """The error of the base class names the missing method."""
    with pytest.raises(TypeError, match="WindowAssigner does not define assign"):
        WindowAssigner().assign(1, 2, 3)
