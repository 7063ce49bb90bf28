"""Savepoints of a run: where they are stored, how they differ from checkpoints, and starting from them in each mode."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.coordinator import RestoreMode
from engine.checkpoint.restore import FixedDelayRestart, UnmatchedStateError
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.events import SavepointFormat, SnapshotKind
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import CheckpointAborted, CheckpointCompleted, CheckpointTriggered
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution, ExecutionResult
from engine.runtime.kernel import START_NS
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults
from state_backends.base import CorruptStateError, MissingStateError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointMetadata, CheckpointStorage, FileStateHandle, locate_snapshot
from state_backends.snapshots.savepoints import job_id
from tests.runtime.support import (
    US,
    Trace,
    checked,
    every,
    execution,
    expected_counts,
    files_below,
    run,
    running_count,
    storage_in,
)

RECORDS = 60
MODES = ("aligned", "at-least-once", "unaligned", "aligned-timeout")
TARGET = "/saved"


def counting(into: CollectedResults, *, name: str = "counting", parallelism: int = 2, records: int = RECORDS) -> Job:
    """Two sources, two counts, two sinks."""
    return running_count(Job(name, parallelism=parallelism), records, into, keys=5)


def saved(
    *at_ns: int, into: CollectedResults | None = None, files: FileSystem | None = None, **config: Any
) -> ExecutionResult:
    """A run that takes savepoints at these times."""
    settings: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=7 * US), **config}
    made = execution(counting(CollectedResults() if into is None else into), file_system=files, **settings)
    for one in at_ns:
        made.savepoint(one, TARGET)
    return checked(made).raise_on_failure()


def started(
    job: Job, files: FileSystem, start: SavepointRestore, *, storage: CheckpointStorage | None = None, **config: Any
) -> Execution:
    settings: dict[str, Any] = {"batch_size": 3, "checkpoint_interval": every(ns=7 * US), **config}
    storage = CheckpointStorage(MemoryFileSystem(), "/other", job.name) if storage is None else storage
    return Execution(
        job.plan(), RunConfig(**settings), storage=storage, file_system=files, output_dir="/out", restore_from=start
    )


def metadata_of(files: FileSystem, path: str) -> CheckpointMetadata:
    return locate_snapshot(files, path)[1]


# --- taking one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_savepoint_is_one_directory_that_holds_everything(mode: str) -> None:
    """Its name contains the job; its metadata says that it is a savepoint; all its files are in it."""
    files = MemoryFileSystem()
    result = saved(11 * US, files=files, mode=mode, inline_state_bytes=0)
    (report,) = result.savepoints

    assert report.error is None
    assert report.path is not None
    assert report.path.startswith(f"{TARGET}/savepoint-{job_id('counting')[:6]}-")
    found = metadata_of(files, report.path)
    assert (found.properties["kind"], found.properties["format"]) == ("savepoint", "canonical")
    streams = [stream for stream in found.streams() if isinstance(stream, FileStateHandle)]
    assert streams
    assert {f"{report.path}/{stream.path}" for stream in streams} < set(files_below(files, TARGET))
    assert locate_snapshot(files, report.path)[0].verify() == found


def test_its_format_is_recorded() -> None:
    """The heap writes its native format like the canonical one, and the metadata says which was requested."""
    files = MemoryFileSystem()
    made = execution(counting(CollectedResults()), file_system=files, batch_size=3)
    made.savepoint(11 * US, TARGET, savepoint_format=SavepointFormat.NATIVE)
    path = made.run().savepoints[0].path

    assert path is not None
    assert metadata_of(files, path).properties["format"] == "native"


def test_the_same_run_gives_the_same_savepoint() -> None:
    """Names and bytes depend only on the run; a second run into the same place gets another name."""
    files, other = MemoryFileSystem(), MemoryFileSystem()
    first = saved(11 * US, files=files).savepoints[0].path
    saved(11 * US, files=other)

    assert files_below(files, TARGET) == files_below(other, TARGET)
    second = saved(11 * US, files=files).savepoints[0].path
    assert second != first
    assert len(files.list_dir(TARGET)) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_savepoint_never_holds_records_in_flight(mode: str) -> None:
    """Also in unaligned mode its barriers are aligned: another job must be able to read it."""
    files, trace = MemoryFileSystem(), Trace()
    results = CollectedResults()
    made = execution(
        counting(results),
        file_system=files,
        instruments=[trace],
        mode=mode,
        batch_size=3,
        checkpoint_interval=every(ns=7 * US),
        cost=CostModel(record_ns=4 * US, link_latency_ns=2 * US),
        channel_capacity=1_000,
    )
    made.savepoint(40 * US, TARGET)
    path = checked(made).raise_on_failure().savepoints[0].path

    assert path is not None
    subtasks = [one for operator in metadata_of(files, path).operators for one in operator.subtasks.values()]
    assert not any(one.input_channels or one.output_channels for one in subtasks)
    assert Counter(results.records) == expected_counts(RECORDS, 5)


def test_savepoints_are_neither_stored_nor_deleted() -> None:
    """They do not count as retained, subsume no checkpoint, and outlive every checkpoint of the job."""
    files = MemoryFileSystem()
    result = saved(8 * US, 11 * US, 16 * US, 23 * US, files=files, retained=1)

    paths = [report.path for report in result.savepoints]
    assert all(path is not None and files.exists(f"{path}/_metadata") for path in paths)
    ids = [report.checkpoint_id for report in result.savepoints]
    listed = storage_in(files, "counting").list_checkpoints()
    assert len(listed) == 1
    assert not set(ids) & set(listed)
    kinds = {row.checkpoint_id: row.kind for row in result.checkpoints.rows()}
    assert {kinds[one] for one in ids if one is not None} == {SnapshotKind.SAVEPOINT}
    assert not any(kinds[one] is SnapshotKind.SAVEPOINT for one in listed)


def test_savepoints_overtake_a_pending_checkpoint() -> None:
    """In aligned mode a savepoint does not wait for a pending checkpoint, nor the checkpoint for the savepoint."""
    trace = Trace()
    made = execution(
        counting(CollectedResults()),
        instruments=[trace],
        batch_size=3,
        checkpoint_interval=every(ns=20 * US),
        cost=CostModel(storage_latency_ns=4 * US),
        inline_state_bytes=0,
    )
    made.savepoint(21 * US, TARGET)
    made.savepoint(22 * US, TARGET)
    made.run().raise_on_failure()

    triggered = {one.checkpoint_id: one.time_ns - START_NS for one in trace.of(CheckpointTriggered)}
    completed = {one.checkpoint_id: one.time_ns - START_NS for one in trace.of(CheckpointCompleted)}
    assert (triggered[1], triggered[2], triggered[3]) == (20 * US, 21 * US, 22 * US)
    assert min(completed[1], completed[2]) > triggered[3]
    assert not trace.of(CheckpointAborted)


def test_a_savepoint_tells_no_operator_and_commits_nothing() -> None:
    """Its state was not committed: a sink that committed it would commit twice when the job goes on."""
    results = CollectedResults()
    made = execution(counting(results), batch_size=3, checkpoint_interval=None, restart=FixedDelayRestart(None, 0))
    made.savepoint(20 * US, TARGET)
    made.kernel.schedule(START_NS + 25 * US, "look", look := Look(results))
    made.run().raise_on_failure()

    assert look.seen == []
    assert Counter(results.records) == expected_counts(RECORDS, 5)


class Look:
    """Looks at results in the middle of a run."""

    name = "look"

    def __init__(self, results: CollectedResults) -> None:
        self.results = results
        self.seen: list[Any] | None = None

    def look(self, _payload: object) -> None:
        """Remember what is visible now."""
        self.seen = list(self.results.records)


# --- when it does not work --------------------------------------------------------------------------------------------


def test_a_savepoint_that_cannot_be_written_costs_nothing_else() -> None:
    """The report names a full disk; the failure is not counted, and the job goes on to its end."""
    files = MemoryFileSystem()
    faulty = FaultInjectingFileSystem(files, [FaultRule(FileFault.DISK_FULL, "make_dirs", f"{TARGET}*")])
    results = CollectedResults()
    result = saved(11 * US, into=results, files=faulty)
    (report,) = result.savepoints

    assert report.path is None
    assert report.error == "an I/O error"
    assert Counter(results.records) == expected_counts(RECORDS, 5)
    assert result.attempts == 1


@pytest.mark.parametrize("operation", ["open_write", "write", "fsync", "rename", "fsync_dir"])
def test_a_savepoint_that_fails_half_way_leaves_nothing(operation: str) -> None:
    """Whichever step of its metadata fails, its directory is deleted again."""
    files = MemoryFileSystem()
    path = f"{TARGET}*" if operation != "rename" else f"{TARGET}*/_metadata*"
    faulty = FaultInjectingFileSystem(files, [FaultRule(FileFault.DISK_FULL, operation, path, at_call=1)])
    result = saved(11 * US, files=faulty)

    assert result.savepoints[0].path is None
    assert result.savepoints[0].error == "the checkpoint could not be finalized"
    assert files.list_dir(TARGET) == []


def test_a_savepoint_while_the_job_restarts_fails() -> None:
    """There are no tasks to take it; the report says so."""
    made = execution(
        counting(CollectedResults()), kills=[("count", 10 * US)], batch_size=3, restart=FixedDelayRestart(1, 50 * US)
    )
    made.savepoint(20 * US, TARGET)
    result = made.run().raise_on_failure()

    assert result.savepoints[0].error == "the job is restarting"


def test_a_savepoint_under_way_dies_with_the_job() -> None:
    """A failed task aborts pending savepoints, and no partial one stays."""
    files = MemoryFileSystem()
    made = execution(
        counting(CollectedResults()),
        file_system=files,
        kills=[("count", 22 * US)],
        batch_size=3,
        cost=CostModel(storage_latency_ns=4 * US),
        inline_state_bytes=0,
    )
    made.savepoint(20 * US, TARGET)
    result = made.run().raise_on_failure()

    assert result.savepoints[0].path is None
    assert result.savepoints[0].error == "the job left the running state"
    assert files.list_dir(TARGET) == []


def test_a_savepoint_after_the_end_is_neither() -> None:
    """The run was over: neither a path nor an error is reported."""
    report = saved(10_000_000 * US).savepoints[0]

    assert (report.path, report.error) == (None, None)


def test_orders_that_make_no_sense_are_refused() -> None:
    """In a mode without snapshots, before the start, or a second stop."""
    job = counting(CollectedResults())
    with pytest.raises(ConfigurationError, match="a savepoint needs a mode that takes snapshots; in mode none"):
        execution(job, mode="none").savepoint(1, TARGET)
    with pytest.raises(ConfigurationError, match="a savepoint at -1 ns: a run starts at 0"):
        execution(job).savepoint(-1, TARGET)


# --- starting from one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", list(RestoreMode))
@pytest.mark.parametrize("mode", MODES)
def test_another_job_goes_on_from_a_savepoint(mode: str, claim: RestoreMode) -> None:
    """It counts every record that the savepoint does not hold, in each claim mode, also after a failure."""
    files, results, oracle = MemoryFileSystem(), CollectedResults(), CutOracle()
    (report,) = saved(11 * US, files=files, mode=mode).savepoints
    assert report.path is not None
    made = started(counting(results, name="again"), files, SavepointRestore(report.path, claim), mode=mode)
    made.kill("count", 5 * US)
    result = checked(made).raise_on_failure()

    assert [restore.checkpoint_id for restore in result.restores] == [report.checkpoint_id] * 2
    # Records before the savepoint: the keys are counted from there on.
    expected = expected_counts(RECORDS, 5)
    assert not Counter(results.records) - expected
    assert max(count for _, count in results.records) == RECORDS // 5
    assert len(results.records) < RECORDS
    assert oracle.held


def test_ids_go_on_above_the_savepoint() -> None:
    """The first checkpoint of a job restored from id r has id r + 1."""
    files = MemoryFileSystem()
    (report,) = saved(25 * US, files=files).savepoints
    assert report.checkpoint_id is not None
    assert report.checkpoint_id > 1
    result = started(counting(CollectedResults()), files, SavepointRestore(report.path or "")).run()

    assert result.checkpoints.rows()[0].checkpoint_id == report.checkpoint_id + 1


@pytest.mark.parametrize(
    ("claim", "first_kind", "is_kept"),
    [
        (RestoreMode.NO_CLAIM, SnapshotKind.FULL_CHECKPOINT, True),
        (RestoreMode.LEGACY, SnapshotKind.CHECKPOINT, True),
        (RestoreMode.CLAIM, SnapshotKind.CHECKPOINT, False),
    ],
)
def test_claim_modes_decide_whose_it_is(claim: RestoreMode, first_kind: SnapshotKind, is_kept: bool) -> None:
    """Only a claimed one is deleted, once subsumed; only in mode no-claim must the first checkpoint be full."""
    files = MemoryFileSystem()
    path = saved(11 * US, files=files).savepoints[0].path or ""
    result = started(counting(CollectedResults()), files, SavepointRestore(path, claim), retained=1).run()

    kinds = [row.kind for row in result.checkpoints.rows()]
    assert kinds[0] is first_kind
    assert kinds[1] is SnapshotKind.CHECKPOINT
    assert files.exists(f"{path}/_metadata") is is_kept
    assert files.exists(path) is is_kept


@pytest.mark.parametrize("claim", list(RestoreMode))
def test_nothing_is_deleted_before_it_is_subsumed(claim: RestoreMode) -> None:
    """Until a checkpoint has completed, every mode needs the savepoint: a failure goes back to it."""
    files = MemoryFileSystem()
    path = saved(11 * US, files=files).savepoints[0].path or ""
    made = started(
        counting(CollectedResults()),
        files,
        SavepointRestore(path, claim),
        checkpoint_interval=None,
        restart=FixedDelayRestart(None, 0),
    )
    for at in (3, 9, 15):
        made.kill("count", at * US)
    result = made.run().raise_on_failure()

    assert [restore.checkpoint_id for restore in result.restores] == [2] * 4


@pytest.mark.parametrize("parallelism", [1, 3, 5])
@pytest.mark.parametrize("mode", MODES)
def test_a_savepoint_may_be_restored_with_another_parallelism(mode: str, parallelism: int) -> None:
    """Each key goes on in the subtask that now has its key group."""
    files, results = MemoryFileSystem(), CollectedResults()
    path = saved(31 * US, files=files, mode=mode).savepoints[0].path or ""
    job = counting(results, parallelism=parallelism)
    checked(started(job, files, SavepointRestore(path), mode=mode)).raise_on_failure()

    assert not Counter(results.records) - expected_counts(RECORDS, 5)
    assert {key for key, count in results.records if count == RECORDS // 5} == set(range(5))


def test_state_without_an_owner_is_refused_or_dropped() -> None:
    """An operator that the job does not have any more: an error with its uid, or a note when that is allowed."""
    files, results = MemoryFileSystem(), CollectedResults()
    path = saved(11 * US, files=files).savepoints[0].path or ""

    def renamed() -> Job:
        return running_count(Job("counting", parallelism=2), RECORDS, results, keys=5, name="total")

    with pytest.raises(UnmatchedStateError, match="'count'"):
        started(renamed(), files, SavepointRestore(path)).run()
    result = started(renamed(), files, SavepointRestore(path), allow_non_restored_state=True).run()
    assert result.raise_on_failure().state == "finished"
    assert any("dropped" in note and "count" in note for note in result.notes)


def test_an_operator_that_is_new_starts_empty() -> None:
    """The job may have new operators: one without state in the savepoint begins with none."""
    files, results, more = MemoryFileSystem(), CollectedResults(), CollectedResults()
    path = saved(31 * US, files=files).savepoints[0].path or ""
    job = Job("counting", parallelism=2)
    stream = running_stream(job, results)
    added = stream.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="added")
    added.collect(more, name="more")
    started(job, files, SavepointRestore(path)).run().raise_on_failure()

    assert {key for key, count in results.records if count == RECORDS // 5} == set(range(5))
    assert min(count for _, count in more.records) == 1


def running_stream(job: Job, into: CollectedResults) -> Any:
    """The pairs of ``running_count``, with its count attached."""
    from operators.sources import SequenceSource

    pairs = job.source(SequenceSource(0, RECORDS), name="numbers").map(lambda number: (number % 5, 1), name="pair")
    counted = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    counted.collect(into, name="out")
    return pairs


def test_a_checkpoint_is_something_to_start_from_too() -> None:
    """A retained checkpoint of another run, by its directory or metadata; if claimed, it is deleted once subsumed."""
    files = MemoryFileSystem()
    saved(files=files, retained=3)
    newest = storage_in(files, "counting").list_checkpoints()[-2]
    directory = storage_in(files, "counting").location(newest).directory
    for pointer in (directory, f"{directory}/_metadata", f"{directory}/"):
        result = started(counting(CollectedResults()), files, SavepointRestore(pointer)).run().raise_on_failure()
        assert result.restores[0].checkpoint_id == newest
        assert files.exists(directory)
    claimed = SavepointRestore(directory, RestoreMode.CLAIM)
    started(counting(CollectedResults()), files, claimed, retained=1).run().raise_on_failure()
    assert not files.exists(directory)


def test_a_claimed_savepoint_goes_without_what_else_is_in_its_directory() -> None:
    """The user may have put it beside other files; only its own files are deleted."""
    files = MemoryFileSystem()
    path = saved(11 * US, files=files, inline_state_bytes=0).savepoints[0].path or ""
    with files.open_write(f"{path}/letter.txt") as file:
        file.write(b"dear Ann")
    claimed = SavepointRestore(path, RestoreMode.CLAIM)
    started(counting(CollectedResults()), files, claimed, retained=1).run().raise_on_failure()
    assert files.list_dir(path) == ["letter.txt"]


def test_a_missing_or_damaged_savepoint_is_told() -> None:
    """The error names the path and the damage; no job is run."""
    files = MemoryFileSystem()
    path = saved(11 * US, files=files, inline_state_bytes=0).savepoints[0].path or ""
    job = counting(CollectedResults())
    with pytest.raises(MissingStateError, match="/nowhere"):
        started(job, files, SavepointRestore("/nowhere")).run()
    name = next(name for name in files.list_dir(path) if name != "_metadata")
    with files.open_write(f"{path}/{name}") as file:
        file.write(b"damaged")
    with pytest.raises(StorageError, match=r"the snapshot started from.*cannot be used"):
        started(job, files, SavepointRestore(path)).run()
    with files.open_write(f"{path}/_metadata") as file:
        file.write(b"damaged")
    with pytest.raises(CorruptStateError, match="_metadata"):
        started(job, files, SavepointRestore(path)).run()


def crash(made: Execution, *, completed: int) -> None:
    """Run until so many checkpoints are complete, and stop there."""
    made._run_kernel = lambda progress: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="nothing is left to happen"):
        made.run()
    while made.manager.coordinator.statistics.completed < completed:
        assert made.kernel.run(1)


@pytest.mark.parametrize("claim", list(RestoreMode))
@pytest.mark.parametrize("completed", [0, 1, 2])
def test_a_crashed_run_that_was_started_from_a_savepoint_is_resumed(claim: RestoreMode, completed: int) -> None:
    """Before its first checkpoint from the savepoint, after it from that; a claimed one is subsumed in time."""
    files, results = MemoryFileSystem(), CollectedResults()
    path = saved(11 * US, files=files).savepoints[0].path or ""
    start, storage = SavepointRestore(path, claim), CheckpointStorage(MemoryFileSystem(), "/other", "counting")
    crashed = started(counting(results), files, start, storage=storage)
    crash(crashed, completed=completed)
    assert files.exists(path) is (claim is not RestoreMode.CLAIM or completed < 2)

    resumed = Execution(
        counting(results).plan(),
        crashed.config,
        storage=storage,
        file_system=files,
        incarnation=2,
        restore=True,
        restore_from=start,
    )
    result = resumed.run().raise_on_failure()

    assert result.restores[0].checkpoint_id == 2 + completed
    assert not Counter(results.records) - expected_counts(RECORDS, 5)
    assert files.exists(path) is (claim is not RestoreMode.CLAIM)


def test_a_resumed_run_can_do_without_the_savepoint_it_was_started_from() -> None:
    """Once there is a checkpoint the savepoint is not needed; before that its loss is an error."""
    files, results = MemoryFileSystem(), CollectedResults()
    path = saved(11 * US, files=files).savepoints[0].path or ""
    for completed in (1, 0):
        storage = CheckpointStorage(MemoryFileSystem(), "/other", "counting")
        crash(started(counting(results), files, SavepointRestore(path), storage=storage), completed=completed)
        resumed = Execution(
            counting(results).plan(),
            RunConfig(),
            storage=storage,
            file_system=MemoryFileSystem(),
            restore=True,
            restore_from=SavepointRestore(path),
        )
        if completed:
            assert resumed.run().raise_on_failure().restores[0].checkpoint_id == 3
        else:
            with pytest.raises(StorageError, match="nothing to start from"):
                resumed.run()


def test_ids_of_savepoints_are_used_once() -> None:
    """After a crash right after a savepoint, which lies in another directory, its id is not used again."""
    files = MemoryFileSystem()
    made = execution(counting(CollectedResults()), file_system=files, batch_size=3, checkpoint_interval=None)
    made.savepoint(11 * US, TARGET)
    crash(made, completed=0)
    while not made.manager.savepoints.reports[0].path:
        made.kernel.run(1)
    used = made.manager.savepoints.reports[0].checkpoint_id
    result = execution(counting(CollectedResults()), file_system=files, restore=True, incarnation=2).run()

    assert used == 1
    assert result.checkpoints.rows()[0].checkpoint_id == 2


def test_a_savepoint_of_an_interval_in_records() -> None:
    """Savepoints do not disturb checkpoints that are counted in records."""
    result = run(counting(CollectedResults()), checkpoint_interval=every(records=20), batch_size=3)
    made = execution(counting(CollectedResults()), checkpoint_interval=every(records=20), batch_size=3)
    made.savepoint(25 * US, TARGET)

    assert made.run().checkpoints.completed == result.checkpoints.completed + 1
