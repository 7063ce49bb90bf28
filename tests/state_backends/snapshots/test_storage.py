"""Checkpoint storage: layout, inlined and filed state, finding the newest usable checkpoint, cleaning up."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from state_backends.base import (
    CorruptStateError,
    KeyGroupRange,
    MissingStateError,
    SnapshotCancelledError,
    StateArgumentError,
    StateSchemaError,
    StorageInUseError,
    StorageNotWritableError,
)
from state_backends.files import (
    FaultInjectingFileSystem,
    FaultRule,
    FileFault,
    FileSystem,
    LocalFileSystem,
    MemoryFileSystem,
)
from state_backends.files.faulty import SimulatedCrashError
from state_backends.snapshots import (
    MAX_INLINE_THRESHOLD_BYTES,
    ByteStreamStateHandle,
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStateMode,
    SnapshotOptions,
    StateOffsets,
    StateScope,
    StoreFile,
    SubtaskSnapshot,
    run_to_completion,
    safe_file_name,
    stream_handle_from_state,
)
from state_backends.snapshots.keyed_handles import keyed_handle_from_state
from tests.state_backends.support import SUM, heap, vectors

Vector = dict[str, Any]


def storage(fs: FileSystem | None = None, inline_threshold_bytes: int = 0) -> CheckpointStorage:
    """Storage in memory; by default every piece of state is a file."""
    return CheckpointStorage(fs or MemoryFileSystem(), "/base", "job", inline_threshold_bytes=inline_threshold_bytes)


def write_stream(where: CheckpointLocation, data: bytes, scope: StateScope = StateScope.EXCLUSIVE) -> Any:
    stream = where.stream_factory("op-0").create_stream(scope)
    stream.write(data)
    return stream.close_and_get_handle()


def complete(of: CheckpointStorage, checkpoint_id: int, values: int = 3) -> CheckpointMetadata:
    """A whole checkpoint with one keyed subtask."""
    where = of.initialize_location(checkpoint_id)
    backend = heap()
    backend.reducing_state(SUM).add_many(list(range(values)), [checkpoint_id] * values, [])
    task = backend.async_snapshot(
        backend.sync_prepare_resources(checkpoint_id), where.stream_factory(f"op-0-{checkpoint_id}"), SnapshotOptions()
    )
    keyed = run_to_completion(task).job_manager_state
    operators = (OperatorSnapshot("op", "Op", 1, 8, {0: SubtaskSnapshot(keyed)}),)
    metadata = CheckpointMetadata(checkpoint_id, 10 * checkpoint_id, 1, {"graph": "g"}, operators)
    where.write_metadata(metadata)
    return metadata


@pytest.mark.parametrize("vector", vectors("storage_layout"))
def test_files_lie_where_flink_has_them(vector: Vector) -> None:
    """A checkpoint's metadata is in chk-N; a savepoint holds everything itself, shared state too."""
    given_input, fs = vector["input"], MemoryFileSystem()
    of = storage(fs)
    if given_input["location"] == "checkpoint":
        where = of.initialize_location(given_input["checkpoint_id"])
        expected = vector["expect"]["path"].replace("<base>/<job-id>", "/base/job")
        assert expected == where.metadata_path
    else:
        where = of.initialize_savepoint_location("/target/savepoint-abc", given_input["checkpoint_id"])
        handle = write_stream(where, b"x", StateScope[given_input["scope"]])
        assert handle.scope is StateScope.EXCLUSIVE
        assert fs.exists(f"/target/savepoint-abc/{handle.path}")


def test_scopes_have_directories_of_their_own() -> None:
    """Exclusive files are beside the metadata, shared and task-owned ones in the job's directories."""
    fs = MemoryFileSystem()
    where = storage(fs).initialize_location(5)
    handles = [write_stream(where, scope.value.encode(), scope) for scope in StateScope]

    assert [handle.path for handle in handles] == ["op-0-0", "shared/op-0-0", "taskowned/op-0-0"]
    assert [fs.exists(f"/base/job/{path}") for path in ("chk-5/op-0-0", "shared/op-0-0", "taskowned/op-0-0")] == [
        True
    ] * 3
    for handle, scope in zip(handles, StateScope, strict=True):
        with where.reader().open(handle) as file:
            assert file.read() == scope.value.encode()


