"""The rows of keyed state in an ordered store: their layout, and how they become the columns of a snapshot.

A row is ``key group u16 | state id u16 | key | [namespace] | [map key] -> value``. Integers are big endian; the codec
encodes the other parts. No encoding is a prefix of another. So the rows of a key, or of a key and namespace, are
exactly those that begin with its bytes, and they are in the order of the full snapshot format.

| kind                        | rows                     | value of a row                                     |
|-----------------------------|--------------------------|----------------------------------------------------|
| value, reducing, aggregating| one per (key, namespace) | the encoded value                                  |
| list                        | one per (key, namespace) | number of elements u32, then the encoded elements  |
| map                         | one per map entry        | the encoded value                                  |
| timers                      | one per timer            | empty                                              |

Only timers must be ordered by time inside a key group, so their rows are ``key group | state id | time | key |
namespace``, with the time as a u64 with its sign flipped. The plain and the namespaced entries of a state have two ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from state_backends.base import StateKind
from state_backends.codec import StateCodec
from state_backends.snapshots import EncodedBlock, StateId

Row = tuple[bytes, bytes]
"""Key and value."""

GROUP_BYTES = 2
PART_BYTES = 4
"""Key group and state id."""
COUNT_BYTES = 4
"""The number of elements before those of a list."""
MAX_STATE_ID = 0xFFFF

_TIME_BYTES = 8
_SIGN = 1 << 63


class Scannable(Protocol):
    """A store, or a snapshot of one."""

    def scan(self, first: bytes, end: bytes | None) -> Iterator[Row]:
        """The entries with ``first <= key < end``, ascending."""


def group_prefix(key_group: int) -> bytes:
    return key_group.to_bytes(GROUP_BYTES, "big")


def part_prefix(key_group: int, state_id: int) -> bytes:
    """The prefix of the rows of a state in a key group."""
    return (key_group << 16 | state_id).to_bytes(PART_BYTES, "big")


def successor(prefix: bytes) -> bytes:
    """The first key after all that begin with ``prefix``: the end of its scan.

    A prefix begins with a key group, which is below 2^15, so there always is one.
    """
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def encode_time(time: int) -> bytes:
    """A timer's time as bytes, which have the order of the times."""
    return (time + _SIGN).to_bytes(_TIME_BYTES, "big")


def decode_time(data: bytes) -> int:
    """The inverse of :func:`encode_time`."""
    return int.from_bytes(data, "big") - _SIGN


def encode_list(codec: StateCodec, elements: Sequence[object]) -> bytes:
    """The value of a list's row."""
    return len(elements).to_bytes(COUNT_BYTES, "big") + b"".join(map(codec.pack, elements))


def list_column_value(codec: StateCodec, value: bytes) -> bytes:
    """The encoded list in the value of a list's row."""
    return codec.array_header(int.from_bytes(value[:COUNT_BYTES], "big")) + value[COUNT_BYTES:]


def occupied_parts(rows: Scannable, first_group: int, last_group: int) -> Iterator[tuple[int, int]]:
    """The (key group, state id) pairs that have rows, ascending; one seek for each, however many rows it has.

    A seek ends at the end of a key group, because a store may copy its memtable's part of the range of a scan.
    After groups without rows, each seek covers twice as many groups as the one before.
    """
    group, width = first_group, 1
    position = group_prefix(group)
    while group <= last_group:
        end = min(group + width, last_group + 1)
        row = next(rows.scan(position, group_prefix(end)), None)
        if row is None:
            group, width = end, 2 * width
            position = group_prefix(group)
        else:
            part = row[0][:PART_BYTES]
            group, width = int.from_bytes(part[:GROUP_BYTES], "big"), 1
            yield group, int.from_bytes(part[GROUP_BYTES:], "big")
            position = successor(part)


def part_rows(rows: Scannable, key_group: int, state_id: int) -> Iterator[Row]:
    """The rows of a state in a key group."""
    prefix = part_prefix(key_group, state_id)
    return rows.scan(prefix, successor(prefix))


def encoded_length(data: bytes, start: int) -> int:
    """The length in bytes of the encoded value that begins at ``start``."""
    end, open_values = start, 1
    while open_values:
        open_values -= 1
        first = data[end]
        end += 1
        if first < 0x80 or first >= 0xE0:
            continue
        if first >= 0xA0:
            if first < 0xC0:
                end += first & 0x1F
                continue
            fixed = _FIXED_BYTES[first - 0xC0]
            if fixed >= 0:
                end += fixed
                continue
            width, extra, per_item = _SIZED[first]
            size = int.from_bytes(data[end : end + width], "big")
            end += width
            if per_item:
                open_values += size * per_item
            else:
                end += size + extra
        elif first >= 0x90:
            open_values += first & 0x0F
        else:
            open_values += (first & 0x0F) * 2
    return end - start


