"""Keyed state as sorted rows of bytes: which row holds what (``layout``), the port of stores that keep rows in order,
the upload of a store's files that no earlier checkpoint has (``incremental`` over ``upload_history``), and rows
brought to the present form of their records (``migration``).
"""

from __future__ import annotations

from state_backends.rows.incremental import IncrementalSnapshotStrategy, KeepLocal, shared_files_of
from state_backends.rows.layout import (
    COUNT_BYTES,
    GROUP_BYTES,
    MAX_STATE_ID,
    PART_BYTES,
    Row,
    column,
    encode_block,
    encode_list,
    encode_time,
    encoded_length,
    group_prefix,
    list_column_value,
    occupied_parts,
    part_prefix,
    part_rows,
    scopes,
    successor,
    timer_columns,
)
from state_backends.rows.migration import rewrite_rows
from state_backends.rows.ordered_store import OrderedStore, StoreKind, StoreSnapshot
from state_backends.rows.upload_history import RestoredBase, UploadHistory

__all__ = [
    "COUNT_BYTES",
    "GROUP_BYTES",
    "MAX_STATE_ID",
    "PART_BYTES",
    "IncrementalSnapshotStrategy",
    "KeepLocal",
    "OrderedStore",
    "RestoredBase",
    "Row",
    "StoreKind",
    "StoreSnapshot",
    "UploadHistory",
    "column",
    "encode_block",
    "encode_list",
    "encode_time",
    "encoded_length",
    "group_prefix",
    "list_column_value",
    "occupied_parts",
    "part_prefix",
    "part_rows",
    "rewrite_rows",
    "scopes",
    "shared_files_of",
    "successor",
    "timer_columns",
]
