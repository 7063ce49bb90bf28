"""Groups the records of a batch by key, and finds the places of the keys' values in a state: the two lookups of the
vectorised fold.

**Grouping.** The records of one key are put together, in the order in which they came. A stable sort by key would do
that, but sorting plain integers is many times faster. So one integer per record is sorted: its high bits are hash bits
of the key, its low bits are the record's position. Keys with the same hash bits would be mixed; this is detected, and
the batch is sorted the slow way. Keys that lie close together take the place of the hash bits, in integers of half the
size, which are sorted in half the time. Keys that are Python objects get numbers from a dict first, and the numbers are
sorted instead.

**Slots.** A key of a state has a slot for ever: a position in the arrays of its values. Integers are found through an
open-addressing hash table that is probed for all keys at once, round by round; objects through a dict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from state_backends.base import np
from state_backends.columns.keys import KeyColumn, is_long_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

Positions = Any
"""``NDArray[np.intp]``."""

MAX_RECORDS = 1 << 17
"""The most records that are grouped at once: what is made of them stays in the cache, and hash bits are left over."""

_MAX_NUMBERED_KEYS = 1 << 20
_SPREAD = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: multiplied with it, integers that lie close together end far apart."""
_MIX = 0xFF51AFD7ED558CCD
_MISSING = -1
_LEAST_CELLS = 1 << 10


@dataclass(frozen=True, slots=True)
class Grouping:
    """The records of a batch, those of one key together.

    :ivar order: the position in the batch of each record in grouped order
    :ivar starts: where each group begins in that order
    :ivar counts: how many records each group has, at least one
    :ivar keys: the key of each group, all different
    :ivar space: for what is computed of it
    """

    order: Positions
    starts: Positions
    counts: Positions
    keys: KeyColumn
    space: Workspace

    def __len__(self) -> int:
        return len(self.order)

    def grouped(self, values: NDArray[Any]) -> NDArray[Any]:
        """One item for each record of the batch, brought into grouped order. Good until it is asked again."""
        return values.take(self.order, out=self.space.array("grouped", len(self), values.dtype), mode="clip")

    def to_batch_order(self, grouped: NDArray[Any]) -> NDArray[Any]:
        """One item for each record in grouped order, brought into the order of the batch: a new array."""
        result = np.empty_like(grouped)
        result[self.order] = grouped
        return result


class Workspace:
    """Arrays that are used again for every batch: to have new ones from the system costs as much as to fill them."""

    def __init__(self) -> None:
        self._arrays: dict[tuple[str, Any], NDArray[Any]] = {}

    def array(self, purpose: str, size: int, dtype: Any) -> NDArray[Any]:
        """An array with any content, the same one for each purpose and type."""
        found = self._arrays.get((purpose, dtype))
        if found is None or len(found) < size:
            found = self._arrays[purpose, dtype] = np.empty(size, dtype=dtype)
        return found[:size]

    def positions(self, size: int, dtype: Any) -> NDArray[Any]:
        """0, 1, 2 .., not to be written."""
        found = self._arrays.get(("positions", dtype))
        if found is None or len(found) < size:
            found = self._arrays["positions", dtype] = np.arange(size, dtype=dtype)
        return found[:size]


