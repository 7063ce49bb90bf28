"""The sinks of ``end_to_end.py``, and for each a reader of its output that knows nothing of the job."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from typing import Any, NamedTuple

from engine import (
    AvroFormat,
    AvroWriter,
    BucketingNames,
    BucketingSink,
    BulkTextFormat,
    CompactionStrategy,
    ConfigurationError,
    DefaultRollingPolicy,
    DiskLog,
    FileSink,
    JsonLinesRowFormat,
    LogSink,
    OrcFormat,
    ParquetFormat,
    PartitionCommit,
    PartitionedFileSink,
    PostgresDatabase,
    PostgresSink,
    SqliteDatabase,
    SqliteSink,
    StagedFileSink,
    SuccessFilePolicy,
    TableCompaction,
    UpsertSink,
    partition_path,
    table_sink,
)
from engine.elements.errors import StorageError
from operators.log.disk import committed_records
from state_backends import LocalFileSystem

KEYS = "abcd"
SQL_COLUMNS = {"number": "BIGINT", "key": "TEXT", "seen": "BIGINT"}
TYPES = {"number": int, "key": str, "seen": int}
SCHEMA = {"number": "BIGINT", "key": "STRING", "seen": "BIGINT"}
OVERWRITE = "overwrite"
"""This sink gets a table that already has a row."""
TABLES = ("upsert", "postgres-upsert")
"""These keep the last row of each key."""
OLD_ROW = '{"number":-1,"seen":1}\n'


class Row(NamedTuple):
    """Number, its key, and the number of rows of that key so far."""

    number: int
    key: str
    seen: int


class Outlet(NamedTuple):
    """``make``: the sink, given a dsn; ``read``: the visible rows in an output directory, or at a dsn."""

    make: Callable[[str], Any]
    read: Callable[[str, str], Iterable[Mapping[str, Any]]]
    needs_dsn: bool = False


class Target:
    """The place that one run writes to."""

    def __init__(self, outlet: Outlet, directory: str, dsn: str | None) -> None:
        if outlet.needs_dsn and dsn is None:
            raise ConfigurationError("this sink writes to PostgreSQL: say where it is with --dsn 'host=... dbname=...'")
        self._outlet, self._directory, self._dsn = outlet, directory, dsn or ""

    def sink(self) -> Any:
        """The sink for the job."""
        return self._outlet.make(self._dsn)

    def leave_old_row(self) -> None:
        """Leave yesterday's file in one of the partitions that will be written."""
        partition = os.path.join(self._directory, "rows", f"key={KEYS[0]}")
        os.makedirs(partition)
        with open(os.path.join(partition, "part-of-yesterday"), "w", encoding="utf-8") as file:
            file.write(OLD_ROW)

    def rows(self) -> list[Row]:
        """The rows that a reader finds now."""
        return [Row(row["number"], row["key"], row["seen"]) for row in self._outlet.read(self._directory, self._dsn)]


# -- readers --------------------------------------------------------------------------------------------------------


def visible_files(directory: str, _dsn: str = "") -> Iterator[dict[str, Any]]:
    """Rows of all files whose names, and whose directories' names, start with neither ``.`` nor ``_``."""
    for place, names, files in os.walk(os.path.join(directory, "rows")):
        names[:] = [name for name in names if name[0] not in "._"]
        for name in files:
            if name[0] not in "._":
                path = os.path.join(place, name)
                status = os.stat(path)
                yield from _rows_of(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1_000)
def _rows_of(path: str, *_version: int) -> list[dict[str, Any]]:
    key = os.path.basename(os.path.dirname(path)).removeprefix("key=")
    return [{"key": key, **row} for row in _read(path)]


