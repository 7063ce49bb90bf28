"""Jobs with a Spark transform whose function works on a list of dicts: it runs without Spark in both worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import CollectionSource, FileSink, Job, TumblingEventTimeWindows, WatermarkStrategy
from spark_bridge.cuts import Cut, Period, event_time_cut
from spark_bridge.transform import spark_transform

SPLITS = 3
EVENTS = [(position * 7 + split, position % 4, split) for position in range(240) for split in range(SPLITS)]
"""Event time in ms, key, split; the splits in turn."""

Row = dict[str, Any]


def _hundreds(timestamp_ms: int) -> Period:
    start_ms = timestamp_ms // 100 * 100
    return Period(start_ms, start_ms + 100, f"from {start_ms}")


HUNDREDS = event_time_cut(_hundreds)


def _row(event: tuple[int, int, int]) -> Row:
    return {"key": event[1], "time": event[0]}


def key_sums(rows: list[Row]) -> list[Row]:
    """Per key: how many rows, and the least and the sum of their times."""
    sums = []
    for key in sorted({row["key"] for row in rows}):
        times = [row["time"] for row in rows if row["key"] == key]
        sums.append({"key": key, "rows": len(times), "least": min(times), "sum": sum(times)})
    return sums


def key_sums_by_period(rows: list[Row]) -> list[Row]:
    """The same on rows of several periods, which a column tells apart."""
    sums: list[Row] = []
    for period in sorted({row["period"] for row in rows}):
        sums += [{"period": period, **one} for one in key_sums([row for row in rows if row["period"] == period])]
    return sums


def period_sums(
    parallelism: int = 2,
    *,
    bound_ms: int = 30,
    fn: Callable[[list[Row]], list[Row]] = key_sums,
    cut: Cut = HUNDREDS,
    splits: int = SPLITS,
    row: Callable[[Any], Row] = _row,
    cost_ns: int = 0,
    schema: str = "key int, time int",
    period_column: str | None = None,
) -> Job:
    """Sums per period of 100 ms, with the late rows beside them; then the same again per period of 300 ms, in a second
    transform and in a window."""
    job = Job("periods", parallelism=parallelism)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound_ms, lambda event: event[0]).with_interval_ns(20_000)
    events = job.source(CollectionSource(EVENTS, splits=splits), name="events", watermarks=strategy)
    rows = events.map(row, name="row")
    transform = spark_transform(fn, schema=schema, cut=cut, cost_ns=cost_ns, period_column=period_column)
    sums = rows.via(transform, name="sums")
    sums.map(dict, name="copy", parallelism=1).sink(FileSink("sums"), uid="sums-sink", parallelism=1)
    sums.side_output("late").sink(FileSink("late"), uid="late-sink")
    if not isinstance(cut, type(HUNDREDS)):
        return job
    again = spark_transform(
        lambda rows: [{"rows": sum(row["rows"] for row in rows)}],
        schema="key int, rows int, least int, sum int",
        cut=event_time_cut(lambda ms: Period(ms // 300 * 300, ms // 300 * 300 + 300, f"again {ms // 300}")),
    )
    sums.via(again, name="again").sink(FileSink("again"), uid="again-sink", parallelism=1)
    windows = sums.key_by(lambda row: row["key"]).window(TumblingEventTimeWindows.of(200))
    windows.reduce(lambda one, other: {**one, "rows": one["rows"] + other["rows"], "least": 0, "sum": 0}).sink(
        FileSink("windows"), uid="windows-sink"
    )
    return job
