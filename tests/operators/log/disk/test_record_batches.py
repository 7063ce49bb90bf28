"""The framing of a log on disk: every byte counts."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from operators.log.disk.record_batches import (
    HEAD_BYTES,
    BadBatch,
    RecordBatch,
    encode_batch,
    read_batch,
    read_batches,
    whole_batches_behind,
)
from operators.log.port.transaction_log import ABORT_MARKER, COMMIT_MARKER, DATA, Producer
from state_backends.files import MemoryFileSystem, RandomAccessFile

values = st.lists(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20) | st.binary(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
        max_leaves=6,
    ),
    min_size=1,
    max_size=5,
)
producers = st.none() | st.builds(Producer, st.text(min_size=1, max_size=30), st.integers(0, 2**31 - 1))


def file_of(data: bytes) -> RandomAccessFile:
    fs = MemoryFileSystem()
    with fs.open_write("segment") as file:
        file.write(data)
    return fs.open_random("segment")


@given(values, producers, st.integers(0, 2**60), st.integers(0, 2**31), st.integers(0, 2**62))
def test_what_is_written_comes_back(
    records: list[object], producer: Producer | None, offset: int, sequence: int, at_ns: int
) -> None:
    """Records, producer, offsets and times are the same, and the size is that of all bytes."""
    data = encode_batch(DATA, offset, records, producer, sequence, at_ns, offset // 2)
    found = read_batch(data, 0, 100)

    assert isinstance(found, RecordBatch)
    assert found.values("here") == records
    assert [record.offset for record in found.records("here")] == list(range(offset, offset + len(records)))
    assert (found.producer, found.sequence, found.at_ns, found.durable_offset) == (
        producer, sequence, at_ns, offset // 2,
    )
    assert (found.position, found.size_bytes, found.end_offset) == (100, len(data), offset + len(records))


def test_a_marker_takes_one_offset_and_has_no_records() -> None:
    """Commit and abort are told apart, and carry the producer whose transaction they end."""
    for kind in (COMMIT_MARKER, ABORT_MARKER):
        found = read_batch(encode_batch(kind, 7, (), Producer("a", 3), 0, 5, 0), 0, 0)
        assert isinstance(found, RecordBatch)
        assert (found.kind, found.producer, found.end_offset) == (kind, Producer("a", 3), 8)
        assert found.records("here") == []
        assert [entry.kind for entry in found.entries("here")] == [kind]


@settings(max_examples=60)
@given(st.data())
def test_every_flipped_bit_is_found(data: st.DataObject) -> None:
    """Wherever a bit of a batch is flipped, the batch is bad."""
    batch = encode_batch(DATA, 5, ["abc", 1], Producer("a", 1), 2, 99, 4)
    bit = data.draw(st.integers(0, 8 * len(batch) - 1))
    flipped = bytearray(batch)
    flipped[bit // 8] ^= 1 << bit % 8
    assert isinstance(read_batch(bytes(flipped), 0, 0), BadBatch)


@settings(max_examples=60)
@given(st.lists(values, min_size=1, max_size=6), st.data(), st.integers(1, 200))
def test_a_file_that_is_cut_off_has_the_batches_before_the_cut(
    batches: list[list[object]], data: st.DataObject, chunk_bytes: int
) -> None:
    """Whole batches are read, whatever the chunks, and the rest is one bad batch that begins where they end."""
    encoded, offset, ends = b"", 0, [0]
    for records in batches:
        encoded += encode_batch(DATA, offset, records, None, 0, 0, 0)
        offset += len(records)
        ends.append(len(encoded))
    cut = data.draw(st.integers(0, len(encoded)))
    found = list(read_batches(file_of(encoded[:cut]), 0, cut, 0, chunk_bytes))

    whole = [end for end in ends[1:] if end <= cut]
    assert [one.position + one.size_bytes for one in found if isinstance(one, RecordBatch)] == whole
    bad = [one.position for one in found if isinstance(one, BadBatch)]
    assert bad == ([] if cut in ends else [max([0, *whole])])


def test_a_batch_with_another_offset_than_follows_is_bad() -> None:
    """A gap in the offsets is found although every checksum is right."""
    data = encode_batch(DATA, 0, [1], None, 0, 0, 0) + encode_batch(DATA, 2, [1], None, 0, 0, 0)
    found = list(read_batches(file_of(data), 0, len(data), 0))
    assert isinstance(found[0], RecordBatch)
    assert isinstance(found[1], BadBatch)
    assert "offset 2 stands where 1 should" in found[1].why


def test_whole_batches_behind_damage_are_found() -> None:
    """They are found even where bytes in between look like the beginning of a batch."""
    batch = encode_batch(DATA, 9, ["x"], None, 0, 0, 8)
    junk = b"\xa1\x1d" * 5 + bytes(HEAD_BYTES)
    assert [one.first_offset for one in whole_batches_behind(junk + batch + junk + batch, 0)] == [9, 9]
