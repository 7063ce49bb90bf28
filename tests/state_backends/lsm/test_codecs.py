"""Filters, blocks and record files: reading gives what was written, and tells damage from a torn end."""

from __future__ import annotations

from array import array
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.base import CorruptStateError, StateSchemaError
from state_backends.codec import preamble
from state_backends.files import MemoryFileSystem
from state_backends.lsm.block import ABSENT, cumulative_bytes, cuts, decode_block, encode_block, value_in
from state_backends.lsm.bloom import MASK_SHIFT, MASKS, build_filter, filter_from_bytes, filter_to_bytes
from state_backends.lsm.records import LogRecordReader, LogRecordWriter, record

MAGIC = b"WEIRTEST"
some_keys = st.sets(st.binary(max_size=6), min_size=1, max_size=40).map(sorted)


# --- filters ---


def may_contain(words: array[int], key: bytes) -> bool:
    """Whether the filter cannot rule out a key, as the store's read path computes it."""
    mask = MASKS[crc32(key) >> MASK_SHIFT]
    return words[crc32(key) % len(words)] & mask == mask


@given(some_keys, st.integers(1, 20))
def test_a_filter_knows_every_key_that_was_put_in(keys: list[bytes], bits: int) -> None:
    """There are no false negatives, also after writing and reading."""
    words = build_filter(map(crc32, keys), len(keys), bits)
    read = filter_from_bytes(filter_to_bytes(words))

    assert read == words
    assert all(may_contain(read, key) for key in keys)


@pytest.mark.parametrize(
    "form", ["%d", "key-%08d", "\x00\x07%06d"], ids=["numbers", "padded numbers", "with a key group"]
)
def test_a_filter_rules_out_nearly_all_other_keys(form: str) -> None:
    """With 12 bits per key about 1 % of absent keys pass, for keys that differ little too."""
    keys = [(form % number).encode() for number in range(20_000)]
    words = build_filter(map(crc32, keys[::2]), 10_000, 12)
    passed = sum(may_contain(words, key) for key in keys[1::2])

    assert passed < 300, passed


def test_the_masks_belong_to_the_format() -> None:
    """Other masks would make the filters of older files lie."""
    assert len(set(MASKS)) == len(MASKS) == 4096
    assert {mask.bit_count() for mask in MASKS} == {6}
    assert crc32(b"".join(mask.to_bytes(8, "little") for mask in MASKS)) == 445898202


# --- blocks ---


@given(some_keys, st.data(), st.sampled_from(["none", "zlib"]))
def test_a_block_comes_back(keys: list[bytes], data: st.DataObject, compression: str) -> None:
    """Keys, values and tombstones are the same after encoding and decoding."""
    values = data.draw(st.lists(st.one_of(st.none(), st.binary(max_size=9)), min_size=len(keys), max_size=len(keys)))

    assert tuple(decode_block(encode_block(keys, values, compression), compression)) == (keys, values)


# The bytes of a head among them, so that keys are also found where no key begins.
lookalikes = st.lists(st.sampled_from([0xC4, 1, 2, 3]), min_size=3, max_size=3).map(bytes)
narrow_or_wide_keys = st.one_of(
    st.sets(lookalikes, min_size=16, max_size=40), st.sets(st.binary(max_size=3), min_size=1, max_size=40)
).map(sorted)


some_values = st.sampled_from([st.just(b""), lookalikes, st.binary(max_size=3)])


@given(narrow_or_wide_keys, some_values, st.booleans(), st.data())
def test_one_entry_of_a_packed_block(
    keys: list[bytes], some: st.SearchStrategy[bytes], deletes: bool, data: st.DataObject
) -> None:
    """Looking up a key in the bytes of a block gives what decoding all of it gives, be lengths equal or not."""
    value = st.one_of(st.none(), some) if deletes else some
    values = data.draw(st.lists(value, min_size=len(keys), max_size=len(keys)))
    block = encode_block(keys, values, "none")
    entries = dict(zip(keys, values, strict=True))

    for key in (*keys, *data.draw(st.lists(st.one_of(lookalikes, st.binary(max_size=4)), max_size=9))):
        assert value_in(block, key) == entries.get(key, ABSENT), key


def test_a_key_is_not_found_among_the_values() -> None:
    """Values that hold the bytes of a key at every place do not make the block hold the key."""
    keys = [b"%03d" % number for number in range(16)]
    for shift in range(5):
        value = b"-" * shift + b"z" * 20
        block = encode_block(keys, [value] * len(keys), "none")

        assert value_in(block, b"zzz") is ABSENT
        assert value_in(block, keys[-1]) == value


