"""What a run reports about its records: read, read again, and by which attempt of which task."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.restore import FixedDelayRestart, NoRestart
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval
from engine.runtime.execution import ExecutionResult
from engine.runtime.job import TaskReport
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.acking.acked_jobs import acking_config, at_once, expected, pipeline, run_acked
from tests.runtime.support import MS, US, checked, every, execution, run, running_count

RECORDS = 60
AT_ONCE = FixedDelayRestart(None, 0)
SETTINGS: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=7 * US), "restart": AT_ONCE}


def counted(parallelism: int = 2) -> Job:
    return running_count(Job("counted", parallelism=parallelism), RECORDS, CollectedResults(), keys=5)


def two_pipelines() -> Job:
    job = Job("two", parallelism=1)
    for name in "ab":
        numbers = job.source(SequenceSource(0, RECORDS), name=f"numbers-{name}")
        numbers.map(str, name=f"text-{name}", chain=False).collect(CollectedResults(), name=f"out-{name}")
    return job


def of_sources(result: ExecutionResult) -> list[TaskReport]:
    return [task for task in result.tasks if task.vertex.startswith("numbers")]


@pytest.mark.parametrize("mode", ["aligned", "at-least-once", "unaligned"])
@pytest.mark.parametrize("target", ["numbers[0]", "count[1]", "job manager"])
def test_what_was_not_read_again_is_the_input(mode: str, target: str) -> None:
    """Killed twice at any time, whichever region went back to whichever checkpoint."""
    again = 0
    for at_us in range(1, 60, 11):
        kills = [(target, at_us * US), ("count[0]", (at_us + 9) * US)]
        settings = {**SETTINGS, "mode": mode, "master_recovery_ns": 2 * US}
        result = checked(execution(counted(), kills=kills, **settings)).raise_on_failure()

        assert result.source_records - result.replayed_records == RECORDS, at_us
        assert sum(task.total_records_in for task in of_sources(result)) == result.source_records
        again += result.replayed_records
    assert again > 10


@pytest.mark.parametrize("at_us", range(1, 60, 14))
def test_a_region_that_goes_back_reads_only_its_own_again(at_us: int) -> None:
    """The other region stays in its attempt, and its counts are those of a run without a failure."""
    kills = [("text-a", at_us * US), ("text-a", (at_us + 5) * US)]
    result = checked(execution(two_pipelines(), kills=kills, failover="region", **SETTINGS)).raise_on_failure()
    struck, other = of_sources(result)

    assert result.source_records - result.replayed_records == 2 * RECORDS
    assert (other.attempt, other.records_in, other.total_records_in) == (1, RECORDS, RECORDS)
    assert struck.attempt == result.attempts > 1
    assert struck.total_records_in == RECORDS + result.replayed_records


def test_a_task_says_what_its_last_attempt_did_and_what_all_of_them_did() -> None:
    """The counts of earlier attempts are kept: all attempts together have handled what was sent."""
    result = run(counted(1), kills=[("count", 20 * US)], **SETTINGS)
    (source,) = of_sources(result)
    count = next(task for task in result.tasks if task.vertex.startswith("count"))

    assert (source.attempt, count.attempt, result.attempts) == (2, 2, 2)
    assert source.records_in < RECORDS < source.total_records_in == result.source_records
    assert count.records_in == source.records_out
    assert RECORDS < count.total_records_in <= source.total_records_out


def test_a_failed_job_tells_what_it_has_read_again_until_then() -> None:
    """The last attempt died at the same record as the one before: it has read all records again."""
    job = Job("raises", parallelism=1)
    numbers = job.source(SequenceSource(0, RECORDS), name="numbers")
    numbers.map(lambda number: 1 // (number - 30), name="parse", chain=False).collect(CollectedResults())
    settings: dict[str, Any] = {"batch_size": 1, "checkpoint_interval": None, "restart": FixedDelayRestart(2, 0)}
    result = checked(execution(job, **settings))

    assert (result.state, result.attempts) == ("failed", 3)
    assert result.source_records == 3 * 31
    assert result.replayed_records == 2 * 31


def test_a_run_without_failures_reads_nothing_again() -> None:
    """And the only attempt is also the sum of all attempts."""
    result = run(counted(), batch_size=3, restart=NoRestart())

    assert (result.source_records, result.replayed_records) == (RECORDS, 0)
    for task in result.tasks:
        assert (task.records_in, task.records_out) == (task.total_records_in, task.total_records_out)


@pytest.mark.parametrize("target", ["numbers[0]", "tens[1]", "sink[0]", "job manager"])
@pytest.mark.parametrize("interval_ns", [3 * US, 1_000 * MS])
def test_acking_counts_what_was_sent_again(target: str, interval_ns: int) -> None:
    """By sources that run and get no acknowledgement, and by sources that go back to committed offsets."""
    again = 0
    for at_us in range(1, 60, 19):
        results = at_once()
        config = acking_config(checkpoint_interval=CheckpointInterval(time_ns=interval_ns))
        result, acking = run_acked(pipeline(results, 100), config, kills=[(target, at_us * US)])

        assert not expected(100) - Counter(results.records)
        assert result.source_records - result.replayed_records == 100, at_us
        assert result.replayed_records >= acking.replayed
        assert acking.tracked == result.source_records
        assert acking.unresolved == acking.tracked - acking.completed - acking.failed - acking.timed_out
        sent = sum(task.total_records_out for task in result.tasks)
        assert sent == acking.data, at_us
        again += result.replayed_records
    assert again > 10
