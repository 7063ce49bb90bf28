"""The sink into a Delta table, with the real package: checkpoints once each, beside other writers of the table."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from engine import Job, SequenceSource
from engine.elements.errors import ConfigurationError, JobFailedError, OutputAheadError, UserFunctionError
from spark_bridge.errors import SparkBridgeError
from spark_bridge.sinks import DataFrameSink, DeltaFile, DeltaLogError, ForeachBatchSink, MemoryDeltaLog
from spark_bridge.sinks.ddl import schema_of
from spark_bridge.sinks.delta_log import DeltaLakeLog
from state_backends.files import LocalFileSystem, MemoryFileSystem, write_atomically
from tests.operators.harness import Checkpoint, Harness

SCHEMA = "number bigint, name string"
RECORDS = 60


def row(number: int) -> dict[str, Any]:
    return {"number": number, "name": f"n{number}"}


def job(path: str, records: int = RECORDS, look: Callable[[int], Any] = row, schema: str = SCHEMA) -> Job:
    made = Job("to-delta", parallelism=2)
    rows = made.source(SequenceSource(0, records), name="numbers", parallelism=1).map(look, name="row")
    return rows.rebalance().sink(DataFrameSink(path, schema, format="delta"), name="table")


def numbers(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["number"].to_pylist())


def run(path: Path, made: Job | None = None, **settings: Any) -> None:
    (made or job(str(path))).run(checkpoint_interval="10rec", **settings)


def others(count: int) -> pa.Table:
    return pa.table({"number": pa.array(range(-count, 0), pa.int64()), "name": ["other"] * count})


@pytest.mark.parametrize("kill", ["table[0]@25us", "table[1]@41us", "numbers@59us"])
def test_a_kill_does_not_show(tmp_path: Path, kill: str) -> None:
    """Rows of dead attempts are in no version; those that a restore commits again are there once."""
    run(tmp_path / "t", kills=[kill])

    assert numbers(tmp_path / "t") == list(range(RECORDS))
    log = (tmp_path / "t" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for path in log for line in path.read_text().splitlines()]
    transactions = [(one["txn"]["appId"], one["txn"]["version"]) for one in actions if "txn" in one]
    assert len(set(transactions)) == len(transactions) > 5


def test_an_old_version_adds_nothing(tmp_path: Path) -> None:
    """Delta takes any version; the log compares it with the last one of the application, and then adds nothing."""
    log = DeltaLakeLog().open(LocalFileSystem(), str(tmp_path / "t"), schema_of(SCHEMA))
    write_deltalake(tmp_path / "t", others(1))
    file = next((tmp_path / "t").glob("*.parquet"))
    copied = file.with_name("staged.parquet")
    copied.write_bytes(file.read_bytes())
    staged = [DeltaFile(copied.name, copied.stat().st_size, 1)]

    assert log.append("weir/a/0", 3, staged)
    before = DeltaTable(tmp_path / "t").version()
    assert [log.append("weir/a/0", version, staged) for version in (3, 2)] == [False, False]
    assert DeltaTable(tmp_path / "t").version() == before
    assert log.version("weir/a/0") == 3
    assert log.version("weir/b/0") is None


def before_each_commit(patch: pytest.MonkeyPatch, other: Callable[[Path, Callable[[], None]], object]) -> list[int]:
    """Another writer is faster, each time after ours has read the log and before it writes. ``other`` gets the table,
    and a function that commits what ours is about to. Returns a 1 for each time."""
    from spark_bridge.sinks import delta_log

    commit, times = delta_log._LakeTable._commit, []

    def after_another(self: Any, table: Any, *arguments: Any) -> None:
        times.append(1)
        other(Path(self._directory), lambda: commit(self, DeltaTable(self._directory), *arguments))
        commit(self, table, *arguments)

    patch.setattr(delta_log._LakeTable, "_commit", after_another)
    return times


def test_other_writers_interleave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours comes after theirs, and neither is lost."""
    times = before_each_commit(monkeypatch, lambda path, _: write_deltalake(path, others(2), mode="append"))
    run(tmp_path / "t")

    assert numbers(tmp_path / "t") == sorted([*[-2, -1] * len(times), *range(RECORDS)])


