"""The same on Spark: one streaming query, one action per batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import CollectionSource, FileSink, Job, UserFunctionError
from engine.observe.cut_oracle import CutOracle
from engine.runtime.execution import ExecutionResult
from engine.runtime.storage import open_storage
from spark_bridge.pipeline import spark_execution
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import config, simulated


def on_spark(job: Job, directory: Path, records: int) -> tuple[ExecutionResult, CutOracle]:
    oracle = CutOracle()
    with open_storage(str(directory / "state"), job.name) as opened:
        execution = spark_execution(
            job.plan(),
            config(records),
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
