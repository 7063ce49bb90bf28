"""One small job for each kind of operator and source. A stream has one source subtask for each of its inputs, so that
the records of a key keep their order, and no output depends on which channel is quicker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from engine import (
    CollectionSource,
    ColumnSource,
    CountTrigger,
    CsvFormat,
    EventTimeSessionWindows,
    FileSink,
    FileSource,
    GlobalWindows,
    Job,
    JsonLinesFormat,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    LogSource,
    Pattern,
    Pause,
    SlidingEventTimeWindows,
    Stream,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    greatest,
    mean_of,
    record_count,
    sum_of,
)
from operators.basic import KeyedBroadcastProcessFunction
from operators.log.disk import DiskTransactionLog
from operators.windows import ContinuousEventTimeTrigger, PurgingTrigger
from state_backends import LocalFileSystem

READINGS = [(f"k{number % 4}", number * 10 + number % 3 * 7, number % 11) for number in range(300)]
"""A key, an event time in ms that is out of order by 20 at most, and a value."""
IN_TIME = WatermarkStrategy.for_bounded_out_of_orderness(20, lambda reading: reading[1])

FIVE = PurgingTrigger.of(CountTrigger.of(5))
GREATEST = greatest(2, by=lambda reading: reading[2:0:-1])
SPANS = TumblingEventTimeWindows.of(60)

Rows = Callable[[Stream], Stream]


def _key(reading: Any) -> Any:
    return reading[0]


def _key_and_value(reading: Any) -> Any:
    return reading[0], reading[2]


def _both(left: Any, right: Any) -> Any:
    return left, right


def _job(name: str) -> Job:
    return Job(name, parallelism=2, max_parallelism=8)


def _readings(job: Job, name: str = "readings", rows: Iterable[Any] = READINGS) -> Stream:
    return job.source(CollectionSource(list(rows)), name=name, parallelism=1, watermarks=IN_TIME)


def _on_readings(build: Rows) -> Callable[[Path], Job]:
    def made(_directory: Path) -> Job:
        job = _job("readings")
        return build(_readings(job)).sink(FileSink("rows"), name="out", uid="out")

    return made


def _on_two(build: Callable[[Stream, Stream], Stream]) -> Callable[[Path], Job]:
    def made(_directory: Path) -> Job:
        job = _job("two")
        left = _readings(job, "left", READINGS[::2])
        right = _readings(job, "right", [(key, at + 3, value) for key, at, value in READINGS[1::3]])
        return build(left, right).sink(FileSink("rows"), name="out", uid="out")

    return made


def _window(key: str, window: Any, readings: Iterable[Any]) -> list[Any]:
    return [(key, repr(window), sorted(value for _, _, value in readings))]


# -- functions --------------------------------------------------------------------------------------------------------


class Distances(KeyedProcessFunction):
    """The time between two records of a key, and a timer in event time that says when a key is silent."""

    def open(self, ctx: Any) -> None:
        self.last = ctx.value_state("last")

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        last = self.last.get()
        self.last.update(value[1])
        ctx.register_event_time_timer(value[1] + 35)
        return [] if last is None else [(value[0], value[1] - last)]

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        return [("silent", ctx.current_key, timestamp_ms)] if self.last.get() + 35 == timestamp_ms else []


class Pairs(KeyedCoProcessFunction):
    """Each value of the left with the times that it comes on the right: complete at the end of event time."""

    def open(self, ctx: Any) -> None:
        self.left, self.right = ctx.list_state("left"), ctx.list_state("right")

    def process_element1(self, value: Any, ctx: Any) -> list[Any]:
        self.left.add(value[2])
        ctx.register_event_time_timer(2_900)
        return []

    def process_element2(self, value: Any, ctx: Any) -> list[Any]:
        self.right.add(value[2])
        return []

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        right = list(self.right.get() or ())
        return [(ctx.current_key, value, right.count(value)) for value in sorted(self.left.get() or ())]


class Limits(KeyedBroadcastProcessFunction):
    """Each value with the limit of its key, which may come before or after it."""

    def open(self, ctx: Any) -> None:
        self.early = ctx.list_state("early")

    def process_element(self, value: Any, ctx: Any) -> list[Any]:
        limit = ctx.broadcast_state("limits").get(value[0])
        if limit is None:
            self.early.add(value[2])
            return []
        values = [*(self.early.get() or ()), value[2]]
        self.early.clear()
        return [(value[0], one, limit) for one in values]

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        ctx.broadcast_state("limits").put(*value)


def limits(_directory: Path) -> Job:
    """A broadcast state that is there before the last record of each key."""
    job = _job("limits")
    records = [*READINGS, Pause(10), *((f"k{number}", 9_000, 99) for number in range(4))]
    payments = job.source(CollectionSource(records), name="payments", parallelism=1)
    rules = job.source(
        CollectionSource([(f"k{number}", number * 3) for number in range(4)]), name="rules", parallelism=1
    )
    limited = payments.key_by(_key).connect(rules.broadcast("limits")).process(Limits(), name="limit")
    return limited.sink(FileSink("rows"), name="out", uid="out")


def _sides(readings: Stream) -> Stream:
    keyed = readings.key_by(_key).window(TumblingEventTimeWindows.of(100)).side_output_late("late")
    windows = keyed.process(_window, name="windows")
    return windows.union(windows.side_output("late").map(lambda reading: ("late", *reading), name="late"))


# -- patterns, ranking ------------------------------------------------------------------------------------------------

RISING = (
    Pattern.begin("low", skip="skip_past_last_event")
    .where(lambda reading: reading[2] < 4)
    .one_or_more()
    .followed_by("high")
    .where(lambda reading: reading[2] > 8)
    .within(200)
)


def _risen(readings: Stream) -> Stream:
    matches = readings.key_by(_key).pattern(RISING, timeout_tag="too slow")
    found = matches.map(lambda match: ("found", sorted((name, repr(one)) for name, one in match.items())), name="found")
    return found.union(matches.side_output("too slow").map(lambda match: ("slow", repr(match)), name="slow"))


# -- columns and sources ----------------------------------------------------------------------------------------------


def _columns(**options: Any) -> ColumnSource:
    keys, times, values = map(list, zip(*READINGS, strict=True))
    return ColumnSource({"key": keys, "at": times, "value": values}, **options)


def column_sums(_directory: Path) -> Job:
    """Filter, map, keyed sums and back to rows."""
    job = _job("columns")
    rows = job.source(_columns(), name="columns", parallelism=1).filter_columns(lambda c: c["value"] > 2)
    twice = rows.map_columns(lambda c: {"key": c["key"], "twice": c["value"] * 2})
    sums = twice.key_by_column("key").aggregate_columns({"sum": sum_of("twice"), "count": record_count()})
    return sums.to_rows("key", "count", "sum").sink(FileSink("rows"), name="out", uid="out")


def column_windows(_directory: Path) -> Job:
    """Windows on columns, by their own times."""
    job = _job("column-windows")
    times = WatermarkStrategy.for_bounded_out_of_orderness(20)
    rows = job.source(_columns(timestamps="at"), name="columns", parallelism=1, watermarks=times)
    windows = rows.key_by_column("key").window(SlidingEventTimeWindows.of(200, 100))
    means = windows.aggregate_columns({"count": record_count(), "mean": mean_of("value")})
    return means.to_rows().sink(FileSink("rows"), name="out", uid="out")


def files(directory: Path) -> Job:
    """CSV and JSON Lines, split by a coordinator, each with more splits than subtasks."""
    directory.mkdir(parents=True, exist_ok=True)
    for part in range(3):
        rows = READINGS[part * 100 : (part + 1) * 100]
        (directory / f"{part}.csv").write_text(
            "key,at,value\n" + "".join(f"{key},{at},{value}\n" for key, at, value in rows)
        )
        (directory / f"{part}.jsonl").write_text(
            "".join(json.dumps({"key": key, "value": one}) + "\n" for key, _, one in rows)
        )
    job = _job("files")
    types = {"at": int, "value": int}
    table = job.source(FileSource(str(directory / "*.csv"), CsvFormat(("key", "at", "value"), types=types)), name="csv")
    lines = job.source(FileSource(str(directory / "*.jsonl"), JsonLinesFormat()), name="lines")
    pairs = table.map(lambda row: (row["key"], row["value"])).union(lines.map(lambda row: (row["key"], row["value"])))
    return pairs.sink(FileSink("rows"), name="out", uid="out")


def log(directory: Path) -> Job:
    """A log with three partitions."""
    if not directory.exists():
        written = DiskTransactionLog(LocalFileSystem(), str(directory))
        written.create_topic("readings", 3)
        for number, reading in enumerate(READINGS):
            written.append(None, "readings", number % 3, [reading], 0, 0)
        written.close()
    job = _job("log")
    read = job.source(LogSource(str(directory), "readings"), name="log")
    return read.rebalance().map(lambda reading: reading[2]).sink(FileSink("rows"), name="out", uid="out")


def partitioners(_directory: Path) -> Job:
    """Every way from one subtask to another."""
    job = _job("partitioners")
    numbers = job.source(CollectionSource(range(320), splits=2), name="numbers")
    ways = {
        "rebalance": numbers.rebalance(),
        "rescale": numbers.rescale(),
        "global": numbers.global_(),
        "broadcast": numbers.broadcast(),
        "custom": numbers.partition_custom(lambda number, count: number % count),
        "forward": numbers.forward(),
    }
    rows = [stream.map(lambda number, way=way: (way, number), name=way) for way, stream in ways.items()]
    return rows[0].union(*rows[1:]).sink(FileSink("rows"), name="out", uid="out")


def _first(readings: Stream) -> Stream:
    return readings.key_by(_key_and_value).deduplicate("first", time="event", append_only=True)


ALL: dict[str, Callable[[Path], Job]] = {
    "tumbling": _on_readings(lambda s: s.key_by(_key).window(TumblingEventTimeWindows.of(100)).process(_window)),
    "sliding": _on_readings(lambda s: s.key_by(_key).window(SlidingEventTimeWindows.of(100, 50)).process(_window)),
    "session": _on_readings(lambda s: s.key_by(_key).window(EventTimeSessionWindows.with_gap(40)).process(_window)),
    "window of all keys": _on_readings(
        lambda s: s.window_all(TumblingEventTimeWindows.of(100)).reduce(lambda one, two: ("", 0, one[2] + two[2]))
    ),
    "count": _on_readings(lambda s: s.key_by(_key).count_window(7).process(_window)),
    "sliding count": _on_readings(lambda s: s.key_by(_key).count_window(6, 4).process(_window)),
    "global with trigger": _on_readings(
        lambda s: s.key_by(_key).window(GlobalWindows.create()).trigger(FIVE).process(_window)
    ),
    "end of stream": _on_readings(
        lambda s: s.key_by(_key).window(GlobalWindows.create_with_end_of_stream_trigger()).process(_window)
    ),
    "continuous": _on_readings(
        lambda s: s.key_by(_key).window(TumblingEventTimeWindows.of(400))
        .trigger(ContinuousEventTimeTrigger.of(400)).process(_window)
    ),
    "late side": _on_readings(_sides),
    "process and timers": _on_readings(lambda s: s.key_by(_key).process(Distances(), name="distances")),
    "window join": _on_two(
        lambda a, b: a.join(b).where(_key).equal_to(_key).window(SPANS).apply(_both)
    ),
    "co-group": _on_two(
        lambda a, b: a.co_group(b).where(_key).equal_to(_key).window(SPANS)
        .apply(lambda xs, ys: [(sorted(xs), sorted(ys))])
    ),
    "interval join": _on_two(
        lambda a, b: a.key_by(_key).interval_join(b.key_by(_key)).between(-30, 30).apply(_both)
    ),
    "regular join": _on_two(lambda a, b: a.connect(b).key_by(_key_and_value, _key_and_value).join("inner")),
    "co-process": _on_two(lambda a, b: a.connect(b).key_by(_key, _key).process(Pairs(), name="pairs")),
    "broadcast": limits,
    "pattern": _on_readings(_risen),
    "top": _on_readings(lambda s: s.key_by(_key).top_n(3, by=lambda reading: (reading[2], reading[1]))),
    "first of each": _on_readings(_first),
    "greatest of a window": _on_readings(
        lambda s: s.key_by(_key).window(TumblingEventTimeWindows.of(200)).aggregate(GREATEST)
    ),
    "columns": column_sums,
    "windows on columns": column_windows,
    "files": files,
    "log": log,
    "partitioners": partitioners,
}  # fmt: skip
"""By name: makes the job; a source that needs input makes it in the directory."""
