"""Compaction of small files into large ones. ``compact_coordinator`` and ``compactor`` are the machines;
``file_merging`` merges several files into one; ``file_committer`` commits the files of writers and compaction.
``instance_reconciliation`` finds the files of failed attempts.
"""

from __future__ import annotations

from operators.files.compaction.compact_coordinator import (
    CompactCoordinator as CompactCoordinator,
    CompactionRequest as CompactionRequest,
    CompactionStrategy as CompactionStrategy,
    as_request as as_request,
)
from operators.files.compaction.compactor import REQUEST_STATE as REQUEST_STATE, Compactor as Compactor
from operators.files.compaction.file_committer import (
    COMMITTABLE_SHAPE as COMMITTABLE_SHAPE,
    PENDING as PENDING,
    FileCommittable as FileCommittable,
    FileCommitter as FileCommitter,
    committable_of as committable_of,
    delete as delete,
)
from operators.files.compaction.file_merging import merge_of as merge_of, merged as merged
from operators.files.compaction.instance_reconciliation import (
    INSTANCE_STATE as INSTANCE_STATE,
    RestoredInstances as RestoredInstances,
    compacting_names as compacting_names,
    unique_names as unique_names,
)
