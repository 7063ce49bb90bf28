"""Which Python values may enter a column of which type, and which types may cross at all.

Arrow silently makes many conversions that change a value. It cuts a datetime down to a date, reads an int as
microseconds since 1970, takes `True` for 1.0, treats a datetime without a zone as UTC, rounds 0.1 to 32 bits,
and drops unknown struct fields. A stream must not change its records on the way into a batch, so
every value's type is checked first. This costs one pass over the types of a column, and one over the values
of times and of 32-bit floats.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ctypes import c_float
from typing import Any

Misfit = tuple[int, str]
ValueCheck = Callable[[Any], "str | None"]
"""The change that a value of the right type would suffer on its way; None when it stays the same."""

_CROSSING_TYPES = frozenset((
    "NullType", "BooleanType", "ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType",
    "DecimalType", "StringType", "BinaryType", "DateType", "TimestampType", "TimestampNTZType", "DayTimeIntervalType",
    "ArrayType", "MapType", "StructType",
))  # fmt: skip
_NESTED_TYPES = frozenset(("ArrayType", "MapType", "StructType"))

# Arrow refuses an int that a float or a decimal cannot hold.
_EXACT_CASTS = (("integer", "float"), ("integer", "decimal"))


def unsupported_types(spark_type: Any) -> Iterator[str]:
    """The parts of a Spark type whose Python values do not survive the way there and back, as sentences."""
    kind = type(spark_type).__name__
    if kind not in _CROSSING_TYPES:
        yield f"{spark_type.simpleString()} has no Python value here: cast it, for example to string"
    elif kind == "StructType":
        for field in spark_type.fields:
            yield from unsupported_types(field.dataType)
    elif kind == "ArrayType":
        yield from unsupported_types(spark_type.elementType)
    elif kind == "MapType":
        if type(spark_type.keyType).__name__ in _NESTED_TYPES:
            key = spark_type.keyType.simpleString()
            yield f"a map whose keys are {key} is no dict: use an array of entries (map_entries)"
        for inner in (spark_type.keyType, spark_type.valueType):
            yield from unsupported_types(inner)


def first_misfit(arrow_type: Any, values: Sequence[Any]) -> Misfit | None:
    """Position and reason of the first value that does not fit a column of `arrow_type`, or would change in it.

    None means that all are right; Arrow itself checks whether each value is in range.
    """
    import pyarrow.types as kinds

    if kinds.is_struct(arrow_type):
        return _first_struct_misfit(arrow_type, values)
    if kinds.is_map(arrow_type):
        return _first_map_misfit(arrow_type, values)
    if kinds.is_list(arrow_type):
        return _first_list_misfit(arrow_type, values)
    allowed, change_of = _rule_of(arrow_type)
    refused = _refused_types(allowed, values)
    if refused:
        position = next(index for index, value in enumerate(values) if type(value) in refused)
        return position, f"{type(values[position]).__name__} is another type"
    if change_of is not None:
        for position, value in enumerate(values):
            change = None if value is None else change_of(value)
            if change is not None:
                return position, change
    return None


def _rule_of(arrow_type: Any) -> tuple[tuple[type, ...], ValueCheck | None]:
    """The Python types of a scalar column, and the check of each value; no value enters a type without a rule."""
    import pyarrow.types as kinds

    table: tuple[tuple[Callable[[Any], bool], tuple[type, ...], ValueCheck | None], ...] = (
        (kinds.is_boolean, (bool,), None),
        (kinds.is_integer, (int,), None),
        (kinds.is_float64, (float, int), None),
        (kinds.is_floating, (float, int), _change_as_float32),
        (kinds.is_string, (str,), None),
        (kinds.is_binary, (bytes, bytearray), None),
        (kinds.is_date, (datetime.date,), None),
        (is_instant, (datetime.datetime,), _change_as_instant),
        (kinds.is_timestamp, (datetime.datetime,), _change_as_local_time),
        (kinds.is_duration, (datetime.timedelta,), _change_below_microseconds),
        (kinds.is_decimal, (decimal.Decimal, int), None),
    )
    return next(((allowed, change) for is_kind, allowed, change in table if is_kind(arrow_type)), ((), None))


def is_instant(arrow_type: Any) -> bool:
    """Whether this is the type of `timestamp` (`timestamp_ntz` has no zone)."""
    import pyarrow.types as kinds

    return bool(kinds.is_timestamp(arrow_type)) and arrow_type.tz is not None


def _change_as_float32(value: float) -> str | None:
    # Arrow itself checks ints.
    if isinstance(value, int) or math.isnan(value) or c_float(value).value == value:
        return None
    return f"32 bits would make it {c_float(value).value!r}; a double keeps it"


def _change_as_instant(value: datetime.datetime) -> str | None:
    offset = value.utcoffset()
    if offset is None:
        return "it has no time zone, so it is no instant; give it one, or declare timestamp_ntz"
    try:
        value - offset
    except OverflowError:
        return "in UTC it is outside of the years 1 to 9999"
    return _change_below_microseconds(value)


def _change_as_local_time(value: datetime.datetime) -> str | None:
    if value.utcoffset() is not None:
        return "timestamp_ntz would lose its time zone; declare timestamp"
    return _change_below_microseconds(value)


def _change_below_microseconds(value: Any) -> str | None:
    # The subclasses of datetime and timedelta in pandas have more digits.
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        return "it would lose its nanoseconds"
    return None


def _refused_types(allowed: tuple[type, ...], values: Iterable[Any]) -> set[type]:
    found = set(map(type, values)) - {type(None), *allowed}
    # A subclass is allowed (an IntEnum, a numpy float64), except two that are subclasses by accident: a
    # bool is not a number, and a datetime is not a date.
    accidental = tuple(kind for kind in (bool, datetime.datetime) if kind not in allowed)
    return {kind for kind in found if not issubclass(kind, allowed) or issubclass(kind, accidental)}


def _first_struct_misfit(arrow_type: Any, values: Sequence[Any]) -> Misfit | None:
    names = [field.name for field in arrow_type]
    present = [(position, value) for position, value in enumerate(values) if value is not None]
    for position, value in present:
        if not isinstance(value, Mapping) or value.keys() != set(names):
            return position, f"a struct is a dict with the keys {names}"
    for field in arrow_type:
        inside = [value[field.name] for _, value in present]
        inner = first_misfit(field.type, inside)
        if inner is None and not field.nullable and None in inside:
            inner = inside.index(None), "it is NOT NULL"
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


def cast_misfit(source: Any, target: Any) -> str | None:
    """Why Arrow values of one type cannot become values of another without a change of kind; None when they can.

    Arrow's cast checks whether each value is in range.
    """
    import pyarrow.types as kinds

    if kinds.is_dictionary(source):
        return cast_misfit(source.value_type, target)
    if kinds.is_null(source):
        return None
    families = _family(source), _family(target)
    if families == ("list", "list"):
        return cast_misfit(source.value_type, target.value_type)
    if families == ("map", "map"):
        return cast_misfit(source.key_type, target.key_type) or cast_misfit(source.item_type, target.item_type)
    if families == ("struct", "struct") and [one.name for one in source] == [one.name for one in target]:
        pairs = zip(source, target, strict=True)
        return next((why for one, other in pairs if (why := cast_misfit(one.type, other.type))), None)
    if families == ("float", "float") and source.bit_width > target.bit_width:
        return f"{source} does not fit {target}: 32 bits would round its values"
    if families[0] == families[1] and families[0] not in ("struct", ""):
        return None
    return None if families in _EXACT_CASTS else f"{source} is another type than {target}"


def _family(arrow_type: Any) -> str:
    """Types whose values are of one Python type; "" for those without a rule."""
    import pyarrow.types as kinds

    table: tuple[tuple[str, tuple[Callable[[Any], bool], ...]], ...] = (
        ("boolean", (kinds.is_boolean,)),
        ("integer", (kinds.is_integer,)),
        ("float", (kinds.is_floating,)),
        ("string", (kinds.is_string, kinds.is_large_string, kinds.is_string_view)),
        ("binary", (kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)),
        ("date", (kinds.is_date,)),
        ("instant", (is_instant,)),
        ("local time", (kinds.is_timestamp,)),
        ("duration", (kinds.is_duration,)),
        ("decimal", (kinds.is_decimal,)),
        ("list", (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)),
        ("map", (kinds.is_map,)),
        ("struct", (kinds.is_struct,)),
    )
    return next((name for name, checks in table if any(check(arrow_type) for check in checks)), "")
