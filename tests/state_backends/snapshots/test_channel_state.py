"""Records in flight come back from their file exactly, and damage to it is found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.base import CorruptStateError, StateSchemaError, StateSerializationError
from state_backends.codec import PREAMBLE_BYTES, default_codec, frame, preamble
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChannelName,
    ChannelStateHandle,
    ChannelStateResources,
    ChannelStateSnapshotTask,
    FileStateHandle,
    RecordColumns,
    StateReader,
    read_channel_state,
    run_to_completion,
)
from state_backends.snapshots.channel_state import joined
from state_backends.snapshots.contract import SnapshotStatus
from state_backends.snapshots.handles import ChannelStatePiece
from tests.hash_seeds import printed
from tests.state_backends.snapshots.test_damage import Substitute
from tests.state_backends.support import location, same, values

A, B = ChannelName("map>sum#0", 0, 1), ChannelName("map>sum#0", 1, 1)

Captured = Sequence[tuple[ChannelName, Sequence[RecordColumns]]]


def written(captured: Captured, inline_threshold_bytes: int = 1 << 20) -> tuple[ChannelStateHandle, StateReader]:
    where = location(inline_threshold_bytes=inline_threshold_bytes)
    task = ChannelStateSnapshotTask(ChannelStateResources(captured), where.stream_factory("sum-0-input"))
    handle = run_to_completion(task).job_manager_state
    assert handle is not None
    return handle, where.reader()


def file_of(captured: Captured) -> tuple[ChannelStateHandle, bytes]:
    handle, reader = written(captured)
    with reader.open(handle.stream) as file:
        return handle, file.read()


def records(*numbers: int) -> RecordColumns:
    """Records with event times and keys."""
    return RecordColumns([f"r{one}" for one in numbers], list(numbers), [one % 3 for one in numbers])


SMALL: Captured = [(A, [records(1, 2), records(3)]), (B, [RecordColumns([(4, date(2020, 1, 1))], None, None)])]


# --- there and back ---------------------------------------------------------------------------------------------------


def test_every_channel_gets_its_records_back_in_order() -> None:
    """Values, event times and keys, as few parts as possible, filed under the channel's name."""
    handle, reader = written(SMALL)

    assert read_channel_state(reader, handle) == {
        A: [records(1, 2, 3)],
        B: [RecordColumns([(4, date(2020, 1, 1))], None, None)],
    }
    assert [(piece.channel, piece.records) for piece in handle.pieces] == [(A, 3), (B, 1)]


def test_a_file_and_inlined_bytes_read_the_same() -> None:
    """Where the bytes are depends on their number only."""
    inlined, inline_reader = written(SMALL)
    filed, file_reader = written(SMALL, inline_threshold_bytes=0)

    assert isinstance(inlined.stream, ByteStreamStateHandle)
    assert isinstance(filed.stream, FileStateHandle)
    assert read_channel_state(inline_reader, inlined) == read_channel_state(file_reader, filed)


COLUMNS = st.integers(1, 4).flatmap(
    lambda count: st.builds(
        RecordColumns,
        st.lists(values, min_size=count, max_size=count),
        st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count),
        st.none()
        | st.lists(st.integers().map(lambda one: one % 7) | st.text(max_size=3), min_size=count, max_size=count),
    )
)


