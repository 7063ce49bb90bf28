"""The filter of a file: 64-bit words, one for each group of keys. Each key sets six bits of its word.

A key's word and bits come from its crc32 ``h``: the word is ``h % number of words``; the upper twelve bits of ``h``
choose one of 4096 masks. So a query costs one hash (shared by all files), one array access and one comparison. With 12
bits per key about 1 % of absent keys are taken for present ones. The masks come from a fixed recurrence and belong to
the format: with other masks, filters of older files would give wrong answers.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from state_backends.base import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MASKS = 4096
_BITS_PER_MASK = 6
_WORD = (1 << 64) - 1

MASK_SHIFT = 20
"""``h >> MASK_SHIFT`` chooses the mask of a key whose crc32 is ``h``."""


def _masks() -> tuple[int, ...]:
    """Masks of six different bits each, from the splitmix64 recurrence with seed 0."""
    state = 0
    masks: list[int] = []
    while len(masks) < _MASKS:
        mask = 0
        while mask.bit_count() < _BITS_PER_MASK:
            state = (state + 0x9E3779B97F4A7C15) & _WORD
            mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
            mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _WORD
            mask |= 1 << ((mixed ^ (mixed >> 31)) & 63)
        masks.append(mask)
    return tuple(masks)


MASKS = _masks()
"""The bits that a key sets in its word."""


def build_filter(hashes: Iterable[int], count: int, bits_per_key: int) -> array[int]:
    """The filter's words for some keys. ``hashes``: the crc32 of each key."""
    words = array("Q", bytes(8 * _word_count(count, bits_per_key)))
    size, masks = len(words), MASKS
    for value in hashes:
        words[value % size] |= masks[value >> MASK_SHIFT]
    return words


def build_filter_at_once(hashes: NDArray[np.uint32], bits_per_key: int) -> array[int]:
    """:func:`build_filter` for an array of hashes."""
    words = array("Q", bytes(8 * _word_count(len(hashes), bits_per_key)))
    places = hashes % np.uint32(len(words))
    # Of many keys, several set bits of one word: an assignment would keep those of the last.
    np.bitwise_or.at(np.frombuffer(words, np.uint64), places, _mask_array()[hashes >> np.uint32(MASK_SHIFT)])
    return words


@cache
def _mask_array() -> NDArray[np.uint64]:
    return np.array(MASKS, np.uint64)


def _word_count(keys: int, bits_per_key: int) -> int:
    return max(1, (keys * bits_per_key + 63) // 64)


def filter_to_bytes(words: array[int]) -> bytes:
    """Words as bytes, little endian."""
    return _little_endian(words).tobytes()


def filter_from_bytes(data: bytes) -> array[int]:
    """The inverse of :func:`filter_to_bytes`; the length is a multiple of 8."""
    words = array("Q")
    words.frombytes(data)
    return _little_endian(words)


def _little_endian(words: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return words
    swapped = words[:]
    swapped.byteswap()
    return swapped
