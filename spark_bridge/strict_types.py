"""Which Python values may enter a column of which type.

Arrow converts much silently that changes a value: it cuts a datetime down to a date, reads an int as
microseconds since 1970, takes `True` for 1.0, and drops a struct field it does not know. A stream must not
change its records on the way into a batch, so every value's type is checked first; it costs one pass over
the types of a column.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Misfit = tuple[int, str]


def first_misfit(arrow_type: Any, values: Sequence[Any]) -> Misfit | None:
    """Position and reason of the first value whose Python type does not belong into a column of `arrow_type`.

    None says that all types are right; whether each value is in range is Arrow's own check.
    """
    import pyarrow.types as kinds

    if kinds.is_struct(arrow_type):
        return _first_struct_misfit(arrow_type, values)
    if kinds.is_map(arrow_type):
        return _first_map_misfit(arrow_type, values)
    if kinds.is_list(arrow_type) or kinds.is_large_list(arrow_type):
        return _first_list_misfit(arrow_type, values)
    allowed = _allowed_types(arrow_type)
    refused = set() if allowed is None else _refused_types(allowed, values)
    if not refused:
        return None
    position = next(index for index, value in enumerate(values) if type(value) in refused)
    return position, f"{type(values[position]).__name__} is another type"


def _allowed_types(arrow_type: Any) -> tuple[type, ...] | None:
    """The Python types of a scalar column; None for rare types, which are left to Arrow's checks."""
    import pyarrow.types as kinds

    table: tuple[tuple[Any, tuple[type, ...]], ...] = (
        (kinds.is_boolean, (bool,)),
        (kinds.is_integer, (int,)),
        (kinds.is_floating, (float, int)),
        (kinds.is_string, (str,)),
        (kinds.is_large_string, (str,)),
        (kinds.is_binary, (bytes, bytearray)),
        (kinds.is_large_binary, (bytes, bytearray)),
        (kinds.is_date, (datetime.date,)),
        (kinds.is_timestamp, (datetime.datetime,)),
        (kinds.is_decimal, (decimal.Decimal, int)),
    )
    return next((allowed for is_kind, allowed in table if is_kind(arrow_type)), None)


def _refused_types(allowed: tuple[type, ...], values: Iterable[Any]) -> set[type]:
    found = set(map(type, values)) - {type(None), *allowed}
    # A subclass is welcome (an IntEnum, a numpy float64), except the two that are subclasses by accident: a
    # bool is no number, and a datetime is no date.
    accidental = tuple(kind for kind in (bool, datetime.datetime) if kind not in allowed)
    return {kind for kind in found if not issubclass(kind, allowed) or issubclass(kind, accidental)}


def _first_struct_misfit(arrow_type: Any, values: Sequence[Any]) -> Misfit | None:
    names = [field.name for field in arrow_type]
    present = [(position, value) for position, value in enumerate(values) if value is not None]
    for position, value in present:
        if not isinstance(value, Mapping) or value.keys() != set(names):
            return position, f"a struct is a dict with the keys {names}"
    for field in arrow_type:
        inner = first_misfit(field.type, [value[field.name] for _, value in present])
        if inner is not None:
            return present[inner[0]][0], f"field {field.name!r}: {inner[1]}"
    return None


def _first_map_misfit(arrow_type: Any, values: Sequence[Any]) -> Misfit | None:
    entries = []
    for position, value in enumerate(values):
        if value is None:
            continue
        if not isinstance(value, Mapping):
            return position, "a map is a dict"
        entries += [(position, key, item) for key, item in value.items()]
    for kind, element_type, column in (("key", arrow_type.key_type, 1), ("value", arrow_type.item_type, 2)):
        inner = first_misfit(element_type, [entry[column] for entry in entries])
        if inner is not None:
            return entries[inner[0]][0], f"{kind}: {inner[1]}"
    return None


def _first_list_misfit(arrow_type: Any, values: Sequence[Any]) -> Misfit | None:
    elements = []
    for position, value in enumerate(values):
        if value is None:
            continue
        if not isinstance(value, (list, tuple)):
            return position, "an array is a list or a tuple"
        elements += [(position, element) for element in value]
    inner = first_misfit(arrow_type.value_type, [element for _, element in elements])
    return None if inner is None else (elements[inner[0]][0], f"element: {inner[1]}")
