"""Keyed state as sorted rows of bytes: their meaning (``layout``), the port of stores that keep rows in order, the
upload of a store's new files (``incremental`` over ``upload_history``), and the migration of rows to the present form
of their records (``migration``).
"""

from __future__ import annotations

from state_backends.rows.incremental import (
    IncrementalSnapshotStrategy as IncrementalSnapshotStrategy,
    KeepLocal as KeepLocal,
    shared_files_of as shared_files_of,
)
from state_backends.rows.layout import (
    COUNT_BYTES as COUNT_BYTES,
    GROUP_BYTES as GROUP_BYTES,
    MAX_STATE_ID as MAX_STATE_ID,
    PART_BYTES as PART_BYTES,
    Row as Row,
    encode_block as encode_block,
    encode_list as encode_list,
    encode_time as encode_time,
    encoded_length as encoded_length,
    group_prefix as group_prefix,
    list_column_value as list_column_value,
    occupied_parts as occupied_parts,
    part_prefix as part_prefix,
    part_rows as part_rows,
    scopes as scopes,
    successor as successor,
    timer_columns as timer_columns,
)
from state_backends.rows.migration import rewrite_rows as rewrite_rows
from state_backends.rows.ordered_store import (
    OrderedStore as OrderedStore,
    StoreKind as StoreKind,
    StoreSnapshot as StoreSnapshot,
)
from state_backends.rows.upload_history import RestoredBase as RestoredBase, UploadHistory as UploadHistory