@pytest.mark.parametrize("vector", vectors("stream_handle_kind"))
def test_small_state_is_inlined(vector: Vector) -> None:
    """Up to the threshold, bytes; above it, a file; nothing written, no handle (Flink's stream factory)."""
    given_input = vector["input"]
    fs = MemoryFileSystem()
    where = storage(fs, given_input["inline_threshold"]).initialize_location(1)
    data = bytes(given_input["bytes_written"])
    stream = where.stream_factory("x").create_stream()
    for i in range(0, len(data), 100):
        stream.write(data[i : i + 100])
    assert stream.tell() == len(data)
    handle = stream.close_and_get_handle()

    kinds = {"FILE": FileStateHandle, "INLINE_BYTES": ByteStreamStateHandle}
    assert type(handle) is kinds[vector["expect"]["handle"]]
    assert handle.size_bytes == len(data)
    assert len(list(fs.walk_files("/"))) == (type(handle) is FileStateHandle)
    with where.reader().open(handle) as file:
        assert file.read() == data


def test_an_unused_stream_has_no_handle_and_no_file() -> None:
    """Nothing written gives None, also with a threshold of 0."""
    fs = MemoryFileSystem()
    assert storage(fs).initialize_location(1).stream_factory("x").create_stream().close_and_get_handle() is None

    assert list(fs.walk_files("/")) == []


def test_a_closed_stream_leaves_nothing_and_cannot_be_finished() -> None:
    """Closing without finishing deletes the file; finishing afterwards is an error, not a handle."""
    fs = MemoryFileSystem()
    stream = storage(fs).initialize_location(1).stream_factory("x").create_stream()
    stream.write(b"abc")
    assert len(list(fs.walk_files("/"))) == 1
    stream.close()
    stream.close()
    for late in (stream.close_and_get_handle, lambda: stream.write(b"d")):
        with pytest.raises(SnapshotCancelledError, match="the stream is closed"):
            late()

    assert list(fs.walk_files("/")) == []


def test_closing_a_finished_stream_keeps_its_file() -> None:
    """After the handle was given out, close does nothing; writing on is a bug."""
    fs = MemoryFileSystem()
    stream = storage(fs).initialize_location(1).stream_factory("x").create_stream()
    stream.write(b"abc")
    stream.close_and_get_handle()
    stream.close()
    with pytest.raises(AssertionError, match="finished"):
        stream.write(b"d")

    assert len(list(fs.walk_files("/"))) == 1


@pytest.mark.parametrize("operation", ["open_write", "write", "fsync", "close"])
@pytest.mark.parametrize("kind", [FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER])
def test_a_stream_that_fails_leaves_no_file(operation: str, kind: FileFault) -> None:
    """Whichever call fails, before or after its effect, closing the stream removes the file."""
    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(kind, operation, at_call=1)])
    stream = storage(fs).initialize_location(1).stream_factory("x").create_stream()

    def write_and_finish() -> None:
        stream.write(b"abc")
        stream.close_and_get_handle()

    with pytest.raises(OSError, match="Input/output"):
        write_and_finish()
    stream.close()

    assert list(fs.inner.walk_files("/")) == []


def test_a_name_that_is_taken_is_not_overwritten() -> None:
    """A stream never replaces a file of the same name, and giving up does not delete it."""
    fs = MemoryFileSystem()
    where = storage(fs).initialize_location(1)
    first = write_stream(where, b"first")
    again = where.stream_factory("op-0").create_stream()
    with pytest.raises(FileExistsError):
        again.write(b"second")
    again.close()

    assert fs.read_bytes(f"{where.directory}/{first.path}") == b"first"


def test_a_file_is_durable_before_there_is_a_handle() -> None:
    """After a crash that keeps names, the bytes that a handle names are there."""
    fs = MemoryFileSystem()
    where = storage(fs).initialize_location(1)
    handle = write_stream(where, b"abc")
    fs.fsync_dir(where.directory)
    fs.crash()

    where.reader().verify(handle)


def test_a_checkpoint_is_read_back() -> None:
    """A written checkpoint is read, listed, verified and found as the newest."""
    of = storage()
    first, second = complete(of, 1), complete(of, 3)

    assert of.list_checkpoints() == [1, 3]
    assert of.highest_checkpoint_id() == 3
    assert of.read_metadata(1) == first
    assert of.verify(3) == second
    assert of.latest_usable() == (second, [])
    assert second.size_bytes > 0


