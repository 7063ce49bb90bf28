"""Where files may lie that metadata names: of every kind of handle, on every way of reading metadata."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any

import pytest

from state_backends.base import KeyGroupRange
from state_backends.files import LocalFileSystem, MemoryFileSystem, write_atomically
from state_backends.offline import SnapshotContent
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChangelogKeyedStateHandle,
    ChannelStateHandle,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    LogSegment,
    OperatorSnapshot,
    OperatorStateHandle,
    StateScope,
    StoreFile,
    StreamStateHandle,
    SubtaskSnapshot,
    allow,
    locate_snapshot,
    shared_directories,
    shared_directory_of,
)
from state_backends.snapshots.file_places import ForbiddenPathError, note_shared_directories

GROUPS = KeyGroupRange(0, 3)
NOTHING = ByteStreamStateHandle(b"")


def incremental(data: StreamStateHandle = NOTHING, meta: StreamStateHandle = NOTHING, private: Any = NOTHING) -> Any:
    files = (StoreFile("1.sst", data, True),), (StoreFile("CURRENT", private, True),)
    return IncrementalKeyedStateHandle("lsm", "backend", GROUPS, 1, *files, meta)


PLACES: dict[str, Callable[[StreamStateHandle], SubtaskSnapshot]] = {
    "full": lambda one: SubtaskSnapshot(keyed=FullKeyedStateHandle(GROUPS, (), one)),
    "data of a store": lambda one: SubtaskSnapshot(keyed=incremental(data=one)),
    "other file of a store": lambda one: SubtaskSnapshot(keyed=incremental(private=one)),
    "meta data of a store": lambda one: SubtaskSnapshot(keyed=incremental(meta=one)),
    "materialised": lambda one: SubtaskSnapshot(
        keyed=ChangelogKeyedStateHandle(GROUPS, 1, 1, (incremental(data=one),), True, ())
    ),
    "segment of a changelog": lambda one: SubtaskSnapshot(
        keyed=ChangelogKeyedStateHandle(GROUPS, 1, 1, (), True, (LogSegment(0, 1, one, True),))
    ),
    "operator state": lambda one: SubtaskSnapshot(operator=OperatorStateHandle({}, one)),
    "records in flight, input": lambda one: SubtaskSnapshot(input_channels=ChannelStateHandle((), one)),
    "records in flight, output": lambda one: SubtaskSnapshot(output_channels=ChannelStateHandle((), one)),
}


def write(fs: MemoryFileSystem, directory: str, snapshot: SubtaskSnapshot) -> str:
    """Metadata as any program can write it, checksum included."""
    operators = (OperatorSnapshot("uid", "name", 1, 4, {0: snapshot}),)
    fs.make_dirs(directory)
    write_atomically(fs, f"{directory}/_metadata", CheckpointMetadata(7, 0, 1, {}, operators).to_bytes())
    return directory


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("directory", ["/base/job/chk-7", "/saved/savepoint-1"])
def test_no_handle_names_a_file_outside(place: str, directory: str) -> None:
    """Of whatever kind the handle is, and in a savepoint too."""
    fs = MemoryFileSystem()
    write(fs, directory, PLACES[place](FileStateHandle("/victim", StateScope.EXCLUSIVE, 1, 1)))
    with pytest.raises(ForbiddenPathError, match=f"{directory}/_metadata: refers to '/victim'"):
        locate_snapshot(fs, directory)
    with pytest.raises(ForbiddenPathError, match="Nothing was read or deleted"):
        SnapshotContent.at(fs, directory)


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        (StateScope.EXCLUSIVE, "../chk-6/x"),
        (StateScope.EXCLUSIVE, "a/../../../../victim"),
        (StateScope.EXCLUSIVE, ""),
        (StateScope.EXCLUSIVE, "s3://bucket/x"),
        (StateScope.SHARED, "incarnation"),
        (StateScope.SHARED, "shared"),
        (StateScope.SHARED, "chk-6/_metadata"),
        (StateScope.SHARED, "shared/../../victim"),
        (StateScope.SHARED, "/victim"),
        (StateScope.SHARED, "/other/job/shared/../chk-1/x"),
        (StateScope.SHARED, "/other/job/shared/x"),
        (StateScope.SHARED, "/other/job/chk-1/x"),
        (StateScope.SHARED, "s3://bucket/job/shared/x"),
        (StateScope.TASK_OWNED, "shared/x"),
        (StateScope.TASK_OWNED, "/other/job/taskowned/x"),
    ],
)
def test_paths_that_are_refused(scope: StateScope, path: str) -> None:
    """Everything but plain relative paths below the directory of the scope; the list of other directories is empty."""
    fs = MemoryFileSystem()
    storage = CheckpointStorage(fs, "/base", "job")
    write(fs, "/base/job/chk-7", SubtaskSnapshot(operator=OperatorStateHandle({}, FileStateHandle(path, scope, 1, 1))))
    with pytest.raises(ForbiddenPathError):
        storage.read_metadata(7)


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        (StateScope.EXCLUSIVE, "state-0"),
        (StateScope.EXCLUSIVE, "sub/state-0"),
        (StateScope.SHARED, "shared/x"),
        (StateScope.TASK_OWNED, "taskowned/x"),
        (StateScope.SHARED, "/listed/job/shared/x"),
        (StateScope.SHARED, "s3://bucket/job/shared/x"),
    ],
)
def test_paths_that_are_followed(scope: StateScope, path: str) -> None:
    """Those that Weir writes, and those of directories that the list names."""
    fs = MemoryFileSystem()
    note_shared_directories(fs, "/base/job", {"/listed/job": True, "s3://bucket/job": False})
    write(fs, "/base/job/chk-7", SubtaskSnapshot(operator=OperatorStateHandle({}, FileStateHandle(path, scope, 1, 1))))
    assert len(list(CheckpointStorage(fs, "/base", "job").read_metadata(7).streams())) == 1


@pytest.mark.parametrize(
    ("listed", "is_deleted"), [({}, False), ({"/other/job": False}, False), ({"/other/job": True}, True)]
)
def test_shared_files_of_another_job_are_deleted_only_if_they_were_claimed(
    listed: dict[str, bool], is_deleted: bool
) -> None:
    """The list says of each directory whether they were."""
    fs = MemoryFileSystem()
    fs.make_dirs("/other/job/shared")
    with fs.open_write("/other/job/shared/x") as file:
        file.write(b"x")
    note_shared_directories(fs, "/base/job", listed)
    CheckpointStorage(fs, "/base", "job").delete_shared(FileStateHandle("/other/job/shared/x", StateScope.SHARED, 1, 1))
    assert fs.exists("/other/job/shared/x") is not is_deleted


def test_what_may_be_deleted_once_may_always_be() -> None:
    """The list only grows."""
    fs = MemoryFileSystem()
    for found in ({"/a": True}, {"/b": False}, {"/a": False, "/b": True}):
        note_shared_directories(fs, "/base/job", found)
    assert shared_directories(fs, "/base/job") == {"/a": True, "/b": True}


def test_allowing_files_of_another_directory(tmp_path: Any) -> None:
    """To be read, and not to be deleted."""
    allow(str(tmp_path / "job"), "/other/job/")
    assert shared_directories(LocalFileSystem(), posixpath.join(tmp_path, "job")) == {"/other/job": False}


def test_whose_shared_files_a_path_is_among() -> None:
    """An absolute path or URL right below ``shared`` of a directory."""
    assert shared_directory_of("/a/job/shared/x") == "/a/job"
    assert shared_directory_of("s3://bucket/job/shared/x") == "s3://bucket/job"
    for path in ("shared/x", "a/shared/x", "/shared/x", "/a/shared/x/y", "/a//shared/x", "/a/./shared/x", "/a/shared/"):
        assert shared_directory_of(path) is None, path
