"""One job for every sink: two sources, two keyed counters, and the sink that you name, made for searches.

Search a sink for a crash that loses or repeats a row, or shows one too early::

    weir explore examples/sinks.py --param sink=compacting --runs 500
    weir explore examples/sinks.py --param sink=partition-time --mode at-least-once --promise exactly-once

Rows are ``(key, how many so far)``, as in ``standard_scenario.py``: the same in any order of the records. For
tables announced by event time, rows are times instead, so that an announcement can be compared with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine import (
    AvroFormat,
    AvroWriter,
    BucketingSink,
    BulkTextFormat,
    CollectedResults,
    CollectSink,
    CompactionStrategy,
    ConfigurationError,
    DatabaseSink,
    DefaultPartitionTimeExtractor,
    DefaultRollingPolicy,
    DiskLog,
    FileSink,
    Job,
    JsonLinesRowFormat,
    LogSink,
    MemoryDatabase,
    MetastorePolicy,
    OrcFormat,
    ParquetFormat,
    PartitionCommit,
    PartitionedFileSink,
    SequenceSource,
    SequenceWriter,
    StagedFileSink,
    Stream,
    SuccessFilePolicy,
    TableCompaction,
    UpsertSink,
    WatermarkStrategy,
    table_sink,
)
from operators.table.partitions import MemoryMetastore
from spark_bridge.sinks import DataFrameSink, ForeachBatchSink, MemoryDeltaLog

RECORDS = 48
KEYS = "abcd"
MINUTE_MS = 60_000
MIDNIGHT_MS = 1_588_464_000_000
"""2020-05-03 00:00 UTC."""
MINUTES_APART = 5
"""Between one record and the next: twelve of them are an hour, which is a partition."""

SCENARIO = {
    "batch_size": 3,
    "channel_capacity": 8,
    "checkpoint_interval": "11rec",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "aligned_timeout_ns": 2_000,
    "cost.record_ns": 400,
    "promises": {
        "aligned": "exactly-once",
        "unaligned": "exactly-once",
        "aligned-timeout": "exactly-once",
        "at-least-once": "at-least-once",
    },
}

Row = tuple[str, int]


def _first(row: Row) -> str:
    return f"key={row[0]}"


def _as_dict(row: Row) -> dict[str, Any]:
    return {"key": row[0], "count": row[1]}


def _is_first(number: int) -> str:
    return KEYS[number % len(KEYS)]


def _hourly(policies: tuple[Any, ...]) -> PartitionCommit:
    return PartitionCommit(
        "partition-time",
        delay_ms=60 * MINUTE_MS,
        policies=policies,
        extractor=DefaultPartitionTimeExtractor("$day $hour:00:00"),
    )


def _listed(*columns: str) -> MetastorePolicy:
    metastore = MemoryMetastore()
    metastore.create_table("rows", columns)
    return MetastorePolicy(metastore, "rows")


_TYPES = {"key": str, "count": int}
_AVRO_TABLE = {
    "connector": "filesystem", "path": "rows", "format": "avro", "partition.keys": "key", "auto-compaction": "true",
    "compaction.file-size": "100 b", "sink.shuffle-by-partition.enable": "true",
    "sink.partition-commit.policy.kind": "success-file",
}  # fmt: skip
_RAW_TABLE = {
    "connector": "filesystem", "path": "rows", "format": "raw", "partition.keys": "key",
    "sink.rolling-policy.file-size": "12 b", "sink.partition-commit.policy.kind": "success-file",
}  # fmt: skip


def _parquet() -> ParquetFormat:
    return ParquetFormat(_TYPES, row_group_rows=3)


class BatchesById(ForeachBatchSink):
    """The function of this sink keeps each batch under its checkpoint: one that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        super().__init__(lambda rows, checkpoint_id: self.batches.update({checkpoint_id: rows}))

    def fresh(self) -> BatchesById:
        """Another one, with nothing in it."""
        return BatchesById()

    def committed_rows(self) -> list[str]:
        """What the function has kept."""
        return [repr(tuple(row)) for _, rows in sorted(self.batches.items()) for row in rows]


