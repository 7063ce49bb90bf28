"""Offsets of completed checkpoints, for programs that watch a job from outside, and their lag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.cases import Case
from engine.explore.invariants import invariants_for
from engine.explore.run import Subject, run_case
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from operators.log.connectors.log_sink import LogSink
from operators.log.connectors.log_source import LogSource
from operators.log.disk.consumer_groups import PartitionLag, committed_offset, consumer_lag
from operators.log.disk.disk_transaction_log import DiskTransactionLog
from operators.log.port.transaction_log import LogCorruptError
from operators.sources import SourceOperator
from state_backends.files import LocalFileSystem, MemoryFileSystem, WritableFile
from tests.operators.harness import START_NS, Checkpoint, Harness

FILE = "/log/groups/watched/t/0"


def log_with(fs: MemoryFileSystem | LocalFileSystem, *counts: int, directory: str = "/log") -> DiskTransactionLog:
    log = DiskTransactionLog(fs, directory)
    log.create_topic("t", len(counts))
    for partition, count in enumerate(counts):
        if count:
            log.append(None, "t", partition, list(range(count)), 0, 0)
    return log


def source(fs: MemoryFileSystem, restored: Checkpoint | None = None, **options: Any) -> Harness:
    operator = SourceOperator(LogSource("/log", "t", group="watched", bounded=False), records_per_turn=4)
    return Harness(operator, fs=fs, restored=restored, **options)


def read(harness: Harness, count: int) -> None:
    assert isinstance(harness.operator, SourceOperator)
    harness.operator.emit_next(count)


def offset(fs: MemoryFileSystem, partition: int = 0) -> int | None:
    found = committed_offset(fs, "/log", "t", partition, "watched")
    return None if found is None else found.offset


def test_the_offset_of_a_group_is_that_of_the_completed_checkpoint() -> None:
    """It has neither records read since then, nor checkpoints that are not known to be complete."""
    fs = MemoryFileSystem()
    log_with(fs, 10)
    task = source(fs)
    read(task, 3)
    task.snapshot(1)
    read(task, 2)
    task.snapshot(2)
    read(task, 2)
    assert offset(fs) is None
    task.complete(1)
    assert committed_offset(fs, "/log", "t", 0, "watched") == (3, 1, START_NS)
    task.complete(2)
    assert offset(fs) == 5
    assert task.counter("commitsSucceeded") == 2


def test_news_that_come_late_or_never_set_nothing_back() -> None:
    """A newer checkpoint covers those before it; one that was given up is never committed."""
    fs = MemoryFileSystem()
    log_with(fs, 10)
    task = source(fs)
    for number in (1, 2, 3):
        read(task, 2)
        task.snapshot(number)
    task.operator.notify_checkpoint_aborted(3)
    task.complete(3)
    assert offset(fs) is None
    read(task, 1)
    task.snapshot(4)
    task.snapshot(5)
    task.complete(4)
    assert offset(fs) == 7
    task.complete(2)
    assert offset(fs) == 7
    assert task.counter("commitsSucceeded") == 1


def test_the_state_alone_says_where_a_job_goes_on() -> None:
    """A restored source does not look at its group, and a new one begins at the beginning."""
    fs = MemoryFileSystem()
    log_with(fs, 10)
    task = source(fs)
    read(task, 3)
    checkpoint = task.snapshot(1)
    read(task, 4)
    task.checkpoint(2)
    assert offset(fs) == 7
    restored, anew = source(fs, checkpoint), source(fs)
    read(restored, 1)
    read(anew, 1)
    assert (restored.take_values(), anew.take_values()) == ([3], [0])
    restored.checkpoint(3)
    assert offset(fs) == 4


def test_each_subtask_commits_for_its_own_partitions() -> None:
    """It commits for no partition of which it has not read anything."""
    fs = MemoryFileSystem()
    log_with(fs, 5, 6, 7)
    task = source(fs, subtask=1, parallelism=2)
    read(task, 5)
    task.checkpoint(1)
    assert [offset(fs, number) for number in range(3)] == [None, 5, None]


class FullDisk(MemoryFileSystem):
    """Refuses to write offsets of groups."""

    def open_write(self, path: str) -> WritableFile:
        if "/groups/" in path:
            raise OSError(28, "No space left on device", path)
        return super().open_write(path)


def test_a_commit_that_fails_is_counted_and_the_job_goes_on() -> None:
    """The offset is only for watchers; the job does not depend on it."""
    fs = FullDisk()
    log_with(fs, 5)
    task = source(fs)
    read(task, 2)
    task.checkpoint(1)
    assert (task.counter("commitsFailed"), task.counter("commitsSucceeded")) == (1, 0)
    read(task, 1)
    assert task.take_values() == [0, 1, 2]


def test_lag_is_the_distance_to_what_can_be_read() -> None:
    """It goes to the last stable offset, or to the end with undecided records; without commits, from the earliest."""
    fs = MemoryFileSystem()
    log = log_with(fs, 6, 3)
    task = source(fs, subtask=0, parallelism=2)
    read(task, 4)
    task.checkpoint(1)
    committed = committed_offset(fs, "/log", "t", 0, "watched")
    producer = log.init_transactions("open", 10**9, 0)
    log.begin(producer, 0)
    log.append(producer, "t", 0, ["undecided"], 0, 0)
    log._topics["t"][0].flush()
    assert consumer_lag(fs, "/log", "t", "watched") == [PartitionLag(0, committed, 6, 2), PartitionLag(1, None, 3, 3)]
    assert [one.lag for one in consumer_lag(fs, "/log", "t", "watched", isolation="read_uncommitted")] == [3, 3]
    assert [one.lag for one in consumer_lag(fs, "/log", "t", "nobody")] == [6, 3]
    with pytest.raises(ConfigurationError, match="no topic 'u'"):
        consumer_lag(fs, "/log", "u", "watched")
    with pytest.raises(ConfigurationError, match="isolation is 'dirty'"):
        consumer_lag(fs, "/log", "t", "watched", isolation="dirty")


def test_a_damaged_offset_is_named_and_a_group_needs_a_name() -> None:
    """A damaged file is not read as offset 0."""
    fs = MemoryFileSystem()
    log_with(fs, 5)
    task = source(fs)
    read(task, 2)
    task.checkpoint(1)
    with fs.open_append(FILE) as file:
        file.write(b"x")
    with pytest.raises(LogCorruptError, match="groups/watched/t/0"):
        offset(fs)
    with pytest.raises(ConfigurationError, match=r"group '\.\./x' cannot be kept"):
        LogSource("/log", "t", group="../x")


@pytest.mark.parametrize(
    "fault", ["", "crash:process@after:manifest.rename#2", "crash:copy[0]@after:barrier.inject#2"]
)
def test_a_job_has_committed_its_end_to_the_group(fault: str, tmp_path: Path) -> None:
    """It does so through crashes, for a bounded job completes a checkpoint after its last record."""
    path = str(tmp_path / "log")
    log_with(LocalFileSystem(), 9, 4, directory=path).close()

    def build(parallelism: int | None) -> Job:
        job = Job("copying", parallelism=parallelism or 1)
        job.source(LogSource(path, "t", group="watched"), name="copy", uid="copy").sink(
            LogSink("rows"), name="out", uid="out"
        )
        return job

    faults = (parse_fault(fault),) if fault else ()
    case = Case(config={"batch_size": 1, "checkpoint_interval": "3rec"}, faults=faults)
    finished = run_case(Subject(build), case, invariants_for())
    assert (finished.outcome, finished.violations) == ("finished", [])
    assert [one.lag for one in consumer_lag(finished.view.world.files, path, "t", "watched")] == [0, 0]
