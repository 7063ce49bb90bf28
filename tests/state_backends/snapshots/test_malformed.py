"""Files that are well framed and malformed inside: an error of ours that names the file, never a traceback."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from state_backends.base import CorruptStateError, KeyGroupRange, StateBackendError
from state_backends.files import MemoryFileSystem
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChangelogKeyedStateHandle,
    ChannelName,
    ChannelStateHandle,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    LogSegment,
    OperatorSnapshot,
    OperatorStateHandle,
    OperatorStateMode,
    StateOffsets,
    StateScope,
    StoreFile,
    SubtaskSnapshot,
    read_channel_state,
)
from state_backends.snapshots.handles import ChannelStatePiece
from tests.malformed import framed_variants, frames_of
from tests.state_backends.snapshots.test_channel_state import SMALL, Substitute, file_of

BYTES = ByteStreamStateHandle(b"state")
FILE = FileStateHandle("chk-3/one", StateScope.SHARED, 7, 8)
ALL = KeyGroupRange(0, 3)
FULL = FullKeyedStateHandle(ALL, ((0, 14), (2, 40)), FILE)
INCREMENTAL = IncrementalKeyedStateHandle("lsm", "u1", ALL, 3, (StoreFile("a.sst", FILE, True),), (), BYTES)
CHANGELOG = ChangelogKeyedStateHandle(ALL, 3, 1, (FULL,), False, (LogSegment(4, 9, FILE, True),))
LISTED = OperatorStateHandle({"splits": StateOffsets(OperatorStateMode.UNION, (14, 30))}, BYTES)
IN_FLIGHT = ChannelStateHandle((ChannelStatePiece(ChannelName("map>sum#0", 1, 0), 2, 60),), BYTES)
METADATA = CheckpointMetadata(
    3,
    5_000,
    1,
    {"job": "words", "plan": "abc"},
    (
        OperatorSnapshot(
            "sum", "sum", 2, 4, {0: SubtaskSnapshot(FULL, LISTED, False, IN_FLIGHT), 1: SubtaskSnapshot(finished=True)},
            b"\x01",
        ),
        OperatorSnapshot("max", "max", 1, 4, {0: SubtaskSnapshot(INCREMENTAL)}),
        OperatorSnapshot("min", "min", 1, 4, {0: SubtaskSnapshot(CHANGELOG)}),
    ),
)  # fmt: skip


def tried(read: Callable[[bytes], object], files: list[bytes], path: str) -> int:
    """Read files, which may say something else, but fail with no error but ours; how many were refused."""
    refused = 0
    for data in files:
        try:
            read(data)
        except StateBackendError as error:
            refused += 1
            unnamed = isinstance(error, CorruptStateError) and path not in str(error)
            if unnamed:
                pytest.fail(f"does not name {path}: {error}")
        except Exception as error:
            shown = [payload for _, _, payload in frames_of(data)] if data.startswith(b"WEIR") else data
            raise AssertionError(f"{error!r} from {shown}") from error
    return refused


def test_metadata_that_is_malformed_inside_is_refused() -> None:
    """With any node replaced, left out or there twice: read as it is, or refused with the place that is wrong."""
    data = METADATA.to_bytes()
    assert CheckpointMetadata.from_file(io.BytesIO(data), "p") == METADATA
    files = list(framed_variants(data))
    path = "chk-3/_metadata"
    refused = tried(lambda one: CheckpointMetadata.from_file(io.BytesIO(one), path), files, path)
    assert refused > 0.9 * len(files) > 1_000


def test_an_older_checkpoint_is_used_in_place_of_malformed_metadata() -> None:
    """The storage says what is wrong with the newest one, and goes back to the one before."""
    fs = MemoryFileSystem()
    storage = CheckpointStorage(fs, "/storage", "words")
    plain = CheckpointMetadata(3, 1, 1, {"job": "words"}, METADATA.operators[1:0])
    for number in (1, 2):
        location = storage.initialize_location(number)
        location.write_metadata(replace(plain, checkpoint_id=number))
    path = storage.location(2).metadata_path
    whole = fs.read_bytes(path)
    for data in framed_variants(whole):
        put(fs, path, data)
        usable = storage.latest_usable()
        assert usable.metadata is not None
        if usable.metadata.checkpoint_id == 1:
            assert "checkpoint 2 cannot be used" in usable.problems[0]
        else:
            assert usable.metadata.operators == ()


def put(fs: MemoryFileSystem, path: str, data: bytes) -> None:
    """Other bytes under the same name."""
    fs.delete(path)
    with fs.open_write(path) as file:
        file.write(data)


@pytest.mark.parametrize("name", ["incarnation", "checkpoint-ids"])
def test_a_number_that_is_none_is_refused(name: str) -> None:
    """The files that hold one number each."""
    fs = MemoryFileSystem()
    storage = CheckpointStorage(fs, "/storage", "words")
    storage.next_incarnation()
    storage.note_used(7)
    path = f"{storage.job_dir}/{name}"

    def read(data: bytes) -> object:
        put(fs, path, data)
        return storage.incarnation(), storage.next_checkpoint_id()

    files = list(framed_variants(fs.read_bytes(path)))
    assert tried(read, files, path) > 0.8 * len(files)


def test_records_in_flight_that_are_malformed_inside_are_refused() -> None:
    """Other records may come back, but as many for the same channels, each with its timestamp and key."""
    handle, whole = file_of(SMALL)
    expected = read_channel_state(Substitute(whole), handle)

    def read(data: bytes) -> None:
        found = read_channel_state(Substitute(data), handle)
        assert found.keys() == expected.keys()
        for name, columns in found.items():
            assert sum(map(len, (one.values for one in columns))) == sum(len(one.values) for one in expected[name])
            for one in columns:
                assert one.timestamps is None or list(map(type, one.timestamps)) == [int] * len(one.values)
                assert one.keys is None or len(one.keys) == len(one.values)

    files = list(framed_variants(whole))
    assert tried(read, files, "inlined") > 0.5 * len(files) > 200
