"""The format of log segments: exact bytes, every damage found, and independence of the hash seed."""

from __future__ import annotations

import io
import zlib
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from state_backends.base import (
    LONG,
    STRING,
    CorruptStateError,
    KeyGroupRange,
    MissingStateError,
    StateKind,
    StateSchemaError,
)
from state_backends.changelog.changes import PUT
from state_backends.changelog.segment import LoggedStateId, SegmentHeader, SegmentReader, encode_segment
from state_backends.codec import default_codec, frame, preamble
from state_backends.snapshots import ByteStreamStateHandle, LogSegment, StreamStateHandle
from tests.hash_seeds import printed
from tests.state_backends.changelog.support import World
from tests.state_backends.snapshots.test_damage import damaged_copies
from tests.state_backends.support import LIST, MAP, SUM, VALUE

CODEC = default_codec()


class Substitute:
    """Opens one stream with other bytes, and all others as they are."""

    def __init__(self, world: World, stream: StreamStateHandle, data: bytes) -> None:
        self._reader = world.reader()
        self._stream = stream
        self._data = data

    def open(self, handle: StreamStateHandle) -> BinaryIO:
        if handle == self._stream:
            return io.BytesIO(self._data)
        file: BinaryIO = self._reader.open(handle)
        return file


def segment_of(data: bytes, first: int, end: int) -> LogSegment:
    return LogSegment(first, end, ByteStreamStateHandle(data), True)


def header(records: int) -> SegmentHeader:
    states = (LoggedStateId("v", StateKind.VALUE),)
    return SegmentHeader(LONG, 4, KeyGroupRange(0, 3), 5, 5 + records, states)


def test_the_bytes_of_a_segment() -> None:
    """They are the bytes of the documentation."""
    record = CODEC.encode([PUT, 0, [1], None, ["a"]])
    data = encode_segment(header(1), [record], CODEC)
    assert data.hex(" ") == (
        "57 45 49 52 43 4c 4f 47 00 01 7b b5 bc 65 "
        "01 00 00 00 00 00 1a 1b 03 e9 54 97 92 a4 4c 4f 4e 47 90 04 92 00 03 05 06 "
        "91 93 a1 76 a5 76 61 6c 75 65 a0 c0 "
        "02 00 00 00 00 00 0a bd 78 d1 a9 91 95 00 00 91 01 c0 91 a1 61 "
        "03 00 00 00 00 00 01 85 b1 d9 5d 01"
    )
    documented = (Path(__file__).parents[3] / "docs" / "formats.md").read_text()
    for line in ("57 45 49 52 43 4c 4f 47  00 01  7b b5 bc 65", "91 95 00 00 91 01 c0 91 a1 61"):
        assert line in documented


def test_a_long_segment_has_several_frames() -> None:
    """And reads as the same records, in order."""
    records = [CODEC.encode([PUT, 0, [number], None, ["x" * 40_000]]) for number in range(5)]
    data = encode_segment(header(5), records, CODEC)
    assert data.count(b"\x02\x00\x00\x00") >= 2
    read = SegmentReader(io.BytesIO(data), segment_of(data, 5, 10), CODEC)
    assert [record[2] for record in read.records()] == [[0], [1], [2], [3], [4]]


def test_every_damage_is_found() -> None:
    """No flipped, truncated or extended segment can be restored; the error names the file."""
    world = World()
    backend = world.backend()
    backend.value_state(VALUE).update_many([1, 2], ["a", None])
    backend.list_state(LIST).add_many([1], [2], ["w"])
    handle = world.checkpoint(backend, 1)
    (segment,) = handle.log
    with world.reader().open(segment.stream) as file:
        data = file.read()
    restored = world.restored([handle], world.backend(), Substitute(world, segment.stream, data))
    assert restored.fingerprint() == backend.fingerprint()
    for damaged in damaged_copies(data):
        with pytest.raises(CorruptStateError, match=r"^shared/"):
            world.restored([handle], world.backend(), Substitute(world, segment.stream, damaged))


