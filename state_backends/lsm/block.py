"""Blocks: pieces of the entries of a file, how they are cut, encoded and decoded.

A block is the msgpack encoding of ``[keys, values]``, two arrays of the same length; the value of a tombstone is nil.
Two arrays rather than pairs: msgpack reads them several times faster, and the reader wants columns anyway. The index of
the file has the crc32 of each block, the footer has that of the index, and the manifest has that of the footer. So an
undamaged block in a wrong place is found too.
"""

from __future__ import annotations

from bisect import bisect_right
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
_BYTES_PER_DECODED_BLOCK = 64

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
    if compression == "zlib":
        try:
            data = decompress(data)
        except ZlibError as problem:
            raise ValueError(str(problem)) from problem
    try:
        keys, values = msgpack.unpackb(data)
        b"".join(keys)
    except TypeError as problem:
        raise ValueError(str(problem)) from problem
    if type(values) is not list or len(keys) != len(values):
        raise ValueError("it has not as many values as keys")
    return keys, values


def decoded_bytes(stored_bytes: int, entries: int) -> int:
    """An estimate of a decoded block's memory: its bytes, and per entry two objects and a slot of a dict."""
    return stored_bytes + _BYTES_PER_DECODED_ENTRY * entries + _BYTES_PER_DECODED_BLOCK