def test_metadata_keeps_everything() -> None:
    """All fields survive, with every kind of handle in them."""
    file_handle = FileStateHandle("shared/x", StateScope.SHARED, 10, 0xFFFFFFFF)
    keyed = FullKeyedStateHandle(KeyGroupRange(2, 5), ((2, 14), (4, 90)), file_handle)
    states = {"s": StateOffsets(OperatorStateMode.UNION, (14, 20)), "a": StateOffsets(OperatorStateMode.BROADCAST, ())}
    operator = OperatorStateHandle(states, ByteStreamStateHandle(b"xyz"))
    subtasks = {3: SubtaskSnapshot(keyed, operator), 1: SubtaskSnapshot(finished=True)}
    operators = (OperatorSnapshot("u1", "one", 4, 128, subtasks, b"coordinator"), OperatorSnapshot("u2", "two", 1, 1))
    metadata = CheckpointMetadata(9, 123456789, 2, {"b": (1, 2), "a": "text"}, operators)
    of = storage()
    of.initialize_location(9)
    where = of.location(9)
    where.write_metadata(dataclasses.replace(metadata, operators=operators[1:]))
    assert where.read_metadata().operators == operators[1:]
    assert CheckpointMetadata.from_file(io.BytesIO(metadata.to_bytes()), "p") == metadata
    assert list(metadata.streams()) == [file_handle, ByteStreamStateHandle(b"xyz")]


def test_unknown_kinds_of_handles_are_refused() -> None:
    """A handle of a newer program says so."""
    for read in (stream_handle_from_state, keyed_handle_from_state, OperatorStateHandle.from_state):
        with pytest.raises(StateSchemaError, match="'remote' is unknown"):
            read(["remote", 1])  # type: ignore[operator]


def files_of(fs: MemoryFileSystem, directory: str) -> str:
    (name,) = [name for name in fs.list_dir(directory) if name != "_metadata"]
    return f"{directory}/{name}"


def overwrite(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    with fs.open_write(path) as file:
        file.write(data)
        file.fsync()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("flip state", "chk-2/op-0-2-0: its bytes do not match the checksum"),
        ("truncate state", "chk-2/op-0-2-0: has 3 bytes, was written with"),
        ("delete state", "chk-2/op-0-2-0: is referred to but does not exist"),
        ("flip metadata", "chk-2/_metadata: damaged: the frame at 14 does not match"),
        ("truncate metadata", "chk-2/_metadata: truncated: 10 bytes"),
        ("empty metadata", "chk-2/_metadata: truncated: 0 bytes"),
        ("foreign metadata", "chk-2/_metadata: its first bytes are damaged or it is no WEIRMETA file"),
        ("metadata of another", "chk-2/_metadata: is the metadata of checkpoint 1"),
    ],
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_next_older(damage: str, problem: str) -> None:
    """The problem names file and reason; the older checkpoint is used; the damaged one cannot be verified."""
    fs = MemoryFileSystem()
    of = storage(fs)
    older = complete(of, 1)
    complete(of, 2)
    state, metadata = files_of(fs, "/base/job/chk-2"), "/base/job/chk-2/_metadata"
    path = state if "state" in damage else metadata
    data = fs.read_bytes(path)
    if damage.startswith("flip"):
        overwrite(fs, path, data[:-1] + bytes([data[-1] ^ 1]))
    elif damage.startswith("truncate"):
        fs.truncate(path, 3 if path == state else 10)
    elif damage == "delete state":
        fs.delete(path)
    elif damage == "empty metadata":
        fs.truncate(path, 0)
    elif damage == "foreign metadata":
        overwrite(fs, path, b"#!/bin/sh\necho this is something else entirely")
    else:
        overwrite(fs, path, fs.read_bytes("/base/job/chk-1/_metadata"))

    usable = of.latest_usable()
    assert usable.metadata == older
    assert len(usable.problems) == 1
    assert usable.problems[0].startswith("checkpoint 2 cannot be used: /base/job/")
    assert problem in usable.problems[0]
    with pytest.raises((CorruptStateError, MissingStateError)):
        of.verify(2)