def test_lost_and_swapped_segments_are_found() -> None:
    """A missing file, a missing segment, segments in the wrong order, and the file of another one."""
    world = World()
    backend = world.backend()
    for number in (1, 2, 3):
        backend.value_state(VALUE).update_many([number], [number])
        handle = world.checkpoint(backend, number)
    one, two, three = handle.log
    for log, message in (
        ((one, three), "change 1 should be followed by that number, but 2 comes next"),
        ((two, one, three), "change 2 should be followed by that number, but 0 comes next"),
        ((one, replace(two, stream=three.stream), three), "holds changes 2 to 3, but its handle says 1 to 2"),
    ):
        with pytest.raises(CorruptStateError, match=message):
            world.restored([replace(handle, log=log)], world.backend())
    world.file_system.delete(f"{world.storage.job_dir}/{two.stream.path}")  # type: ignore[union-attr]
    fresh = world.backend()
    with pytest.raises(MissingStateError):
        world.restored([handle], fresh)
    assert fresh.num_entries() == 0


def segment_with(described: list[object], count: int = 1, records: int = 1) -> bytes:
    """A segment with any header and end, every checksum of which is right."""
    record = CODEC.encode([[PUT, 0, [1], None, ["a"]]] * records)
    return b"".join(
        [
            preamble(b"WEIRCLOG", 1),
            frame(1, 0, CODEC.encode(described)),
            frame(2, 0, record),
            frame(3, 0, CODEC.encode(count)),
        ]
    )


def test_counts_that_do_not_fit_are_found() -> None:
    """Header, records and end must say the same number."""
    plain = header(1).to_state()
    for data in (segment_with(plain, count=2), segment_with(plain, records=2)):
        read = SegmentReader(io.BytesIO(data), segment_of(data, 5, 6), CODEC)
        with pytest.raises(CorruptStateError, match=r"does not confirm its 1|holds 2 changes, but says 1"):
            list(read.records())


def test_what_a_newer_program_wrote_is_not_called_damage() -> None:
    """An unknown kind of state, or a newer version of the format."""
    plain = header(1).to_state()
    plain[5] = [["s", "sketch", ""]]
    data = segment_with(plain)
    with pytest.raises(StateSchemaError, match="state 's' is of kind 'sketch'"):
        SegmentReader(io.BytesIO(data), segment_of(data, 5, 6), CODEC)
    newer = preamble(b"WEIRCLOG", 2) + data[14:]
    with pytest.raises(StateSchemaError, match="has format version 2"):
        SegmentReader(io.BytesIO(newer), segment_of(newer, 5, 6), CODEC)


def test_another_max_parallelism_is_refused() -> None:
    """Otherwise keys would change their key group."""
    world = World()
    backend = world.backend()
    backend.value_state(VALUE).update_many([1], [1])
    handle = world.checkpoint(backend, 1)
    (segment,) = handle.log
    with world.reader().open(segment.stream) as file:
        data = file.read()
    described = SegmentReader(io.BytesIO(data), segment, CODEC).header
    other = encode_segment(replace(described, max_parallelism=8), [CODEC.encode([PUT, 0, [1], None, [1]])], CODEC)
    with pytest.raises(StateSchemaError, match="the snapshot has max parallelism 8, the operator 5"):
        world.restored([handle], world.backend(), Substitute(world, segment.stream, other))


def all_files() -> bytes:
    """The files of some checkpoints with text in every place where a hash seed could show."""
    world = World()
    backend = world.backend(key_type=STRING, segment_bytes=300)
    for number, word in enumerate(("ada", "bob", "eve", "mallory", "trent", "zoe")):
        backend.set_current_key(word)
        backend.value_state(VALUE).update({word: 1, "x": {"y": word}})
        backend.map_state(MAP).put_all(dict.fromkeys(word, 1))
        backend.reducing_state(SUM).add_many([word, "ada"], [1, 2], [], [word, word])
        backend.timer_service("t").event_time.add(word, word, len(word))
        world.checkpoint(backend, number + 1)
        if number == 3:
            work = backend.materialize()
            while work is not None and work.step() is not None:
                pass
    parts = []
    for path in world.shared_files():
        with world.file_system.open_read(path) as file:
            parts.append(path.encode() + file.read())
    return b"".join(parts)


def test_files_do_not_depend_on_the_hash_seed() -> None:
    """The same changes give the same files in another process, whatever the seed of this one."""
    program = (
        "from tests.state_backends.changelog.test_log_segments import all_files; import sys, zlib;"
        "data = all_files(); sys.stdout.write(f'{len(data)} {zlib.crc32(data)}')"
    )
    here = all_files()
    assert printed(program, "1") == f"{len(here)} {zlib.crc32(here)}"