@settings(max_examples=30)
@given(st.integers(1, 255))
def test_a_malformed_block_is_no_source_of_values(flip: int) -> None:
    """With any byte changed or missing, a look-up gives what decoding gives: an error, or the entry that is there."""
    keys = [b"%02d" % number for number in range(16)]
    whole = encode_block(keys, [b"v" + key for key in keys], "none")
    damaged = [whole[:at] for at in range(len(whole))]
    damaged += [whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :] for at in range(len(whole))]
    for number, block in enumerate(damaged):
        key = keys[number % len(keys)]
        try:
            entries = dict(zip(*decode_block(block, "none"), strict=True))
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011 - msgpack's own errors are among them
                value_in(block, key)
            continue
        if len(entries) == len(keys) and sorted(entries) == list(entries):
            assert value_in(block, key) == entries.get(key, ABSENT)


@given(
    st.lists(st.tuples(st.binary(max_size=5), st.one_of(st.none(), st.binary(max_size=30))), max_size=40),
    st.integers(1, 60),
)
def test_cuts_fill_blocks_but_not_more(entries: list[tuple[bytes, bytes | None]], block_bytes: int) -> None:
    """Every block fits or has one entry, and the first entry of the next one would not have fitted."""
    cumulative = cumulative_bytes([key for key, _ in entries], [value for _, value in entries])
    starts = cuts(cumulative, block_bytes)
    sizes = [len(key) + len(value or b"") for key, value in entries]

    assert cumulative == [sum(sizes[: index + 1]) for index in range(len(sizes))]
    assert bool(starts) == bool(entries)
    for start, stop in pairwise([*starts, len(entries)]):
        assert start < stop
        assert sum(sizes[start:stop]) <= block_bytes or stop == start + 1
        assert stop == len(entries) or sum(sizes[start : stop + 1]) > block_bytes


# --- record files ---


def read_all(data: bytes, whole_bytes: int = 0) -> list[bytes]:
    return list(LogRecordReader(data, "file", MAGIC, 1).records(whole_bytes))


def record_file(payloads: list[bytes]) -> bytes:
    fs = MemoryFileSystem()
    writer = LogRecordWriter(fs.open_write("/file"), sync=True)
    writer.begin(MAGIC, 1)
    for payload in payloads:
        assert writer.append(payload) == len(record(payload))
    writer.close()
    fs.fsync_dir("/")
    fs.crash()
    return fs.read_bytes("/file")


payload_lists = st.lists(st.binary(max_size=20), max_size=5)


@given(payload_lists)
def test_records_come_back(payloads: list[bytes]) -> None:
    """What was appended is read, and a synced file has survived."""
    assert read_all(record_file(payloads)) == payloads


@given(payload_lists, st.data())
def test_a_cut_leaves_out_the_last_records_only(payloads: list[bytes], data: st.DataObject) -> None:
    """Of a file that was cut off anywhere, the records before are read, unless it is vouched for."""
    whole = record_file(payloads)
    start = len(preamble(MAGIC, 1))
    cut = data.draw(st.integers(start, len(whole)))
    ends = [start]
    for payload in payloads:
        ends.append(ends[-1] + len(record(payload)))
    complete = sum(end <= cut for end in ends) - 1

    assert read_all(whole[:cut]) == payloads[:complete]
    # Room was made for all records, but what stands behind the cut was never written.
    if not any(end - 4 < cut < end for end in ends[1:]):
        assert read_all(whole[:cut] + bytes(len(whole) - cut)) == payloads[:complete]
    if cut < len(whole):
        with pytest.raises(CorruptStateError, match="truncated: its records end"):
            read_all(whole[:cut], len(whole))


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=3), st.integers(1, 255))
def test_every_flipped_byte_of_records_is_found(payloads: list[bytes], flip: int) -> None:
    """No flip is taken for a torn end: it would hide what stands behind it."""
    whole = record_file(payloads)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= flip
        with pytest.raises(CorruptStateError, match="damaged"):
            read_all(bytes(damaged))


def test_records_of_a_newer_program_are_refused() -> None:
    """A newer format version is told from damage."""
    with pytest.raises(StateSchemaError, match="format version 2, this program reads up to 1"):
        LogRecordReader(preamble(MAGIC, 2), "file", MAGIC, 1)
    with pytest.raises(CorruptStateError, match="no WEIRTEST file"):
        LogRecordReader(preamble(b"WEIRLESS", 1), "file", MAGIC, 1)
    with pytest.raises(CorruptStateError, match="less than a preamble"):
        LogRecordReader(preamble(MAGIC, 1)[:-1], "file", MAGIC, 1)
