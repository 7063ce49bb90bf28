"""Arrays as state: key groups of whole columns (``keys``), records of a batch grouped by key (``grouping``), running
folds over the groups (``folds``), and columns written byte for byte as the codec writes their numbers (``encoding``).
Needs numpy at its first use, and loads it then.
"""

from __future__ import annotations

from state_backends.columns.encoding import encoded_columns, encoded_order
from state_backends.columns.folds import ColumnFold, CountFold, LongOverflowError, MaxFold, MinFold, SumFold
from state_backends.columns.grouping import (
    MAX_RECORDS,
    Grouping,
    KeyNumbers,
    LongSlots,
    ObjectSlots,
    Positions,
    Slots,
    Workspace,
    group_by_key,
)
from state_backends.columns.keys import KeyColumn, check_key_column, is_long_column, key_column_type, key_groups_of

__all__ = [
    "MAX_RECORDS",
    "ColumnFold",
    "CountFold",
    "Grouping",
    "KeyColumn",
    "KeyNumbers",
    "LongOverflowError",
    "LongSlots",
    "MaxFold",
    "MinFold",
    "ObjectSlots",
    "Positions",
    "Slots",
    "SumFold",
    "Workspace",
    "check_key_column",
    "encoded_columns",
    "encoded_order",
    "group_by_key",
    "is_long_column",
    "key_column_type",
    "key_groups_of",
]
