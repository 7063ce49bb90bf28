"""State of sinks and sources in a checkpoint is well framed and malformed inside: an error of ours names operator
and checkpoint, and never a wrong row."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError, UserFunctionError, WeirError
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.basic import CollectedResults, CollectSink, CountedRecords, CountingSink
from operators.columns import ColumnSource
from operators.databases import DatabaseSink, MemoryDatabase
from operators.files.bucketing import BucketingSink
from operators.files.compaction import CompactionStrategy
from operators.files.formats import TextFormat
from operators.files.reading import FileSource, FixedLengthFormat
from operators.files.sinks import FileSink
from operators.files.writing import OnCheckpointRollingPolicy
from operators.log.connectors.log_sink import LogSink
from operators.log.connectors.log_source import LogSource
from operators.log.disk.disk_log import DiskLog
from operators.log.kafka.kafka_sink import KafkaSink
from operators.sources import CollectionSource, GeneratorSource, SequenceSource
from operators.table.partitions.partition_commit import PartitionCommit
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink, TableCompaction
from operators.table.staging.staged_sink import StagedFileSink
from operators.time import WatermarkStrategy
from state_backends.api import OperatorListState, OperatorStateBackend
from state_backends.base import StateBackendError
from state_backends.codec import default_codec
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage, OperatorStateHandle, SnapshotOptions, run_to_completion
from tests.malformed import variants
from tests.operators.log.kafka.fake_kafka import FakeClient
from tests.scenarios.damage.test_crash_damage_backends import copied, put
from tests.stored_runs import run_stored

DIRECTORY, OUT, NAME, RECORDS = "/state", "/out", "malformed", 60
INLINE = 1 << 20
LINES = "/in/lines"


@dataclass(frozen=True)
class Case:
    """``job``: with the job, and its visible output."""

    job: Callable[[Job], None]
    mode: str = "exactly-once"


def records(job: Job, source: Any = None) -> Any:
    """A stream of records; strings, where nothing else is asked for."""
    made = SequenceSource(0, RECORDS) if source is None else source
    return job.source(made, name="numbers", uid="numbers").map(
        lambda number: {"day": f"d={number % 2}", "n": f"rec {number}", "hour": "00"}, name="row"
    )


def into(make: Callable[[], Any]) -> Case:
    def build(job: Job) -> None:
        records(job).sink(make(), name="out", uid="out", chain=False)

    return Case(build)


def out_of(make: Callable[[], Any], watermarks: bool = False) -> Case:
    def build(job: Job) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps(int) if watermarks else None
        source = job.source(make(), name="numbers", uid="numbers", watermarks=strategy)
        source.sink(CountingSink(CountedRecords()), name="out", uid="out", chain=False)

    return Case(build)


def by_day(record: Any) -> str:
    return str(record["day"])


COMMIT = PartitionCommit("process-time", delay_ms=1)
BY_TIME = PartitionCommit("partition-time", extractor=DefaultPartitionTimeExtractor("2020-05-03 $hour:00:00"))


def database() -> DatabaseSink:
    return DatabaseSink(MemoryDatabase(), "t", {"day": "TEXT", "n": "TEXT", "hour": "TEXT"})


CASES: dict[str, Case] = {
    "rows": into(lambda: FileSink("rows", bucket=by_day)),
    "bulk": into(lambda: FileSink("rows", bucket=by_day, rolling_policy=OnCheckpointRollingPolicy())),
    "committer": into(lambda: FileSink("rows", bucket=by_day).with_committer()),
    "compacting": into(
        lambda: FileSink("rows", bucket=by_day, rolling_policy=OnCheckpointRollingPolicy()).compacting(
            CompactionStrategy(checkpoints=2)
        )
    ),
    "bucketing": into(lambda: BucketingSink("rows", bucketer=by_day, batch_size_bytes=90)),
    "bucketing lengths": into(lambda: BucketingSink("rows", bucketer=by_day, batch_size_bytes=90, use_truncate=False)),
    "partitioned": into(lambda: PartitionedFileSink("rows", partition_by=("day",), commit=COMMIT)),
    "partitioned by time": into(lambda: PartitionedFileSink("rows", partition_by=("hour",), commit=BY_TIME)),
    "partitioned compacting": into(
        lambda: PartitionedFileSink("rows", partition_by=("day",), commit=COMMIT, compaction=TableCompaction(4096))
    ),
    "staged": into(lambda: StagedFileSink("rows", partition_by=("day",), overwrite=True)),
    "database": into(database),
    "log": into(lambda: LogSink("t", log=DiskLog("log"))),
    "kafka": into(lambda: KafkaSink("host:1", "out", delivery="exactly-once", transactional_id_prefix="p")),
    "collected": into(lambda: CollectSink(CollectedResults(transactional=True))),
    "sequence": out_of(lambda: SequenceSource(0, RECORDS, splits=2), watermarks=True),
    "collection": out_of(lambda: CollectionSource(range(RECORDS))),
    "generator": out_of(lambda: GeneratorSource(lambda start, stop: list(range(start, stop)), RECORDS)),
    "columns": out_of(lambda: ColumnSource({"n": list(range(RECORDS))})),
    "lines": out_of(lambda: FileSource(LINES, TextFormat())),
    "lines pulled": out_of(lambda: FileSource(LINES, TextFormat(), assignment="pull", split_bytes=100)),
    "fixed length": out_of(lambda: FileSource(LINES, FixedLengthFormat(5))),
    "from a log": out_of(lambda: LogSource("/in/log", "t")),
}


def run(name: str, files: FileSystem, *, resume: bool = False, kill_ns: int | None = None) -> ExecutionResult:
    """One process of the job. Raises the job's error."""
    job = Job(NAME, max_parallelism=4)
    CASES[name].job(job)
    config = RunConfig(
        batch_size=2,
        checkpoint_interval=CheckpointInterval(records=8),
        inline_state_bytes=INLINE,
        restart=NoRestart(),
        cost=CostModel(source_record_ns=100_000, storage_latency_ns=1_000),
    )
    kills = [] if kill_ns is None else [("numbers[0]", kill_ns)]
    return run_stored(job, config, files, resume=resume, kills=kills).raise_on_failure()


