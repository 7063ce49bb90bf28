"""Small files made into large ones: ``compact_coordinator`` and ``compactor`` are the machines, ``file_merging``
makes one file of several, ``file_committer`` commits what writers and compaction hand on, ``instance_reconciliation``
tells which files failed attempts have left. ``bin_packing`` is how tables choose.
"""

from __future__ import annotations

from operators.files.compaction.bin_packing import pack
from operators.files.compaction.compact_coordinator import (
    CompactCoordinator,
    CompactionRequest,
    CompactionStrategy,
    as_request,
)
from operators.files.compaction.compactor import REQUEST_STATE, Compactor
from operators.files.compaction.file_committer import (
    COMMITTABLE_SHAPE,
    PENDING,
    FileCommittable,
    FileCommitter,
    committable_of,
    delete,
)
from operators.files.compaction.file_merging import merge_of, merged
from operators.files.compaction.instance_reconciliation import (
    INSTANCE_STATE,
    RestoredInstances,
    compacting_names,
    unique_names,
)

__all__ = [
    "COMMITTABLE_SHAPE",
    "CompactCoordinator",
    "CompactionRequest",
    "CompactionStrategy",
    "Compactor",
    "FileCommittable",
    "FileCommitter",
    "INSTANCE_STATE",
    "PENDING",
    "REQUEST_STATE",
    "RestoredInstances",
    "as_request",
    "committable_of",
    "compacting_names",
    "delete",
    "merge_of",
    "merged",
    "pack",
    "unique_names",
]