class KeyNumbers(dict[Any, int]):
    """Numbers keys that are Python objects, from 0 in the order of their first use. It remembers them, up to a limit,
    so that a key that comes again costs one lookup. Numbers mean nothing outside one grouping."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number

    def of(self, keys: Sequence[Any]) -> NDArray[np.int64]:
        if len(self) >= _MAX_NUMBERED_KEYS:
            self.clear()
        return np.fromiter(map(self.__getitem__, keys), dtype=np.int64, count=len(keys))


def group_by_key(keys: KeyColumn, numbers: KeyNumbers, space: Workspace) -> Grouping:
    """Group 1 to ``MAX_RECORDS`` records by their keys. The result is good until the next one of the same ``space``.

    ``numbers``: for keys that are objects.
    """
    count = len(keys)
    assert 0 < count <= MAX_RECORDS, count
    if is_long_column(keys):
        return _group_longs(np.ascontiguousarray(keys), space)
    objects = keys.tolist() if isinstance(keys, np.ndarray) else keys
    bits = _position_bits(count)
    packed = space.array("packed", count, np.uint64)
    np.left_shift(numbers.of(objects).view(np.uint64), np.uint64(bits), out=packed)
    order = _sort_with_positions(packed, bits, space)
    packed >>= np.uint64(bits)
    starts = _group_starts(packed, space)
    groups = [objects[position] for position in order[starts].tolist()]
    return Grouping(order, starts, _counts(starts, count), groups, space)


def _group_longs(keys: NDArray[np.int64], space: Workspace) -> Grouping:
    bits, least = _position_bits(len(keys)), int(keys.min())
    if (int(keys.max()) - least).bit_length() + bits <= 32:
        return _group_near(keys, least, bits, space)
    packed = space.array("packed", len(keys), np.uint64)
    np.multiply(keys.view(np.uint64), np.uint64(_SPREAD), out=packed)
    packed &= np.uint64(0xFFFFFFFFFFFFFFFF >> bits << bits)
    order = _sort_with_positions(packed, bits, space)
    ordered = space.array("ordered", len(keys), np.int64)
    keys.take(order, out=ordered, mode="clip")
    starts = _group_starts(ordered, space)
    hashes = packed[starts] >> np.uint64(bits)
    if (hashes[1:] == hashes[:-1]).any():
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        starts = _group_starts(ordered, space)
    return Grouping(order, starts, _counts(starts, len(keys)), ordered[starts], space)


def _group_near(keys: NDArray[np.int64], least: int, bits: int, space: Workspace) -> Grouping:
    """Keys that lie so close together that the key itself and the position fit into half a word."""
    packed = space.array("packed", len(keys), np.uint32)
    np.subtract(keys, least, out=packed, casting="unsafe")
    packed <<= np.uint32(bits)
    order = _sort_with_positions(packed, bits, space)
    packed >>= np.uint32(bits)
    starts = _group_starts(packed, space)
    return Grouping(order, starts, _counts(starts, len(keys)), packed[starts].astype(np.int64) + least, space)


def _position_bits(count: int) -> int:
    return (count - 1).bit_length()


def _sort_with_positions(packed: NDArray[Any], bits: int, space: Workspace) -> Positions:
    """Put the position of each number into its lowest ``bits`` bits, which are free, and sort; returns the positions in
    the order that they come to have."""
    packed |= space.positions(len(packed), packed.dtype)
    packed.sort()
    order = space.array("order", len(packed), np.uint64)
    np.bitwise_and(packed, packed.dtype.type((1 << bits) - 1), out=order)
    return order.view(np.int64)


def _group_starts(ordered: NDArray[Any], space: Workspace) -> Positions:
    changes = space.array("changes", len(ordered), np.bool_)
    changes[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return np.flatnonzero(changes)


def _counts(starts: Positions, total: int) -> Positions:
    counts = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=counts[:-1])
    counts[-1] = total - starts[-1]
    return counts


class Slots(Protocol):
    """From a key to its slot."""

    def find(self, keys: KeyColumn) -> Positions:
        """The slot of each key, -1 for one that has none."""

    def add(self, keys: KeyColumn) -> None:
        """Give the next slots to keys that are all different and have none."""

    def keys(self, count: int) -> KeyColumn:
        """The keys of the first ``count`` slots. They never change."""

    def __len__(self) -> int:
        """The number of keys with a slot."""


class LongSlots:
    """Slots of 64-bit integers: an open-addressing hash table whose cells hold slots."""

    __slots__ = ("_cells", "_count", "_keys", "_shift")

    def __init__(self) -> None:
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._count = 0
        self._cells: NDArray[np.int32] = np.full(_LEAST_CELLS, _MISSING, dtype=np.int32)
        self._shift = 64 - _LEAST_CELLS.bit_length() + 1

    def __len__(self) -> int:
        return self._count

    def keys(self, count: int) -> NDArray[np.int64]:
        return self._keys[:count]

    def find(self, keys: KeyColumn) -> Positions:
        if not self._count:
            return np.full(len(keys), _MISSING, dtype=np.int32)
        last = len(self._cells) - 1
        cells = self._home(keys)
        slots: NDArray[np.int32] = self._cells[cells]
        # An empty cell compares with the last key, which does no harm: it is taken for missing either way.
        open_ = np.flatnonzero((self._keys[slots] != keys) & (slots != _MISSING))
        while len(open_):
            cells[open_] = ahead = (cells[open_] + 1) & last
            slots[open_] = found = self._cells[ahead]
            open_ = open_[(self._keys[found] != keys[open_]) & (found != _MISSING)]
        return slots

    def add(self, keys: KeyColumn) -> None:
        before, after = self._count, self._count + len(keys)
        assert after < 2**31, "more keys than slots have numbers"
        if after > len(self._keys):
            grown = np.empty(max(after, 2 * len(self._keys), _LEAST_CELLS), dtype=np.int64)
            grown[:before] = self._keys[:before]
            self._keys = grown
        self._keys[before:after] = keys
        self._count = after
        if after * 2 > len(self._cells):
            size = 1 << (after * 4 - 1).bit_length()
            self._cells = np.full(size, _MISSING, dtype=np.int32)
            self._shift = 64 - size.bit_length() + 1
            before = 0
        self._enter(np.arange(before, after, dtype=np.int32))

    def _enter(self, slots: NDArray[np.int32]) -> None:
        last = len(self._cells) - 1
        cells = self._home(self._keys[slots])
        while len(slots):
            free = self._cells[cells] == _MISSING
            # Of several that want one cell the last one gets it; that none is lost shows in who stands there.
            self._cells[cells[free]] = slots[free]
            lost = self._cells[cells] != slots
            slots, cells = slots[lost], (cells[lost] + 1) & last

    def _home(self, keys: NDArray[np.int64]) -> Positions:
        mixed = keys.view(np.uint64) * np.uint64(_MIX)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(_SPREAD)
        return (mixed >> np.uint64(self._shift)).view(np.int64)


class ObjectSlots:
    """Slots of keys that are Python objects."""

    __slots__ = ("_keys", "_slots")

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self._slots: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def keys(self, count: int) -> list[Any]:
        return self._keys[:count]

    def find(self, keys: KeyColumn) -> Positions:
        slot_of = self._slots.get
        return np.fromiter((slot_of(key, _MISSING) for key in keys), dtype=np.int64, count=len(keys))

    def add(self, keys: KeyColumn) -> None:
        first = len(self._keys)
        self._keys.extend(keys)
        self._slots.update(zip(keys, range(first, len(self._keys)), strict=True))
