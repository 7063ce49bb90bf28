"""Values that Weir has stored, as Arrow columns: as JSON text, or with the types that the user's schema declares.

With a schema of the user a value must be of the declared type, as for rows that go to Spark; a ``string`` holds text
only. A tuple also fits a struct, field by field in order. A value that does not fit is an error that names its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engine.elements.suggestions import nearest
from spark_bridge.crossing import arrow_array
from spark_bridge.errors import RowMisfitError, SparkBridgeError
from spark_bridge.sinks import schema_of
from spark_bridge.strict_types import unsupported_types
from state_backends.codec import plain

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ROWS_PER_BATCH = 8192


def json_text(value: Any) -> str:
    """The JSON text of a stored value."""
    return json.dumps(plain(value), ensure_ascii=False)


class Columns:
    """The columns of a table that holds stored values.

    ``format``: of the data source, for errors; ``own``: its schema, as DDL; ``valued``: the columns in it that hold
    stored values; ``wanted``: the schema of the DataFrame, which is ``own`` unless the user declares another one.

    :raises SparkBridgeError: a column of ``wanted`` is not in the table, or has another type there
    """

    def __init__(self, format: str, own: str, valued: Sequence[str], wanted: StructType) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        # Not by Spark's own parser: this runs where there is no session.
        known = from_arrow_schema(schema_of(own))
        self.are_typed = wanted.simpleString() != known.simpleString()
        self._valued = frozenset(valued) if self.are_typed else frozenset()
        for field in wanted.fields if self.are_typed else ():
            self._check(format, field, known)
        self.arrow = to_arrow_schema(wanted, timezone="UTC")

    def _check(self, format: str, field: Any, known: StructType) -> None:
        if field.name not in known.names:
            close = nearest(field.name, known.names)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(known.names)}"
            raise SparkBridgeError(f"{format} has no column {field.name!r}; {hint}")
        declared, there = field.dataType.simpleString(), known[field.name].dataType.simpleString()
        if field.name not in self._valued and declared != there:
            raise SparkBridgeError(f"{format}: column {field.name!r} is {there}, and the schema declares {declared}")
        for why in unsupported_types(field.dataType):
            raise SparkBridgeError(f"{format}: column {field.name!r} cannot hold stored values: {why}")

    def batch(self, column: Callable[[str], Sequence[Any]], place: Callable[[int], str]) -> Any:
        """A ``pyarrow.RecordBatch``. ``column``: makes the values of a column in the schema; ``place``: names a row, by
        its number, in an error."""
        import pyarrow as pa

        arrays = []
        for field in self.arrow:
            values = column(field.name)
            if field.name in self._valued:
                values = [_fitted(field.type, value) for value in values]
            try:
                arrays.append(arrow_array(field, values))
            except RowMisfitError as error:
                raise SparkBridgeError(
                    f"{place(error.row)}: {error.problem}\n"
                    "  fix: declare the type of the values; without .schema(…) they come as JSON text"
                ) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def shown(self, values: Sequence[Any]) -> list[Any]:
        """A column of stored values, as text unless the user has declared types."""
        return list(values) if self.are_typed else list(map(json_text, values))

    def shown_if_any(self, values: Sequence[Any]) -> list[Any]:
        """The same for values of which ``None`` says that there is none."""
        return list(values) if self.are_typed else [None if one is None else json_text(one) for one in values]


def _fitted(arrow_type: Any, value: Any) -> Any:
    """The value with tuples as dicts where structs are declared."""
    import pyarrow.types as kinds

    if kinds.is_struct(arrow_type):
        if isinstance(value, tuple) and len(value) == len(arrow_type):
            value = dict(zip((field.name for field in arrow_type), value, strict=True))
        if isinstance(value, dict):
            types = {field.name: field.type for field in arrow_type}
            return {name: _fitted(types[name], one) if name in types else one for name, one in value.items()}
    elif kinds.is_list(arrow_type) and isinstance(value, (list, tuple)):
        return [_fitted(arrow_type.value_type, one) for one in value]
    elif kinds.is_map(arrow_type) and isinstance(value, dict):
        return {key: _fitted(arrow_type.item_type, one) for key, one in value.items()}
    return value