def test_another_attempt_commits_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that was taken for dead commits the same checkpoint: its rows are there once."""
    times = before_each_commit(monkeypatch, lambda _, commit: commit())
    run(tmp_path / "t")

    assert len(times) > 5
    assert numbers(tmp_path / "t") == list(range(RECORDS))


def test_files_are_merged_while_ours_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that was read is not the newest any more: no row is lost or there twice."""
    times = before_each_commit(monkeypatch, lambda path, _: DeltaTable(path).optimize.compact())
    run(tmp_path / "t")

    assert len(times) > 5
    assert numbers(tmp_path / "t") == list(range(RECORDS))


def test_a_column_is_added_while_ours_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema is compared again, and nothing of ours is committed."""
    wider = others(1).append_column("more", pa.array([1], pa.int64()))
    times = before_each_commit(
        monkeypatch, lambda path, _: write_deltalake(path, wider, mode="append", schema_mode="merge")
    )
    with pytest.raises(JobFailedError, match=r"has the columns.*more int64\), the sink writes.*\n  fix: declare"):
        run(tmp_path / "t")

    assert numbers(tmp_path / "t") == [-1] * len(times)


def test_others_are_always_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After twenty attempts the job gives up, and says so; resumed, it has all rows."""
    path = tmp_path / "t"
    with monkeypatch.context() as patch:
        before_each_commit(patch, lambda *_: _raise(CommitFailedError("a later version is there")))
        with pytest.raises(JobFailedError, match=r"were faster 20 times in a row: a later .*\n  fix: resume the job"):
            run(path, storage=tmp_path / "storage")
    run(path, storage=tmp_path / "storage", restore=True)

    assert numbers(path) == list(range(RECORDS))


def _raise(error: Exception) -> None:
    raise error


def test_a_damaged_table(tmp_path: Path) -> None:
    """The error names the table and the way out."""
    write_deltalake(tmp_path / "t", others(1))
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_text('{"protocol": 7')
    with pytest.raises(JobFailedError, match=r"the Delta table .*/t cannot be read: (.|\n)*  fix: repair its"):
        run(tmp_path / "t")


