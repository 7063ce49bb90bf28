"""Rows in and out of files, beside the plainest loop of Python that reads or writes the same file.

The plain loops promise nothing: they cannot be resumed, find no malformed line and sync nothing to disk.
"""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import Paired, Result, interleaved, now, per_second
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import open_storage
from operators.basic import CountedRecords, CountingSink
from operators.files.formats import CsvFormat
from operators.files.reading import FileSource
from operators.files.sinks import FileSink, read_committed
from operators.sources import CollectionSource
from state_backends.files import LocalFileSystem

Row = tuple[int, str, float]


def measure(quick: bool) -> list[Result]:
    """Reading CSV, writing JSON Lines."""
    count, rounds = (20_000, 3) if quick else (500_000, 5)
    return compare([(i, f"name-{i % 977}", i * 0.25) for i in range(count)], rounds)


def compare(rows: list[Row], rounds: int) -> list[Result]:
    """Every case, on these rows."""
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        return [*_reading(rows, directory, rounds), *_writing(rows, rounds)]


# --- reading --------------------------------------------------------------------------------------------------


def _reading(rows: list[Row], directory: str, rounds: int) -> list[Result]:
    path = str(Path(directory) / "rows.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("id", "name", "amount"))
        writer.writerows(rows)
    reference = partial(_time_csv_reader, path, len(rows))
    trials = {
        f"CSV source, records as {kind}s": partial(_time_csv_source, path, kind, len(rows))
        for kind in ("tuple", "dict")
    }
    measured = interleaved(reference, trials, rounds)
    return [_result(name, "× csv.reader", pairs, len(rows)) for name, pairs in measured.items()]


def _time_csv_reader(path: str, count: int) -> float:
    start = now()
    with open(path, encoding="utf-8", newline="") as file:
        found = 0
        for _row in csv.reader(file):
            found += 1
    seconds = now() - start
    assert found == count + 1, found
    return seconds


def _time_csv_source(path: str, record: Any, count: int) -> float:
    counted = CountedRecords()
    job = Job("read-csv")
    job.source(FileSource(path, CsvFormat(record=record))).sink(CountingSink(counted))
    execution = Execution(job.plan(), RunConfig(mode="none"))
    start = now()
    result = execution.run()
    seconds = now() - start
    result.raise_on_failure()
    assert counted.total == count, counted.total
    return seconds


# --- writing --------------------------------------------------------------------------------------------------


def _writing(rows: list[Row], rounds: int) -> list[Result]:
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    expected = sorted(map(encode, rows))
    trials = {
        "JSON Lines sink, without checkpoints": partial(_time_file_sink, rows, expected, "none"),
        "JSON Lines sink, exactly-once": partial(_time_file_sink, rows, expected, "exactly-once"),
    }
    measured = interleaved(partial(_time_buffered_write, rows), trials, rounds)
    return [_result(name, "× plain write", pairs, len(rows)) for name, pairs in measured.items()]


def _time_buffered_write(rows: list[Row]) -> float:
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        start = now()
        with open(Path(directory) / "rows.jsonl", "w", encoding="utf-8") as file:
            for row in rows:
                file.write(encode(row) + "\n")
        return now() - start


def _time_file_sink(rows: list[Row], expected: list[str], mode: str) -> float:
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        job = Job("write-jsonl")
        job.source(CollectionSource(rows)).sink(FileSink("rows", suffix=".jsonl"))
        config = RunConfig(mode=mode, checkpoint_interval=CheckpointInterval(records=len(rows) // 5))
        with open_storage(directory, job.name) as opened:
            execution = Execution(job.plan(), config, storage=opened.storage, output_dir=directory)
            start = now()
            result = execution.run()
            seconds = now() - start
        result.raise_on_failure()
        assert mode == "none" or result.checkpoints.completed >= 5, result.checkpoints.completed
        written = read_committed(LocalFileSystem(), str(Path(directory) / "rows"))
        assert written == {"": expected}, "the committed rows are not those of the input"
    return seconds


def _result(name: str, unit: str, pairs: Paired, count: int) -> Result:
    return Result(name, unit, pairs.speed_ratios, None, {"rows_per_s": per_second(count, pairs.seconds)})
