"""Tables in partitions in real jobs: killed tasks, all modes, a damaged checkpoint, another parallelism.

Event time is exact in these jobs, so the promise of a commit by partition time can be checked to the row: when a
partition is committed, all its rows are visible, once.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from engine import Job, SequenceSource, WatermarkStrategy
from engine.checkpoint.restore import NoRestart
from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from operators.files.sinks import read_committed
from operators.files.writing import OnCheckpointRollingPolicy, ParquetFormat, read_committed_parquet
from operators.table.partitions.commit_policies import CommitPolicy, PartitionCommitContext, SuccessFilePolicy
from operators.table.partitions.metastore import PathOf
from operators.table.partitions.partition_commit import PartitionCommit
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor
from operators.table.partitions.partitioned_file_sink import PartitionedFileSink, TableCompaction
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import CheckpointStorage
from tests.cases import crossed

HOUR_MS = 3_600_000
MAY_3_MS = 1_588_464_000_000
HOURS = 5
US = 1_000


def row(number: int, records: int) -> dict[str, Any]:
    """Two sources go through the same hours."""
    return {"day": "2020-05-03", "hour": f"{number % (records // 2) * HOURS * 2 // records:02d}", "n": number}


def time_of(record: dict[str, Any]) -> int:
    return MAY_3_MS + int(record["hour"]) * HOUR_MS + record["n"]


class RowsAtCommit:
    """A policy that notes, when a partition is committed, which of its rows a reader sees."""

    kind = "rows-at-commit"

    def __init__(self) -> None:
        self.seen: list[tuple[str, Counter[int]]] = []

    def open(self, path_of: PathOf, columns: Sequence[str]) -> CommitPolicy:
        return self

    def commit(self, context: PartitionCommitContext) -> bool:
        lines = read_committed(context.file_system, context.path).get("", [])
        self.seen.append((context.partition, Counter(json.loads(line)["n"] for line in lines)))
        return True


class Case:
    """One job on a disk of its own."""

    def __init__(self, records: int = 300, **sink: Any) -> None:
        self.records = records
        self.fs = MemoryFileSystem()
        self.policy = RowsAtCommit()
        self.trigger = sink.pop("trigger", "partition-time")
        self.sink = sink

    def job(self, parallelism: int = 2) -> Job:
        made = Job("table", parallelism=parallelism, max_parallelism=8)
        strategy = WatermarkStrategy.for_monotonous_timestamps(time_of).with_interval_ns(US)
        records = self.records
        numbers = made.source(SequenceSource(0, records, splits=2), name="numbers", parallelism=2)
        rows = numbers.map(lambda number: row(number, records), name="rows", parallelism=2)
        timed = rows.assign_timestamps_and_watermarks(strategy, name="times", parallelism=2)
        commit = PartitionCommit(
            self.trigger,
            policies=[self.policy, SuccessFilePolicy()],
            delay_ms=HOUR_MS if self.trigger == "partition-time" else 0,
            extractor=DefaultPartitionTimeExtractor("$day $hour:00:00"),
        )
        sink = PartitionedFileSink("table", partition_by=("day", "hour"), commit=commit, **self.sink)
        return timed.rebalance().sink(sink, name="table", uid="table")

    def execution(self, parallelism: int = 2, **settings: Any) -> Execution:
        surroundings = {key: settings.pop(key) for key in ("storage", "incarnation", "restore") if key in settings}
        config = RunConfig(
            batch_size=settings.pop("batch_size", 16),
            checkpoint_interval=CheckpointInterval(time_ns=settings.pop("interval_ns", 30 * US)),
            **settings,
        )
        return Execution(self.job(parallelism).plan(), config, file_system=self.fs, output_dir="/out", **surroundings)

    def rows(self) -> Counter[int]:
        lines = read_committed(self.fs, "/out/table").values()
        return Counter(json.loads(line)["n"] for of_partition in lines for line in of_partition)

    def expected(self, partition: str) -> Counter[int]:
        hour = partition[-2:]
        return Counter(n for n in range(self.records) if row(n, self.records)["hour"] == hour)

    def committed(self) -> list[str]:
        paths = list(self.fs.walk_files("/out/table"))
        return [path.split("hour=")[1][:2] for path in paths if path.endswith("/_SUCCESS")]

    def check_the_end(self) -> None:
        assert self.rows() == Counter(range(self.records))
        assert self.committed() == [f"{hour:02d}" for hour in range(HOURS)]
        assert [path for path in self.fs.walk_files("/out/table") if "/.uncompacted" in path] == []

    def check_commits(self) -> None:
        assert len(self.policy.seen) >= HOURS
        for partition, rows in self.policy.seen:
            assert rows == self.expected(partition), partition


SINKS: dict[str, dict[str, Any]] = {
    "open for long": {},
    "on checkpoints": {"rolling_policy": OnCheckpointRollingPolicy()},
    "compacted": {"compaction": TableCompaction(400)},
}


def disturbed(seed: int, case: Case, **settings: Any) -> ExecutionResult:
    """Run with up to three kills at random instants."""
    draw = random.Random(seed)
    execution = case.execution(
        seed=str(seed),
        batch_size=draw.choice([1, 7, 64]),
        interval_ns=draw.choice([20, 50]) * US,
        cost=CostModel(
            source_record_ns=US,
            record_ns=draw.choice([0, US // 2]),
            slow_links={"numbers[1]": 20 * US} if draw.random() < 0.5 else {},
        ),
        **settings,
    )
    tasks = ["numbers", "table[0]", "table[1]", "table-partition-committer"]
    if "compaction" in case.sink:
        tasks += ["table-compact-coordinator", "table-compactor[0]", "table-compactor[1]"]
    for _ in range(draw.choice([1, 2, 3])):
        execution.kill(draw.choice(tasks), draw.randrange(5 * US, 130 * US))
    return execution.run().raise_on_failure()


@crossed(quick=2, mode=["aligned", "unaligned"], sink=SINKS, seed=range(4))
def test_a_partition_is_committed_whole_whatever_is_killed(mode: str, sink: str, seed: int) -> None:
    """At every commit of a partition all its rows are visible, once; in the end all partitions are committed."""
    case = Case(**SINKS[sink])
    result = disturbed(seed, case, mode=mode)

    assert result.attempts > 1
    case.check_commits()
    case.check_the_end()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("trigger", ["process-time", "partition-time"])
def test_the_same_with_many_seeds(mode: str, sink: str, trigger: str) -> None:
    """Twenty runs each. By process time partitions are committed early and again, but never with a row twice."""
    for seed in range(100, 120):
        case = Case(trigger=trigger, **SINKS[sink])
        disturbed(seed, case, mode=mode, max_concurrent=1 + (seed % 2 and mode == "aligned"))
        case.check_the_end()
        if trigger == "partition-time":
            case.check_commits()
        for partition, rows in case.policy.seen:
            assert rows <= case.expected(partition), (seed, partition)


@pytest.mark.parametrize("compaction", [None, TableCompaction(400)])
def test_a_writer_that_ends_early_does_not_hold_up_the_others(compaction: TableCompaction | None) -> None:
    """The rows of the other one become visible, and its partitions are committed, before the end."""
    fs = MemoryFileSystem()
    job = Job("table", parallelism=2)
    rows = job.source(SequenceSource(0, 300, splits=3), name="numbers").map(lambda n: {"tens": n // 10, "n": n})
    sink = PartitionedFileSink("table", partition_by=("tens",), commit=PartitionCommit(), compaction=compaction)
    seen: list[tuple[int, int]] = []

    def look(event: Any) -> None:
        paths = list(fs.walk_files("/out/table"))
        visible = sum(map(len, read_committed(fs, "/out/table").values()))
        seen.append((visible, sum(path.endswith("/_SUCCESS") for path in paths)))

    config = RunConfig(
        batch_size=1, checkpoint_interval=CheckpointInterval(time_ns=20 * US), cost=CostModel(source_record_ns=US)
    )
    plan = rows.sink(sink, name="table").plan()
    Execution(plan, config, file_system=fs, output_dir="/out", instruments=[look]).run().raise_on_failure()

    assert seen[-1] == (300, 30)
    assert [rows for rows, committed in seen if 200 < rows < 300 and committed > 22], "nothing between the two ends"


@pytest.mark.parametrize("sink", SINKS)
def test_at_least_once_loses_nothing(sink: str) -> None:
    """Rows may come twice in that mode; partitions are committed all the same, and files are compacted once."""
    case = Case(**SINKS[sink])
    disturbed(1, case, mode="at-least-once")

    assert case.rows() >= Counter(range(case.records))
    assert len(case.committed()) == HOURS
    for partition, rows in case.policy.seen:
        assert rows >= case.expected(partition)


@pytest.mark.parametrize("sink", SINKS)
def test_without_checkpoints_everything_comes_at_the_end(sink: str) -> None:
    """Each partition is committed once, whole."""
    case = Case(**SINKS[sink])
    case.execution(mode="none").run().raise_on_failure()

    assert len(case.policy.seen) == HOURS
    case.check_commits()
    case.check_the_end()


@pytest.mark.parametrize("sink", SINKS)
def test_the_same_run_leaves_the_same_bytes(sink: str) -> None:
    """Files and their names are a function of job and seed."""
    disks = []
    for _ in range(2):
        case = Case(**SINKS[sink])
        disturbed(3, case)
        disks.append({path: case.fs.read_bytes(path) for path in case.fs.walk_files("/out/table")})
    assert disks[0] == disks[1]


class Processes:
    """A job over several processes with one storage directory; each but the last dies in the middle."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.incarnation = 0
        self.parallelism = 2

    def run(self, *, dies_at_ns: int | None = None, parallelism: int = 2) -> ExecutionResult:
        self.incarnation += 1
        execution = self.case.execution(
            parallelism,
            storage=CheckpointStorage(self.case.fs, "/storage", "table"),
            restore=self.incarnation > 1,
            incarnation=self.incarnation,
            restart=NoRestart(),
            retained=2,
        )
        if dies_at_ns is not None:
            execution.kill("numbers", dies_at_ns)
        return execution.run()

    def damage_the_newest_checkpoint(self) -> None:
        paths = [path for path in self.case.fs.walk_files("/storage") if path.endswith("/_metadata")]
        newest = max(paths, key=lambda path: int(path.split("/chk-")[1].split("/")[0]))
        with self.case.fs.open_write(newest) as file:
            file.write(b"damaged")


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_parallelism(sink: str, parallelism: int) -> None:
    """The job goes on with more or fewer writers and compactors."""
    processes = Processes(Case(**SINKS[sink]))
    assert processes.run(dies_at_ns=80 * US).state == "failed"
    processes.run(parallelism=parallelism).raise_on_failure()

    processes.case.check_commits()
    processes.case.check_the_end()