def _read(path: str) -> Iterable[dict[str, Any]]:
    if path.endswith(".parquet"):
        import pyarrow.parquet

        with open(path, "rb") as file:
            found: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
            return found
    if path.endswith(".orc"):
        import pyarrow.orc

        rows: list[dict[str, Any]] = pyarrow.orc.ORCFile(path).read().to_pylist()
        return rows
    if path.endswith(".avro"):
        import fastavro

        with open(path, "rb") as file:
            return list(fastavro.reader(file))
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(os.path.splitext(path)[1], open)
    with opener(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def log(directory: str, _dsn: str) -> Iterable[dict[str, Any]]:
    """Committed records of the topic, up to the last stable offset."""
    partitions: Any = committed_records(LocalFileSystem(), f"{directory}/log", "rows")
    return [record.value for partition in partitions for record in partition]


def sqlite(directory: str, _dsn: str) -> Iterable[dict[str, Any]]:
    """The table in the file."""
    path = f"{directory}/shop.sqlite"
    if not os.path.exists(path):
        return []
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchall():
            return []
        return [dict(zip(SQL_COLUMNS, row, strict=True)) for row in connection.execute("SELECT * FROM rows")]


def postgres(_directory: str, dsn: str) -> Iterable[dict[str, Any]]:
    """The table in the server."""
    import psycopg

    try:
        connection = psycopg.connect(dsn, autocommit=True)
    except psycopg.OperationalError as error:
        raise StorageError(f"PostgreSQL cannot be reached: {error}") from error
    with connection:
        if connection.execute("SELECT to_regclass('rows')").fetchone() == (None,):
            return []
        found = connection.execute("SELECT number, key, seen FROM rows").fetchall()
    return [dict(zip(SQL_COLUMNS, row, strict=True)) for row in found]


# -- sinks ----------------------------------------------------------------------------------------------------------


def _by_key(row: Mapping[str, Any]) -> str:
    return partition_path(key=row["key"])


def _files(**options: Any) -> FileSink:
    return FileSink("rows", bucket=_by_key, **options)


def _partitions(compaction: TableCompaction | None = None) -> PartitionedFileSink:
    return PartitionedFileSink("rows", partition_by=("key",), commit=PartitionCommit(), compaction=compaction)


def _table(_dsn: str) -> Any:
    options = {"connector": "filesystem", "path": "rows", "format": "json", "partition.keys": "key"}
    return table_sink({**options, "auto-compaction": True}, SCHEMA)


def _log(delivery: str = "exactly-once") -> LogSink:
    return LogSink("rows", log=DiskLog("log"), partitions=2, delivery=delivery)


def _upsert(database: Any) -> UpsertSink:
    return UpsertSink(database, "rows", SQL_COLUMNS, key=["key"], version="seen")


def _parquet() -> ParquetFormat:
    return ParquetFormat(TYPES)


def _bucketing_avro() -> BucketingSink:
    names = BucketingNames(part_suffix=".avro")
    return BucketingSink("rows", bucketer=_by_key, writer=AvroWriter(TYPES), batch_size_bytes=500, names=names)


def _staged() -> StagedFileSink:
    return StagedFileSink("rows", partition_by=["key"], overwrite=True, policies=[SuccessFilePolicy()])


SINKS: Mapping[str, Outlet] = {
    "files": Outlet(lambda _: _files(), visible_files),
    "files-kept-open": Outlet(
        lambda _: _files(rolling_policy=DefaultRollingPolicy(max_part_size_bytes=1_000)), visible_files
    ),
    "gzip": Outlet(lambda _: _files(format=BulkTextFormat(JsonLinesRowFormat(), "gzip"), suffix=".gz"), visible_files),
    "parquet": Outlet(lambda _: _files(format=_parquet(), suffix=".parquet"), visible_files),
    "committers": Outlet(lambda _: _files().with_committer(), visible_files),
    "compacting": Outlet(lambda _: _files().compacting(CompactionStrategy(checkpoints=2)), visible_files),
    "orc": Outlet(lambda _: _files(format=OrcFormat(TYPES), suffix=".orc"), visible_files),
    "avro": Outlet(lambda _: _files(format=AvroFormat(TYPES), suffix=".avro"), visible_files),
    "bucketing": Outlet(lambda _: BucketingSink("rows", bucketer=_by_key, batch_size_bytes=500), visible_files),
    "bucketing-avro": Outlet(lambda _: _bucketing_avro(), visible_files),
    "partitions": Outlet(lambda _: _partitions(), visible_files),
    "partitions-compacted": Outlet(lambda _: _partitions(TableCompaction(2_000)), visible_files),
    "table-by-options": Outlet(_table, visible_files),
    OVERWRITE: Outlet(lambda _: _staged(), visible_files),
    "log": Outlet(lambda _: _log(), log),
    "sqlite": Outlet(lambda _: SqliteSink("shop.sqlite", "rows", SQL_COLUMNS), sqlite),
    "postgres": Outlet(lambda dsn: PostgresSink(dsn, "rows", SQL_COLUMNS), postgres, needs_dsn=True),
    "upsert": Outlet(lambda _: _upsert(SqliteDatabase("shop.sqlite")), sqlite),
    "postgres-upsert": Outlet(lambda dsn: _upsert(PostgresDatabase(dsn)), postgres, needs_dsn=True),
    "log-at-least-once": Outlet(lambda _: _log("at-least-once"), log),
}
"""By name. ``upsert`` promises one row per key at the end; ``log-at-least-once`` promises each row at least once."""
