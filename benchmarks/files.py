"""Rows in and out of files, beside the plainest loop of Python that reads or writes the same file.

The plain loops promise nothing: they cannot be resumed, find no malformed line and sync nothing to disk.
"""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Goal, Paired, Result, at_least, interleaved, now, per_second
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from engine.runtime.storage import open_storage
from operators.basic import CountedRecords, CountingSink
from operators.files.formats import CsvFormat, JsonLinesFormat, LineFormat
from operators.files.reading import FileSource
from operators.files.sinks import FileSink, read_committed
from operators.sources import CollectionSource
from state_backends.files import LocalFileSystem

Row = tuple[int, str, float]
_COLUMNS = ("id", "name", "amount")


def measure(quick: bool) -> list[Result]:
    """Reading CSV and JSON Lines, writing JSON Lines."""
    count, rounds = (20_000, 3) if quick else (500_000, 5)
    return compare([(i, f"name-{i % 977}", i * 0.25) for i in range(count)], rounds)


def compare(rows: list[Row], rounds: int) -> list[Result]:
    """Every case, on these rows."""
    with TemporaryDirectory(prefix="weir-bench-") as directory:
        return [*_reading(rows, directory, rounds), *_writing(rows, rounds)]


# --- reading --------------------------------------------------------------------------------------------------


def _reading(rows: list[Row], directory: str, rounds: int) -> list[Result]:
    count = len(rows)
    table, objects = str(Path(directory) / "rows.csv"), str(Path(directory) / "rows.jsonl")
    with open(table, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(rows)
    with open(objects, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(_COLUMNS, row, strict=True))) + "\n" for row in rows)
    of_csv = interleaved(
        partial(_time_csv_reader, table, count),
        {
            "CSV source, records as tuples": partial(_time_source, table, CsvFormat(record="tuple"), count),
            "CSV source, records as dicts": partial(_time_source, table, CsvFormat(record="dict"), count),
        },
        rounds,
    )
    of_json = interleaved(
        partial(_time_json_loads, objects, count),
        {"JSON Lines source": partial(_time_source, objects, JsonLinesFormat(), count)},
        rounds,
    )
    return [
        *(_result(name, "× csv.reader", pairs, count, at_least(0.4)) for name, pairs in of_csv.items()),
        *(_result(name, "× json.loads", pairs, count, at_least(0.5)) for name, pairs in of_json.items()),
    ]


def _time_csv_reader(path: str, count: int) -> float:
    start = now()
    with open(path, encoding="utf-8", newline="") as file:
        found = 0
        for _row in csv.reader(file):
            found += 1
    seconds = now() - start
    assert found == count + 1, found
    return seconds


def _time_json_loads(path: str, count: int) -> float:
    start = now()
    with open(path, encoding="utf-8") as file:
        found = 0
        for line in file:
            json.loads(line)
            found += 1
    seconds = now() - start
    assert found == count, found
    return seconds


def _time_source(path: str, format: LineFormat, count: int) -> float:
    counted = CountedRecords()
    job = Job("read-rows")
    job.source(FileSource(path, format)).sink(CountingSink(counted))
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


def _result(name: str, unit: str, pairs: Paired, count: int, goal: Goal | None = None) -> Result:
    return Result(name, unit, pairs.speed_ratios, goal, {"rows_per_s": per_second(count, pairs.seconds)})
