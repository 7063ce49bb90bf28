"""Assignment of timestamps to tumbling windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.elements.batch import MAX_TIMESTAMP_MS
from engine.elements.errors import ConfigurationError
from operators.windows import TimeWindow, TumblingEventTimeWindows


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
        (0, 0, r"the size of a window must be an int of at least 1 ms, got 0"),
        (1.5, 0, r"the size of a window must be an int of at least 1 ms, got 1\.5"),
        (10, 10, r"the offset of windows must be an int smaller than their size of 10 ms, got 10"),
    ],
)
def test_impossible_windows_are_refused(size_ms: int, offset_ms: int, message: str) -> None:
    """Sizes and offsets that make no windows are errors of the job's author."""
    with pytest.raises(ConfigurationError, match=rf"^{message}$"):
        TumblingEventTimeWindows.of(size_ms, offset_ms)
