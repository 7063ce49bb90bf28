"""Savepoints: names, and copies of checkpoints that hold everything themselves."""

from __future__ import annotations

from typing import Any

import pytest

from state_backends.base import CorruptStateError, KeyGroupRange, MissingStateError, StateArgumentError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChangelogKeyedStateHandle,
    ChannelName,
    ChannelStateHandle,
    ChannelStateResources,
    ChannelStateSnapshotTask,
    CheckpointLocation,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    LogSegment,
    OperatorSnapshot,
    OperatorStateHandle,
    RecordColumns,
    StateScope,
    StoreFile,
    SubtaskSnapshot,
    copy_as_savepoint,
    new_savepoint,
    read_channel_state,
    run_to_completion,
)
from state_backends.snapshots.savepoints import NAMING_ATTEMPTS, job_id


def storage(fs: FileSystem) -> CheckpointStorage:
    """Storage in which every piece of state is a file."""
    return CheckpointStorage(fs, "/base", "job", inline_threshold_bytes=0)


def written(where: CheckpointLocation, name: str, scope: StateScope = StateScope.EXCLUSIVE) -> Any:
    """The handle of a stream that holds its own name."""
    stream = where.stream_factory(name).create_stream(scope)
    stream.write(name.encode())
    return stream.close_and_get_handle()


def in_flight(where: CheckpointLocation, name: str) -> ChannelStateHandle:
    """The handle of a file with one record in flight."""
    resources = ChannelStateResources([(ChannelName("a>b", 0, 0), (RecordColumns([name], None, None),))])
    handle = run_to_completion(ChannelStateSnapshotTask(resources, where.stream_factory(name))).job_manager_state
    assert handle is not None
    return handle


def checkpoint(fs: FileSystem) -> tuple[CheckpointLocation, CheckpointMetadata]:
    """A checkpoint with state of every kind and scope, one file of it used twice."""
    where = storage(fs).initialize_location(4)
    shared, private = written(where, "op", StateScope.SHARED), written(where, "op")
    assert {shared.path, private.path} == {"shared/op-0", "op-0"}, "two files of one name"
    groups = KeyGroupRange(0, 3)
    subtasks = {
        0: SubtaskSnapshot(
            FullKeyedStateHandle(groups, (), shared),
            OperatorStateHandle({}, private),
            input_channels=in_flight(where, "in"),
            output_channels=in_flight(where, "out"),
        ),
        1: SubtaskSnapshot(
            FullKeyedStateHandle(groups, (), shared), OperatorStateHandle({}, ByteStreamStateHandle(b"x"))
        ),
        2: SubtaskSnapshot(finished=True),
    }
    metadata = CheckpointMetadata(4, 40, 1, {"job": "job"}, (OperatorSnapshot("op", "Op", 3, 4, subtasks),))
    where.write_metadata(metadata)
    return where, metadata


def test_names_say_the_job_and_differ() -> None:
    """savepoint-<first 6 of the job's id>-<suffix>; another number or incarnation gives another suffix."""
    fs = MemoryFileSystem()
    names = [
        new_savepoint(fs, "/sp", "job", number, incarnation).directory
        for number, incarnation in ((1, 1), (2, 1), (1, 2))
    ]

    assert len(set(names)) == 3
    assert all(name.startswith(f"/sp/savepoint-{job_id('job')[:6]}-") for name in names)
    assert new_savepoint(MemoryFileSystem(), "/sp", "job", 1, 1).directory == names[0]


def test_ten_names_are_tried() -> None:
    """The same run ten times into one target gives ten savepoints; the eleventh is refused with advice."""
    fs = MemoryFileSystem()
    made = [new_savepoint(fs, "/sp", "job", 1, 1).directory for _ in range(NAMING_ATTEMPTS)]

    assert len(set(made)) == NAMING_ATTEMPTS == 10
    with pytest.raises(StateArgumentError, match="Choose another directory"):
        new_savepoint(fs, "/sp", "job", 1, 1)


