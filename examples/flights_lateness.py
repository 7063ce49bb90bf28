"""How many flights a tighter bound would lose: the same stream under a bound of 6 h instead of 22 h.

Two counts, because "late" has two meanings. *Behind the bound*: the flight is more than 6 h older than the newest
one before it in its split, so the watermark of that split has passed it. *Dropped by the windows*: the watermark over
all splits has passed its day. This is rarer, because the slowest split holds that watermark back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine import (
    CsvFormat,
    FileSource,
    Job,
    KeyedProcessFunction,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    aggregates,
)
from examples.flights_data import FLIGHT_COLUMNS, FLIGHT_TYPES, FlightFiles

_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Lateness:
    """The cost of a bound."""

    bound_hours: int
    behind_the_bound: int
    dropped_by_windows: int


class BehindTheBound(KeyedProcessFunction):
    """Emits each flight that is more than a bound older than the newest flight of its split before it."""

    def __init__(self, bound_ms: int) -> None:
        self._bound_ms = bound_ms

    def open(self, ctx: Any) -> None:
        """Declare the state: the newest event time of the split."""
        self._newest = ctx.value_state("newest", 0)

    def process_element(self, value: dict[str, Any], ctx: Any) -> Iterable[dict[str, Any]]:
        """Compare with the newest time, then update it."""
        newest, time_ms = self._newest.get(), value["event_time_ms"]
        if time_ms > newest:
            self._newest.update(time_ms)
        return (value,) if time_ms < newest - self._bound_ms else ()


def lateness_job(files: FlightFiles, bound_hours: int, behind: list[Any], dropped: list[Any]) -> Job:
    """Collects late flights in two lists."""
    bound_ms = bound_hours * _HOUR_MS
    job = Job("flights-lateness")
    flights = job.source(
        FileSource(files.splits, CsvFormat(FLIGHT_COLUMNS, types=FLIGHT_TYPES, null_values=("",))),
        name="flights",
        parallelism=3,
        watermarks=WatermarkStrategy.for_bounded_out_of_orderness(bound_ms, lambda flight: flight["event_time_ms"]),
    )
    by_split = flights.key_by(lambda flight: flight["origin"])
    by_split.process(BehindTheBound(bound_ms), name="behind-the-bound").collect(behind)
    days = by_split.window(TumblingEventTimeWindows.of(24 * _HOUR_MS)).side_output_late("late")
    per_day = days.aggregate(aggregates.count(), name="per-day")
    per_day.collect([], name="on-time")
    per_day.side_output("late").collect(dropped, name="late")
    return job


def measure_lateness(files: FlightFiles, bound_hours: int) -> Lateness:
    """Run the job to its end."""
    behind: list[Any] = []
    dropped: list[Any] = []
    lateness_job(files, bound_hours, behind, dropped).run(mode="none")
    return Lateness(bound_hours, len(behind), len(dropped))
