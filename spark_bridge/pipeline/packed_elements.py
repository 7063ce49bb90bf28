"""The elements of one channel as bytes, on their way from one stage to the next.

Values are packed by the codec of state, so what may be in state may cross, and types come back as they were. Tuples of
one length cross as columns: a tuple by itself costs a call on each side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch
from engine.elements.errors import StateError
from engine.elements.events import EndOfData, Event, Watermark, WatermarkStatus
from state_backends.base import StateBackendError, np
from state_backends.codec import default_codec

Element = Batch | Event

LARGEST_RECORD_BYTES = 64 * 1024 * 1024
"""Spark holds a row in memory several times over: rows of half a gigabyte worked in a heap of two."""

_LARGEST = {"|u1": 2**8 - 1, "<u2": 2**16 - 1, "<u4": 2**32 - 1, "<u8": 2**64 - 1}

_ROWS, _TUPLES, _COLUMNS, _WATERMARK, _STATUS, _END = range(6)


def pack(elements: Sequence[Element], edge: str) -> bytes:
    """The bytes of elements. ``edge``: how an error names the way they go.

    Raises :class:`StateError` when a record holds a value that cannot cross, with its place in the record.
    """
    plain = [_plain(element) for element in elements]
    try:
        return default_codec().encode(plain, f"records on {edge}")
    except StateBackendError as error:
        raise StateError(f"{error}\n  records that go from one stage to the next must be plain values") from error


def packed_within(elements: Sequence[Element], edge: str, most_bytes: int) -> Iterator[bytes]:
    """The bytes of elements in pieces of at most so many, as far as single records are smaller; in order.

    Raises :class:`StateError` when a record is larger than :data:`LARGEST_RECORD_BYTES`.
    """
    packed = pack(elements, edge)
    if len(packed) <= most_bytes:
        yield packed
        return
    if len(elements) > 1:
        half = len(elements) // 2
        halves: tuple[Sequence[Element], ...] = (elements[:half], elements[half:])
    else:
        (only,) = elements
        if not isinstance(only, Batch) or len(only) == 1:
            if len(packed) > LARGEST_RECORD_BYTES:
                raise StateError(
                    f"a record on {edge} has {len(packed):,} bytes, and Spark moves at most"
                    f" {LARGEST_RECORD_BYTES:,} in one row\n"
                    "  fix: make several records of it, or send the path of a file that holds it"
                )
            yield packed
            return
        halves = tuple([part] for part in only.split(len(only) // 2))
    for one in halves:
        yield from packed_within(one, edge, most_bytes)


def unpack(packed: bytes, edge: str) -> Iterator[Element]:
    """The elements that :func:`pack` was given."""
    for kind, *parts in default_codec().decode(packed, f"records on {edge}"):
        yield _element(kind, parts)


def _plain(element: Element) -> list[Any]:
    match element:
        case ColumnBatch():
            names, arrays, field = list(element.columns), list(element.columns.values()), element.key_field
            arrays += [element.timestamp_column, element.key_column if field is None else None]
            return [_COLUMNS, len(element), names, field, list(map(_plain_array, arrays))]
        case Batch():
            values, others = element.values, [element.timestamps, element.keys]
            if set(map(type, values)) == {tuple} and len(set(map(len, values))) == 1 and values[0]:
                return [_TUPLES, [list(column) for column in zip(*values, strict=True)], *others]
            return [_ROWS, values, *others]
        case Watermark(timestamp_ms):
            return [_WATERMARK, timestamp_ms]
        case WatermarkStatus(idle):
            return [_STATUS, idle]
        case EndOfData():
            return [_END]
    raise AssertionError(f"{element!r} does not travel between stages")


def _element(kind: int, parts: list[Any]) -> Element:
    match kind:
        case 0:
            return Batch(*parts)
        case 1:
            columns, timestamps, keys = parts
            return Batch(list(zip(*columns, strict=True)), timestamps, keys)
        case 2:
            count, names, field, plain = parts
            *arrays, timestamps, keys = map(_array, plain)
            columns = dict(zip(names, arrays, strict=True))
            return ColumnBatch(columns, count, timestamps, keys if field is None else columns[field])
        case 3:
            return Watermark(parts[0])
        case 4:
            return WatermarkStatus(parts[0])
    assert kind == _END, kind
    return EndOfData()


def _plain_array(array: Any) -> Any:
    if array is None:
        return None
    if array.dtype.hasobject:
        # Text, bytes and keys of several fields.
        return ["O", array.tolist()]
    if array.dtype == np.int64 and len(array):
        return _narrow(array)
    return [array.dtype.str, array.tobytes()]


def _narrow(array: Any) -> list[Any]:
    """Whole numbers in as few bytes as they take, less the smallest where that helps: Spark copies and compresses each
    byte several times, and that costs more than all of the work on a column."""
    least, most = int(array.min()), int(array.max())
    width = next(kind for kind, largest in _LARGEST.items() if most - least <= largest)
    if width == "<u8":
        return [array.dtype.str, array.tobytes()]
    if least >= 0 and most <= _LARGEST[width]:
        return [width, array.astype(width).tobytes()]
    return [width, (array - least).astype(width).tobytes(), least]


def _array(plain: Any) -> Any:
    if plain is None:
        return None
    kind, values, *least = plain
    if kind in _LARGEST:
        array = np.frombuffer(values, dtype=kind).astype(np.int64)
        if least:
            array += least[0]
        array.flags.writeable = False
        return array
    if kind != "O":
        return np.frombuffer(values, dtype=kind)
    array = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        array[position] = value
    return array
