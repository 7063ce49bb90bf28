"""The same on Spark: one streaming query, one action per batch."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import sys
import weakref
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engine import (
    CollectionSource,
    DiskLog,
    FileSink,
    GeneratorSource,
    Job,
    LogSink,
    PartitionCommit,
    PartitionedFileSink,
    SequenceSource,
    SqliteSink,
    UserFunctionError,
)
from engine.observe.cut_oracle import CutOracle
from engine.runtime.execution import ExecutionResult
from engine.runtime.storage import open_storage
from operators.log.disk import committed_records
from spark_bridge.pipeline import spark_execution, stage_function
from state_backends import LocalFileSystem
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import config, simulated


def on_spark(job: Job, directory: Path, records: int, **options: Any) -> tuple[ExecutionResult, CutOracle]:
    oracle = CutOracle()
    with open_storage(str(directory / "state"), job.name) as opened:
        execution = spark_execution(
            job.plan(),
            config(records, **options),
            master=None,
            storage=opened.storage,
            incarnation=opened.incarnation,
            output_dir=str(directory / "out"),
            restore=True,
            instruments=[oracle],
        )
        return execution.run(), oracle


@pytest.mark.usefixtures("spark")
def test_a_job_on_spark_commits_what_the_simulator_commits(tmp_path: Path) -> None:
    """Three batches: with one the source would be read as a whole, in silence."""
    simulated(jobs.windows(), tmp_path / "simulated", config(300))
    result, oracle = on_spark(jobs.windows(), tmp_path / "spark", 300)
    assert result.error is None, result.error
    assert jobs.committed(tmp_path / "spark" / "out") == jobs.committed(tmp_path / "simulated" / "out")
    assert result.checkpoints.completed == 2
    assert oracle.held


@pytest.mark.usefixtures("spark")
def test_partitions_without_rows_take_part_and_errors_come_back_as_they_are(tmp_path: Path) -> None:
    """Three of four subtasks get no row, and each must take its snapshot all the same."""

    def fussy(number: int) -> int:
        if number == 45:
            raise ValueError("not this one")
        return number

    job = Job("one-key", parallelism=4)
    numbers = job.source(CollectionSource(range(60)), name="numbers", parallelism=1).key_by(lambda _: "all")
    numbers.reduce(lambda one, other: one + other).map(fussy, name="picky").sink(FileSink("sums"), uid="sink")
    with pytest.raises(UserFunctionError, match=r"(?s)'picky' raised ValueError: not this one.*record  45"):
        job.run(on="spark", storage=tmp_path / "state", output_dir=tmp_path / "out", checkpoint_interval="5rec")
    assert sorted(int(line) for _, line in jobs.committed(tmp_path / "out")) == [0, 1, 3, 6, 10]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_two_writers_of_each_sink_share_its_place_on_spark(tmp_path: Path) -> None:
    """Two processes write to one log, one database and one table at a time, with incremental snapshots of their keyed
    state: no row is lost or doubled, and every partition is announced."""
    job = Job("shop", parallelism=2)
    numbers = job.source(SequenceSource(0, 120, splits=2), name="numbers").key_by(lambda number: number % 5)
    counts = numbers.reduce(lambda _, number: number, name="newest", uid="newest")
    rows = counts.map(lambda number: {"shop": number % 3, "number": number}, name="rows")
    rows.disable_chaining().sink(LogSink("rows", log=DiskLog("log"), partitions=2), name="log", uid="log")
    columns = {"shop": "INT", "number": "BIGINT"}
    rows.disable_chaining().sink(SqliteSink("shop.sqlite", "rows", columns), name="database", uid="database")
    table = PartitionedFileSink("table", partition_by=("shop",), commit=PartitionCommit())
    rows.sink(table, name="table", uid="table")
    options = {"state_backend": "lsm", "snapshot": "incremental", "inline_state_bytes": 0}
    result, oracle = on_spark(job, tmp_path, 40, **options)
    assert result.error is None, result.error
    assert oracle.held
    out = tmp_path / "out"
    partitions = committed_records(LocalFileSystem(), str(out / "log"), "rows")
    expected = list(range(120))
    assert sorted(record.value["number"] for partition in partitions for record in partition) == expected
    with closing(sqlite3.connect(out / "shop.sqlite")) as connection:
        assert sorted(number for (number,) in connection.execute("SELECT number FROM rows")) == expected
    found = jobs.committed(out / "table")
    assert found == {(f"shop={number % 3}", f'{{"number":{number}}}'): 1 for number in expected}
    assert sorted(path.parent.name for path in out.rglob("_SUCCESS")) == ["shop=0", "shop=1", "shop=2"]
    assert any((tmp_path / "state" / "shop" / "shared").iterdir()), "no snapshot was incremental"


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_generators_run_in_workers_whose_modules_the_collector_passes_over(tmp_path: Path) -> None:
    """The driver makes no record, however many there are; and PySpark collects garbage after every task."""
    job = Job("where")
    source = GeneratorSource(lambda start, stop: [f"{os.getpid()} {gc.get_freeze_count()}"] * (stop - start), 6)
    job.source(source).sink(FileSink("rows"), uid="sink")
    result, _ = on_spark(job, tmp_path, 1)
    assert result.error is None, result.error
    rows = [json.loads(line).split() for _, line in jobs.committed(tmp_path / "out").elements()]
    assert len(rows) == 6
    assert str(os.getpid()) not in {process for process, _ in rows}
    assert max(int(frozen) for _, frozen in rows) > 10_000


class _Left:
    """What a task leaves behind, for the collector alone."""

    def __init__(self) -> None:
        self.itself = self


def test_a_worker_keeps_no_more_than_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that brings no module is not set aside with them; what another one left behind is collected before the
    next time."""
    monkeypatch.setattr(stage_function, "_modules", 0)
    first, second = _Left(), _Left()
    set_aside, collected = weakref.ref(first), weakref.ref(second)
    del second
    stage_function.keep_modules()
    assert collected() is None
    del first
    third = _Left()
    collected = weakref.ref(third)
    stage_function.keep_modules()
    del third
    gc.collect()
    assert (set_aside() is None, collected() is None) == (False, True)

    monkeypatch.setitem(sys.modules, "brought_by_a_task", ModuleType("brought_by_a_task"))
    stage_function.keep_modules()
    assert set_aside() is None
