"""A job that cannot run in batches is refused before anything happens: the operator, the reason, the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import (
    CollectedResults,
    CollectionSource,
    ConfigurationError,
    CountedRecords,
    CountingSink,
    DatabaseSink,
    FileSink,
    Job,
    JobGraphError,
    KafkaSource,
    LogSink,
    LogSource,
    MemoryDatabase,
    MetastorePolicy,
    PartitionCommit,
    PartitionedFileSink,
    PrintSink,
    StagedFileSink,
    TumblingProcessingTimeWindows,
    UpsertSink,
)
from engine.elements.operator import Operator
from operators.table.partitions import MemoryMetastore
from spark_bridge.pipeline import check_plan
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import config, in_batches


def _numbers() -> tuple[Job, object]:
    job = Job("refused")
    return job, job.source(CollectionSource(range(10)), name="numbers")


def counting() -> Job:
    job, numbers = _numbers()
    numbers.sink(CountingSink(CountedRecords()), name="counter")
    return job


def printing() -> Job:
    job, numbers = _numbers()
    numbers.sink(PrintSink(), name="printer")
    return job


def log_in_memory() -> Job:
    job, numbers = _numbers()
    numbers.sink(LogSink("rows"), name="log")
    return job


def processing_time() -> Job:
    job, numbers = _numbers()
    windows = numbers.key_by(lambda number: number % 2).window(TumblingProcessingTimeWindows.of(10))
    windows.reduce(lambda one, other: one + other, name="sums").sink(FileSink("sums"))
    return job


def wrapped() -> Job:
    job, numbers = _numbers()
    numbers.sink(lambda: LogSink("rows").create_operator(), name="log")
    return job


def plain_list() -> Job:
    job, numbers = _numbers()
    numbers.collect(CollectedResults(transactional=False), name="list")
    return job


def database_in_memory() -> Job:
    job, numbers = _numbers()
    rows = numbers.map(lambda number: {"number": number})
    rows.sink(DatabaseSink(MemoryDatabase(), "rows", ["number"]), name="inserted")
    rows.sink(UpsertSink(MemoryDatabase(), "rows", ["number"], key=["number"]), name="replaced")
    return job


def metastore_in_memory() -> Job:
    job, numbers = _numbers()
    metastore = MemoryMetastore()
    metastore.create_table("rows", ["number"])
    commit = PartitionCommit(policies=[MetastorePolicy(metastore, "rows")])
    rows = numbers.map(lambda number: {"number": str(number), "half": number / 2})
    rows.sink(PartitionedFileSink("rows", partition_by=["number"], commit=commit), name="table")
    rows.sink(StagedFileSink("staged", partition_by=["number"], policies=commit.policies), name="staged")
    return job


def consumer_group_of_kafka() -> Job:
    job = Job("refused")
    source = KafkaSource("localhost:9092", "rows", group="readers", bounded=True)
    job.source(source, name="log").sink(FileSink("rows"))
    return job


def consumer_group() -> Job:
    job = Job("refused")
    job.source(LogSource("log", "rows", group="readers"), name="log").sink(FileSink("rows"))
    return job


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (counting, "'counter' keeps its rows in the memory of one process.*CollectSink"),
        (printing, "'printer' keeps its rows in the memory of one process"),
        (log_in_memory, "'log' writes to a log in the memory of one process.*DiskLog"),
        (wrapped, "'log' writes to a log in the memory of one process.*DiskLog"),
        (plain_list, "'list' keeps its rows in the memory of one process.*CollectSink with transactions"),
        (database_in_memory, "'inserted' writes to a database in the memory.*'replaced' writes to a database"),
        (metastore_in_memory, "'table-partition-committer' enters.*'staged finalizer' enters.*SqliteMetastore"),
        (consumer_group, "'log' commits offsets to a consumer group"),
        (consumer_group_of_kafka, "'log' commits offsets to a consumer group.*leave group= out"),
        (processing_time, "'sums' has windows in processing time.*event time"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_operator_the_reason_and_the_way_out(build: Callable[[], Job], words: str, tmp_path: Path) -> None:
    """No output directory is made."""
    with pytest.raises(JobGraphError, match=f"(?s)job 'refused' cannot run on Spark:.*{words}"):
        in_batches(build(), tmp_path, config())
    assert not (tmp_path / "out").exists()


def test_every_operator_is_named_at_once(tmp_path: Path) -> None:
    """A user mends a job in one go."""
    job = counting()
    job.source(CollectionSource(range(3)), name="more").sink(LogSink("rows"), name="log")
    with pytest.raises(JobGraphError, match=r"(?s)'counter'.*'log'"):
        in_batches(job, tmp_path, config())


@pytest.mark.parametrize("mode", ["unaligned", "aligned-timeout", "at-least-once", "acking", "none"])
def test_batches_have_one_mode(mode: str, tmp_path: Path) -> None:
    """Each batch ends aligned: another mode would not be what was asked for."""
    with pytest.raises(ConfigurationError, match=f"mode {mode} does not exist on Spark.*\n  leave --mode out"):
        in_batches(jobs.word_count(), tmp_path, config(mode=mode))


def test_an_operator_is_made_once_to_look_at_it() -> None:
    """A factory may be expensive: it may read a model."""
    made: list[int] = []

    class Model(Operator):
        def __init__(self) -> None:
            made.append(1)

    job, numbers = _numbers()
    numbers.via(Model, name="model").sink(FileSink("rows"))
    check_plan(job.plan(), config())
    assert len(made) == 1
