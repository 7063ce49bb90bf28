"""The types of a table's columns: ``data_type("DECIMAL(10, 2)")``. ``data_types`` has numbers, texts and bytes,
``time_types`` dates and times, ``nested_types`` arrays, maps and rows; ``type_parser`` reads their names.
"""

from __future__ import annotations

from operators.table.types.data_types import DataType as DataType
from operators.table.types.nested_types import (
    NestedType as NestedType,
    has_part as has_part,
    is_map_without_text_keys as is_map_without_text_keys,
)
from operators.table.types.time_types import TimestampType as TimestampType, TimeType as TimeType
from operators.table.types.type_parser import TypeNameError as TypeNameError, data_type as data_type