SINKS: Mapping[str, Callable[[], Any]] = {
    "collect": lambda: CollectSink(CollectedResults()),
    "files": lambda: FileSink("rows", bucket=_first),
    "files-open": lambda: FileSink("rows", rolling_policy=DefaultRollingPolicy(max_part_size_bytes=60)),
    "files-copied": lambda: FileSink("rows", rolling_policy=DefaultRollingPolicy(), resumes=False),
    "gzip": lambda: FileSink("rows", format=BulkTextFormat(JsonLinesRowFormat()), suffix=".gz"),
    "parquet": lambda: FileSink("rows", format=_parquet(), suffix=".parquet"),
    "committing": lambda: FileSink("rows", bucket=_first).with_committer(),
    "committing-open": lambda: FileSink("rows", rolling_policy=DefaultRollingPolicy()).with_committer(),
    "compacting": lambda: FileSink("rows", bucket=_first).compacting(CompactionStrategy(checkpoints=2)),
    "bucketing": lambda: BucketingSink("rows", bucketer=_first, batch_size_bytes=40),
    "bucketing-lengths": lambda: BucketingSink("rows", batch_size_bytes=60, use_truncate=False),
    "avro": lambda: FileSink("rows", format=AvroFormat(_TYPES, block_bytes=20), suffix=".avro"),
    "orc": lambda: FileSink("rows", format=OrcFormat(_TYPES, piece_rows=3), suffix=".orc"),
    "bucketing-avro": lambda: BucketingSink("rows", writer=AvroWriter(_TYPES, block_bytes=20), batch_size_bytes=60),
    "bucketing-sequence": lambda: BucketingSink(
        "rows", writer=SequenceWriter(), batch_size_bytes=60, use_truncate=False
    ),
    "partitions": lambda: PartitionedFileSink("rows", partition_by=("key",), commit=PartitionCommit()),
    "partitions-compacted": lambda: PartitionedFileSink(
        "rows", partition_by=("key",), commit=PartitionCommit(), compaction=TableCompaction(60)
    ),
    "partition-time": lambda: PartitionedFileSink(
        "rows", partition_by=("day", "hour"), commit=_hourly((SuccessFilePolicy(), _listed("day", "hour")))
    ),
    "partition-time-compacted": lambda: PartitionedFileSink(
        "rows",
        partition_by=("day", "hour"),
        commit=_hourly((_listed("day", "hour"), SuccessFilePolicy())),
        compaction=TableCompaction(100),
    ),
    "table-avro-compacted": lambda: table_sink(_AVRO_TABLE, {"key": "STRING", "count": "INT"}),
    "table-raw": lambda: table_sink(_RAW_TABLE, {"key": "STRING", "count": "INT"}),
    "staged": lambda: StagedFileSink("rows", partition_by=("key",)),
    "overwrite": lambda: StagedFileSink("rows", partition_by=("key",), overwrite=True, policies=[SuccessFilePolicy()]),
    "log": lambda: LogSink("rows"),
    "disk-log": lambda: LogSink("rows", log=DiskLog("log", segment_bytes=200, journal_bytes=400)),
    "database": lambda: DatabaseSink(MemoryDatabase(), "rows", ("key", "count"), batch_rows=3),
    "database-retracting": lambda: DatabaseSink(
        MemoryDatabase(),
        "rows",
        ("key", "count"),
        transaction_column="transaction",
        newer_commits="retract",
        ledger_checkpoints=None,
    ),
    "data-frame": lambda: DataFrameSink("rows", "key string, count bigint"),
    "delta": lambda: DataFrameSink("rows", "key string, count bigint", format="delta", log=MemoryDeltaLog()),
    "foreach-batch": BatchesById,
    "upsert": lambda: UpsertSink(MemoryDatabase(), "rows", ("key", "count"), key=("key",), version="count"),
}
"""By name. All databases here are the model in memory, and so is the log of the Delta table; real ones have their own
tests."""

TAKES_DICTS = (
    "parquet", "avro", "orc", "bucketing-avro", "data-frame", "delta", "partitions", "partitions-compacted", "staged",
    "overwrite", "table-avro-compacted", "table-raw",
)  # fmt: skip
BY_TIME = ("partition-time", "partition-time-compacted")


def job(sink: str = "files", records: str = str(RECORDS), parallelism: int | None = None) -> Job:
    """``sink``: one of :data:`SINKS`; ``records``: of both sources together; ``parallelism``: of counters and sink."""
    make = SINKS.get(sink)
    if make is None:
        raise ConfigurationError(f"sink is {sink!r}; it must be one of {', '.join(SINKS)}")
    made = Job(f"sink-{sink}", parallelism=parallelism or 2, max_parallelism=8)
    stream = _times(made, int(records)) if sink in BY_TIME else _counts(made, int(records))
    if sink in TAKES_DICTS:
        stream = stream.map(_as_dict, name="dict", uid="dict")
    return stream.rebalance().sink(make(), name="out", uid="out")


def _counts(made: Job, records: int) -> Stream:
    half = records // 2
    first = made.source(SequenceSource(0, half), name="first", uid="first", parallelism=1)
    second = made.source(SequenceSource(half, records), name="second", uid="second", parallelism=1)
    ones = first.union(second).key_by(_is_first, value=lambda number: (_is_first(number), 1))
    return ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count")


def _times(made: Job, records: int) -> Stream:
    strategy = WatermarkStrategy.for_monotonous_timestamps(_time_of).with_interval_ns(1_000)
    streams = []
    for offset, name in enumerate(("first", "second")):
        numbers = made.source(SequenceSource(0, records // 2), name=name, uid=name, parallelism=1)
        # As many as their source, at any parallelism of the sink: another chain could not restore records in flight.
        clicks = numbers.map(
            lambda number, offset=offset: _click(2 * number + offset),
            name=f"{name}-clicks",
            uid=f"{name}-clicks",
            parallelism=1,
        )
        streams.append(
            clicks.assign_timestamps_and_watermarks(strategy, name=f"{name}-times", uid=f"{name}-times", parallelism=1)
        )
    return streams[0].union(streams[1])


def _click(number: int) -> dict[str, Any]:
    hour, minute = divmod(number * MINUTES_APART, 60)
    return {"day": "2020-05-03", "hour": f"{hour:02d}", "minute": minute}


def _time_of(click: dict[str, Any]) -> int:
    return MIDNIGHT_MS + (int(click["hour"]) * 60 + int(click["minute"])) * MINUTE_MS