def test_a_read_error_on_the_newest_falls_back_too() -> None:
    """A disk error is reported like damage."""
    memory = MemoryFileSystem()
    older = complete(storage(memory), 1)
    complete(storage(memory), 2)
    fs = FaultInjectingFileSystem(memory, [FaultRule(FileFault.ERROR_BEFORE, "open_read", "*chk-2/*")])
    usable = storage(fs).latest_usable()

    assert usable.metadata == older
    assert "Input/output error" in usable.problems[0]


@pytest.mark.parametrize("bit", [0, 77, 1000])
def test_bit_flips_while_reading_are_found(bit: int) -> None:
    """A bit that flips between disk and program is found by verify."""
    memory = MemoryFileSystem()
    complete(storage(memory), 1)
    for path in ("*_metadata", "*op-0*"):
        fs = FaultInjectingFileSystem(memory, [FaultRule(FileFault.BIT_FLIP, "open_read", path, flip_bit=bit)])
        with pytest.raises(CorruptStateError):
            storage(fs).verify(1)


def test_without_any_checkpoint_there_is_none() -> None:
    """A directory that does not exist, and one without checkpoints, have no usable checkpoint."""
    of = storage()
    assert of.latest_usable() == (None, [])
    of.initialize_location(1)

    assert of.latest_usable() == (None, [])
    assert of.list_checkpoints() == []
    assert of.highest_checkpoint_id() == 1
    with pytest.raises(MissingStateError, match="so neither does the checkpoint"):
        of.read_metadata(1)


def test_foreign_names_are_ignored() -> None:
    """Directories that only look like checkpoints are none."""
    fs = MemoryFileSystem()
    of = storage(fs)
    complete(of, 2)
    for name in ("chk-", "chk-x", "chk--1", "other"):
        fs.make_dirs(f"/base/job/{name}")

    assert of.list_checkpoints() == [2]


def test_a_checkpoint_number_is_not_used_twice() -> None:
    """An existing checkpoint is never written over; the error says which numbers are free."""
    of = storage()
    complete(of, 4)
    with pytest.raises(StateArgumentError, match=r"checkpoint 4 exists already\. Continue with a number above 4"):
        of.initialize_location(4)


def test_discarding_deletes_the_checkpoint_and_not_shared_files() -> None:
    """The checkpoint's own files go, shared ones stay, other checkpoints are untouched."""
    fs = MemoryFileSystem()
    of = storage(fs)
    complete(of, 1)
    complete(of, 2)
    write_stream(of.location(1), b"shared", StateScope.SHARED)
    of.discard(1)
    of.discard(1)

    assert of.list_checkpoints() == [2]
    assert not fs.exists("/base/job/chk-1")
    assert fs.list_dir("/base/job/shared") == ["op-0-0"]


@pytest.mark.parametrize(
    "survives",
    [lambda path: True, lambda path: "_metadata" not in path and not path.endswith("chk-1")],
    ids=["all", "not the metadata"],
)
def test_a_half_discarded_checkpoint_does_not_exist(survives: Callable[[str], bool]) -> None:
    """Whichever call of discarding the process dies at, the checkpoint is whole or gone."""

    def discard(*rules: FaultRule) -> tuple[FaultInjectingFileSystem, MemoryFileSystem]:
        memory = MemoryFileSystem()
        complete(storage(memory), 1)
        fs = FaultInjectingFileSystem(memory, rules)
        if rules:
            with pytest.raises(SimulatedCrashError):
                storage(fs).discard(1)
        else:
            storage(fs).discard(1)
        return fs, memory

    exists = []
    for at_call in range(1, len(discard()[0].calls) + 1):
        _, memory = discard(FaultRule(FileFault.CRASH_AFTER, at_call=at_call))
        memory.crash(survives)
        exists.append(bool(storage(memory).list_checkpoints()))
        if exists[-1]:
            storage(memory).verify(1)

    assert exists == sorted(exists, reverse=True)
    assert exists[0]
    assert not exists[-1]


def test_leftovers_of_a_crash_are_cleaned_up() -> None:
    """Directories without metadata, unfinished files, local files and shared files that no checkpoint uses go."""
    fs = MemoryFileSystem()
    of = storage(fs)
    complete(of, 1)
    write_stream(of.initialize_location(2), b"orphan")
    write_stream(of.location(1), b"shared", StateScope.SHARED)
    fs.make_dirs("/base/job/work/count-0-1-1")
    for unfinished in ("incarnation.inprogress", "work/count-0-1-1/000001.sst"):
        with fs.open_write(f"/base/job/{unfinished}") as file:
            file.write(b"torn")

    expected = [f"/base/job/{path}" for path in ("chk-2", "incarnation.inprogress", "shared/op-0-0", "work")]
    assert of.discard_leftovers() == expected
    assert of.discard_leftovers() == []
    assert of.list_checkpoints() == [1]


