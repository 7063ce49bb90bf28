"""The job that is killed with every kind of sink: ``--param sink=rows`` chooses it, and all of them get the same rows.

A row shows everything that could go wrong with it: its number (lost, or there twice), its key and how many rows of that
key have been seen (state that was lost, or applied twice), and its hour (the partition). Each split has keys of its
own, so the rows do not depend on the order of the splits. The second job of this file reads the log that ``sink=log``
writes, and puts its rows into files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from engine import (
    AvroFormat,
    AvroWriter,
    BucketingSink,
    DefaultPartitionTimeExtractor,
    DefaultRollingPolicy,
    DiskLog,
    FileSink,
    Job,
    LogSink,
    LogSource,
    MetastorePolicy,
    OnCheckpointRollingPolicy,
    OrcFormat,
    ParquetFormat,
    PartitionCommit,
    PartitionedFileSink,
    PostgresDatabase,
    SequenceSource,
    SequenceWriter,
    SqliteDatabase,
    SqliteMetastore,
    StagedFileSink,
    SuccessFilePolicy,
    TableCompaction,
    UpsertSink,
    WatermarkStrategy,
    table_sink,
)
from operators.databases import DatabaseSink
from operators.files.compaction import CompactionStrategy
from spark_bridge.sinks import DataFrameSink, ForeachBatchSink

SPLITS = 2
KEYS = 40
"""Of each split."""
HOURS = 6
HOUR_MS = 3_600_000
START_MS = 1_588_464_000_000
"""2020-05-03 00:00 UTC."""
TABLE, COUNTS, TOPIC, LOG, METASTORE = "rows", "counts", "rows", "log", "metastore.sqlite"
SQLITE = "data.sqlite"
PART_BYTES = 4_096
COLUMNS = {"number": "BIGINT", "key": "BIGINT", "seen": "BIGINT", "hour": "TEXT"}


class Row(NamedTuple):
    """One row, as a reader finds it."""

    number: int
    key: int
    seen: int
    hour: str


def row_of(number: int, records: int) -> Row:
    """The row of a number, computed without the engine."""
    split, place, size = _where(number, records)
    return Row(number, split * KEYS + place % KEYS, place // KEYS + 1, f"{place * HOURS // size:02d}")


def expected_rows(records: int) -> list[Row]:
    return [row_of(number, records) for number in range(records)]


def _where(number: int, records: int) -> tuple[int, int, int]:
    size = records // SPLITS
    return number // size, number % size, size


def record_of(number: int, records: int) -> dict[str, Any]:
    row = row_of(number, records)
    return {"number": number, "key": row.key, "seen": 1, "hour": row.hour}


def time_of(number: int, records: int) -> int:
    """Event time in ms; each split passes through all hours."""
    _, place, size = _where(number, records)
    return START_MS + place * HOURS * HOUR_MS // size


def _count(before: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "seen": before["seen"] + 1}


def _bucket(row: dict[str, Any]) -> str:
    return f"remainder={row['key'] % 3}"


def _rows(target: str) -> FileSink:
    return FileSink(TABLE, bucket=_bucket, rolling_policy=DefaultRollingPolicy(max_part_size_bytes=PART_BYTES))


def _at_checkpoints(target: str) -> FileSink:
    return FileSink(TABLE, bucket=_bucket, rolling_policy=OnCheckpointRollingPolicy())


_TYPES = {"number": int, "key": int, "seen": int, "hour": str}


def _parquet(target: str) -> FileSink:
    schema = ParquetFormat(_TYPES, row_group_rows=64)
    return FileSink(TABLE, bucket=_bucket, format=schema, rolling_policy=OnCheckpointRollingPolicy())


def _avro(target: str) -> FileSink:
    return FileSink(TABLE, bucket=_bucket, format=AvroFormat(_TYPES, block_bytes=500))


def _orc(target: str) -> FileSink:
    return FileSink(TABLE, bucket=_bucket, format=OrcFormat(_TYPES, piece_rows=64))


def _bucketing(use_truncate: bool, writer: Any = None) -> BucketingSink:
    return BucketingSink(TABLE, bucketer=_bucket, batch_size_bytes=PART_BYTES, use_truncate=use_truncate, writer=writer)


def _partitioned(compaction: TableCompaction | None) -> PartitionedFileSink:
    commit = PartitionCommit(
        "partition-time",
        delay_ms=HOUR_MS,
        extractor=DefaultPartitionTimeExtractor("2020-05-03 $hour:00:00"),
        policies=(MetastorePolicy(SqliteMetastore(METASTORE), TABLE), SuccessFilePolicy()),
    )
    return PartitionedFileSink(TABLE, partition_by=("hour",), commit=commit, compaction=compaction)


def _orc_table(target: str) -> Any:
    options = {
        "connector": "filesystem", "path": TABLE, "format": "orc", "partition.keys": "hour", "auto-compaction": "true",
        "compaction.file-size": PART_BYTES, "sink.partition-commit.policy.kind": "metastore,success-file",
        "sink.partition-commit.trigger": "partition-time", "sink.partition-commit.delay": HOUR_MS,
        "partition.time-extractor.timestamp-pattern": "2020-05-03 $hour:00:00", "metastore.path": METASTORE,
        "metastore.table": TABLE,
    }  # fmt: skip
    return table_sink(options, {"number": "INT", "key": "SMALLINT", "seen": "INT", "hour": "STRING"})


def _raw_table(target: str) -> Any:
    options = {
        "connector": "filesystem", "path": TABLE, "format": "raw", "partition.keys": "hour",
        "sink.rolling-policy.file-size": f"{PART_BYTES} b", "sink.partition-commit.policy.kind": "success-file",
        "sink.partition-commit.trigger": "partition-time", "sink.partition-commit.delay": HOUR_MS,
        "partition.time-extractor.timestamp-pattern": "2020-05-03 $hour:00:00",
    }  # fmt: skip
    return table_sink(options, {"line": "STRING", "hour": "STRING"})


def _as_line(row: dict[str, Any]) -> dict[str, Any]:
    """The row in one column: a raw table has no more."""
    return {"line": json.dumps({name: value for name, value in row.items() if name != "hour"}), "hour": row["hour"]}


def _staged(target: str) -> StagedFileSink:
    return StagedFileSink(TABLE, partition_by=("hour",), overwrite=True, policies=(SuccessFilePolicy(),))


def _database(database: Any) -> DatabaseSink:
    return DatabaseSink(database, TABLE, COLUMNS, batch_rows=50)


def _upsert(database: Any) -> UpsertSink:
    return UpsertSink(database, COUNTS, COLUMNS, key=("key",), version="seen", batch_rows=20)


def _data_frame(format: str) -> DataFrameSink:
    return DataFrameSink(TABLE, "number bigint, key bigint, seen bigint, hour string", format=format)


def _foreach_batch(target: str) -> ForeachBatchSink:
    def write(rows: list[dict[str, Any]], checkpoint_id: int) -> None:
        place = os.path.join(target, TABLE)
        os.makedirs(place, exist_ok=True)
        path = os.path.join(place, f".{checkpoint_id}")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)
        os.replace(path, os.path.join(place, str(checkpoint_id)))

    return ForeachBatchSink(write)


SINKS: dict[str, Callable[[str], Any]] = {
    "rows": _rows,
    "at-checkpoints": _at_checkpoints,
    "parquet": _parquet,
    "committer": lambda target: _rows(target).with_committer(),
    "compacting": lambda target: _at_checkpoints(target).compacting(CompactionStrategy(checkpoints=2)),
    "bucketing": lambda target: _bucketing(True),
    "bucketing-lengths": lambda target: _bucketing(False),
    "avro": _avro,
    "orc": _orc,
    "bucketing-avro": lambda target: _bucketing(True, AvroWriter(_TYPES, block_bytes=500)),
    "bucketing-sequence": lambda target: _bucketing(False, SequenceWriter()),
    "partitioned": lambda target: _partitioned(None),
    "partitioned-compacting": lambda target: _partitioned(TableCompaction(PART_BYTES)),
    "table-orc": _orc_table,
    "table-raw": _raw_table,
    "staged": _staged,
    "log": lambda target: LogSink(TOPIC, log=DiskLog(LOG, segment_bytes=PART_BYTES), partitions=2),
    "sqlite": lambda target: _database(SqliteDatabase(SQLITE)),
    "sqlite-upsert": lambda target: _upsert(SqliteDatabase(SQLITE)),
    "data-frame": lambda target: _data_frame("parquet"),
    "delta": lambda target: _data_frame("delta"),
    "foreach-batch": _foreach_batch,
    "postgres": lambda target: _database(PostgresDatabase(target)),
    "postgres-upsert": lambda target: _upsert(PostgresDatabase(target)),
}
"""By name: what makes the sink. ``target``: a dsn, or the directory that a function writes to."""


def job(sink: str = "rows", records: str = "6000", target: str = "", log: str = "") -> Job:
    """Numbers, a count per key, and the sink; with ``log``, the rows of that log are put into files."""
    if log:
        relay = Job("relayed", parallelism=2)
        return relay.source(LogSource(log, TOPIC), name="log").sink(_rows(target), name="files")
    total = int(records)
    job = Job("killed", parallelism=2)
    times = WatermarkStrategy.for_monotonous_timestamps(lambda number: time_of(number, total)).with_interval_ns(1_000)
    numbers = job.source(SequenceSource(0, total, splits=SPLITS), watermarks=times, name="numbers")
    rows = numbers.map(lambda number: record_of(number, total), name="row").key_by(lambda row: row["key"])
    counts = rows.reduce(_count, name="count")
    if sink == "table-raw":
        counts = counts.map(_as_line, name="line")
    return counts.sink(SINKS[sink](target), name="table")
