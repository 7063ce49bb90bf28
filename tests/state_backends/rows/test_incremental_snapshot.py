"""The task that uploads: which file goes where, in which steps, and which files are left when it does not end."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

import pytest

from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from state_backends.rows.incremental import UPLOAD_CHUNK_BYTES, NativeSnapshotTask
from state_backends.snapshots import (
    ByteStreamStateHandle,
    CheckpointStorage,
    FileStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateScope,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.rows.support import (
    CHECKPOINT,
    FULL,
    SAVEPOINT,
    Job,
    ScriptedStore,
    bytes_behind,
    content_of,
    files_below,
    job_over,
    names,
    restored_base,
    strategy_over,
)

PRIVATE = ("CURRENT", "MANIFEST-5", "OPTIONS-7")


def test_the_first_checkpoint_uploads_everything() -> None:
    """I2, I3: data files into the shared scope, all others into the checkpoint's own directory, byte by byte."""
    job, _ = job_over("1.sst", "2.sst", *PRIVATE)
    handle = job.checkpoint(1)
    assert names(handle, uploaded=True) == ["1.sst", "2.sst"]
    assert [file.name for file in handle.private_files] == sorted(PRIVATE)
    for files, scope in ((handle.shared_files, StateScope.SHARED), (handle.private_files, StateScope.EXCLUSIVE)):
        for file in files:
            assert isinstance(file.stream, FileStateHandle)
            assert file.stream.scope is scope
            assert file.uploaded
    assert bytes_behind(job, 1, handle) == {name: content_of(name) for name in ("1.sst", "2.sst", *PRIVATE)}
    assert (handle.store, handle.backend_id, handle.checkpoint_id) == ("scripted", "backend", 1)


def test_the_next_checkpoint_refers_to_confirmed_data_files_only() -> None:
    """I2: a file of the base has the same place as before; private files are written again (cp1, savepoint 2, cp3)."""
    job, store = job_over("1.sst", *PRIVATE, retain=3)
    first = job.checkpoint(1)
    job.strategy.history.complete(2)
    store.names = ("1.sst", "2.sst", *PRIVATE)
    handle = job.checkpoint(3)
    assert names(handle, uploaded=False) == ["1.sst"]
    assert names(handle, uploaded=True) == ["2.sst"]
    assert handle.shared_files[0].stream == first.shared_files[0].stream
    assert all(file.uploaded for file in handle.private_files)
    assert handle.persisted_bytes == handle.size_bytes - handle.shared_files[0].stream.size_bytes


def test_what_is_not_confirmed_is_uploaded_again_under_another_name() -> None:
    """I4: two concurrent checkpoints hold two copies of one file."""
    job, _ = job_over("1.sst")
    paths = []
    for number in (1, 2):
        job.start(number)
        job.upload(number)
        handle = job.pending[number].handle
        assert isinstance(handle, IncrementalKeyedStateHandle)
        assert names(handle, uploaded=True) == ["1.sst"]
        paths.append(handle.shared_files[0].stream)
    assert paths[0] != paths[1]


def test_an_aborted_checkpoint_is_uploaded_again() -> None:
    """I4, I5: what only an aborted checkpoint has uploaded is new to the next one."""
    job, store = job_over("1.sst", retain=3)
    job.checkpoint(1)
    store.names = ("1.sst", "2.sst")
    job.start(2)
    job.upload(2)
    job.acknowledge(2)
    job.abort(2)
    job.deliver_all()
    handle = job.checkpoint(3)
    assert names(handle, uploaded=True) == ["2.sst"]
    assert len(job.shared_files()) == 3
    store.names = ("2.sst",)
    job.retain = 1
    job.checkpoint(4)
    assert len(job.shared_files()) == 1


def test_the_base_is_that_of_the_synchronous_part() -> None:
    """I1: a confirmation that comes between the two parts is used by the next snapshot only."""
    job, _ = job_over("1.sst")
    job.start(1)
    job.upload(1)
    job.start(2)
    job.acknowledge(1)
    job.retained[1] = job.pending.pop(1).handle
    job.strategy.history.complete(1)
    job.upload(2)
    handle = job.pending[2].handle
    assert isinstance(handle, IncrementalKeyedStateHandle)
    assert names(handle, uploaded=True) == ["1.sst"]


def test_a_full_checkpoint_uploads_everything_and_is_a_base() -> None:
    """I2: FULL_CHECKPOINT refers to nothing, and the next checkpoint refers to it."""
    job, _ = job_over("1.sst", retain=3)
    first = job.checkpoint(1)
    full = job.checkpoint(2, FULL)
    third = job.checkpoint(3)
    assert names(full, uploaded=True) == ["1.sst"]
    assert full.shared_files[0].stream != first.shared_files[0].stream
    assert names(third, uploaded=False) == ["1.sst"]
    assert third.shared_files[0].stream == full.shared_files[0].stream


