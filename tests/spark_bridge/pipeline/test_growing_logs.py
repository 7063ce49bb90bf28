"""A log that grows while a job reads it in batches: new records and new partitions, each once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from engine import CollectionSource, FileSink, Job, JobFailedError, LogSource, UserFunctionError
from operators.log.disk import DiskTransactionLog
from operators.sources import Pause
from spark_bridge.pipeline.subtask_batch import BatchOrder, SubtaskReport
from state_backends import LocalFileSystem
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.local_stages import LocalStages
from tests.spark_bridge.pipeline.runs import config, in_batches
from tests.spark_bridge.pipeline.test_functions_that_differ import run_twice


def write(directory: Path, partition: int, numbers: Iterable[int]) -> None:
    """Append to a partition, which is added if it is not there."""
    log = DiskTransactionLog(LocalFileSystem(), str(directory / "log"))
    log.create_topic("t", 1) if "t" not in log.topics() else None
    log.add_partitions("t", max(partition + 1, log.partitions("t")))
    log.append(None, "t", partition, list(numbers), 0, 0)
    log.close()


def job(directory: Path, look: Callable[[int], int] = int, **options: Any) -> Job:
    made = Job("growing", parallelism=2)
    source = LogSource(str(directory / "log"), "t", bounded=False, discovery_interval_ms=500, **options)
    return made.source(source, name="reader", uid="reader").map(look, name="look").rebalance().sink(
        FileSink("rows"), uid="sink"
    )


def rows(directory: Path) -> list[int]:
    return sorted(int(line) for _, line in jobs.committed(directory / "out").elements())


class Growing(LocalStages):
    """Adds a partition before some batches."""

    def __init__(self, directory: Path) -> None:
        super().__init__(3)
        self._directory = directory
        self.spans_s: list[int] = []

    def run(self, order: BatchOrder) -> Sequence[SubtaskReport]:
        number = order.barrier.checkpoint_id
        self.spans_s.append(order.span_ns // 1_000_000_000)
        if number in (2, 3, 5):
            write(self._directory, number, range(number * 10, number * 10 + 10))
        return super().run(order)


def test_partitions_that_come_between_batches_are_read_once(tmp_path: Path) -> None:
    """From their beginning, whatever start= says, and by another driver too."""
    write(tmp_path, 0, range(10))
    stages = Growing(tmp_path)
    for stop_after in (4, 12):
        result, oracle = in_batches(job(tmp_path), tmp_path, config(6), stop_after=stop_after, stages=stages)
        assert result.error is None, result.error
        assert oracle.held
    assert rows(tmp_path) == [*range(10), *range(20, 40), *range(50, 60)]
    # While nothing comes batches grow, and it looks in the log more often in each; not without bound.
    assert stages.spans_s[-2:] == [16, 16]


def test_a_pause_that_is_longer_than_many_batches_ends(tmp_path: Path) -> None:
    """Each batch begins it anew, and one is long enough."""
    made = Job("pause")
    made.source(CollectionSource([1, Pause(500_000), 2]), name="numbers").sink(FileSink("rows"), uid="sink")
    stages = LocalStages()
    result, _ = in_batches(made, tmp_path, config(6), stages=stages)
    assert result.error is None, result.error
    assert rows(tmp_path) == [1, 2]
    assert stages.batches < 6


def test_a_source_that_runs_twice_while_its_log_grows_fails_its_batch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some receivers have the records that were there before: the error says so, and a second run has all of them."""
    write(tmp_path, 0, range(10))
    grown = iter([100, 101])

    def value(number: int) -> int:
        if number == 3 and (more := next(grown, None)) is not None:
            write(tmp_path, 0, [more])
        return number

    with monkeypatch.context() as patch:
        run_twice(patch, 0, 1)
        result, _ = in_batches(job(tmp_path, value=value), tmp_path, config(50), stop_after=2)
    assert isinstance(result.error, JobFailedError), result.error
    assert "more input had come by then, or a function of reader -> look is not deterministic" in str(result.error)
    assert "if only input has come, just go on with weir resume" in str(result.error)
    assert rows(tmp_path) == []
    result, _ = in_batches(job(tmp_path), tmp_path, config(50), stop_after=2)
    assert result.error is None, result.error
    assert rows(tmp_path) == [*range(10), 100, 101]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_partitions_that_come_while_a_job_runs_on_spark(tmp_path: Path) -> None:
    """A function of the job plays the process that writes the log; the job fails in the end, since it has no other."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    write(tmp_path, 0, range(10))

    def look(number: int) -> int:
        if number == 99:
            raise ValueError("the end")
        if number == 59:
            write(tmp_path, 0, [99])
        elif number % 10 == 9:
            write(tmp_path, number // 10 + 1, range(number + 1, number + 11))
        return number

    with pytest.raises(UserFunctionError, match="the end"):
        job(tmp_path, look).run(
            on="spark", storage=tmp_path / "state", output_dir=tmp_path / "out", checkpoint_interval="50rec"
        )
    # The last batch, with the last partitions, is not committed.
    found = rows(tmp_path)
    assert found == list(range(len(found)))
    assert len(found) >= 20
