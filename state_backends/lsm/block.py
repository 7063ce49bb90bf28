"""Blocks: pieces of the entries of a file, how they are cut, encoded and decoded.

A block is the msgpack encoding of ``[keys, values]``, two arrays of the same length; the value of a tombstone is nil.
Two arrays rather than pairs: msgpack reads them several times faster, and the reader wants columns anyway. The index of
the file has the crc32 of each block, the footer has that of the index, and the manifest has that of the footer. So an
undamaged block in a wrong place is found too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import add
from typing import cast
from zlib import compress, decompress, error as ZlibError

import msgpack

Columns = tuple[list[bytes], list[bytes | None]]
"""Keys, ascending, and the value of each (``None``: a tombstone)."""

_ZLIB_LEVEL = 1
_BYTES_PER_DECODED_ENTRY = 104
BYTES_PER_BLOCK = 64
"""An estimate of what a block in the cache takes besides its content."""

# The first bytes of the msgpack encoding of a pair, of an array of 16 to 65,535, and of a byte string of up to 255.
_PAIR, _ARRAY16, _BIN8 = 0x92, 0xDC, 0xC4

ABSENT: bytes | None = object()  # type: ignore[assignment]
"""Stands for "no entry", because ``None`` is a tombstone."""

_pack = msgpack.Packer(autoreset=True, use_bin_type=True).pack


def cumulative_bytes(keys: Sequence[bytes], values: Sequence[bytes | None]) -> list[int]:
    """For each entry, the bytes of all keys and values up to and including it."""
    try:
        return list(accumulate(map(add, map(len, keys), map(len, cast("Sequence[bytes]", values)))))
    except TypeError:
        # A tombstone has no length. Tombstones are rare, so the fast way is tried first.
        return list(accumulate(map(add, map(len, keys), [0 if value is None else len(value) for value in values])))


def cuts(cumulative: Sequence[int], block_bytes: int) -> list[int]:
    """The starts of blocks, when each holds as many entries as fit into ``block_bytes``, and at least one."""
    starts: list[int] = []
    start, base = 0, 0
    while start < len(cumulative):
        starts.append(start)
        start = max(start + 1, bisect_right(cumulative, base + block_bytes, start))
        base = cumulative[start - 1]
    return starts


def encode_block(keys: list[bytes], values: list[bytes | None], compression: str) -> bytes:
    packed: bytes = _pack((keys, values))
    return compress(packed, _ZLIB_LEVEL) if compression == "zlib" else packed


def decode_block(data: bytes, compression: str) -> Columns:
    """The entries of a block, whose checksum the caller has checked; :class:`ValueError` when it is not a block."""
    return unpack_block(decompressed(data) if compression == "zlib" else data)


def decompressed(data: bytes) -> bytes:
    """A packed block; :class:`ValueError` when the bytes are not those of a compressed one."""
    try:
        return decompress(data)
    except ZlibError as problem:
        raise ValueError(str(problem)) from problem


def unpack_block(data: bytes) -> Columns:
    """The entries of a packed block; :class:`ValueError` when it is not a block."""
    try:
        keys, values = msgpack.unpackb(data)
        b"".join(keys)
    except TypeError as problem:
        raise ValueError(str(problem)) from problem
    if type(values) is not list or len(keys) != len(values):
        raise ValueError("it has not as many values as keys")
    return keys, values


def value_in(data: bytes, key: bytes) -> bytes | None:
    """The value of a key in a packed block, or ``ABSENT``; :class:`ValueError` when it is not a block.

    Nothing is unpacked when all keys have the length of this one, all values one length, and none more than 255 bytes.
    Then the heads of keys and values, each a type and a length, are at equal distances; and if a head is at each of
    these places, so are the keys and values.
    """
    width = len(key) + 2
    if 2 < width < 258 and len(data) > 8 and data[0] == _PAIR and data[1] == _ARRAY16:
        count = data[2] << 8 | data[3]
        end = 4 + count * width
        # After the keys comes the head of the other array, of three bytes.
        start = end + 3
        if start + 1 < len(data) and data[end:start] == data[1:4]:
            value_width = data[start + 1] + 2
            if (
                len(data) == start + count * value_width
                and data[4:end:width].count(_BIN8) == count
                and data[5:end:width].count(width - 2) == count
                and data[start::value_width].count(_BIN8) == count
                and data[start + 1 :: value_width].count(value_width - 2) == count
            ):
                position = data.find(key, 6, end)
                while position >= 0:
                    index, misplaced = divmod(position - 6, width)
                    if not misplaced:
                        start += index * value_width
                        return data[start + 2 : start + value_width]
                    position = data.find(key, position + 1, end)
                return ABSENT
    keys, values = unpack_block(data)
    index = bisect_left(keys, key)
    return values[index] if index < len(keys) and keys[index] == key else ABSENT


def decoded_bytes(stored_bytes: int, entries: int) -> int:
    """An estimate of a decoded block's memory: its bytes, and per entry two objects and a slot of a dict."""
    return stored_bytes + _BYTES_PER_DECODED_ENTRY * entries + BYTES_PER_BLOCK