@functools.cache
def left(name: str) -> dict[str, bytes]:
    """All files of a run that was killed after a checkpoint."""
    files = MemoryFileSystem()
    put(files, LINES, b"".join(b"%04d\n" % number for number in range(RECORDS)))
    write_log(files)
    with pytest.raises(JobFailedError):
        run(name, files, kill_ns=3_050_000)
    return {path: files.read_bytes(path) for top in ("/in", DIRECTORY, OUT) for path in walk(files, top)}


def walk(files: FileSystem, top: str) -> list[str]:
    return list(files.walk_files(top)) if files.is_dir(top) else []


def write_log(files: FileSystem) -> None:
    job = Job("writer")
    job.source(SequenceSource(0, RECORDS)).sink(LogSink("t", log=DiskLog("log")), name="log")
    Execution(job.plan(), RunConfig(), file_system=files, output_dir="/in").run().raise_on_failure()


def storage_on(files: FileSystem) -> CheckpointStorage:
    return CheckpointStorage(files, DIRECTORY, NAME, inline_threshold_bytes=INLINE)


Place = tuple[str, int, str | None]
"""Uid, subtask, and the name of a list; ``None`` stands for the coordinator."""


def elements(name: str) -> dict[Place, list[Any]]:
    """The operator state and the states of coordinators in the newest checkpoint."""
    storage = storage_on(copied(left(name)))
    newest = storage.list_checkpoints()[-1]
    reader = storage.location(newest).reader()
    found: dict[Place, list[Any]] = {}
    for operator in storage.read_metadata(newest).operators:
        if operator.coordinator_state is not None:
            found[operator.uid, 0, None] = [default_codec().decode(operator.coordinator_state, "coordinator")]
        for subtask, snapshot in sorted(operator.subtasks.items()):
            if snapshot.operator is not None:
                backend = OperatorStateBackend()
                backend.restore([snapshot.operator], reader)
                for one in backend._states.values():
                    if isinstance(one, OperatorListState) and one.get():
                        found[operator.uid, subtask, one.name] = one.get()
    return found