@settings(max_examples=25)
@given(st.lists(st.lists(COLUMNS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_any_records_come_back_as_they_were(channels: list[list[RecordColumns]]) -> None:
    """Of any type that state may have, with or without event times and keys, to the type of the last part."""
    names = [ChannelName("edge", sender, 0) for sender in range(len(channels))]

    handle, reader = written(list(zip(names, channels, strict=True)))
    found = read_channel_state(reader, handle)

    assert list(found) == names
    for name, columns in zip(names, channels, strict=True):
        assert same(_rows(found[name]), _rows(columns))


def _rows(columns: Sequence[RecordColumns]) -> list[Any]:
    rows: list[Any] = []
    for one in columns:
        nothing = [None] * len(one.values)
        rows += map(list, zip(one.values, one.timestamps or nothing, one.keys or nothing, strict=True))
    return rows


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_bytes_do_not_depend_on_how_batches_were_cut(one_cut: list[int], other_cut: list[int]) -> None:
    """Neither on where, nor on empty parts: the same records are the same file."""
    total = 12

    def cut(sizes: list[int]) -> list[RecordColumns]:
        parts, start = [], 0
        for size in [*sizes, total]:
            parts.append(records(*range(start, min(total, start + size))))
            start = min(total, start + size)
        return parts

    assert file_of([(A, cut(one_cut))]) == file_of([(A, cut(other_cut))])


def test_parts_of_different_shape_stay_apart() -> None:
    """Records with event times and keys are not mixed with records without, and the order is kept."""
    plain = RecordColumns(["x"], None, None)
    timed = RecordColumns(["y"], [1], None)
    keyed = RecordColumns(["z"], None, ["k"])

    assert joined([plain, plain, timed, keyed, plain]) == [RecordColumns(["x", "x"], None, None), timed, keyed, plain]


def test_channels_without_records_are_left_out() -> None:
    """And when none has any there is no file, as for any state."""
    handle, _ = written([(A, [records()]), (B, [records(1)])])
    assert [piece.channel for piece in handle.pieces] == [B]

    where = location()
    task = ChannelStateSnapshotTask(ChannelStateResources([(A, []), (B, [records()])]), where.stream_factory("x"))
    assert run_to_completion(task).job_manager_state is None


def test_a_handle_survives_the_metadata() -> None:
    """Its plain form says everything."""
    handle, _ = written(SMALL, inline_threshold_bytes=0)

    assert ChannelStateHandle.from_state(handle.to_state()) == handle
    assert handle.size_bytes == handle.stream.size_bytes > 0
    with pytest.raises(StateSchemaError, match="'full' is unknown"):
        ChannelStateHandle.from_state(["full", *handle.to_state()[1:]])


# --- writing ----------------------------------------------------------------------------------------------------------


def test_one_step_writes_one_channel() -> None:
    """However many channels there are, a step is bounded; the steps of a task are interleaved with other work."""
    where = location()
    resources = ChannelStateResources(SMALL)
    task = ChannelStateSnapshotTask(resources, where.stream_factory("x"))

    assert task.step() is None
    assert task.step() is None
    result = task.step()

    assert result is not None
    assert result.job_manager_state is not None
    assert task.status is SnapshotStatus.COMPLETED
    assert resources.released
    assert resources.channels == []


def test_a_cancelled_write_leaves_nothing() -> None:
    """The file written so far is deleted, and the records are let go."""
    where = location(inline_threshold_bytes=0)
    resources = ChannelStateResources(SMALL)
    task = ChannelStateSnapshotTask(resources, where.stream_factory("x"))
    task.step()
    task.step()

    task.cancel()

    assert where.file_system.list_dir(where.directory) == []
    assert resources.released


def test_a_record_that_cannot_be_written_is_named() -> None:
    """The error says on which edge it was under way, between which subtasks, and where in the record the trouble is."""
    where = location()
    bad = RecordColumns(["fine", {"tags": {1, 2}}], None, None)
    task = ChannelStateSnapshotTask(ChannelStateResources([(A, [bad])]), where.stream_factory("x"))

    with pytest.raises(StateSerializationError, match=r"records in flight on map>sum#0 from subtask 0 to 1.*tags.*set"):
        run_to_completion(task)
    assert task.status is SnapshotStatus.FAILED


# --- damage -----------------------------------------------------------------------------------------------------------


def test_every_flipped_byte_and_every_truncation_is_found() -> None:
    """One bit, all bits, any shorter file, any longer one."""
    handle, data = file_of(SMALL)
    assert read_channel_state(Substitute(data), handle)
    damaged = [
        data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :] for at in range(len(data)) for mask in (1, 128, 255)
    ]
    damaged += [data[:at] for at in range(len(data))] + [data + b"\0", data + data]

    for one in damaged:
        with pytest.raises(CorruptStateError, match="inlined in the checkpoint's metadata"):
            read_channel_state(Substitute(one), handle)


def test_every_flipped_bit_is_found() -> None:
    """The single bits, once each."""
    handle, data = file_of([(A, [RecordColumns([1], None, None)])])

    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptStateError):
            read_channel_state(Substitute(bytes(damaged)), handle)


@pytest.mark.parametrize(
    "other",
    [
        [(A, [records(1, 2, 3)])],
        [(A, [records(1, 2)]), (B, [records(1)])],
        [(B, [records(1, 2, 3)]), (A, [records(4)])],
        [(A, [records(1, 2, 30_000)]), (B, [RecordColumns([(4, date(2020, 1, 1))], None, None)])],
    ],
)
def test_the_file_of_another_snapshot_is_found_out(other: Captured) -> None:
    """It is whole, but it holds other channels, other numbers of records, or its records lie elsewhere."""
    handle, _ = file_of(SMALL)
    _, data = file_of(other)

    with pytest.raises(CorruptStateError, match="than its handle says"):
        read_channel_state(Substitute(data), handle)


def test_a_file_of_another_kind_is_refused() -> None:
    """The first bytes say what a file is."""
    handle, data = file_of(SMALL)

    with pytest.raises(CorruptStateError, match="no WEIRCHAN file"):
        read_channel_state(Substitute(preamble(b"WEIROPER", 1) + data[PREAMBLE_BYTES:]), handle)


def test_a_file_of_a_newer_version_is_no_damage() -> None:
    """It asks for the program that wrote it."""
    handle, data = file_of(SMALL)

    with pytest.raises(StateSchemaError, match="has format version 2, this program reads up to 1"):
        read_channel_state(Substitute(preamble(b"WEIRCHAN", 2) + data[PREAMBLE_BYTES:]), handle)


def test_a_handle_that_promises_too_much_is_found_out() -> None:
    """The numbers in the metadata are checked against the file, too."""
    handle, data = file_of(SMALL)
    first = handle.pieces[0]
    more = ChannelStateHandle((ChannelStatePiece(A, 4, first.offset), *handle.pieces[1:]), handle.stream)

    with pytest.raises(CorruptStateError, match="than its handle says"):
        read_channel_state(Substitute(data), more)


def test_a_file_that_contradicts_itself_is_found_out() -> None:
    """Its header counts the records of each channel; every checksum fits, and yet one is missing."""
    codec = default_codec()
    header = frame(1, 0, codec.encode([[*A, 3]]))
    data = preamble(b"WEIRCHAN", 1) + header + frame(2, 0, codec.encode([[["r1", "r2"], None, None]]))
    data += frame(3, 0, codec.encode(1))
    piece = ChannelStatePiece(A, 3, PREAMBLE_BYTES + len(header))
    handle = ChannelStateHandle((piece,), ByteStreamStateHandle(data))

    with pytest.raises(CorruptStateError, match="channel map>sum#0 0->1 does not hold 3 records"):
        read_channel_state(Substitute(data), handle)


# --- the bytes --------------------------------------------------------------------------------------------------------


def test_the_format_is_pinned() -> None:
    """A small file has exactly these bytes: a change of format needs a new version, not an accident."""
    handle, data = file_of([(ChannelName("e", 0, 1), [RecordColumns(["a", 1], [5, 6], ["k", "k"])])])

    assert data.hex(" ") == (
        "57 45 49 52 43 48 41 4e 00 01 61 3b 56 19 "  # WEIRCHAN, version 1, crc
        "01 00 00 00 00 00 07 3f 93 59 0f "  # header frame of 7 bytes
        "91 94 a1 65 00 01 02 "  # [["e", 0, 1, 2]]
        "02 00 00 00 00 00 0e 9e b8 67 e1 "  # piece frame of 14 bytes
        "91 93 92 a1 61 01 92 05 06 92 a1 6b a1 6b "  # [[["a", 1], [5, 6], ["k", "k"]]]
        "03 00 00 00 00 00 01 85 b1 d9 5d "  # end frame of 1 byte
        "01"  # one piece
    )
    assert handle.pieces == (ChannelStatePiece(ChannelName("e", 0, 1), 2, 32),)


def keyed_by_text() -> bytes:
    """A file with text in every place where a hash seed could show."""
    words = ["ada", "bob", "eve", "mallory", "trent", "zoe"]
    columns = RecordColumns([{word: {"x": word} for word in words}, tuple(words)], [1, 2], words[:2])
    return file_of([(ChannelName(word, 0, 0), [columns]) for word in words])[1]


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Processes with different hash seeds write the same bytes."""
    code = "from tests.state_backends.snapshots.test_channel_state import keyed_by_text; print(keyed_by_text().hex())"
    assert printed(code, "1") == keyed_by_text().hex() + "\n"