def test_a_table_that_is_deleted_while_ours_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the table and the way out."""
    before_each_commit(monkeypatch, lambda path, _: shutil.rmtree(path / "_delta_log"))
    with pytest.raises(JobFailedError, match=r"the Delta table .*/t cannot be written: (.|\n)*  fix: repair its"):
        run(tmp_path / "t")


def test_a_table_in_memory_is_refused(tmp_path: Path) -> None:
    """The package reads and writes the disk only."""
    files = MemoryFileSystem()
    files.make_dirs("/t")
    write_atomically(files, "/t/rows.parquet", b"PAR1")
    log = DeltaLakeLog().open(files, "/t", schema_of(SCHEMA))
    with pytest.raises(DeltaLogError, match=r"/t is a directory of MemoryFileSystem, .*\n  fix: .* log=MemoryDeltaLog"):
        log.append("weir/a/0", 1, [DeltaFile("rows.parquet", 4, 1)])


def test_compacted_in_between(tmp_path: Path) -> None:
    """Files are merged and vacuumed between a commit and the restore that repeats it: no row is lost or there twice."""
    path = tmp_path / "t"
    failed = job(str(path), look=lambda number: row(number) if number < 45 else 1 / 0)
    with pytest.raises(JobFailedError):
        run(path, failed, storage=tmp_path / "storage")
    count = len(numbers(path))
    assert 0 < count < 45
    table = DeltaTable(path)
    table.optimize.compact()

    run(path, storage=tmp_path / "storage", restore=True)

    assert numbers(path) == list(range(RECORDS))


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({"schema": "number int, name string"}, r"has the columns \(number int32, name string\)"),
        ({"schema": "number bigint"}, r"has the columns \(number int64\)"),
        ({"schema": "number bigint, name string not null"}, "name string not null"),
        ({"schema": SCHEMA, "partition_by": ["name"]}, "is partitioned by name"),
    ],
)
def test_a_table_of_another_schema(tmp_path: Path, there: dict[str, Any], why: str) -> None:
    """It is refused before the first record, and left as it was."""
    table = DeltaTable.create(tmp_path / "t", schema_of(there.pop("schema")), **there)

    with pytest.raises(JobFailedError, match=why):
        run(tmp_path / "t")
    assert DeltaTable(tmp_path / "t").version() == table.version() == 0


def test_the_schema_changes_in_between(tmp_path: Path) -> None:
    """Columns that are added while the job is down: it says so; once its declaration is right, nothing is missing."""
    path = tmp_path / "t"
    failed = job(str(path), look=lambda number: row(number) if number < 45 else 1 / 0)
    with pytest.raises(JobFailedError):
        run(path, failed, storage=tmp_path / "storage")
    wider = others(1).append_column("more", pa.array([1], pa.int64()))
    write_deltalake(path, wider, mode="append", schema_mode="merge")

    with pytest.raises(JobFailedError, match=r"has the columns.*more int64"):
        run(path, storage=tmp_path / "storage", restore=True)

    right = job(str(path), look=lambda number: {**row(number), "more": None}, schema=f"{SCHEMA}, more bigint")
    run(path, right, storage=tmp_path / "storage", restore=True)
    assert numbers(path) == list(range(-1, RECORDS))


def test_staged_files_that_are_gone(tmp_path: Path) -> None:
    """A file that a checkpoint covers and the table does not name yet was deleted or cut: an error, and no commit."""
    log = DeltaLakeLog().open(LocalFileSystem(), str(tmp_path), schema_of(SCHEMA))
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")

    for name, why in (("none.parquet", "is gone"), ("cut.parquet", "has 4 bytes instead of 9")):
        with pytest.raises(DeltaLogError, match=f"{why}.*3 rows(.|\n)*VACUUM"):
            log.append("weir/a/0", 1, [DeltaFile(name, 9, 3)])
    assert not (tmp_path / "_delta_log").exists()


def test_a_start_behind_the_table(tmp_path: Path) -> None:
    """A run from nothing into the table of another run would repeat its rows: it is refused; another writer= adds."""
    run(tmp_path / "t")

    with pytest.raises(JobFailedError) as raised:
        run(tmp_path / "t")
    assert isinstance(raised.value.__cause__, OutputAheadError)
    assert "starts from nothing, but checkpoint" in str(raised.value)
    made = Job("again")
    rows = made.source(SequenceSource(0, 5)).map(row)
    rows.sink(DataFrameSink(str(tmp_path / "t"), SCHEMA, format="delta", writer="second"))
    run(tmp_path / "t", made)
    assert len(numbers(tmp_path / "t")) == RECORDS + 5


def test_a_record_that_does_not_fit(tmp_path: Path) -> None:
    """Rows of another shape in the middle of a stream fail the job, with record and column; earlier rows stay."""
    drifted = job(str(tmp_path / "t"), look=lambda number: row(number) if number < 45 else {"number": number})

    with pytest.raises(JobFailedError, match="no column 'name'") as raised:
        run(tmp_path / "t", drifted)
    assert isinstance(raised.value.__cause__, UserFunctionError)
    assert set(numbers(tmp_path / "t")) < set(range(45))


def test_without_checkpoints(tmp_path: Path) -> None:
    """All rows are committed at the end. A second run is refused: its files would have the names of the first one's."""
    job(str(tmp_path / "t")).run(mode="none")

    for settings in ({"mode": "none"}, {"checkpoint_interval": "10rec"}):
        with pytest.raises(JobFailedError, match=r"from nothing, but the end of a run without .*\n  fix: restore the"):
            job(str(tmp_path / "t")).run(**settings)
    assert numbers(tmp_path / "t") == list(range(RECORDS))