def with_elements(files: FileSystem, place: Place, changed: list[Any]) -> int:
    """Write the newest checkpoint anew with other elements; returns its id."""
    storage = storage_on(files)
    newest = storage.list_checkpoints()[-1]
    location, metadata = storage.location(newest), storage.read_metadata(newest)
    uid, index, listed = place
    operators = []
    for operator in metadata.operators:
        if operator.uid == uid and listed is None:
            operator = replace(operator, coordinator_state=default_codec().encode(changed[0]))
        elif operator.uid == uid and listed is not None:
            subtasks = dict(operator.subtasks)
            backend = OperatorStateBackend()
            before = subtasks[index].operator
            assert before is not None
            backend.restore([before], location.reader())
            listed_state = backend._states[listed]
            assert isinstance(listed_state, OperatorListState)
            listed_state.update(changed)
            subtasks[index] = replace(subtasks[index], operator=written(backend, location))
            operator = replace(operator, subtasks=subtasks)
        operators.append(operator)
    put(files, location.metadata_path, replace(metadata, operators=tuple(operators)).to_bytes())
    return newest


def written(backend: OperatorStateBackend, location: Any) -> OperatorStateHandle | None:
    """The state as the engine writes it, every checksum right."""
    resources = backend.sync_prepare_resources(1)
    task = backend.async_snapshot(resources, location.stream_factory("changed"), SnapshotOptions())
    return run_to_completion(task).job_manager_state


def changes(name: str) -> Iterator[tuple[Place, list[Any], bool]]:
    """Each node of each list replaced, left out, or there twice; and whether the new value is of another kind."""
    for place, before in elements(name).items():
        if place[2] is not None:
            yield place, [*before, *before], place[2] in ("splits", "assigned-splits")
        for index, one in enumerate(before):
            for other in variants(one):
                if other is not None:
                    yield place, [*before[:index], other, *before[index + 1 :]], is_other_kind(one, other)


def is_other_kind(one: Any, other: Any) -> bool:
    """Whether something is of another type than it was, records of the user and what may be absent left out."""
    if isinstance(one, dict) or (isinstance(one, str | bytes) and str(one).find("rec ") >= 0):
        return False
    if one is None or other is None:
        return False
    if type(one) is not type(other):
        return True
    if isinstance(one, tuple) and len(one) == len(other):
        return any(map(is_other_kind, one, other))
    if isinstance(one, list) and one and len(one) == len(other):
        return any(map(is_other_kind, one, other))
    return False


def check(name: str, place: Place, changed: list[Any], must_be_refused: bool) -> bool:
    """Resume from a changed checkpoint: it is refused by name, or else the state has the right shape."""
    files = copied(left(name))
    newest = with_elements(files, place, changed)
    what = f"{place}: {changed!r}"
    try:
        run(name, files, resume=True)
    except (WeirError, StateBackendError) as failed:
        error: BaseException = failed
        while isinstance(error, JobFailedError) and error.__cause__ is not None:
            error = error.__cause__
        assert isinstance(error, WeirError | StateBackendError), f"{what}: {error!r}"
        assert not isinstance(error, UserFunctionError), f"{what}: {error!r}"
        if must_be_refused:
            named = f"operator {place[0]!r} cannot take over its state from checkpoint {newest}"
            assert named in str(error), f"{what}: {error}"
        return True
    except Exception as error:
        raise AssertionError(f"{what}: {error!r}") from error
    assert not must_be_refused, what
    return False


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", FakeClient())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("most", [6, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_state_that_is_malformed_inside_is_refused_by_name(name: str, most: int) -> None:
    """A wrong value at any place, with every checksum right: no traceback, and no row from the wrong kind of value."""
    every = list(changes(name))
    assert len(every) > 20
    refused = [check(name, *one) for one in every[:: max(1, len(every) // most)]]
    assert any(refused)
