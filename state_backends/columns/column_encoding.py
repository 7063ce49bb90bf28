"""How columns of numbers are written in snapshots: byte for byte what the codec makes of their numbers one by one.

A column is cut into lists. Numbers that all take the same form, as floats always do and as sums often do, are turned
into bytes all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from state_backends.base import np
from state_backends.codec import StateCodec
from state_backends.columns.grouping import Positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INTS = (
    (0xD3, ">i8", -(2**63), -(2**31)),
    (0xD2, ">i4", -(2**31), -(2**15)),
    (0xD1, ">i2", -(2**15), -(2**7)),
    (0xCD, ">u2", 2**8, 2**16),
    (0xCE, ">u4", 2**16, 2**32),
    (0xCF, ">u8", 2**32, 2**63),
)
"""How msgpack writes ints of more than a byte: the first byte, what follows it, from where to below where."""


def encoded_columns(numbers: NDArray[Any], bounds: Sequence[int], codec: StateCodec) -> list[bytes]:
    """The encoded lists of the numbers from one bound to the next.

    :param numbers: ``int64`` or ``float64``, at least one
    :param bounds: positions, ascending from 0 to the number of numbers
    """
    same = _same_form(numbers)
    if same is None:
        plain = numbers.tolist()
        return [codec.pack(plain[start:end]) for start, end in pairwise(bounds)]
    first_byte, form = same
    size = 1 + np.dtype(form).itemsize
    encoded = np.empty((len(numbers), size), dtype=np.uint8)
    encoded[:, 0] = first_byte
    encoded[:, 1:] = numbers.astype(form).view(np.uint8).reshape(-1, size - 1)
    data = encoded.tobytes()
    return [codec.array_header(end - start) + data[start * size : end * size] for start, end in pairwise(bounds)]


def _same_form(numbers: NDArray[Any]) -> tuple[int, str] | None:
    """The first byte of all numbers and the form of what follows, if it is one for all."""
    if numbers.dtype != np.int64:
        return 0xCB, ">f8"
    least, greatest = int(numbers.min()), int(numbers.max())
    for first_byte, form, start, stop in _INTS:
        if start <= least and greatest < stop:
            return first_byte, form
    return None


def encoded_order(keys: NDArray[np.int64], groups: NDArray[np.int64]) -> Positions:
    """The positions of some keys, at least one, in the order of their groups and, within a group, of their encodings.
    Equal ones stay in their order.

    msgpack writes an int big-endian after a byte for its width; these bytes ascend from ints of at least 0, whose
    width grows with them, over -33 .. -128 and wider and wider ones to -1 .. -32, which are that byte themselves.
    """
    if int(keys.min()) >= 0:
        key_bits, position_bits = int(keys.max()).bit_length(), (len(keys) - 1).bit_length()
        if int(groups.max()).bit_length() + key_bits + position_bits > 63:
            return np.lexsort((keys, groups))
        # Where all three fit into one number, sorting numbers is ten times faster.
        packed = (groups << key_bits | keys) << position_bits | np.arange(len(keys))
        packed.sort()
        return packed & ((1 << position_bits) - 1)
    negative = keys < 0
    width = negative.astype(np.int8)
    for bits in (7, 15, 31):
        width += keys < -(1 << bits)
    width[negative & (keys >= -32)] = 5
    return np.lexsort((keys, width, groups))
