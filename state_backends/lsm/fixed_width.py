"""Merging and writing entries of one width as arrays, without an object for each key and value. Needs numpy.

Keys of one length and values of one length are usual: numbers, identifiers, rows of fixed fields. In a block of such
entries every byte stands at a known place. So a compaction reads blocks as rows of a matrix, sorts the keys of several
runs at once, and writes whole rows; this takes a fraction of the time. The files are, byte for byte, those that
``merge`` and ``block`` make, which do the same for entries of any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, cast
from zlib import crc32

from state_backends.base import np
from state_backends.lsm.block import Columns, encode_block

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

_WIDEST = 255
_PIECE = 1024
_SAMPLE = 64
FEWEST_ENTRIES = 4096
"""Below this, arrays save nothing, and a small store need not load numpy."""


class NotFixedError(Exception):
    """A block has entries of other lengths than its neighbours."""


class FixedColumns(NamedTuple):
    """Entries, ascending by key, as two matrices: a row for each entry, a column for each byte. No tombstones."""

    keys: Bytes
    values: Bytes

    def sliced(self, start: int, stop: int | None = None) -> FixedColumns:
        return FixedColumns(self.keys[start:stop], self.values[start:stop])


class Widths(NamedTuple):
    """The number of bytes of each key and of each value."""

    key: int
    value: int


class _Layout(NamedTuple):
    """A block of entries of one width.

    :ivar template: its bytes, with zeros as keys and values
    :ivar heads: where the bytes are that are not of a key or value
    :ivar keys: where the first key's head begins
    :ivar values: where the first value's head begins
    """

    template: Bytes
    heads: NDArray[np.intp]
    keys: int
    values: int


@cache
def has_numpy() -> bool:
    return find_spec("numpy") is not None


@lru_cache(maxsize=64)
def _layout(widths: Widths, entries: int) -> _Layout:
    zeros, ones = (
        np.frombuffer(encode_block([fill * widths.key] * entries, [fill * widths.value] * entries, "none"), np.uint8)
        for fill in (b"\0", b"\1")
    )
    # The head of an array takes one byte, three or five; the first one follows that of the pair.
    head = 2 if entries < 16 else 4 if entries < 1 << 16 else 6
    return _Layout(zeros, np.flatnonzero(zeros == ones), head, head + entries * (2 + widths.key) + head - 1)


def fixed_pieces(columns: Columns) -> Iterator[FixedColumns] | None:
    """Entries as matrices, if they are many and of one width; in pieces, because this copies them."""
    keys, values = columns
    if len(keys) < FEWEST_ENTRIES or not has_numpy():
        return None
    # Entries of other widths mostly show it at once: looking at all of them costs a twentieth of a flush.
    if _widths_of((keys[:_SAMPLE], values[:_SAMPLE])) is None or _widths_of(columns) is None:
        return None
    # A fixed width has no tombstone.
    plain = cast("list[bytes]", values)
    return (
        FixedColumns(_matrix(keys[start : start + _PIECE]), _matrix(plain[start : start + _PIECE]))
        for start in range(0, len(keys), _PIECE)
    )


def _matrix(rows: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def _widths_of(columns: Columns) -> Widths | None:
    keys, values = columns
    try:
        key_widths, value_widths = set(map(len, keys)), set(map(len, values))  # type: ignore[arg-type]
    except TypeError:
        # A tombstone has no length.
        return None
    if len(key_widths) > 1 or len(value_widths) > 1:
        return None
    widths = Widths(key_widths.pop(), value_widths.pop())
    return widths if 0 < widths.key <= _WIDEST and 0 < widths.value <= _WIDEST else None


def common_widths(first_block: Columns, sizes: Iterable[Sequence[int]]) -> Widths | None:
    """The widths of all entries of some files, as far as it can be told from a block of one and from the sizes of
    blocks; ``None`` when they differ.

    :param sizes: for each file, the sizes of its blocks
    """
    if not has_numpy():
        return None
    widths = _widths_of(first_block)
    if widths is None:
        return None
    size = len(_layout(widths, len(first_block[0])).template)
    return widths if all(one == size for blocks in sizes for one in blocks[:-1]) else None


def unpack_blocks(data: bytes, sizes: Sequence[int], widths: Widths) -> FixedColumns:
    """The entries of neighbouring blocks, all of one size but the last, which may be smaller.

    :raises NotFixedError: when their entries have other widths, or they are no blocks
    """
    size, count = sizes[0], sizes.count(sizes[0])
    first = _unpack_equal(np.frombuffer(data, np.uint8, size * count).reshape(count, size), widths)
    if count == len(sizes):
        return first
    last = _unpack_equal(np.frombuffer(data, np.uint8, offset=size * count).reshape(1, -1), widths)
    return _joined([first, last])


def _unpack_equal(blocks: Bytes, widths: Widths) -> FixedColumns:
    size = blocks.shape[1]
    row = widths.key + widths.value + 4
    entries = (size - (3 if size < 7 + 16 * row else 7 if size < 11 + (row << 16) else 11)) // row
    layout = _layout(widths, entries)
    if len(layout.template) != size or (blocks[:, layout.heads] != layout.template[layout.heads]).any():
        raise NotFixedError
    keys, values = _content(blocks, layout, widths, entries)
    return FixedColumns(keys.reshape(-1, widths.key), values.reshape(-1, widths.value))


def _content(blocks: Bytes, layout: _Layout, widths: Widths, entries: int) -> tuple[Bytes, Bytes]:
    """Views of the keys and of the values of blocks: by block, entry, byte."""
    keys = blocks[:, layout.keys : layout.keys + entries * (2 + widths.key)]
    values = blocks[:, layout.values :]
    return keys.reshape(len(blocks), entries, -1)[:, :, 2:], values.reshape(len(blocks), entries, -1)[:, :, 2:]


class PackedBlocks(NamedTuple):
    """Blocks of one size, one after the other."""

    data: bytes
    size: int
    first_keys: list[bytes]


def pack_blocks(columns: FixedColumns, entries: int) -> PackedBlocks:
    """Entries as blocks of ``entries`` each; the number of entries is a multiple of it."""
    widths = Widths(columns.keys.shape[1], columns.values.shape[1])
    layout = _layout(widths, entries)
    count = len(columns.keys) // entries
    blocks = np.empty((count, len(layout.template)), np.uint8)
    blocks[:] = layout.template
    keys, values = _content(blocks, layout, widths, entries)
    keys[:] = columns.keys.reshape(count, entries, widths.key)
    values[:] = columns.values.reshape(count, entries, widths.value)
    first_keys = [one.tobytes() for one in columns.keys[::entries]]
    return PackedBlocks(blocks.tobytes(), blocks.shape[1], first_keys)


def _joined(parts: Sequence[FixedColumns]) -> FixedColumns:
    return FixedColumns(np.concatenate([part.keys for part in parts]), np.concatenate([part.values for part in parts]))


def join(before: FixedColumns | None, columns: FixedColumns) -> FixedColumns:
    return columns if before is None else _joined([before, columns])


# --- hashes ---


def key_hashes(keys: Bytes) -> NDArray[np.uint32]:
    """The crc32 of each key."""
    width = keys.shape[1]
    hashes = np.full(len(keys), crc32(bytes(width)), np.uint32)
    for place, table in enumerate(_crc_tables(width)):
        hashes ^= table[keys[:, place]]
    return hashes


@lru_cache(maxsize=16)
def _crc_tables(width: int) -> list[NDArray[np.uint32]]:
    """For each place in a key, what each byte there changes in the crc32: a crc is linear, so the changes are joined
    by exclusive or."""
    zero = crc32(bytes(width))
    tables = []
    for place in range(width):
        rest = bytes(width - place - 1)
        tables.append(np.array([crc32(bytes(place) + bytes([byte]) + rest) ^ zero for byte in range(256)], np.uint32))
    return tables


# --- merging ---


class _Head:
    """The present piece of a run, and the position up to which it is used."""

    __slots__ = ("_pieces", "columns", "last", "order", "position")

    def __init__(self, pieces: Iterator[FixedColumns]) -> None:
        self._pieces = pieces
        self.position = 0

    def advance(self) -> bool:
        """Go to the next piece, if there is one."""
        for columns in self._pieces:
            self.columns, self.position = columns, 0
            self.order = _comparable(columns.keys)
            self.last = columns.keys[-1].tobytes()
            return True
        return False

    def take(self, stop: int) -> FixedColumns:
        start, self.position = self.position, stop
        return self.columns.sliced(start, stop)


def _comparable(keys: Bytes) -> NDArray[np.bytes_]:
    """Keys as strings, which numpy compares byte by byte."""
    return np.ascontiguousarray(keys).view(f"S{keys.shape[1]}").ravel()


def merged_fixed(runs: Iterable[Iterator[FixedColumns]]) -> Iterator[FixedColumns]:
    """The entries of some runs, given newest first: for each key its newest entry. In the rounds of
    :func:`state_backends.lsm.merge.merged`."""
    heads = [head for head in map(_Head, runs) if head.advance()]
    while len(heads) > 1:
        yield _round(heads)
        heads = [head for head in heads if head.position < len(head.order) or head.advance()]
    for head in heads:
        yield head.take(len(head.order))
        while head.advance():
            yield head.columns


def _round(heads: Sequence[_Head]) -> FixedColumns:
    bound = min([head.last for head in heads])
    parts: list[FixedColumns] = []
    for head in heads:
        if head.last == bound:
            stop = len(head.order)
        else:
            stop = int(np.searchsorted(head.order, np.bytes_(bound), side="right"))
        if stop > head.position:
            parts.append(head.take(stop))
    if len(parts) == 1:
        return parts[0]
    keys, values = _joined(parts)
    comparable = _comparable(keys)
    # Stable: of equal keys, the newest comes first.
    order = np.argsort(comparable, kind="stable")
    ascending = comparable[order]
    is_older = ascending[1:] == ascending[:-1]
    if is_older.any():
        order = order[np.concatenate(([True], ~is_older))]
    return FixedColumns(keys[order], values[order])
