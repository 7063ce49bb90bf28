"""Jobs whose state is kept in archives: every kind of keyed state before a file sink, or a count before any sink.

Archives hold the state of these jobs under these names, so the jobs never change; what is new gets a job of its own.
Only the front door of the engine is used (and the class of expiry settings), so that any version can run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from engine import (
    AggregateFunction,
    BucketingSink,
    BulkTextFormat,
    CompactionStrategy,
    DatabaseSink,
    DefaultRollingPolicy,
    DiskLog,
    EventTimeSessionWindows,
    FileSink,
    Job,
    JsonLinesRowFormat,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    LogSink,
    MapStateDescriptor,
    ParquetFormat,
    PartitionCommit,
    PartitionedFileSink,
    SequenceSource,
    SqliteDatabase,
    Stream,
    TableCompaction,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from state_backends.base import StateTtlConfig

KEYS = 5


class Everything(KeyedProcessFunction):
    """Value, list, map and reducing state, the same with expiry (in so long a time that nothing does), and timers."""

    def open(self, ctx: Any) -> None:
        day = StateTtlConfig(86_400_000)
        self.count = ctx.value_state("count", 0)
        self.recent = ctx.list_state("recent")
        self.planned = ctx.map_state("planned")
        self.highest = ctx.reducing_state("highest", max)
        self.lasting_count = ctx.value_state("lasting-count", 0, ttl=day)
        self.lasting_list = ctx.list_state("lasting-list", ttl=day)
        self.lasting_map = ctx.map_state("lasting-map", ttl=day)
        self.lasting_highest = ctx.reducing_state("lasting-highest", max, ttl=day)

    def process_element(self, value: int, ctx: Any) -> list[Any]:
        for count in (self.count, self.lasting_count):
            count.update(count.get() + 1)
        for recent in (self.recent, self.lasting_list):
            if len(tuple(recent.get() or ())) == 4:
                recent.clear()
            recent.add(value)
        for planned in (self.planned, self.lasting_map):
            planned.put(value + 30, f"from {value}")
            planned.remove(value)
        for highest in (self.highest, self.lasting_highest):
            highest.add(value % 17)
        ctx.register_event_time_timer(value + 30)
        if value % 9 == 0:
            ctx.delete_event_time_timer(value + 30)
        return [("seen", ctx.current_key, *self._state())]

    def on_timer(self, timestamp_ms: int, ctx: Any) -> list[Any]:
        return [("timer", ctx.current_key, timestamp_ms, *self._state())]

    def _state(self) -> list[Any]:
        counts = [self.count.get(), self.lasting_count.get()]
        lists = [list(kept.get() or ()) for kept in (self.recent, self.lasting_list)]
        maps = [sorted(kept.entries())[::8] for kept in (self.planned, self.lasting_map)]
        return [counts, lists, maps, [self.highest.get(), self.lasting_highest.get()]]


class Rules(KeyedBroadcastProcessFunction):
    """Keeps rules in broadcast state, and says how many there are after each one."""

    def process_element(self, value: int, ctx: Any) -> list[Any]:
        """Records race with rules, so no row follows from them."""
        return []

    def process_broadcast_element(self, value: int, ctx: Any) -> list[Any]:
        rules = ctx.broadcast_state("rules")
        rules.put(value, f"rule {value}")
        return [("rule", value, len(list(rules.entries())))]


def job(sink: str = "", records: str = "60") -> Job:
    """With ``sink``, one of :data:`SINKS`: counts before that sink. Without: every kind of state before files."""
    return _counts(sink, int(records)) if sink else _states(int(records))


def _states(records: int) -> Job:
    made = Job("states", parallelism=2, max_parallelism=8)
    strategy = WatermarkStrategy.for_monotonous_timestamps(_same).with_interval_ns(1_000)
    numbers = made.source(SequenceSource(0, records), name="numbers", uid="numbers", watermarks=strategy, parallelism=1)
    keyed = numbers.key_by(lambda number: number * 7 % KEYS)
    everything = keyed.process(Everything(), name="everything", uid="everything")
    latest = AggregateFunction(lambda: (), lambda seen, number: (*seen, number)[-3:], _same)
    windows = keyed.window(TumblingEventTimeWindows.of(16)).aggregate(latest, name="windows", uid="windows")
    sessions = (
        numbers.filter(lambda number: number % 20 < 12, name="bursts", uid="bursts")
        .key_by(lambda number: number % 2)
        .window(EventTimeSessionWindows.with_gap(5))
        .process(_whole, name="sessions", uid="sessions")
    )
    summed = keyed.reduce(lambda one, other: one + other, name="summed", uid="summed")
    rules = numbers.filter(lambda number: number % 7 == 0, name="rules", uid="rules")
    ruled = keyed.connect(rules.broadcast(MapStateDescriptor("rules"))).process(Rules(), name="ruled", uid="ruled")
    outputs = [
        ("ruled", ruled),
        ("everything", everything),
        ("windows", windows),
        ("sessions", sessions),
        ("summed", summed),
    ]
    for name, rows in outputs:
        policy = DefaultRollingPolicy(max_part_size_bytes=400)
        rows.sink(FileSink(f"rows/{name}", rolling_policy=policy), name=f"{name}-rows", uid=f"{name}-rows")
    return made


def _whole(key: Any, window: Any, values: Iterable[int]) -> list[Any]:
    return [("session", key, window.start, window.end, tuple(values))]


def _same(value: Any) -> Any:
    return value


def _partition(row: tuple[str, int]) -> str:
    return f"key={row[0]}"


def _as_dict(row: tuple[str, int]) -> dict[str, Any]:
    return {"key": row[0], "count": row[1]}


def _parquet() -> ParquetFormat:
    import pyarrow

    return ParquetFormat(pyarrow.schema([("key", pyarrow.string()), ("count", pyarrow.int64())]))


SINKS: Mapping[str, Callable[[], Any]] = {
    "files": lambda: FileSink("rows", bucket=_partition),
    "files-open": lambda: FileSink("rows", rolling_policy=DefaultRollingPolicy(max_part_size_bytes=60)),
    "files-copied": lambda: FileSink("rows", rolling_policy=DefaultRollingPolicy(), resumes=False),
    "gzip": lambda: FileSink("rows", format=BulkTextFormat(JsonLinesRowFormat()), suffix=".gz"),
    "parquet": lambda: FileSink("rows", format=_parquet(), suffix=".parquet"),
    "committing": lambda: FileSink("rows", bucket=_partition).with_committer(),
    "committing-open": lambda: FileSink("rows", rolling_policy=DefaultRollingPolicy()).with_committer(),
    "compacting": lambda: FileSink("rows", bucket=_partition).compacting(CompactionStrategy(checkpoints=2)),
    "bucketing": lambda: BucketingSink("rows", bucketer=_partition, batch_size_bytes=40),
    "bucketing-lengths": lambda: BucketingSink("rows", batch_size_bytes=60, use_truncate=False),
    "partitions": lambda: PartitionedFileSink("rows", partition_by=("key",), commit=PartitionCommit()),
    "partitions-compacted": lambda: PartitionedFileSink(
        "rows", partition_by=("key",), commit=PartitionCommit(), compaction=TableCompaction(60)
    ),
    "disk-log": lambda: LogSink("rows", log=DiskLog("log", segment_bytes=200, journal_bytes=400)),
    "sqlite": lambda: DatabaseSink(
        SqliteDatabase("rows.sqlite"), "rows", {"key": "TEXT", "count": "INTEGER"}, batch_rows=2
    ),
}
"""Not the staged sinks: their state names absolute paths, so that it cannot be unpacked elsewhere."""
TAKES_DICTS = {"parquet", "partitions", "partitions-compacted"}


def _counts(sink: str, records: int) -> Job:
    made = Job(f"sink-{sink}", parallelism=2, max_parallelism=8)
    numbers = made.source(SequenceSource(0, records), name="numbers", uid="numbers", parallelism=1)
    ones = numbers.key_by(lambda number: "abcd"[number % 4], value=lambda number: ("abcd"[number % 4], 1))
    rows: Stream = ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count")
    if sink in TAKES_DICTS:
        rows = rows.map(_as_dict, name="dict", uid="dict")
    return rows.rebalance().sink(SINKS[sink](), name="out", uid="out")
