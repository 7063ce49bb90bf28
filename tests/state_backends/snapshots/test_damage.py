"""Every flipped byte and every truncation is found, and is an error of ours that names the file."""

from __future__ import annotations

import io
from typing import BinaryIO

import pytest

from state_backends.api import OperatorStateBackend
from state_backends.base import CorruptStateError, StateSchemaError
from state_backends.codec import PREAMBLE_BYTES, FrameReader, frame, preamble, seal, unseal
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import (
    ByteStreamStateHandle,
    CheckpointMetadata,
    FullKeyedStateHandle,
    OperatorSnapshot,
    OperatorStateHandle,
    SnapshotOptions,
    StreamStateHandle,
    SubtaskSnapshot,
    run_to_completion,
)
from tests.state_backends.support import LIST, SUM, heap, location, take_snapshot


def damaged_copies(data: bytes) -> list[bytes]:
    """Every copy with one byte changed (in one bit, in all bits), every shorter one, and some longer ones."""
    flipped = [data[:i] + bytes([data[i] ^ mask]) + data[i + 1 :] for i in range(len(data)) for mask in (1, 128, 255)]
    return flipped + [data[:i] for i in range(len(data))] + [data + b"\0", data + data]


class Substitute:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        return io.BytesIO(self.data)


def small_backend() -> HeapKeyedStateBackend:
    """Two states over several key groups."""
    backend = heap(max_parallelism=4)
    backend.reducing_state(SUM).add_many([1, 2, 3], [10, 20, 30], [])
    backend.list_state(LIST).add_many([1, 2], [1, 2], ["w", "w"])
    return backend


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_damage_to_keyed_state_is_found(compression: str) -> None:
    """No damaged full snapshot can be restored, whole."""
    backend = small_backend()
    handle, reader = take_snapshot(backend, SnapshotOptions(compression=compression))
    assert handle is not None
    with reader.open(handle.stream) as file:
        data = file.read()
    heap(max_parallelism=4).restore([handle], Substitute(data))
    for damaged in damaged_copies(data):
        with pytest.raises(CorruptStateError, match="inlined in the checkpoint's metadata"):
            heap(max_parallelism=4).restore([handle], Substitute(damaged))


def test_damage_to_a_part_of_keyed_state_is_found_or_harmless() -> None:
    """Restoring some key groups from a damaged file gives the right state or an error, never a wrong state."""
    backend = small_backend()
    handle, reader = take_snapshot(backend)
    assert handle is not None
    with reader.open(handle.stream) as file:
        data = file.read()
    expected = heap(max_parallelism=4, first=0, last=1)
    expected.restore([handle], reader)
    errors = 0
    for damaged in damaged_copies(data):
        found = heap(max_parallelism=4, first=0, last=1)
        try:
            found.restore([handle], Substitute(damaged))
        except CorruptStateError:
            errors += 1
        else:
            assert found.fingerprint() == expected.fingerprint()

    assert errors > len(data)


def test_damage_to_operator_state_is_found() -> None:
    """No damaged operator state can be restored."""
    backend, where = OperatorStateBackend(), location()
    backend.list_state("l").add_all(["x", 2])
    backend.union_list_state("u").add([3])
    task = backend.async_snapshot(backend.sync_prepare_resources(1), where.stream_factory("o"), SnapshotOptions())
    handle = run_to_completion(task).job_manager_state
    assert isinstance(handle, OperatorStateHandle)
    assert isinstance(handle.stream, ByteStreamStateHandle)
    OperatorStateBackend().restore([handle], Substitute(handle.stream.data))
    for damaged in damaged_copies(handle.stream.data):
        with pytest.raises(CorruptStateError):
            OperatorStateBackend().restore([handle], Substitute(damaged))


def test_damage_to_metadata_is_found() -> None:
    """No damaged metadata can be read: inlined state in it is protected too."""
    handle, _ = take_snapshot(small_backend())
    subtask = SubtaskSnapshot(keyed=handle)
    metadata = CheckpointMetadata(7, 1, 1, {"job": "f"}, (OperatorSnapshot("u", "n", 1, 4, {0: subtask}),))
    data = metadata.to_bytes()
    assert CheckpointMetadata.from_file(io.BytesIO(data), "p") == metadata
    for damaged in damaged_copies(data):
        with pytest.raises(CorruptStateError, match=r"^p: "):
            CheckpointMetadata.from_file(io.BytesIO(damaged), "p")


def test_a_handle_of_another_file_is_found() -> None:
    """Offsets that do not fit the file are damage, not a wrong restore."""
    handle, reader = take_snapshot(small_backend())
    assert handle is not None
    (first_group, _), *others = handle.offsets
    wrong_group = FullKeyedStateHandle(handle.key_group_range, ((first_group, others[0][1]), *others), handle.stream)
    missing_group = FullKeyedStateHandle(handle.key_group_range, tuple(others), handle.stream)
    outside = FullKeyedStateHandle(handle.key_group_range, ((first_group, 10**6),), handle.stream)
    for wrong, last, message in (
        (wrong_group, first_group, "is of key group"),
        (missing_group, 3, "but its handle says"),
        (outside, first_group, "lies outside"),
    ):
        with pytest.raises(CorruptStateError, match=message):
            heap(max_parallelism=4, first=0, last=last).restore([wrong], reader)


def test_a_newer_format_is_not_called_damage() -> None:
    """A file of a newer version says so; damage to the version itself is damage."""
    newer = seal(b"WEIRTEST", 3, b"payload")
    with pytest.raises(StateSchemaError, match="p: has format version 3, this program reads up to 2"):
        unseal(io.BytesIO(newer), "p", b"WEIRTEST", 2)
    damaged = newer[:9] + b"\x04" + newer[10:]
    with pytest.raises(CorruptStateError, match="first bytes are damaged"):
        unseal(io.BytesIO(damaged), "p", b"WEIRTEST", 2)
    with pytest.raises(CorruptStateError, match="no WEIRELSE file"):
        unseal(io.BytesIO(newer), "p", b"WEIRELSE", 3)

    assert unseal(io.BytesIO(newer), "p", b"WEIRTEST", 4) == b"payload"


def test_a_damaged_length_does_not_reserve_memory() -> None:
    """A length beyond the end of the file is refused before anything of that length is read."""
    data = bytearray(seal(b"WEIRTEST", 1, b"payload"))
    data[PREAMBLE_BYTES + 3 : PREAMBLE_BYTES + 7] = b"\xff" * 4
    with pytest.raises(CorruptStateError, match="ends outside its 32 bytes"):
        unseal(io.BytesIO(bytes(data)), "p", b"WEIRTEST", 1)


def test_a_frame_in_the_wrong_place_is_found() -> None:
    """A frame whose checksum fits but whose kind does not belong there is refused."""
    data = preamble(b"WEIRTEST", 1) + frame(1, 0, b"") + frame(2, 0, b"")
    reader = FrameReader(io.BytesIO(data), "p", b"WEIRTEST", 1)
    assert reader.read(b"\1").kind == 1
    with pytest.raises(CorruptStateError, match="kind 2, which does not belong there"):
        reader.read(b"\1\3")
    with pytest.raises(CorruptStateError, match="lies outside"):
        reader.seek(PREAMBLE_BYTES - 1)
