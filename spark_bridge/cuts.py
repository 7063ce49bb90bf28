"""The places where a stream is cut into the batches that Spark works on.

A batch that must be the same after a crash must be a function of the data. :func:`event_time_cut` closes a period
of event time when the watermark has passed it, so its rows are those of the period, whatever the schedule was. The
other cuts depend on the position of the stream when they fall:

* :func:`rows_cut` is stable as long as the replayed input arrives in the same order (one channel, or a deterministic
  source); with several inputs the same rows may fall into other batches after a restart.
* :func:`barrier_cut` makes a batch of the rows between two checkpoints, so no rows are buffered in state. Batches
  then depend on when checkpoints were taken, and an aborted or restored checkpoint changes that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spark_bridge.errors import SparkBridgeError

_PERIODS = ("hour", "day", "month", "year")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# The last year is left out: the end of its periods is a moment that Python's calendar does not have.
_CALENDAR_START_MS = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
_CALENDAR_END_MS = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of event time: ``start_ms <= timestamp < end_ms``, with a name for messages."""

    start_ms: int
    end_ms: int
    label: str


@dataclass(frozen=True, slots=True)
class EventTimeCut:
    """One batch per period of event time, closed by the watermark."""

    period_of: Callable[[int], Period]

    def period_at(self, timestamp_ms: int) -> Period:
        """The period that ``timestamp_ms`` lies in.

        Raises ``SparkBridgeError`` unless ``period_of`` returns a period with ``timestamp_ms``: rows would otherwise
        wait in a period that their own watermark does not close.
        """
        period = self.period_of(timestamp_ms)
        if not isinstance(period, Period):
            raise SparkBridgeError(
                f"the period of an event time must be a Period(start_ms, end_ms, label), not {period!r}: return one "
                "from the function given to event_time_cut"
            )
        if not period.start_ms <= timestamp_ms < period.end_ms:
            raise SparkBridgeError(
                f"event time {timestamp_ms} ms does not lie in the period it was given, {period}: return the period "
                "with start_ms <= timestamp < end_ms"
            )
        return period


@dataclass(frozen=True, slots=True)
class RowsCut:
    """A batch after every ``rows`` rows; the rest at the end is the last batch."""

    rows: int


@dataclass(frozen=True, slots=True)
class BarrierCut:
    """A batch of all rows between two checkpoints, run right before the barrier."""


Cut = EventTimeCut | RowsCut | BarrierCut


def event_time_cut(period: str | Callable[[int], Period]) -> EventTimeCut:
    """Cut by calendar ``'hour'``, ``'day'``, ``'month'`` or ``'year'`` (UTC), or by a function of the timestamp in ms.

    The periods of a function must not overlap. Those of the calendar exist from year 1 to 9998.

    Raises ``SparkBridgeError`` for an unknown period.
    """
    if callable(period):
        return EventTimeCut(period)
    if period not in _PERIODS:
        raise SparkBridgeError(
            f"there is no period {period!r}: choose one of {', '.join(_PERIODS)}, or pass a function"
        )
    return EventTimeCut(lambda timestamp_ms: _calendar_period(timestamp_ms, period))


def rows_cut(rows: int) -> RowsCut:
    """Cut every ``rows`` rows. Raises ``SparkBridgeError`` unless that is a whole number of at least 1."""
    if type(rows) is not int or rows < 1:
        raise SparkBridgeError(f"rows_cut: a batch has a whole number of rows, at least 1, not {rows!r}")
    return RowsCut(rows)


def barrier_cut() -> BarrierCut:
    """Cut at every checkpoint barrier."""
    return BarrierCut()


def _calendar_period(timestamp_ms: int, period: str) -> Period:
    if not _CALENDAR_START_MS <= timestamp_ms < _CALENDAR_END_MS:
        raise SparkBridgeError(
            f"event time {timestamp_ms} ms lies in no {period} of the years 1 to 9998: timestamps are milliseconds "
            "since 1970, so convert microseconds or nanoseconds first"
        )
    # Integers throughout: floats would shift moments far from 1970 by milliseconds.
    moment = _EPOCH + timestamp_ms * _MILLISECOND
    if period == "hour":
        start = moment.replace(minute=0, second=0, microsecond=0)
        return _period(start, start + timedelta(hours=1), f"{start:%Y-%m-%dT%H}")
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return _period(start, start + timedelta(days=1), f"{start:%Y-%m-%d}")
    if period == "month":
        start = start.replace(day=1)
        # 32 days after the first of any month lie in the next month.
        return _period(start, (start + timedelta(days=32)).replace(day=1), f"{start:%Y-%m}")
    start = start.replace(month=1, day=1)
    return _period(start, start.replace(year=start.year + 1), f"{start:%Y}")


def _period(start: datetime, end: datetime, label: str) -> Period:
    return Period((start - _EPOCH) // _MILLISECOND, (end - _EPOCH) // _MILLISECOND, label)
