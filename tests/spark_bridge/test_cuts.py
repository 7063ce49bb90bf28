"""Calendar periods tile time; other periods and arguments are checked."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from spark_bridge.cuts import BarrierCut, EventTimeCut, Period, RowsCut, barrier_cut, event_time_cut, rows_cut
from spark_bridge.errors import SparkBridgeError

# The fields of a date to replace in order to get the beginning of its period.
_HOUR = {"minute": 0, "second": 0, "microsecond": 0}
BEGINNING: dict[str, dict[str, Any]] = {
    "hour": _HOUR,
    "day": {"hour": 0, **_HOUR},
    "month": {"day": 1, "hour": 0, **_HOUR},
    "year": {"month": 1, "day": 1, "hour": 0, **_HOUR},
}
CALENDAR = tuple(BEGINNING)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_MS = 3_600_000


def ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    """A moment in ms since the epoch, in whole numbers."""
    return (datetime(year, month, day, hour, minute, second, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


FIRST_MS, END_MS = ms(1, 1, 1), ms(9999, 1, 1)
timestamps = st.integers(FIRST_MS, END_MS - 1)


def moment_of(timestamp_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)


@pytest.mark.parametrize("period", CALENDAR)
@given(timestamp_ms=timestamps)
@example(timestamp_ms=FIRST_MS)
@example(timestamp_ms=END_MS - 1)
@example(timestamp_ms=-1)
@example(timestamp_ms=0)
def test_every_timestamp_lies_in_its_period(period: str, timestamp_ms: int) -> None:
    """The period of a timestamp contains it, and starts where its hour, day, month or year does."""
    found = event_time_cut(period).period_at(timestamp_ms)

    assert found.start_ms <= timestamp_ms < found.end_ms
    assert moment_of(found.start_ms) == moment_of(timestamp_ms).replace(**BEGINNING[period])


@pytest.mark.parametrize("period", CALENDAR)
@given(timestamp_ms=timestamps)
def test_periods_tile_time(period: str, timestamp_ms: int) -> None:
    """The neighbours of a period begin where it ends and end where it begins: no gap, no overlap."""
    cut = event_time_cut(period)
    found = cut.period_at(timestamp_ms)

    assert cut.period_at(found.start_ms) == cut.period_at(found.end_ms - 1) == found
    if found.start_ms > FIRST_MS:
        assert cut.period_at(found.start_ms - 1).end_ms == found.start_ms
    if found.end_ms < END_MS:
        assert cut.period_at(found.end_ms).start_ms == found.end_ms


@given(timestamp_ms=timestamps)
def test_periods_have_the_length_of_the_calendar(timestamp_ms: int) -> None:
    """An hour and a day are always as long as that; a month and a year are as long as the calendar says."""
    lengths = {
        period: (found.end_ms - found.start_ms) // HOUR_MS
        for period in CALENDAR
        for found in (event_time_cut(period).period_at(timestamp_ms),)
    }

    moment = moment_of(timestamp_ms)
    days = [monthrange(moment.year, month)[1] for month in range(1, 13)]
    assert lengths == {"hour": 1, "day": 24, "month": days[moment.month - 1] * 24, "year": sum(days) * 24}


@pytest.mark.parametrize(
    ("period", "timestamp_ms", "start_ms", "end_ms", "label"),
    [
        ("hour", ms(2013, 1, 1, 5, 59, 59) + 999, ms(2013, 1, 1, 5), ms(2013, 1, 1, 6), "2013-01-01T05"),
        ("hour", ms(2013, 12, 31, 23), ms(2013, 12, 31, 23), ms(2014, 1, 1), "2013-12-31T23"),
        ("day", ms(2012, 2, 28, 23, 59), ms(2012, 2, 28), ms(2012, 2, 29), "2012-02-28"),
        ("day", ms(2013, 2, 28), ms(2013, 2, 28), ms(2013, 3, 1), "2013-02-28"),
        ("month", ms(2012, 2, 29, 23, 59, 59) + 999, ms(2012, 2, 1), ms(2012, 3, 1), "2012-02"),
        ("month", ms(2013, 1, 31), ms(2013, 1, 1), ms(2013, 2, 1), "2013-01"),
        ("month", ms(2013, 12, 31, 23, 59, 59) + 999, ms(2013, 12, 1), ms(2014, 1, 1), "2013-12"),
        ("month", ms(1900, 2, 28), ms(1900, 2, 1), ms(1900, 3, 1), "1900-02"),
        ("year", ms(2012, 2, 29), ms(2012, 1, 1), ms(2013, 1, 1), "2012"),
        ("year", ms(2013, 12, 31, 23, 59, 59) + 999, ms(2013, 1, 1), ms(2014, 1, 1), "2013"),
        # Before 1970: rounding towards zero would put these into the period after their own.
        ("hour", -1, -HOUR_MS, 0, "1969-12-31T23"),
        ("day", -1, -24 * HOUR_MS, 0, "1969-12-31"),
        ("month", -1, ms(1969, 12, 1), 0, "1969-12"),
        ("year", -1, ms(1969, 1, 1), 0, "1969"),
        ("hour", 0, 0, HOUR_MS, "1970-01-01T00"),
    ],
)
def test_periods_at_the_ends_of_months_and_years(
    period: str, timestamp_ms: int, start_ms: int, end_ms: int, label: str
) -> None:
    """Leap days, the last milliseconds of months and years, and times before 1970."""
    assert event_time_cut(period).period_at(timestamp_ms) == Period(start_ms, end_ms, label)


@pytest.mark.parametrize("period", CALENDAR)
@pytest.mark.parametrize("timestamp_ms", [FIRST_MS - 1, END_MS, 1_357_034_400_000_000_000, -(2**63), 2**63 - 1])
def test_a_time_outside_of_the_calendar_is_explained(period: str, timestamp_ms: int) -> None:
    """A timestamp outside of all dates (nanoseconds taken for milliseconds, say) is an error that says so."""
    with pytest.raises(SparkBridgeError, match=rf"event time {timestamp_ms} ms lies in no {period} .* milliseconds"):
        event_time_cut(period).period_at(timestamp_ms)


@given(st.integers(-(10**15), 10**15))
def test_a_function_gives_its_own_periods(timestamp_ms: int) -> None:
    """Any function from a timestamp to a period will do; its periods pass unchanged."""
    cut = event_time_cut(lambda time_ms: Period(time_ms // 7 * 7, time_ms // 7 * 7 + 7, "seven"))

    assert cut.period_at(timestamp_ms) == Period(timestamp_ms // 7 * 7, timestamp_ms // 7 * 7 + 7, "seven")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((0, 10, "x"), r"must be a Period\(start_ms, end_ms, label\), not \(0, 10, 'x'\)"),
        (None, "must be a Period"),
        (Period(0, 5, "x"), "event time 5 ms does not lie in the period"),
        (Period(6, 10, "x"), "event time 5 ms does not lie in the period"),
        (Period(5, 5, "x"), "event time 5 ms does not lie in the period"),
    ],
)
def test_a_period_that_is_none_is_refused(answer: object, problem: str) -> None:
    """The result of the function must be a period that contains the timestamp: start included, end excluded."""
    with pytest.raises(SparkBridgeError, match=problem):
        event_time_cut(lambda timestamp_ms: answer).period_at(5)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("period", ["week", "Month", "", 3, None, ["month"]])
def test_an_unknown_period_is_refused(period: object) -> None:
    """The error names the known periods."""
    with pytest.raises(SparkBridgeError, match=r"there is no period .* hour, day, month, year, or pass a function"):
        event_time_cut(period)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [0, -1, 2.5, True, "100", None])
def test_a_batch_has_a_whole_number_of_rows(rows: object) -> None:
    """A size that is no whole number of at least 1 is refused when the cut is made, not in the middle of a run."""
    with pytest.raises(SparkBridgeError, match="whole number of rows, at least 1"):
        rows_cut(rows)  # type: ignore[arg-type]


def test_cuts_are_plain_values() -> None:
    """The functions return them."""
    assert (rows_cut(1), rows_cut(500), barrier_cut()) == (RowsCut(1), RowsCut(500), BarrierCut())
    assert isinstance(event_time_cut("day"), EventTimeCut)
