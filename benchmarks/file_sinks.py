"""The file sink beside the plainest program that writes the same: lines, Parquet files, and commits of many files.

The plain programs promise nothing: they sync nothing, and what they have written is visible while they write it. Every
line and row that the sink has committed is compared with the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Paired, Result, Trial, at_least, below, interleaved, now, per_second
from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import open_storage
from operators.columns import ColumnSource
from operators.files.bucketing import BucketingSink
from operators.files.formats import TextRowFormat, import_pyarrow
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import (
    Buckets,
    BulkTextFormat,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    ParquetFormat,
    PartEncoder,
    PartNames,
    RecoverableWriter,
    UniqueNames,
)
from operators.sources import CollectionSource
from operators.table.partitions import PartitionCommit, PartitionedFileSink
from operators.table.staging import StagedFileSink
from state_backends.files import LocalFileSystem

ROWS_PER_GROUP = 1 << 16


def measure(quick: bool) -> list[Result]:
    """Lines, Parquet, tables, commits."""
    lines, rows, files, rounds = (50_000, 100_000, 1_000, 3) if quick else (1_000_000, 2_000_000, 10_000, 5)
    return [
        *compare_lines(lines, rounds),
        *compare_parquet(rows, rounds),
        *compare_sinks(lines, rounds),
        *compare_sync(lines // 25, rounds),
        *compare_commits(files, rounds),
    ]


# --- lines ------------------------------------------------------------------------------------------------------------


def compare_lines(count: int, rounds: int) -> list[Result]:
    """Text as it is, through whole jobs with checkpoints, beside a loop that writes it."""
    lines = [f"{number},name-{number % 977},{number * 0.25}" for number in range(count)]
    text = TextRowFormat()
    sinks = {
        "text sink, closed by checkpoints": FileSink("rows", format=text),
        "text sink, open over checkpoints": FileSink("rows", format=text, rolling_policy=DefaultRollingPolicy()),
        "text sink, cut at 1 MB": FileSink(
            "rows", format=text, rolling_policy=DefaultRollingPolicy(max_part_size_bytes=1_000_000)
        ),
    }
    bucketed = {"text sink, ten buckets": FileSink("rows", format=text, bucket=_bucket_of)}
    plain: Trial = partial(_time_plain_lines, lines)
    alone = interleaved(plain, {name: partial(_time_buckets, lines, sink) for name, sink in sinks.items()}, rounds)
    divided = interleaved(partial(_time_plain_buckets, lines), {
        name: partial(_time_buckets, lines, sink) for name, sink in bucketed.items()
    }, rounds)  # fmt: skip
    name, sink = next(iter(sinks.items()))
    in_a_job = interleaved(plain, {f"{name}, whole job": partial(_time_lines, lines, sink)}, rounds)
    # What compresses is compared with what compresses: most of its time is zlib's.
    gzipped = {"text sink, gzip": partial(_time_buckets, lines, FileSink("rows", format=BulkTextFormat(text)))}
    compressed = interleaved(partial(_time_plain_gzip, lines), gzipped, rounds)
    return [
        *(_result(name, "× plain write", pairs, count, goal=0.5) for name, pairs in alone.items()),
        *(_result(name, "× plain write", pairs, count, goal=0.5) for name, pairs in divided.items()),
        *(_result(name, "× plain write", pairs, count) for name, pairs in in_a_job.items()),
        *(_result(name, "× gzip.open", pairs, count) for name, pairs in compressed.items()),
    ]


def _time_plain_lines(lines: list[str]) -> float:
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        start = now()
        with open(Path(directory) / "rows.txt", "w", encoding="utf-8") as file:
            for line in lines:
                file.write(line + "\n")
        return now() - start


def _bucket_of(line: str) -> str:
    return "b=" + line[4:5]


def _time_plain_buckets(lines: list[str]) -> float:
    files: dict[str, Any] = {}
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        start = now()
        for line in lines:
            bucket = _bucket_of(line)
            if bucket not in files:
                files[bucket] = open(Path(directory) / bucket, "w", encoding="utf-8")  # noqa: SIM115
            files[bucket].write(line + "\n")
        for file in files.values():
            file.close()
        return now() - start


def _time_plain_gzip(lines: list[str]) -> float:
    import gzip

    with TemporaryDirectory(prefix="weir-bench-") as directory:
        start = now()
        with gzip.open(Path(directory) / "rows.txt.gz", "wt", compresslevel=6, encoding="utf-8") as file:
            for line in lines:
                file.write(line + "\n")
        return now() - start


def _time_buckets(lines: list[str], sink: FileSink) -> float:
    seconds, committed = _time_sink([Batch(lines[at : at + 1_024]) for at in range(0, len(lines), 1_024)], sink)
    assert sorted(committed) == sorted(lines), "other lines"
    return seconds


def _time_sink(batches: Sequence[Batch], sink: FileSink) -> tuple[float, list[str]]:
    """The seconds of the sink without a job: five checkpoints, each of them fsynced and committed; and what it has
    committed."""
    fs, checkpoint_id, every = LocalFileSystem(), 0, max(1, len(batches) // 5)
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        encoder, assigner = PartEncoder(sink.format), sink.bucket_assigner
        writer = RecoverableWriter(fs, directory, UniqueNames(1, 1, 0))
        buckets = Buckets(writer, encoder, sink.rolling_policy, PartNames("part", "", 0))
        start = now()
        for number, batch in enumerate(batches, start=1):
            rows, ids = encoder.encode(batch), assigner.buckets_of(batch, 0, 0)
            if isinstance(ids, str):
                buckets.write(ids, rows, None, 0)
            else:
                buckets.write_each(ids, rows, None, 0)
            if number == len(batches):
                buckets.close_all_parts()
            if number == len(batches) or number % every == 0:
                checkpoint_id += 1
                buckets.snapshot(checkpoint_id)
                writer.sync_directories()
                buckets.commit_up_to(checkpoint_id)
                writer.sync_directories()
        seconds = now() - start
        committed = read_committed(fs, directory, sink.format)
    return seconds, [line for lines in committed.values() for line in lines]


def _time_lines(lines: list[str], sink: FileSink) -> float:
    seconds, committed = _time_job(CollectionSource(lines), sink, len(lines), 1_024)
    assert sorted(committed) == sorted(lines), "the committed lines are not those of the input"
    return seconds


def _time_job(source: Any, sink: FileSink, count: int, batch_size: int) -> tuple[float, list[str]]:
    """The seconds of a job with five checkpoints and one at its end, and what it has committed."""
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        seconds = _time_run(source, sink, count, batch_size, directory)
        committed = read_committed(LocalFileSystem(), str(Path(directory) / "rows"), sink.format)
        return seconds, [line for lines in committed.values() for line in lines]


def _time_run(source: Any, sink: Any, count: int, batch_size: int, directory: str, checkpoints: int = 5) -> float:
    job = Job("write")
    job.source(source).sink(sink)
    interval = CheckpointInterval(records=count // checkpoints)
    config = RunConfig(checkpoint_interval=interval, batch_size=batch_size)
    with open_storage(directory, job.name) as opened:
        execution = Execution(job.plan(), config, storage=opened.storage, output_dir=directory)
        start = now()
        result = execution.run()
        seconds = now() - start
    result.raise_on_failure()
    assert result.checkpoints.completed >= checkpoints, result.checkpoints.completed
    return seconds


# --- Parquet ----------------------------------------------------------------------------------------------------------


class _CountedRows(ParquetFormat):
    """Shows how many rows a file has, and their sum, instead of each: two million of them would take a minute."""

    def lines_of(self, path: str, content: bytes) -> list[str]:
        pa = import_pyarrow()
        table = pa.parquet.read_table(pa.BufferReader(content))
        return [f"{len(table)} {pa.compute.sum(table['id']).as_py()}"]


def compare_parquet(count: int, rounds: int) -> list[Result]:
    """Columns and rows, beside ``pyarrow.parquet`` with the same batches in the same row groups."""
    import numpy as np

    import_pyarrow()
    import pyarrow.compute

    assert pyarrow.compute
    numbers = np.arange(count)
    columns = {"id": numbers, "key": numbers * 2654435761 % 10000, "share": numbers * 0.25}
    sink = FileSink("rows", format=_CountedRows({"id": int, "key": int, "share": float}, row_group_rows=ROWS_PER_GROUP))
    reference: Trial = partial(_time_write_table, columns, count)
    few = count // 4
    fields = [column[:few].tolist() for column in columns.values()]
    records = [dict(zip(columns, row, strict=True)) for row in zip(*fields, strict=True)]
    starts, of_rows = range(0, count, ROWS_PER_GROUP), range(0, few, ROWS_PER_GROUP)
    in_columns = [
        ColumnBatch(
            {name: column[at : at + ROWS_PER_GROUP] for name, column in columns.items()},
            min(ROWS_PER_GROUP, count - at),
        )
        for at in starts
    ]
    in_rows = [Batch(records[at : at + ROWS_PER_GROUP]) for at in of_rows]
    results = []
    for kind, rows, batches, source, reference in (
        ("columns", count, in_columns, ColumnSource(columns), partial(_time_write_table, columns, count)),
        ("rows", few, in_rows, CollectionSource(records), partial(_time_write_rows, records)),
    ):
        alone: dict[str, Trial] = {f"Parquet sink, {kind}": partial(_time_parquet_sink, batches, sink, rows)}
        in_a_job: dict[str, Trial] = {
            f"Parquet sink, {kind}, whole job": partial(_time_parquet_job, source, sink, rows)
        }
        for trials, goal in ((alone, 0.7), (in_a_job, None)):
            measured = interleaved(reference, trials, rounds)
            results += [_result(name, "× pyarrow", pairs, rows, goal=goal) for name, pairs in measured.items()]
    return results


def _time_parquet_sink(batches: Sequence[Batch], sink: FileSink, count: int) -> float:
    seconds, committed = _time_sink(batches, sink)
    _check_rows(committed, count)
    return seconds


def _time_parquet_job(source: Any, sink: FileSink, count: int) -> float:
    seconds, committed = _time_job(source, sink, count, ROWS_PER_GROUP)
    _check_rows(committed, count)
    return seconds


def _check_rows(committed: Iterable[str], count: int) -> None:
    found = [tuple(map(int, line.split())) for line in committed]
    assert sum(rows for rows, _ in found) == count, found
    assert sum(total for _, total in found) == count * (count - 1) // 2, found


def _time_write_table(columns: dict[str, Any], count: int) -> float:
    pa = import_pyarrow()
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        start = now()
        schema = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("share", pa.float64())])
        with pa.parquet.ParquetWriter(Path(directory) / "rows.parquet", schema) as writer:
            for at in range(0, count, ROWS_PER_GROUP):
                arrays = [pa.array(column[at : at + ROWS_PER_GROUP]) for column in columns.values()]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        return now() - start


def _time_write_rows(records: list[dict[str, Any]]) -> float:
    pa = import_pyarrow()
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        start = now()
        schema = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("share", pa.float64())])
        with pa.parquet.ParquetWriter(Path(directory) / "rows.parquet", schema) as writer:
            for at in range(0, len(records), ROWS_PER_GROUP):
                writer.write_table(pa.Table.from_pylist(records[at : at + ROWS_PER_GROUP], schema=schema))
        return now() - start


# --- the other sinks --------------------------------------------------------------------------------------------------


def compare_sinks(count: int, rounds: int) -> list[Result]:
    """The other sinks of files beside ``FileSink`` with as many directories, in whole jobs."""
    lines = [f"{number},name-{number % 977},{number * 0.25}" for number in range(count)]
    text = TextRowFormat()
    bucketing = BucketingSink("rows", format=text, bucketer=_bucket_of)
    of_lines: Trial = partial(_time_any_job, lines, FileSink("rows", format=text, bucket=_bucket_of))
    results = interleaved(of_lines, {"bucketing sink, ten buckets": partial(_time_any_job, lines, bucketing)}, rounds)
    rows = [{"key": "abcd"[number % 4], "id": number, "name": f"name-{number % 977}"} for number in range(count)]
    of_rows: Trial = partial(_time_any_job, rows, FileSink("rows", bucket=itemgetter("key")))
    partitioned = PartitionedFileSink("rows", partition_by=("key",), commit=PartitionCommit())
    staged = StagedFileSink("rows", partition_by=("key",))
    results |= interleaved(
        of_rows,
        {
            "partitioned table, JSON, four partitions": partial(_time_any_job, rows, partitioned),
            "staged table, JSON, four partitions": partial(_time_any_job, rows, staged),
        },
        rounds,
    )
    return [_result(name, "× FileSink", pairs, count) for name, pairs in results.items()]


def compare_sync(count: int, rounds: int) -> list[Result]:
    """A bucketing sink that does not wait for the disk, beside one that does: 40 checkpoints, each with four parts."""
    lines = [f"{'abcd'[number % 4]},{number},name-{number % 977}" for number in range(count)]
    waits, goes_on = (
        partial(
            _time_any_job,
            lines,
            BucketingSink("rows", format=TextRowFormat(), bucketer=itemgetter(0), sync_on_flush=sync),
            checkpoints=40,
        )
        for sync in (True, False)
    )
    results = interleaved(waits, {"bucketing sink, sync_on_flush=False, 40 checkpoints": goes_on}, rounds)
    return [_result(name, "× with sync_on_flush", pairs, count) for name, pairs in results.items()]


def _time_any_job(records: list[Any], sink: Any, checkpoints: int = 5) -> float:
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        seconds = _time_run(CollectionSource(records), sink, len(records), 1_024, directory, checkpoints)
        assert any(path.is_file() for path in Path(directory, "rows").rglob("part*")), "nothing was written"
        return seconds


# --- commits ----------------------------------------------------------------------------------------------------------


def compare_commits(count: int, rounds: int) -> list[Result]:
    """The time for one file when very many are committed at once, beside that when a tenth of them are: in 100 buckets,
    and in a bucket for each."""
    results = []
    for buckets, where in ((100, "in 100 buckets"), (count, "a bucket each")):
        many: Trial = partial(_time_commits, count, buckets)
        pairs = interleaved(partial(_time_commits, count // 10, buckets), {"many": many}, rounds)["many"]
        growth = tuple(own / ref / 10 for own, ref in zip(pairs.seconds, pairs.reference_seconds, strict=True))
        details = {"files_per_s": per_second(count, pairs.seconds)}
        case = f"commit of {count:,} files, {where}, time per file"
        results.append(Result(case, "× a tenth of them", growth, below(1.5), details))
    return results


def _time_commits(count: int, in_buckets: int) -> float:
    """So many files in so many buckets, all of one checkpoint."""
    fs, format = LocalFileSystem(), TextRowFormat()
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        encoder = PartEncoder(format)
        writer = RecoverableWriter(_NoDirectorySync(), directory, UniqueNames(1, 1, 0))
        buckets = Buckets(writer, encoder, OnCheckpointRollingPolicy(), PartNames("part", "", 0))
        rows = encoder.encode(Batch(["x"]))
        for number in range(count):
            bucket_id = f"b={number % 100}/n={number % in_buckets}"
            buckets.write(bucket_id, rows, None, 0)
            buckets.close_part(bucket_id)
        buckets.snapshot(1)
        start = now()
        buckets.commit_up_to(1)
        seconds = now() - start
        committed = read_committed(fs, directory)
        assert sum(map(len, committed.values())) == count, len(committed)
        assert not buckets.active
    return seconds


class _NoDirectorySync(LocalFileSystem):
    """Tens of thousands of them, to prepare the directories, would take a minute; the commit itself has none."""

    def fsync_dir(self, path: str) -> None:
        pass


def _result(name: str, unit: str, pairs: Paired, count: int, goal: float | None = None) -> Result:
    wanted = None if goal is None else at_least(goal)
    return Result(name, unit, pairs.speed_ratios, wanted, {"rows_per_s": per_second(count, pairs.seconds)})