def with_shared_file(of: CheckpointStorage, checkpoint_id: int, data: bytes) -> str:
    """A checkpoint that consists of one file in the shared scope; returns the path of that."""
    where = of.initialize_location(checkpoint_id)
    stream = where.stream_factory(f"op-{checkpoint_id}").create_stream(StateScope.SHARED)
    stream.write(data)
    handle = stream.close_and_get_handle()
    assert isinstance(handle, FileStateHandle)
    file = StoreFile("000001.sst", handle, True)
    keyed = IncrementalKeyedStateHandle("lsm", "b", KeyGroupRange(0, 7), 1, (file,), (), ByteStreamStateHandle(b"m"))
    operators = (OperatorSnapshot("op", "Op", 1, 8, {0: SubtaskSnapshot(keyed)}),)
    where.write_metadata(CheckpointMetadata(checkpoint_id, 0, 1, {}, operators))
    return where.full_path(handle)


def test_shared_files_that_a_checkpoint_uses_are_not_swept() -> None:
    """They go with the last checkpoint that refers to them, and none goes while a checkpoint cannot be read."""
    fs = MemoryFileSystem()
    of = storage(fs)
    first, second = (with_shared_file(of, number, b"x" * number) for number in (1, 2))

    assert of.sweep_shared() == []
    of.discard(1)
    damaged = fs.read_bytes("/base/job/chk-2/_metadata")
    overwrite(fs, "/base/job/chk-2/_metadata", damaged[:-1])
    assert of.sweep_shared() == []
    overwrite(fs, "/base/job/chk-2/_metadata", damaged)
    assert of.sweep_shared() == [first]
    assert fs.exists(second)


def test_deleting_a_shared_file_twice_is_fine() -> None:
    """The second deletion finds nothing to do."""
    fs = MemoryFileSystem()
    of = storage(fs)
    path = with_shared_file(of, 1, b"x")
    handle = FileStateHandle(path.removeprefix("/base/job/"), StateScope.SHARED, 1, 0)

    of.delete_shared(handle)
    of.delete_shared(handle)

    assert not fs.exists(path)


def test_the_incarnation_only_rises() -> None:
    """Each start gets the next number, another object too; nothing written means 0."""
    fs = MemoryFileSystem()
    assert storage(fs).incarnation() == 0
    assert [storage(fs).next_incarnation() for _ in range(3)] == [1, 2, 3]
    fs.crash()

    assert storage(fs).incarnation() == 3
    overwrite(fs, "/base/job/incarnation", b"3")
    with pytest.raises(CorruptStateError, match="incarnation: truncated"):
        storage(fs).next_incarnation()


def test_an_incarnation_can_be_one_behind_another_directory() -> None:
    """A run that resumes from elsewhere begins after the incarnations used there, but never goes back."""
    fs = MemoryFileSystem()

    assert [storage(fs).next_incarnation(behind) for behind in (4, 4, 0, 9)] == [5, 6, 7, 10]
    assert storage(fs).incarnation() == 10


@pytest.mark.parametrize("kind", [FileFault.READ_ONLY, FileFault.DISK_FULL])
def test_a_directory_that_cannot_be_written_is_a_clear_error(kind: FileFault) -> None:
    """Read-only or full: the error names the directory and the reason."""
    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(kind)])
    of = storage(fs)
    reason = r"\((Read-only file system|No space left on device)\)"
    with pytest.raises(StorageNotWritableError, match=f"^/base/job: cannot be written {reason}"):
        of.next_incarnation()
    with pytest.raises(StorageNotWritableError, match=f"^/base/job/chk-1: cannot be written {reason}"):
        of.initialize_location(1)
    with pytest.raises(StorageNotWritableError, match=f"^/s: cannot be written {reason}"):
        of.initialize_savepoint_location("/s", 1)


