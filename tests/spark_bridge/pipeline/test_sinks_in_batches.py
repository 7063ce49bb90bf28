"""Every sink commits in batches what it commits in the simulator: a reader that knows nothing of the job says so."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from engine import (
    CollectionSource,
    CommitRequest,
    Committer,
    CommittingSink,
    CompactionStrategy,
    DefaultPartitionTimeExtractor,
    DiskLog,
    FileSink,
    Job,
    LogSink,
    MetastorePolicy,
    PartitionCommit,
    PartitionedFileSink,
    SqliteMetastore,
    SqliteSink,
    SuccessFilePolicy,
    TableCompaction,
)
from engine.elements.operator import OperatorContext
from examples import end_to_end, sinks
from examples.end_to_end_sinks import OVERWRITE, SINKS, TABLES, Target
from examples.scenarios import committers, pending_partitions
from examples.scenarios.committers import Documents, Publish
from operators.log.disk import committed_records
from operators.transactions import CommitRules
from spark_bridge.pipeline.batch_driver import BatchDriver
from state_backends import LocalFileSystem
from tests.postgres_server import running_server
from tests.spark_bridge.pipeline import jobs
from tests.spark_bridge.pipeline.runs import StoppedError, config, in_batches, simulated
from tests.spark_bridge.pipeline.test_deaths import STEPS

ROWS = Counter(end_to_end.rows_by_number())


def _run(name: str, directory: Path, dsn: str | None = None) -> Counter[Any]:
    """The rows that a reader finds after a run in batches; the promise of the sink decides what they must be."""
    target = Target(SINKS[name], str(directory / "out"), dsn)
    if name == OVERWRITE:
        target.leave_old_row()
    result, oracle = in_batches(end_to_end.pipeline(target.sink()), directory, config(40), seed=5)
    assert result.error is None, result.error
    assert oracle.held
    assert len(oracle.verdicts) >= 6
    return Counter(target.rows())


def _expected(name: str) -> Counter[Any]:
    return Counter(end_to_end.rows_by_number()[-4:]) if name in TABLES else ROWS


@pytest.mark.parametrize("name", [name for name, outlet in SINKS.items() if not outlet.needs_dsn])
def test_a_reader_finds_every_row_once(name: str, tmp_path: Path) -> None:
    """Two subtasks of the sink, in each kind of file, table and log."""
    assert _run(name, tmp_path) == _expected(name)


def test_a_reader_of_postgres_finds_every_row_once(tmp_path: Path) -> None:
    """By prepared transactions, and by replacing rows."""
    with running_server(fsync=False) as server:
        for name, outlet in SINKS.items():
            if outlet.needs_dsn:
                database = f"of_{name.replace('-', '_')}"
                server.execute(f"CREATE DATABASE {database}")
                dsn = server.dsn(database)
                assert _run(name, tmp_path / name, dsn) == _expected(name), name
                assert not server.execute("SELECT gid FROM pg_prepared_xacts"), "a transaction was left open"


def _announced(directory: Path) -> list[str]:
    return sorted(str(path.parent.relative_to(directory)) for path in directory.rglob("_SUCCESS"))


def _unfinished(directory: Path) -> list[str]:
    hidden = [path for path in directory.rglob(".*") if path.is_file()]
    return sorted(str(path.relative_to(directory)) for path in hidden)


def late_compaction(parallelism: int = 2) -> Job:
    """Each compaction waits for three checkpoints: the last one for the end."""
    job = Job("late", parallelism=parallelism)
    numbers = job.source(CollectionSource(range(700), splits=2), name="numbers").rebalance()
    numbers.sink(
        FileSink("rows").compacting(CompactionStrategy(checkpoints=3), compaction_ns_per_byte=1_000), uid="sink"
    )
    return job


class Postponing(Publish):
    """Publishes a document when it is asked for the third time."""

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            if request.retries < 2:
                request.retry_later()
            else:
                super().commit([request])


class Slow(Documents):
    """Documents that are published some time after their checkpoint, and entered into a list after that."""

    rules = CommitRules(retry_delay_ms=5)

    def create_committer(self, context: OperatorContext) -> Committer:
        return Postponing(context)


class SlowWithoutList(Slow):
    """The same, and no operator comes after the committers."""

    create_global_committer = CommittingSink.create_global_committer


def slow(sink: CommittingSink) -> Job:
    """Some commits are not done when the input ends."""
    job = Job("slow", parallelism=2)
    numbers = job.source(CollectionSource(range(60), splits=2), name="numbers").rebalance()
    return numbers.sink(sink, name="documents", uid="documents")


def timed_table(compaction: TableCompaction | None) -> Job:
    """Hours, announced an hour after their end, by a file and in a catalogue."""
    made = Job("timed", parallelism=2)
    policies = (SuccessFilePolicy(), MetastorePolicy(SqliteMetastore("catalogue.sqlite"), "rows"))
    commit = PartitionCommit(
        "partition-time",
        delay_ms=3_600_000,
        policies=policies,
        extractor=DefaultPartitionTimeExtractor("$day $hour:00:00"),
    )
    table = PartitionedFileSink("rows", partition_by=("day", "hour"), commit=commit, compaction=compaction)
    return sinks._times(made, 96).rebalance().sink(table, name="out", uid="out")


def _with_catalogue(build: Callable[[], Job]) -> Callable[[Path], Job]:
    def made(directory: Path) -> Job:
        directory.mkdir(parents=True, exist_ok=True)
        SqliteMetastore(str(directory / "catalogue.sqlite")).create_table("rows", ("day", "hour"))
        return build()

    return made


TABLE_JOBS: dict[str, Callable[[Path], Job]] = {
    "committers": lambda _: committers.job(),
    "pending partitions": lambda _: pending_partitions.job(),
    "late compaction": lambda _: late_compaction(),
    "slow commits": lambda _: slow(SlowWithoutList()),
    "slow commits in two steps": lambda _: slow(Slow()),
    "timed": _with_catalogue(lambda: timed_table(None)),
    "timed and compacted": _with_catalogue(lambda: timed_table(TableCompaction(200))),
}


@pytest.mark.parametrize("name", TABLE_JOBS)
def test_what_follows_a_complete_checkpoint_reaches_readers(name: str, tmp_path: Path) -> None:
    """Compaction, announcements, entries in a list: the same as in the simulator, and nothing unfinished is left."""
    found = []
    for world in ("simulated", "batches"):
        directory = tmp_path / world
        job, out = TABLE_JOBS[name](directory / "out"), directory / "out"
        if world == "simulated":
            assert simulated(job, directory, config(9)).error is None
        else:
            result, oracle = in_batches(job, directory, config(9), seed=2)
            assert result.error is None, result.error
            assert oracle.held
        entries: list[Any] = []
        if (out / "documents" / "LIST").exists():
            # Names differ from run to run: what counts is that exactly the listed documents are there.
            listing = out / "documents" / "LIST"
            names = listing.read_text().split()
            listing.unlink()
            entries = [sorted(names) == sorted(path.name for path in (out / "documents").iterdir() if path.is_file())]
        if (out / "catalogue.sqlite").exists():
            listed = SqliteMetastore(str(out / "catalogue.sqlite")).partitions("rows")
            entries = [entry.spec for entry in listed]
            (out / "catalogue.sqlite").unlink()
        found.append((jobs.committed(out), _announced(out), entries, _unfinished(out)))
    assert found[1] == found[0]
    assert sum(found[0][0].values()) >= 30


def test_a_partition_is_announced_while_the_job_runs(tmp_path: Path) -> None:
    """In the batch after the one that event time has passed it in, not only at the end."""
    seen: list[list[str]] = []

    def look(driver: BatchDriver) -> None:
        inner = driver.run
        driver.run = lambda order: (seen.append(_announced(tmp_path / "out")), inner(order))[1]

    result, _ = in_batches(
        _with_catalogue(lambda: timed_table(None))(tmp_path / "out"), tmp_path, config(9), watch=look
    )
    assert result.error is None, result.error
    assert len(seen[-1]) >= 3, "nothing was announced before the end"
    assert all(set(before) <= set(after) for before, after in pairwise(seen))


def many(_parallelism: int = 2) -> Job:
    """A log, a table with announcements, and compacted files, of the same numbers."""
    job = Job("many", parallelism=2)
    numbers = job.source(CollectionSource(range(300), splits=2), name="numbers").rebalance()
    log = numbers.map(lambda number: number, name="to log")
    log.sink(LogSink("rows", log=DiskLog("log"), partitions=2), name="log", uid="log")
    rows = numbers.map(lambda number: {"tens": number // 100, "number": number}, name="to rows")
    table = PartitionedFileSink(
        "table", partition_by=("tens",), commit=PartitionCommit(), compaction=TableCompaction(200)
    )
    rows.sink(table, name="table", uid="table")
    numbers.sink(FileSink("files").compacting(CompactionStrategy(checkpoints=2)), name="files", uid="files")
    return job


@pytest.mark.parametrize("at", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dies", STEPS, ids=lambda step: step.__name__)
def test_a_death_of_the_driver_repeats_nothing_in_these_sinks(
    dies: Callable[[BatchDriver, int], None], at: int, tmp_path: Path
) -> None:
    """Whatever step it dies in: each record is in the log, the table and the files once."""
    with pytest.raises(StoppedError):
        in_batches(many(), tmp_path, config(40), watch=lambda driver: dies(driver, at))
    result, _ = in_batches(many(), tmp_path, config(40))
    assert result.error is None, result.error
    out = tmp_path / "out"
    partitions = committed_records(LocalFileSystem(), str(out / "log"), "rows")
    assert sorted(record.value for partition in partitions for record in partition) == list(range(300))
    found = jobs.committed(out / "files")
    assert found == {(".", str(number)): 1 for number in range(300)}
    assert sum(jobs.committed(out / "table").values()) == 300
    assert _announced(out / "table") == ["tens=0", "tens=1", "tens=2"]
    assert not _unfinished(out / "files")


# -- one at a time ----------------------------------------------------------------------------------------------------

_HOLDER = """
import sys
from state_backends import LocalFileSystem
LocalFileSystem().wait_for_directory(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _holder_of(directory: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_subtask_waits_for_its_turn_at_a_log(tmp_path: Path) -> None:
    """Another process holds it; when that dies, the batch goes on, and nothing has failed."""
    turn = tmp_path / "out" / "log" / "turn"
    job = Job("log")
    job.source(CollectionSource(range(10)), name="numbers").sink(LogSink("rows", log=DiskLog("log")), uid="log")
    with _holder_of(turn) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        killed = threading.Event()
        killer = threading.Timer(1, lambda: (killed.set(), process.kill()))
        killer.start()
        result, _ = in_batches(job, tmp_path, config())
        assert killed.is_set(), "the batch did not wait"
    assert result.error is None, result.error
    assert (turn / "lock").read_text() == "", "the turn was not released"


def test_a_log_that_another_job_writes_to_is_an_error(tmp_path: Path) -> None:
    """That one would not end with the batch: waiting for it would be for ever."""
    held = LocalFileSystem().lock_directory(str(tmp_path / "out" / "log"))
    job = Job("log")
    job.source(CollectionSource(range(10)), name="numbers").sink(LogSink("rows", log=DiskLog("log")), uid="log")
    result, _ = in_batches(job, tmp_path, config())
    held.release()
    assert f"is being written to by process {os.getpid()}" in str(result.error)


def test_work_that_takes_virtual_time_is_done_in_its_batch(tmp_path: Path) -> None:
    """The clock of a batch stands: a request that costs time must not be left waiting for it."""
    job = Job("slow", parallelism=2)
    rows = job.source(CollectionSource([{"number": number} for number in range(90)]), name="rows").rebalance()
    rows.sink(SqliteSink("shop.sqlite", "rows", {"number": "BIGINT"}, request_ns=1_000_000), uid="sink")
    result, _ = in_batches(job, tmp_path, config(40))
    assert result.error is None, result.error