def in_memory(fs: MemoryFileSystem, log: MemoryDeltaLog, writer: str | None = None, **options: Any) -> Harness:
    sink = DataFrameSink("t", "number bigint", format="delta", writer=writer, log=log)
    return Harness(sink.sink.create_operator(), fs=fs, **options)


def test_without_checkpoints_a_later_attempt_is_no_second_run() -> None:
    """Another subtask has failed after this one had committed its rows: they are there once."""
    fs, log = MemoryFileSystem(), MemoryDeltaLog()
    for attempt in (1, 2):
        task = in_memory(fs, log, attempt=attempt, checkpointing_enabled=False)
        task.process([{"number": 1}])
        task.finish()
    assert len(log.files) == 1
    with pytest.raises(OutputAheadError, match="would appear twice"):
        in_memory(fs, log, checkpointing_enabled=False)


def test_a_batch_is_committed_with_its_checkpoint_and_not_before() -> None:
    """One whose commit has failed is committed by the next notification; the files outlive a power cut."""
    fs, log = MemoryFileSystem(), MemoryDeltaLog()
    task = in_memory(fs, log)
    for checkpoint_id in (1, 2, 3):
        task.process([{"number": checkpoint_id}])
        third = task.snapshot(checkpoint_id)
    fs.crash()
    task.complete(1)
    assert log.versions == {"weir/op-uid/0": 1}
    append = log.append
    log.append = lambda *_: _raise(OSError("full"))  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(OSError, match="full"):
        task.complete(2)
    log.append = append  # type: ignore[method-assign]
    task.complete(2)
    assert [file.rows for file in log.files.values()] == [1, 1]
    assert log.versions == {"weir/op-uid/0": 2}
    assert not log.append("weir/op-uid/0", 2, [DeltaFile("gone", 1, 1)])
    # Checkpoint 3 has completed, and its notification is lost with the task.
    in_memory(fs, log, restored=third, attempt=2)
    assert log.versions == {"weir/op-uid/0": 3}


def test_no_two_batches_have_files_of_one_name() -> None:
    """Writers whose names look alike in a path, and attempts at one checkpoint, of which one may be a zombie's."""
    fs = MemoryFileSystem()
    for number, (writer, attempt, incarnation) in enumerate(
        [("a/b", 1, 1), ("a-b", 1, 1), ("a/b", 2, 1), ("a/b", 1, 2)], start=1
    ):
        task = in_memory(fs, MemoryDeltaLog(), writer, attempt=attempt, incarnation=incarnation)
        task.process([{"number": 1}])
        task.snapshot(1)
        assert len(list(fs.walk_files("/out/t"))) == number


@pytest.mark.parametrize(("subtask", "parallelism"), [(0, 1), (1, 2), (0, 3)])
def test_subtasks_that_are_no_more_are_looked_after(subtask: int, parallelism: int) -> None:
    """Also where others before them have never committed a row."""
    fs, log = MemoryFileSystem(), MemoryDeltaLog()
    log.versions["weir/op-uid/3"] = 7
    older, same = Checkpoint(6), Checkpoint(7)
    in_memory(fs, log, subtask=subtask, parallelism=parallelism, restored=same)
    with pytest.raises(OutputAheadError, match="from checkpoint 6, but checkpoint 7 of 'op-uid' is in the Delta table"):
        in_memory(fs, log, subtask=subtask, parallelism=parallelism, restored=older)