def test_a_failing_disk_stays_an_io_error() -> None:
    """Other errors are not dressed up as a permission problem."""
    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.ERROR_BEFORE, "make_dirs")])
    with pytest.raises(OSError, match="Input/output error"):
        storage(fs).initialize_location(1)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """The job's directory is locked; another job's is not."""
    fs = LocalFileSystem()
    lock = CheckpointStorage(fs, str(tmp_path), "job").lock()
    with pytest.raises(StorageInUseError, match=f"^{tmp_path}/job: is in use by process"):
        CheckpointStorage(fs, str(tmp_path), "job").lock()
    CheckpointStorage(fs, str(tmp_path), "other").lock().release()
    lock.release()
    CheckpointStorage(fs, str(tmp_path), "job").lock().release()


def test_savepoints_can_be_moved() -> None:
    """A savepoint is one directory that restores wherever it lies."""
    fs = MemoryFileSystem()
    where = storage(fs).initialize_savepoint_location("/save/one", 7)
    handle = write_stream(where, b"state", StateScope.SHARED)
    keyed = FullKeyedStateHandle(KeyGroupRange(0, 7), (), handle)
    operators = (OperatorSnapshot("u", "n", 1, 8, {0: SubtaskSnapshot(keyed)}),)
    where.write_metadata(CheckpointMetadata(7, 0, 1, {}, operators))
    with pytest.raises(StateArgumentError, match="not an empty directory"):
        storage(fs).initialize_savepoint_location("/save/one", 8)
    fs.rename("/save", "/moved")
    found = storage(fs).savepoint_location("/moved/one")

    assert found.checkpoint_id == 7
    assert found.verify().checkpoint_id == 7
    shared = FileStateHandle("shared/x", StateScope.SHARED, 1, 0)
    with pytest.raises(MissingStateError, match="shared state outside /moved/one"):
        found.reader().open(shared)
    with pytest.raises(MissingStateError, match="nowhere/_metadata"):
        storage(fs).savepoint_location("/nowhere")


def test_real_files_work_as_those_in_memory(tmp_path: Path) -> None:
    """Write, verify, damage and fall back on the real file system."""
    fs = LocalFileSystem()
    of = CheckpointStorage(fs, str(tmp_path), "job", inline_threshold_bytes=0)
    assert of.next_incarnation() == 1
    older = complete(of, 1, values=1000)
    newer = complete(of, 2, values=1000)
    assert of.latest_usable().metadata == newer
    (state,) = [path for path in (tmp_path / "job" / "chk-2").iterdir() if path.name != "_metadata"]
    state.write_bytes(state.read_bytes()[:-1] + b"\x00")
    state_is_changed = of.latest_usable()

    assert state_is_changed.metadata == older


def test_names_are_safe_on_every_file_system() -> None:
    """Slashes, dots and very long names become valid file names; different texts stay different."""
    texts = ["a/b", "a%2Fb", "..", ".", ".hidden", "", "ü", "x" * 300, "x" * 301, "map -> sink #1"]
    names = [safe_file_name(text) for text in texts]

    assert len(set(names)) == len(texts)
    assert all("/" not in name and not name.startswith(".") and len(name.encode()) <= 200 for name in names)
    assert names[0] == "a%2Fb"
    assert safe_file_name("op-1_2.3~4") == "op-1_2.3~4"


def test_storage_arguments_are_checked() -> None:
    """A job without a name and a threshold out of range are refused."""
    with pytest.raises(StateArgumentError, match="needs a job name"):
        CheckpointStorage(MemoryFileSystem(), "/b", "")
    for threshold in (-1, MAX_INLINE_THRESHOLD_BYTES + 1):
        with pytest.raises(StateArgumentError, match="is not within 0 to"):
            CheckpointStorage(MemoryFileSystem(), "/b", "j", inline_threshold_bytes=threshold)


def test_a_checkpoint_of_another_job_is_not_restored() -> None:
    """Metadata that got into the wrong directory, with all its state in it, is told by the job that it names."""
    fs = MemoryFileSystem()
    storage = CheckpointStorage(fs, "/storage", "mine")
    for number, job in ((1, "mine"), (2, "other")):
        metadata = CheckpointMetadata(number, 0, 1, {"job": job})
        storage.initialize_location(number).write_metadata(metadata)

    usable = storage.latest_usable()

    assert usable.metadata is not None
    assert usable.metadata.checkpoint_id == 1
    assert "chk-2/_metadata: is the metadata of a checkpoint of job 'other'" in usable.problems[0]
