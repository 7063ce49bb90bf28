"""Where a stream is cut into the batches that Spark works on.

A batch that has to be the same after a crash must be a function of the data: :func:`event_time_cut` closes a period
of event time when the watermark has passed it, so its rows are those of the period, whatever the schedule was. The
other cuts depend on where the stream stood when they fell:

* :func:`rows_cut` is stable as long as the replayed input arrives in the same order (one channel, or a deterministic
  source); with several inputs the same rows may fall into other batches after a restart.
* :func:`barrier_cut` makes a batch of what came between two checkpoints, so nothing is buffered in state; batches
  then depend on when checkpoints were taken, which an aborted or restored checkpoint changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_DAY_MS = 86_400_000
_PERIODS = ("hour", "day", "month", "year")


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


@dataclass(frozen=True, slots=True)
class RowsCut:
    """A batch whenever ``rows`` rows are there; what remains at the end is the last batch."""

    rows: int


@dataclass(frozen=True, slots=True)
class BarrierCut:
    """A batch of everything between two checkpoints, drained right before the barrier."""


Cut = EventTimeCut | RowsCut | BarrierCut


def event_time_cut(period: str | Callable[[int], Period]) -> EventTimeCut:
    """Cut by calendar ``'hour'``, ``'day'``, ``'month'`` or ``'year'`` (UTC), or by a function of the timestamp."""
    if callable(period):
        return EventTimeCut(period)
    if period not in _PERIODS:
        raise ValueError(
            f"there is no period {period!r}; choose one of {', '.join(_PERIODS)}, or pass a function"
        )
    return EventTimeCut(lambda timestamp_ms: _calendar_period(timestamp_ms, period))


def rows_cut(rows: int) -> RowsCut:
    """Cut every ``rows`` rows."""
    if rows < 1:
        raise ValueError(f"a batch has at least 1 row, not {rows}")
    return RowsCut(rows)


def barrier_cut() -> BarrierCut:
    """Cut at every checkpoint barrier."""
    return BarrierCut()


def _calendar_period(timestamp_ms: int, period: str) -> Period:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    if period == "hour":
        start = moment.replace(minute=0, second=0, microsecond=0)
        return _period(start, start + timedelta(hours=1), f"{start:%Y-%m-%dT%H}")
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return _period(start, start + timedelta(days=1), f"{start:%Y-%m-%d}")
    if period == "month":
        start = start.replace(day=1)
        return _period(start, (start + timedelta(days=32)).replace(day=1), f"{start:%Y-%m}")
    start = start.replace(month=1, day=1)
    return _period(start, start.replace(year=start.year + 1), f"{start:%Y}")


def _period(start: datetime, end: datetime, label: str) -> Period:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    millisecond = timedelta(milliseconds=1)
    return Period((start - epoch) // millisecond, (end - epoch) // millisecond, label)
