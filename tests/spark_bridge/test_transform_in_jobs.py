"""The Spark operator in a job: all rows of a period meet, kills change no result, and Spark itself does the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.elements.errors import JobFailedError, JobGraphError
from engine.graph.job import Job
from engine.graph.partitioner import GlobalPartitioner
from engine.runtime.execution import ExecutionResult
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from operators.time import WatermarkStrategy
from spark_bridge.cuts import rows_cut
from spark_bridge.errors import SparkTransformError
from spark_bridge.transform import spark_transform
from tests.runtime.support import US, every, run
from tests.spark_bridge.transforms import TENS, Calls, spec

EACH = 45


def number_sums(into: CollectedResults, fn: Any, **options: Any) -> Job:
    """Two splits, each with one number per millisecond of event time, cut into periods of ten milliseconds."""
    job = Job("number-sums", parallelism=2)
    watermarks = WatermarkStrategy.for_monotonous_timestamps(lambda number: number % EACH).with_interval_ns(7 * US)
    numbers = job.source(SequenceSource(0, 2 * EACH, splits=2), name="numbers", watermarks=watermarks)
    rows = numbers.map(lambda number: [number, number % 3], name="row")
    sums = rows.via(spark_transform(fn, schema="number int, rest int", cut=TENS, **options), name="sums")
    return sums.collect(into, name="out", parallelism=1)


def run_numbers(
    fn: Any, *, kills: Sequence[tuple[str, int]] = (), seed: int = 0, **options: Any
) -> tuple[ExecutionResult, list[Any]]:
    """One run that must end well; returns the committed results."""
    results = CollectedResults()
    job = number_sums(results, fn, **options)
    result = run(job, kills=kills, seed=str(seed), batch_size=4, checkpoint_interval=every(ns=11 * US))
    return result, results.records


def sums_in_python(rows: list[list[int]]) -> list[dict[str, int]]:
    """Count and sum of the numbers with each remainder, in canonical order."""
    return [
        {"rest": rest, "count": len(numbers), "sum": sum(numbers)}
        for rest in range(3)
        if (numbers := [number for number, found in rows if found == rest])
    ]


def expected_sums() -> list[dict[str, int]]:
    """The right answer, period by period."""
    rows = [[[n, n % 3] for n in range(2 * EACH) if n % EACH // 10 == period] for period in range(5)]
    return [result for period in rows for result in sums_in_python(period)]


def test_a_period_of_all_splits_is_one_batch(calls: Calls) -> None:
    """Rows of all subtasks meet in one subtask, whatever the job's parallelism, and nothing is late."""
    result, committed = run_numbers(sums_in_python)

    assert committed == expected_sums()
    assert [len(rows) for rows in calls.rows] == [20, 20, 20, 20, 10]
    assert [task.name for task in result.tasks if "sums" in task.name] == ["sums -> out[0]"]


@pytest.mark.parametrize("target", ["sums", "numbers[1]", "out"])
def test_a_kill_at_any_time_changes_no_result(calls: Calls, target: str) -> None:
    """Killed at critical moments, the job commits each period's results once, in the order of periods."""
    restored = set()
    for at_us in range(8, 48, 5):
        result, committed = run_numbers(sums_in_python, kills=[(target, at_us * US)], seed=at_us)
        assert committed == expected_sums()
        assert result.attempts == 2
        restored.add(result.restores[1].checkpoint_id)

    assert len(restored) > 2, "the kills struck before, between and after checkpoints"


def test_the_cost_of_a_batch_delays_the_job(calls: Calls) -> None:
    """Five batches of a millisecond each make the run at least that much longer, and change nothing else."""
    free, committed = run_numbers(sums_in_python)
    dear, committed_later = run_numbers(sums_in_python, cost_ns=1_000 * US)

    assert committed_later == committed
    assert dear.ended_ns - dear.started_ns >= free.ended_ns - free.started_ns + 4_000 * US


def test_rows_go_to_the_one_subtask() -> None:
    """The specification asks for one subtask and says how rows get there."""
    assert (spec(TENS).parallelism, spec(TENS).partitioner) == (1, GlobalPartitioner())


def test_a_job_cannot_ask_for_more_subtasks(calls: Calls) -> None:
    """A batch holds all rows of its cut, so there is one subtask, and asking for more is refused."""
    stream = Job("j").source(SequenceSource(0, 1), name="numbers")

    with pytest.raises(JobGraphError, match="demands parallelism=1, the call asks for parallelism=2"):
        stream.via(spec(TENS), parallelism=2)


def test_operators_are_named_after_their_function() -> None:
    """An operator without a name gets the name of its function; a lambda works, too."""
    assert spec(TENS).name == "size_and_sum"
    assert spec(TENS, name="mine").name == "mine"
    job = Job("j")
    job.source(SequenceSource(0, 1), name="numbers").via(spec(rows_cut(1), lambda frame: frame)).collect([])
    assert len(job.plan().subtasks) >= 1


def sums_on_spark(frame: Any) -> Any:
    """The same as ``sums_in_python``, as a DataFrame function."""
    from pyspark.sql import functions as f

    return frame.groupBy("rest").agg(f.count("*").alias("count"), f.sum("number").alias("sum"))


def test_a_job_on_spark_survives_a_kill(spark: Any) -> None:
    """On Spark itself: killed in the middle and restored from a checkpoint, the job commits the right results."""
    undisturbed, expected = run_numbers(sums_on_spark, result_schema="rest int, count bigint, sum bigint")
    killed, committed = run_numbers(sums_on_spark, kills=[("sums", 30 * US)], parquet_threshold_rows=20)

    assert committed == expected == expected_sums()
    assert undisturbed.attempts == 1
    assert killed.restores[1].checkpoint_id is not None


def test_a_failing_batch_fails_the_job_with_its_name(spark: Any) -> None:
    """The job's error leads to the batch, the function and Spark's reason."""
    with pytest.raises(JobFailedError, match="number-sums") as caught:
        run_numbers(lambda frame: frame.select("nothing"))

    cause = caught.value.__cause__
    assert isinstance(cause, SparkTransformError)
    assert cause.label == "sums: from 0"