def test_a_copy_needs_nothing_of_the_checkpoint() -> None:
    """Every byte is in the savepoint, each file once; it can be read when the storage is gone."""
    fs = MemoryFileSystem()
    where, metadata = checkpoint(fs)
    target = new_savepoint(fs, "/sp", "job", 4, 1)

    copied = copy_as_savepoint(fs, where, metadata, target, {"kind": "savepoint"})
    fs.delete_tree("/base")

    found = storage(fs).savepoint_location(target.directory)
    assert found.verify() == copied
    assert copied.properties == {"job": "job", "kind": "savepoint"}
    assert len(fs.list_dir(target.directory)) == 4 + 1
    streams = list(copied.streams())
    contents = [found.reader().open(stream).read() for stream in streams]
    assert [one for one in contents if len(one) < 3] == [b"op", b"op", b"op", b"x"]
    records = [read_channel_state(found.reader(), handle) for handle in copied.channel_state()]
    assert records == [{ChannelName("a>b", 0, 0): [RecordColumns([name], None, None)]} for name in ("in", "out")]
    assert all(stream.scope is StateScope.EXCLUSIVE for stream in streams if isinstance(stream, FileStateHandle))
    assert copied.operators[0].subtasks[2].finished


def test_a_damaged_file_makes_no_savepoint() -> None:
    """Damage is not copied: the error names the file, and no file of the savepoint is left."""
    fs = MemoryFileSystem()
    where, metadata = checkpoint(fs)
    with fs.open_write("/base/job/shared/op-0") as file:
        file.write(b"oq")
    target = new_savepoint(fs, "/sp", "job", 4, 1)

    with pytest.raises(CorruptStateError, match="/base/job/shared/op-0"):
        copy_as_savepoint(fs, where, metadata, target, {})
    assert fs.list_dir("/sp") == []
    fs.delete("/base/job/shared/op-0")
    with pytest.raises(MissingStateError):
        copy_as_savepoint(fs, where, metadata, new_savepoint(fs, "/sp", "job", 4, 1), {})
    assert fs.list_dir("/sp") == []


@pytest.mark.parametrize("operation", ["open_write", "write", "fsync", "fsync_dir", "rename"])
@pytest.mark.parametrize("call", [1, 2, 4])
def test_a_full_disk_makes_no_savepoint(operation: str, call: int) -> None:
    """Whichever step fails, there is no half savepoint."""
    fs = MemoryFileSystem()
    _, metadata = checkpoint(fs)
    target = new_savepoint(fs, "/sp", "job", 4, 1).directory
    faulty = FaultInjectingFileSystem(fs, [FaultRule(FileFault.DISK_FULL, operation, at_call=call)])
    source, into = storage(faulty).location(4), CheckpointLocation(faulty, 4, target, None)
    try:
        copy_as_savepoint(faulty, source, metadata, into, {})
    except OSError:
        assert fs.list_dir("/sp") == []
    else:
        assert (operation, call) in (("rename", 2), ("rename", 4), ("fsync_dir", 4), ("fsync_dir", 2)), "it struck"
        assert storage(fs).savepoint_location(target).verify()


def test_numbers_are_used_once() -> None:
    """A deleted checkpoint, a leftover of a crash and a noted savepoint all keep their number."""
    fs = MemoryFileSystem()
    of = storage(fs)
    assert of.next_checkpoint_id() == 1
    of.initialize_location(3)
    of.discard(3)
    assert of.highest_checkpoint_id() == 0
    assert storage(fs).next_checkpoint_id() == 4
    of.initialize_location(6)
    of.initialize_location(7)
    of.discard(6)
    assert of.discard_leftovers() == ["/base/job/chk-7"]
    assert storage(fs).next_checkpoint_id() == 8
    of.note_used(11)
    of.note_used(5)
    assert storage(fs).next_checkpoint_id() == 12


def test_a_damaged_list_of_numbers_is_told() -> None:
    """Guessing a number could use one twice."""
    fs = MemoryFileSystem()
    of = storage(fs)
    of.note_used(3)
    with fs.open_write("/base/job/checkpoint-ids") as file:
        file.write(b"what")

    with pytest.raises(CorruptStateError, match="checkpoint-ids"):
        of.next_checkpoint_id()


def test_a_copy_was_written_whole() -> None:
    """A savepoint has copied the uploads of earlier checkpoints: none of its files counts as only referred to."""
    stream, groups = ByteStreamStateHandle(b"xyz"), KeyGroupRange(0, 7)
    files = (StoreFile("1.sst", stream, uploaded=False), StoreFile("2.sst", stream, uploaded=True))
    native = IncrementalKeyedStateHandle("lsm", "id", groups, 4, files, files[:1], stream)
    log = (LogSegment(1, 2, stream, uploaded=False),)
    for handle in (native, ChangelogKeyedStateHandle(groups, 4, 1, (native,), False, log)):
        copied = handle.as_copied()

        assert handle.persisted_bytes < handle.size_bytes
        assert copied.persisted_bytes == copied.size_bytes == handle.size_bytes
        assert list(copied.streams()) == list(handle.streams())
