"""Key groups of whole columns of keys: the arithmetic of :mod:`state_backends.base.key_groups`, an array at a time.

A column of keys is an ``int64`` array for INT and LONG, a ``bool`` array or a sequence for BOOL, and a sequence of
Python objects for everything else. Every function gives exactly what its scalar namesake gives key by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from state_backends.base import (
    STRING,
    KeyType,
    KeyTypeError,
    check_keys,
    check_parallelism,
    infer_key_type,
    java_hash_code,
    java_hash_function,
    np,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

KeyColumn = Any
"""An ``int64`` array, or a sequence of keys."""

_LONGEST_BY_POSITION = 128
"""Longer keys are hashed one by one: hashing by position takes one pass for each position of the longest."""


def is_long_column(keys: KeyColumn) -> bool:
    return isinstance(keys, np.ndarray) and keys.dtype == np.int64


def key_column_type(keys: KeyColumn) -> KeyType:
    """The key type of a column that is not empty; :class:`KeyTypeError` when its first key can be no key."""
    first = keys[0]
    return infer_key_type(first.item() if isinstance(first, np.generic) else first)


def check_key_column(keys: KeyColumn, key_type: KeyType) -> None:
    """Refuse a column with a key of another type than declared, or an integer too wide for it.

    :raises KeyTypeError: naming the first such key
    """
    if is_long_column(keys):
        if key_type.name == "INT":
            narrow = keys.astype(np.int32)
            if not np.array_equal(narrow, keys):
                java_hash_function(key_type)(int(keys[np.flatnonzero(narrow != keys)[0]]))
        elif key_type.name != "LONG":
            check_keys([int(keys[0])], key_type)
    else:
        check_keys(keys.tolist() if isinstance(keys, np.ndarray) else keys, key_type)


def murmur_hashes(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """:func:`state_backends.base.key_groups.murmur_hash` of each hash code."""
    code = codes * np.uint32(0xCC9E2D51)
    code = _rotated(code, 15)
    code *= np.uint32(0x1B873593)
    code = _rotated(code, 13)
    code *= np.uint32(5)
    code += np.uint32(0xE6546B64)
    code ^= np.uint32(4)
    code ^= code >> np.uint32(16)
    code *= np.uint32(0x85EBCA6B)
    code ^= code >> np.uint32(13)
    code *= np.uint32(0xC2B2AE35)
    code ^= code >> np.uint32(16)
    # A negative int is negated; the smallest int has no negation in 32 bits, stays as it is, and becomes 0.
    code = np.abs(code.view(np.int32)).view(np.uint32)
    code &= np.uint32(0x7FFFFFFF)
    return code


def key_groups_of(keys: KeyColumn, key_type: KeyType, max_parallelism: int) -> NDArray[np.intp]:
    """The key group of each key of a checked column.

    :raises KeyTypeError: for an integer that does not fit the declared width
    :raises KeyGroupError: when ``max_parallelism`` is out of range
    """
    check_parallelism(1, max_parallelism)
    groups: NDArray[np.intp] = (murmur_hashes(hash_codes(keys, key_type)) % np.uint32(max_parallelism)).astype(np.intp)
    return groups


def hash_codes(keys: KeyColumn, key_type: KeyType) -> NDArray[np.uint32]:
    """The Java hash code of each key of a checked column, as unsigned 32-bit numbers.

    :raises KeyTypeError: for an integer that does not fit the declared width
    """
    match key_type.name:
        case "INT":
            longs = _as_longs(keys)
            check_key_column(longs, key_type)
            return longs.astype(np.uint32)
        case "LONG":
            bits = _as_longs(keys).view(np.uint64)
            return (bits ^ (bits >> np.uint64(32))).astype(np.uint32)
        case "BOOL":
            return np.where(np.asarray(keys, dtype=bool), np.uint32(1231), np.uint32(1237))
        case "TUPLE":
            codes = np.ones(len(keys), dtype=np.uint32)
            for index, element_type in enumerate(key_type.elements):
                codes *= np.uint32(31)
                codes += hash_codes([key[index] for key in keys], element_type)
            return codes
        case "STRING":
            return _text_codes(keys)
        case _:
            return _byte_codes(keys)


def _rotated(code: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (code << np.uint32(bits)) | (code >> np.uint32(32 - bits))


def _as_longs(keys: KeyColumn) -> NDArray[np.int64]:
    if is_long_column(keys):
        longs: NDArray[np.int64] = np.ascontiguousarray(keys)
        return longs
    try:
        return np.array(keys, dtype=np.int64)
    except OverflowError as error:
        wide = next(key for key in keys if not -(2**63) <= key < 2**63)
        raise KeyTypeError(f"key {wide} does not fit 64 bits. Use a str or bytes key instead.") from error


def _text_codes(keys: Sequence[str]) -> NDArray[np.uint32]:
    try:
        data = "".join(keys).encode("utf-16-le")
    except UnicodeEncodeError:
        for key in keys:
            java_hash_code(key, STRING)  # says which key has a lone surrogate
        raise
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    if len(data) != 2 * int(lengths.sum()):
        # Beyond the basic plane a character takes two units.
        units = (len(key.encode("utf-16-le")) // 2 for key in keys)
        lengths = np.fromiter(units, dtype=np.int64, count=len(keys))
    return _polynomial(np.frombuffer(data, dtype="<u2"), lengths, 0)


def _byte_codes(keys: Sequence[bytes]) -> NDArray[np.uint32]:
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    return _polynomial(np.frombuffer(b"".join(keys), dtype=np.int8), lengths, 1)


def _polynomial(units: NDArray[Any], lengths: NDArray[np.int64], start: int) -> NDArray[np.uint32]:
    """``31 * code + unit`` over the units of each key, from ``start``; all keys' units lie one after the other."""
    count = len(lengths)
    offsets = np.cumsum(lengths) - lengths
    # Longest first: those that still have a unit at some position are always the first ones.
    order = np.argsort(-lengths, kind="stable")
    offsets, ordered = offsets[order], lengths[order]
    codes = np.full(count, start, dtype=np.uint32)
    units = units.astype(np.int32).astype(np.uint32)
    longest = int(ordered[0]) if count else 0
    by_position = min(longest, _LONGEST_BY_POSITION)
    alive = np.searchsorted(-ordered, -np.arange(1, by_position + 1), side="right")
    for position in range(by_position):
        some = int(alive[position])
        codes[:some] *= np.uint32(31)
        codes[:some] += units[offsets[:some] + position]
    if longest > by_position:
        for index in range(int(np.searchsorted(-ordered, -by_position, side="left"))):
            first = int(offsets[index])
            codes[index] = _rest(int(codes[index]), units[first + by_position : first + int(ordered[index])].tolist())
    unordered = np.empty(count, dtype=np.uint32)
    unordered[order] = codes
    return unordered


def _rest(code: int, units: list[int]) -> int:
    for unit in units:
        code = (31 * code + unit) & 0xFFFFFFFF
    return code