_VARIABLE = -1
_FIXED_BYTES = (
    # nil, (unused), false, true, bin 8-32, ext 8-32
    *(0, 0, 0, 0, _VARIABLE, _VARIABLE, _VARIABLE, _VARIABLE, _VARIABLE, _VARIABLE),
    # float 32, 64, uint 8-64, int 8-64
    *(4, 8, 1, 2, 4, 8, 1, 2, 4, 8),
    # fixext 1, 2, 4, 8, 16, with their code
    *(2, 3, 5, 9, 17),
    # str 8-32, array 16, 32, map 16, 32
    *(_VARIABLE,) * 7,
)
_SIZED = {
    # first byte: (bytes of the size, bytes beside the content, values per item)
    0xC4: (1, 0, 0),
    0xC5: (2, 0, 0),
    0xC6: (4, 0, 0),
    0xC7: (1, 1, 0),
    0xC8: (2, 1, 0),
    0xC9: (4, 1, 0),
    0xD9: (1, 0, 0),
    0xDA: (2, 0, 0),
    0xDB: (4, 0, 0),
    0xDC: (2, 0, 1),
    0xDD: (4, 0, 1),
    0xDE: (2, 0, 2),
    0xDF: (4, 0, 2),
}


def encode_block(codec: StateCodec, state: StateId, rows: Iterable[Row]) -> EncodedBlock:
    """The rows of a state in one key group, at least one, as sorted columns. No value is decoded."""
    if state.kind == StateKind.TIMERS.value:
        return _timer_block(codec, state, rows)
    if state.kind == StateKind.MAP.value:
        keys, values = _map_columns(codec, state, rows)
    else:
        row_keys, row_values = zip(*rows, strict=True)
        keys = [key[PART_BYTES:] for key in row_keys]
        values = list(row_values)
        if state.kind == StateKind.LIST.value:
            values = [list_column_value(codec, value) for value in values]
    if not state.namespaced:
        return EncodedBlock(state, len(keys), codec.joined(keys), codec.pack(None), codec.joined(values))
    ends = [encoded_length(key, 0) for key in keys]
    namespaces = [key[end:] for key, end in zip(keys, ends, strict=True)]
    keys = [key[:end] for key, end in zip(keys, ends, strict=True)]
    return EncodedBlock(state, len(keys), codec.joined(keys), codec.joined(namespaces), codec.joined(values))


def scopes(state: StateId, keys: Iterable[bytes]) -> Iterator[bytes]:
    """The encoded (key, namespace) of each row, without the bytes before and after; for a map each only once."""
    if state.kind != StateKind.MAP.value:
        for key in keys:
            yield key[PART_BYTES:]
        return
    # No encoding is a prefix of another, so rows that begin like the first one of a map belong to that map.
    prefix = b""
    for key in keys:
        if not prefix or not key.startswith(prefix):
            end = scope_end(state, key)
            prefix = key[:end]
            yield key[PART_BYTES:end]


def scope_end(state: StateId, key: bytes) -> int:
    """The end of the key, or of key and namespace, in a map's row."""
    end = PART_BYTES + encoded_length(key, PART_BYTES)
    return end + encoded_length(key, end) if state.namespaced else end


def _map_columns(codec: StateCodec, state: StateId, rows: Iterable[Row]) -> tuple[list[bytes], list[bytes]]:
    """Encoded scopes and, for each, its entries as one encoded map."""
    found: list[bytes] = []
    values: list[bytes] = []
    entries: list[bytes] = []
    prefix, end = b"", 0
    for key, value in rows:
        if not prefix or not key.startswith(prefix):
            if entries:
                values.append(codec.map_header(len(entries)) + b"".join(entries))
                entries = []
            end = scope_end(state, key)
            prefix = key[:end]
            found.append(key[PART_BYTES:end])
        entries.append(key[end:] + value)
    values.append(codec.map_header(len(entries)) + b"".join(entries))
    return found, values


def _timer_block(codec: StateCodec, state: StateId, rows: Iterable[Row]) -> EncodedBlock:
    timers = sorted(_timers(rows))
    keys, namespaces, times = zip(*timers, strict=True)
    return EncodedBlock(state, len(timers), codec.joined(keys), codec.joined(namespaces), codec.pack(list(times)))


class TimerColumns(NamedTuple):
    """Timers: an encoded list of their keys, one of their namespaces, and their times."""

    keys: bytes
    namespaces: bytes
    times: list[int]


def timer_columns(codec: StateCodec, rows: Iterable[Row]) -> TimerColumns:
    """The timers in some rows, at least one, in their order."""
    keys, namespaces, times = zip(*_timers(rows), strict=True)
    return TimerColumns(codec.joined(keys), codec.joined(namespaces), list(times))


def _timers(rows: Iterable[Row]) -> Iterator[tuple[bytes, bytes, int]]:
    """Encoded key, encoded namespace and time of each timer."""
    start = PART_BYTES + _TIME_BYTES
    for row, _ in rows:
        end = start + encoded_length(row, start)
        yield row[start:end], row[end:], decode_time(row[PART_BYTES:start])
