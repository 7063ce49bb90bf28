"""Canonical order and canonical Python values of a Spark result.

Spark returns rows in the order its tasks happen to finish. The engine must see the same rows in the same
order in every run, so results are sorted by all their columns, first column first, under one total order:

* numbers by value, text by code point, times by instant, `False` before `True`;
* `nan` after every number, None after everything (Arrow's own default, so flat results are sorted in C++);
* values that compare equal but are different bytes (`-0.0` and `0.0`, two kinds of `nan`) by their bit
  pattern, in which the negative one comes first;
* structs field by field, lists element by element, maps by their entries in the order of the keys.

Rows that are equal in all columns are the same row, so their order is not visible.

A list that Spark collected without an order (`collect_list` after a shuffle) is data, not order: sort it in
the DataFrame code (`sort_array`).
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from typing import Any

Converter = Callable[[Any], Any]
SortKey = Callable[[Any], tuple[Any, ...]]


def sort_canonically(table: Any) -> Any:
    """Returns the rows of a `pyarrow.Table` in canonical order."""
    if table.num_rows < 2 or table.num_columns == 0:
        return table
    if any(_is_nested(field.type) for field in table.schema):
        return table.take(_sorted_positions(table))
    return table.take(_sort_indices(table))


def python_rows(table: Any) -> list[dict[str, Any]]:
    """Turns a `pyarrow.Table` into dicts of plain Python values.

    Structs and maps become dicts (a map's keys in canonical order), timestamps with a zone become `datetime`
    in `datetime.timezone.utc`, timestamps without one stay naive.
    """
    names = table.column_names
    columns = [_python_column(column) for column in table.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _python_column(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    convert = _converter(column.type)
    return values if convert is None else [convert(value) for value in values]


def _is_nested(arrow_type: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_nested(arrow_type))


def _sort_indices(table: Any) -> Any:
    """Positions of the rows in canonical order, for columns that hold no other columns."""
    import pyarrow as pa
    import pyarrow.types as kinds
    from pyarrow import compute

    # Columns get names of their own: sort keys are names, and a result may hold a name twice.
    keys = {}
    for position, column in enumerate(table.columns):
        keys[f"{position}"] = column
        if kinds.is_float64(column.type):
            keys[f"{position} bits"] = column.combine_chunks().view(pa.int64())
        elif kinds.is_float32(column.type):
            keys[f"{position} bits"] = column.combine_chunks().view(pa.int32())
    return compute.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])


def _sorted_positions(table: Any) -> Any:
    """The same order for nested columns, in Python."""
    import pyarrow as pa

    key_columns = []
    for column in table.columns:
        to_key = _sort_key(column.type)
        key_columns.append([to_key(value) for value in _python_column(column)])
    keys = list(zip(*key_columns, strict=True))
    return pa.array(sorted(range(table.num_rows), key=keys.__getitem__), type=pa.int64())


def _converter(arrow_type: Any) -> Converter | None:
    """The function that makes Arrow's Python value canonical; None when it is canonical already."""
    import pyarrow.types as kinds

    if kinds.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return _to_utc
    if kinds.is_struct(arrow_type):
        return _struct_converter(arrow_type)
    if kinds.is_map(arrow_type):
        return _map_converter(arrow_type)
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        convert = _converter(arrow_type.value_type)
        if convert is None:
            return None
        return lambda values: None if values is None else [convert(value) for value in values]
    return None


def _struct_converter(arrow_type: Any) -> Converter | None:
    fields = {field.name: _converter(field.type) for field in arrow_type}
    converters = {name: convert for name, convert in fields.items() if convert is not None}
    if not converters:
        return None

    def convert_struct(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return {name: converters[name](inner) if name in converters else inner for name, inner in value.items()}

    return convert_struct


def _map_converter(arrow_type: Any) -> Converter:
    convert_key = _converter(arrow_type.key_type) or _same
    convert_item = _converter(arrow_type.item_type) or _same
    order = _sort_key(arrow_type.key_type)

    def convert_map(entries: list[tuple[Any, Any]] | None) -> dict[Any, Any] | None:
        if entries is None:
            return None
        # Arrow gives a map as a list of pairs in the order in which Spark happened to build it.
        converted = [(convert_key(key), convert_item(item)) for key, item in entries]
        return dict(sorted(converted, key=lambda entry: order(entry[0])))

    return convert_map


def _sort_key(arrow_type: Any) -> SortKey:
    """A key function for values as `_converter` leaves them; its tuples are totally ordered."""
    import pyarrow.types as kinds

    if kinds.is_struct(arrow_type):
        return _struct_key(arrow_type)
    if kinds.is_map(arrow_type):
        key_of, item_of = _sort_key(arrow_type.key_type), _sort_key(arrow_type.item_type)
        return lambda value: (2,) if value is None else (0, [(key_of(k), item_of(i)) for k, i in value.items()])
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        element_of = _sort_key(arrow_type.value_type)
        return lambda value: (2,) if value is None else (0, [element_of(element) for element in value])
    if kinds.is_floating(arrow_type):
        return _float_key
    return lambda value: (2,) if value is None else (0, value)


def _struct_key(arrow_type: Any) -> SortKey:
    fields = [(field.name, _sort_key(field.type)) for field in arrow_type]
    return lambda value: (2,) if value is None else (0, [key(value[name]) for name, key in fields])


def _float_key(value: float | None) -> tuple[Any, ...]:
    """Value first, bit pattern second: the order of the column followed by its view as integers."""
    if value is None:
        return (2,)
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return (1, bits) if math.isnan(value) else (0, value, bits)


def _to_utc(value: datetime.datetime | None) -> datetime.datetime | None:
    return None if value is None else value.astimezone(datetime.UTC)


def _same(value: Any) -> Any:
    return value