def test_a_native_savepoint_shares_nothing() -> None:
    """I2: everything of it is exclusive, and it is no base, whatever is notified."""
    job, _ = job_over("1.sst", *PRIVATE, retain=3)
    job.checkpoint(1)
    job.start(2, SAVEPOINT)
    job.upload(2)
    handle = job.pending[2].handle
    assert isinstance(handle, IncrementalKeyedStateHandle)
    assert not list(handle.shared())
    assert {stream.scope for stream in handle.streams() if isinstance(stream, FileStateHandle)} == {
        StateScope.EXCLUSIVE
    }
    assert all(file.uploaded for file in handle.shared_files)
    assert job.strategy.history.tracked == (1,)
    job.strategy.history.complete(2)
    assert job.strategy.history.base_checkpoint == 1


def test_private_files_go_with_their_checkpoint() -> None:
    """I3: no private file lies among the shared files, so an aborted checkpoint leaves none there."""
    job, _ = job_over("1.sst", *PRIVATE)
    job.start(1)
    job.upload(1)
    job.acknowledge(1)
    assert len(job.shared_files()) == 1
    job.abort(1)
    assert files_below(job.file_system, job.storage.job_dir) == [
        "checkpoint-ids",
        *(f"shared/{name}" for name in job.shared_files()),
    ]


def test_a_restored_base_carries_on() -> None:
    """I8: identity and files of the snapshot restored are those of the next checkpoint."""
    file_system = MemoryFileSystem()
    store = ScriptedStore(file_system, "1.sst", "2.sst", "9.sst")
    storage = CheckpointStorage(file_system, "/storage", "job", inline_threshold_bytes=0)
    job = Job(strategy_over(store, file_system, restored_base(7, "1.sst", "2.sst")), storage, file_system)
    job.start(8)
    job.upload(8)
    handle = job.pending[8].handle
    assert isinstance(handle, IncrementalKeyedStateHandle)
    assert names(handle, uploaded=False) == ["1.sst", "2.sst"]
    assert names(handle, uploaded=True) == ["9.sst"]
    assert handle.backend_id == "restored"


def test_another_file_under_a_name_of_the_base_is_noticed() -> None:
    """A placeholder for a file that is another one would be a checkpoint of another state."""
    job, store = job_over("1.sst")
    job.checkpoint(1)
    store._bytes_per_file = 11
    job.start(2)
    with pytest.raises(AssertionError, match="is not the file"):
        job.upload(2)


@pytest.mark.parametrize("threshold", [0, 1 << 20])
def test_shared_files_are_never_inlined(threshold: int) -> None:
    """Under any threshold, data that several checkpoints may share is a file; private files are inlined below it."""
    job, _ = job_over("1.sst", "CURRENT")
    job.storage = CheckpointStorage(job.file_system, "/storage", "job", inline_threshold_bytes=threshold)
    handle = job.checkpoint(1)
    assert isinstance(handle.shared_files[0].stream, FileStateHandle)
    assert isinstance(handle.private_files[0].stream, ByteStreamStateHandle) is (threshold > 0)
    assert isinstance(handle.meta, ByteStreamStateHandle) is (threshold > 0)


def test_an_empty_file_is_there_after_a_restore() -> None:
    """RocksDB has an empty log file in each checkpoint: no bytes are no reason to leave it out."""
    job, _ = job_over("1.sst", "CURRENT", bytes_per_file=0)
    handle = job.checkpoint(1)
    assert bytes_behind(job, 1, handle) == {"1.sst": b"", "CURRENT": b""}


def test_big_files_are_copied_in_pieces() -> None:
    """A step writes at most one piece, and at most one file."""
    job, _ = job_over("1.sst", "2.sst", "CURRENT", bytes_per_file=2 * UPLOAD_CHUNK_BYTES)
    task = job.start(1).task
    written = []
    result = None
    while result is None:
        before = sum(map(job.file_system.size, job.file_system.walk_files("/storage")))
        result = task.step()
        written.append(sum(map(job.file_system.size, job.file_system.walk_files("/storage"))) - before)
    assert written == [UPLOAD_CHUNK_BYTES] * 6 + [len(b"meta")]
    handle = result.job_manager_state
    assert isinstance(handle, IncrementalKeyedStateHandle)
    assert bytes_behind(job, 1, handle)["2.sst"] == content_of("2.sst", 2 * UPLOAD_CHUNK_BYTES)