@pytest.mark.parametrize("sink", SINKS)
@pytest.mark.parametrize("dies_at_us", [70, 100, 130])
def test_going_back_behind_the_newest_checkpoint(sink: str, dies_at_us: int) -> None:
    """The newest checkpoint is damaged: its visible rows are taken back, come again, and are there once."""
    processes = Processes(Case(**SINKS[sink]))
    assert processes.run(dies_at_ns=dies_at_us * US).state == "failed"
    processes.damage_the_newest_checkpoint()
    result = processes.run().raise_on_failure()

    assert any("cannot be used" in problem for problem in result.restores[0].problems)
    processes.case.check_commits()
    processes.case.check_the_end()


@pytest.mark.parametrize("dies_at_us", range(70, 100, 6))
def test_the_last_announcement_is_not_lost_with_the_committer(dies_at_us: int) -> None:
    """Writers stay until their announcement is in a checkpoint, for none without them would contain it."""
    case = Case(60)
    links = {"table[0]": 30 * US, "table[1]": 30 * US}
    execution = case.execution(batch_size=8, interval_ns=10 * US, cost=CostModel(source_record_ns=US, slow_links=links))
    execution.kill("table-partition-committer", dies_at_us * US)
    execution.run().raise_on_failure()

    case.check_commits()
    case.check_the_end()


@pytest.mark.parametrize("format", [None, "parquet"])
def test_tables_of_parquet_files_are_compacted_too(format: str | None) -> None:
    """Compacted files are files of the format, read whole."""
    schema = {"n": int}
    sink: dict[str, Any] = {"compaction": TableCompaction(4_000)}
    if format == "parquet":
        sink["format"] = ParquetFormat(schema)
    case = Case(trigger="process-time", **sink)
    case.policy.commit = lambda context: True  # type: ignore[method-assign]
    disturbed(2, case)
    if format is None:
        case.check_the_end()
        return
    found = read_committed_parquet(case.fs, "/out/table")
    assert Counter(one["n"] for rows in found.values() for one in rows) == Counter(range(case.records))
    names = [path.rpartition("/")[2] for path in case.fs.walk_files("/out/table")]
    assert all(name.startswith(("compacted-", "_SUCCESS")) for name in names), names
