"""Arrays as state: key groups of whole columns (``keys``), records of a batch grouped by key (``grouping``), running
folds over the groups (``folds``), and columns written byte for byte as the codec writes their numbers
(``column_encoding``). Needs numpy at its first use, and loads it then.
"""

from __future__ import annotations

from state_backends.columns.column_encoding import encoded_columns as encoded_columns, encoded_order as encoded_order
from state_backends.columns.folds import (
    ColumnFold as ColumnFold,
    CountFold as CountFold,
    LongOverflowError as LongOverflowError,
    MaxFold as MaxFold,
    MinFold as MinFold,
    SumFold as SumFold,
)
from state_backends.columns.grouping import (
    MAX_RECORDS as MAX_RECORDS,
    Grouping as Grouping,
    KeyNumbers as KeyNumbers,
    LongSlots as LongSlots,
    ObjectSlots as ObjectSlots,
    Positions as Positions,
    Slots as Slots,
    Workspace as Workspace,
    group_by_key as group_by_key,
)
from state_backends.columns.keys import (
    KeyColumn as KeyColumn,
    check_key_column as check_key_column,
    is_long_column as is_long_column,
    key_column_type as key_column_type,
    key_groups_of as key_groups_of,
)