def test_a_backend_without_entries_gives_no_handle_and_no_file() -> None:
    """S6; the local directory goes as well."""
    job, store = job_over("1.sst", "CURRENT")
    store.is_empty = True
    task = job.start(1).task
    assert run_to_completion(task).job_manager_state is None
    assert not job.shared_files()
    assert not files_below(job.file_system, "/local")


def test_no_checkpoint_refers_to_a_file_from_before_an_empty_one() -> None:
    """I6: the empty checkpoint did not register it, even if its confirmation gets lost."""
    job, store = job_over("1.sst")
    job.checkpoint(1)
    store.is_empty = True
    job.start(2)
    job.rest_of(2)
    job.deliver_all(lost=True)
    assert not job.shared_files()
    store.is_empty = False
    assert names(job.checkpoint(3), uploaded=True) == ["1.sst"]
    job.verify()


# --- cancel and failure -----------------------------------------------------------------------------------------------


def second_checkpoint(file_system: MemoryFileSystem) -> tuple[Job, Callable[[], NativeSnapshotTask]]:
    """A job with one checkpoint, and what begins a second one that refers to a file and uploads three."""
    store = ScriptedStore(file_system, "1.sst", "CURRENT", bytes_per_file=3000)
    storage = CheckpointStorage(file_system, "/storage", "job", inline_threshold_bytes=0)
    job = Job(strategy_over(store, file_system), storage, file_system)
    job.checkpoint(1)
    store.names = ("1.sst", "2.sst", "3.sst", "CURRENT")
    return job, lambda: job.start(2).task


@pytest.mark.parametrize("snapshot_type", [CHECKPOINT, FULL, SAVEPOINT])
def test_cancelled_at_any_step_it_leaves_no_file(snapshot_type: SnapshotType) -> None:
    """I7, S3, S5: its uploads and local directory are gone, and the next checkpoint has the same base."""
    steps = 0
    while True:
        file_system = MemoryFileSystem()
        job, _ = second_checkpoint(file_system)
        before = files_below(file_system, "/")
        task = job.start(2, snapshot_type).task
        if any(task.step() is not None for _ in range(steps)):
            break
        task.cancel()
        assert task.status is SnapshotStatus.CANCELLED
        assert task._resources.released
        assert files_below(file_system, "/") == before
        task.cancel()
        job.verify()
        history = job.strategy.history
        assert (history.tracked, history.base_checkpoint) == ((1,), 1)
        assert tuple(sorted((name, file.path) for name, file in history.base().items())) == base_paths(job)
        steps += 1
    assert steps == (4 if snapshot_type is CHECKPOINT else 5)


def base_paths(job: Job) -> tuple[tuple[str, str], ...]:
    return tuple((name, file.path) for name, file in sorted(job.strategy.history.base().items()))


@pytest.mark.parametrize("kind", [FileFault.DISK_FULL, FileFault.ERROR_AFTER, FileFault.MISSING])
@pytest.mark.parametrize("operation", ["open_write", "write", "fsync", "close", "open_read", "size"])
def test_failing_at_any_call_it_leaves_no_file(kind: FileFault, operation: str) -> None:
    """I7: an upload that fails deletes everything the attempt has uploaded, and nothing of the base."""
    failures = 0
    for at_call in range(1, 30):
        inner = MemoryFileSystem()
        job, start = second_checkpoint(inner)
        before = files_below(inner, "/")
        task = start()
        faulty = FaultInjectingFileSystem(inner, [FaultRule(kind, operation, at_call=at_call)])
        storage = CheckpointStorage(faulty, "/storage", "job", inline_threshold_bytes=0)
        task._stream_factory = storage.location(2).stream_factory("subtask-0-2")
        task._pinned.file_system = faulty
        try:
            run_to_completion(task)
        except OSError:
            failures += 1
            assert task.status is SnapshotStatus.FAILED
            assert task._resources.released
            assert files_below(inner, "/") == before
            assert job.strategy.history.tracked == (1,)
            job.verify()
        else:
            break
    applies = kind is not FileFault.MISSING or operation in ("open_read", "size")
    applies = applies and (kind is not FileFault.DISK_FULL or operation in ("open_write", "write", "fsync"))
    assert bool(failures) is applies


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    """The error names an upload that cannot be deleted; all others are deleted, and the resources released."""
    inner = MemoryFileSystem()
    job, start = second_checkpoint(inner)
    before = files_below(inner, "/")
    task = start()
    faulty = FaultInjectingFileSystem(inner, [FaultRule(FileFault.READ_ONLY, "delete", at_call=1)])
    task._stream_factory = CheckpointStorage(faulty, "/storage", "job").location(2).stream_factory("subtask-0-2")
    task.step()
    task.step()
    task.cancel()
    assert len(files_below(inner, "/")) == len(before) + 1
    assert task._resources.released
    job.verify()