def test_a_commit_that_is_repeated_needs_no_file(tmp_path: Path) -> None:
    """Others may have merged it into another file, and deleted it."""
    log = DeltaLakeLog().open(LocalFileSystem(), str(tmp_path / "t"), schema_of(SCHEMA))
    write_deltalake(tmp_path / "t", others(1))
    file = next((tmp_path / "t").glob("*.parquet"))
    staged = [DeltaFile(shutil.copy(file, file.with_name("s.parquet")).name, file.stat().st_size, 1)]
    assert log.append("weir/a/0", 1, staged)
    file.with_name("s.parquet").unlink()
    assert not log.append("weir/a/0", 1, staged)


def test_another_subtask_makes_the_table_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our look and our making it: both have it."""
    from spark_bridge.sinks import delta_log

    table, looks = delta_log._LakeTable._table, [1, 1, 1]
    monkeypatch.setattr(delta_log._LakeTable, "_table", lambda self: None if looks and looks.pop() else table(self))
    log = DeltaLakeLog().open(LocalFileSystem(), str(tmp_path / "t"), schema_of(SCHEMA))
    write_deltalake(tmp_path / "t", others(1))
    file = next((tmp_path / "t").glob("*.parquet"))
    staged = shutil.copy(file, file.with_name("s.parquet"))
    assert log.append("weir/a/0", 1, [DeltaFile(staged.name, staged.stat().st_size, 1)])
    assert numbers(tmp_path / "t") == [-1, -1]


def test_a_function_gets_each_checkpoint(tmp_path: Path) -> None:
    """All rows of a checkpoint in one list; after a kill a batch comes again with its number and its rows."""
    calls: list[tuple[int, list[int]]] = []
    made = Job("batches", parallelism=2)
    rows = made.source(SequenceSource(0, 50), parallelism=1, name="numbers")
    rows.rebalance().sink(ForeachBatchSink(lambda batch, checkpoint_id: calls.append((checkpoint_id, sorted(batch)))))

    run(tmp_path, made, kills=["numbers@25us"])

    by_id: dict[int, list[int]] = {}
    for checkpoint_id, batch in calls:
        assert by_id.setdefault(checkpoint_id, batch) == batch
    assert sorted(number for batch in by_id.values() for number in batch) == list(range(50))
    assert list(by_id) == sorted(by_id)


def test_a_function_that_fails(tmp_path: Path) -> None:
    """The error names the function and the checkpoint."""
    made = Job("batches")
    made.source(SequenceSource(0, 50)).sink(ForeachBatchSink(lambda batch, checkpoint_id: 1 // 0))

    with pytest.raises(JobFailedError, match=r"<lambda>(.|\n)*rows of checkpoint 1"):
        run(tmp_path, made)


@pytest.mark.spark
def test_a_function_gets_a_data_frame(spark: Any, tmp_path: Path) -> None:
    """With a schema the batch is a DataFrame."""
    made = Job("frames")
    rows = made.source(SequenceSource(0, 30)).map(row)

    def write(frame: Any, checkpoint_id: int) -> None:
        frame.write.parquet(str(tmp_path / f"{checkpoint_id}.parquet"), mode="overwrite")

    rows.sink(ForeachBatchSink(write, schema=SCHEMA))
    run(tmp_path, made)
    found = spark.read.parquet(str(tmp_path / "*.parquet"))
    assert sorted(one.number for one in found.collect()) == list(range(30))


def test_wrong_arguments() -> None:
    """Each is an error of its own, at once."""
    for arguments, options, why in (
        (("t", SCHEMA), {"format": "csv"}, "format is 'csv'"),
        (("", SCHEMA), {}, "path is ''"),
        (("t", SCHEMA), {"writer": "w"}, "belong to format='delta'"),
        (("t", SCHEMA), {"log": MemoryDeltaLog()}, "belong to format='delta'"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            DataFrameSink(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(SparkBridgeError, match="fn is 7"):
        ForeachBatchSink(7)  # type: ignore[arg-type]
    with pytest.raises(SparkBridgeError, match="schema= is ''"):
        ForeachBatchSink(print, schema="")
