"""Sinks for Spark's own readers, in batches and on Spark: tables and functions get each checkpoint once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet
from pyspark import cloudpickle

from engine import Job, SequenceSource
from spark_bridge.pipeline.batch_driver import BatchDriver
from spark_bridge.pipeline.batch_stages import without_functions
from spark_bridge.sinks import DataFrameSink, DeltaLogError, ForeachBatchSink
from tests.spark_bridge.pipeline.runs import StoppedError, config, in_batches, simulated

SCHEMA = "number bigint, name string"
RECORDS = 240
BATCH = 20
ALL = list(range(RECORDS))

Calls = list[tuple[int, list[int]]]


def job(sink: Any) -> Job:
    made = Job("tables", parallelism=2)
    numbers = made.source(SequenceSource(0, RECORDS, splits=2), name="numbers", uid="numbers")
    rows = numbers.map(lambda number: {"number": number, "name": f"n{number}"}, name="rows")
    return rows.rebalance().sink(sink, name="sink", uid="sink")


def delta(schema: str = SCHEMA) -> Job:
    return job(DataFrameSink("table", schema, format="delta"))


def batches(made: Job, directory: Path, **options: Any) -> None:
    result, oracle = in_batches(made, directory, config(BATCH), **options)
    assert result.error is None, result.error
    assert oracle.held


def numbers(directory: Path) -> list[int]:
    return sorted(DeltaTable(directory / "out" / "table").to_pyarrow_table()["number"].to_pylist())


def functions(calls: Calls) -> Job:
    lock = threading.Lock()  # it cannot travel

    def take(batch: list[dict[str, Any]], checkpoint_id: int) -> None:
        with lock:
            calls.append((checkpoint_id, sorted(row["number"] for row in batch)))

    return job(ForeachBatchSink(take))


def dying(before: int) -> Callable[[BatchDriver], None]:
    """The driver dies once that checkpoint is durable, before its sinks commit."""

    def watch(driver: BatchDriver) -> None:
        commit = driver._commit

        def die(checkpoint_id: int) -> None:
            if checkpoint_id == before:
                raise StoppedError
            commit(checkpoint_id)

        driver._commit = die  # type: ignore[method-assign]

    return watch


def test_parquet_in_batches(tmp_path: Path) -> None:
    """Each row once, with the types of the schema."""
    batches(job(DataFrameSink("table", SCHEMA)), tmp_path)

    files = sorted(path for path in (tmp_path / "out" / "table").rglob("*.parquet") if not path.name.startswith("."))
    found = pa.concat_tables([parquet.read_table(path) for path in files])
    assert found.schema.types == [pa.int64(), pa.string()]
    assert sorted(found["number"].to_pylist()) == ALL


def test_a_delta_table_across_deaths_and_worlds(tmp_path: Path) -> None:
    """Batches, a driver that dies before its commits, the simulator, and batches again: each row once."""
    with pytest.raises(StoppedError):
        batches(delta(), tmp_path, watch=dying(before=2))
    assert 0 < len(numbers(tmp_path)) < 2 * 2 * BATCH
    in_batches(delta(), tmp_path, config(BATCH), stop_after=1)
    assert len(set(numbers(tmp_path))) == len(numbers(tmp_path)) < RECORDS
    result = simulated(delta(), tmp_path, config(BATCH))

    assert result.error is None, result.error
    assert numbers(tmp_path) == ALL


def test_another_writer_in_between(tmp_path: Path) -> None:
    """It appends and compacts between two batches: its rows stay, and ours are there once."""
    in_batches(delta(), tmp_path, config(BATCH), stop_after=2)
    table = tmp_path / "out" / "table"
    write_deltalake(table, pa.table({"number": pa.array([-1], pa.int64()), "name": ["other"]}), mode="append")
    merged = DeltaTable(table).optimize.compact()
    assert merged["numFilesRemoved"] > 1
    batches(delta(), tmp_path)

    assert numbers(tmp_path) == [-1, *ALL]


def test_the_schema_changes_in_between(tmp_path: Path) -> None:
    """A column that another program has added: the next commit says so, and nothing is lost once it is declared."""
    in_batches(delta(), tmp_path, config(BATCH), stop_after=2)
    wider = pa.table({"number": pa.array([-1], pa.int64()), "name": ["other"], "more": ["x"]})
    write_deltalake(tmp_path / "out" / "table", wider, mode="append", schema_mode="merge")

    result, _ = in_batches(delta(), tmp_path, config(BATCH))
    assert isinstance(result.error, DeltaLogError)
    assert "more string" in str(result.error)
    made = Job("tables", parallelism=2)
    source = made.source(SequenceSource(0, RECORDS, splits=2), name="numbers", uid="numbers")
    rows = source.map(lambda number: {"number": number, "name": f"n{number}", "more": None}, name="rows")
    sink = DataFrameSink("table", f"{SCHEMA}, more string", format="delta")
    batches(rows.rebalance().sink(sink, name="sink", uid="sink"), tmp_path)
    assert numbers(tmp_path) == [-1, *ALL]


def test_a_function_is_called_by_the_driver_alone(tmp_path: Path) -> None:
    """Once for each checkpoint, in order, with all its rows; executors get the job without it."""
    calls: Calls = []
    batches(functions(calls), tmp_path)

    ids = [checkpoint_id for checkpoint_id, _ in calls]
    assert ids == sorted(set(ids))
    assert len(ids) > 2
    assert sorted(number for _, batch in calls for number in batch) == ALL
    sent = cloudpickle.dumps(without_functions(functions(calls).plan()))  # type: ignore[no-untyped-call]
    assert b"Lock" not in sent


def test_a_function_across_a_death(tmp_path: Path) -> None:
    """The batch of a checkpoint whose commits did not happen comes when the job goes on, under its number."""
    calls: Calls = []
    with pytest.raises(StoppedError):
        batches(functions(calls), tmp_path, watch=dying(before=2))
    assert [checkpoint_id for checkpoint_id, _ in calls] == [1]
    in_batches(functions(calls), tmp_path, config(BATCH), stop_after=1)
    simulated(functions(calls), tmp_path, config(BATCH))

    by_id = dict(calls)
    assert all(by_id[checkpoint_id] == batch for checkpoint_id, batch in calls)
    assert sorted(number for batch in by_id.values() for number in batch) == ALL


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_tables_on_spark(spark: Any, tmp_path: Path, format: str) -> None:
    """Executors write the files; Spark reads every row once."""
    options: Any = {"on": "spark", "storage": tmp_path / "state", "output_dir": tmp_path / "out"}
    job(DataFrameSink("table", SCHEMA, format=format)).run(checkpoint_interval="20rec", **options)

    table = tmp_path / "out" / "table"
    files = DeltaTable(table).file_uris() if format == "delta" else [str(table)]
    frame = spark.read.option("recursiveFileLookup", "true").parquet(*files)
    assert [(row.number, row.name) for row in frame.orderBy("number").collect()] == [(n, f"n{n}") for n in ALL]


@pytest.mark.slow
def test_a_function_of_data_frames_on_spark(spark: Any, tmp_path: Path) -> None:
    """It holds the session, and writes each checkpoint with it."""
    counts: dict[int, int] = {}

    def write(frame: Any, checkpoint_id: int) -> None:
        assert checkpoint_id not in counts
        counts[checkpoint_id] = spark.createDataFrame([(1,)], "one int").count() * frame.count()
        frame.write.parquet(str(tmp_path / "rows" / str(checkpoint_id)))

    options: Any = {"on": "spark", "storage": tmp_path / "state", "output_dir": tmp_path / "out"}
    job(ForeachBatchSink(write, schema=SCHEMA)).run(checkpoint_interval="20rec", **options)

    assert len(counts) > 2
    assert sum(counts.values()) == RECORDS
    frame = spark.read.option("recursiveFileLookup", "true").parquet(str(tmp_path / "rows"))
    assert sorted(row.number for row in frame.collect()) == ALL