def test_a_failing_synchronous_part_leaves_nothing() -> None:
    """A store that cannot make its directory of links leaves no half of it, and the history as it was."""
    inner = MemoryFileSystem()
    for at_call in range(1, 4):
        faulty = FaultInjectingFileSystem(inner, [FaultRule(FileFault.DISK_FULL, "open_write", at_call=at_call)])
        strategy = strategy_over(ScriptedStore(faulty, "1.sst", "2.sst", "CURRENT"), faulty)
        with pytest.raises(OSError, match="No space"):
            strategy.sync_prepare_resources(1)
        assert not files_below(inner, "/local")
        assert strategy.history.tracked == ()


def test_a_crash_is_not_tidied_up() -> None:
    """A dead process deletes nothing, and the files it leaves are no part of any checkpoint."""
    inner = MemoryFileSystem()
    job, start = second_checkpoint(inner)
    task = start()
    faulty = FaultInjectingFileSystem(inner, [FaultRule(FileFault.CRASH_AFTER, "fsync", at_call=2)])
    task._stream_factory = CheckpointStorage(faulty, "/storage", "job").location(2).stream_factory("subtask-0-2")
    with pytest.raises(SimulatedCrashError):
        run_to_completion(task)
    assert len(job.shared_files()) > 1
    job.verify()


def test_a_left_over_directory_does_not_cost_the_snapshot() -> None:
    """When everything is uploaded, a local directory that cannot be deleted is no reason to fail."""
    inner = MemoryFileSystem()
    _, start = second_checkpoint(inner)
    task = start()
    task._pinned.file_system = FaultInjectingFileSystem(inner, [FaultRule(FileFault.READ_ONLY, "delete_tree")])
    assert run_to_completion(task).job_manager_state is not None


# --- local copies -----------------------------------------------------------------------------------------------------


class Keeper:
    def __init__(self, answer: str = "keep") -> None:
        self.told: list[tuple[int, str]] = []
        self._answer = answer

    def __call__(self, number: int, directory: str, handle: IncrementalKeyedStateHandle) -> KeyedStateHandle | None:
        self.told.append((number, directory))
        if self._answer == "fail":
            raise OSError("no room")
        if self._answer == "bug":
            raise ValueError("a bug")
        return handle if self._answer == "keep" else None


def test_a_local_copy_is_kept() -> None:
    """Local recovery gets the directory with all files, and it is not deleted any more."""
    job, _ = job_over("1.sst", "CURRENT")
    job.strategy.keep_local = keeper = Keeper()
    task = job.start(1).task
    result = run_to_completion(task)
    assert result.task_local_state == result.job_manager_state
    ((number, directory),) = keeper.told
    assert number == 1
    assert job.file_system.list_dir(directory) == ["1.sst", "CURRENT"]
    assert posixpath.dirname(directory) == "/local/snapshots"


@pytest.mark.parametrize("answer", ["refuse", "fail"])
def test_a_local_copy_that_is_not_kept_is_deleted(answer: str) -> None:
    """Refused or failed, it never fails the checkpoint."""
    job, _ = job_over("1.sst")
    job.strategy.keep_local = Keeper(answer)
    result = run_to_completion(job.start(1).task)
    assert result.task_local_state is None
    assert result.job_manager_state is not None
    assert not files_below(job.file_system, "/local")


def test_a_bug_in_the_keeper_leaves_nothing() -> None:
    """The snapshot fails like any other: uploads deleted, and not remembered as a possible base."""
    job, _ = job_over("1.sst")
    job.strategy.keep_local = Keeper("bug")
    with pytest.raises(ValueError, match="a bug"):
        run_to_completion(job.start(1).task)
    assert not job.shared_files()
    assert not files_below(job.file_system, "/local")
    assert job.strategy.history.tracked == ()


def test_savepoints_and_cancelled_snapshots_keep_no_local_copy() -> None:
    """Only a checkpoint that was uploaded is worth one."""
    job, _ = job_over("1.sst")
    job.strategy.keep_local = keeper = Keeper()
    run_to_completion(job.start(1, SAVEPOINT).task)
    job.start(2).task.cancel()
    assert not keeper.told
    assert not files_below(job.file_system, "/local")


def test_snapshots_of_equal_number_do_not_meet() -> None:
    """Materialisations and savepoints are counted apart, so a number may come twice at a time."""
    job, _ = job_over("1.sst")
    streams = job.storage.initialize_location(5)
    tasks = [
        job.strategy.async_snapshot(
            job.strategy.sync_prepare_resources(5), streams.stream_factory(f"subtask-{one.value}"), SnapshotOptions(one)
        )
        for one in (CHECKPOINT, SAVEPOINT)
    ]
    assert all(run_to_completion(task).job_manager_state is not None for task in tasks)
