"""Snapshots on disk, from the job's point of view. ``checkpoint_files`` begins, completes, discards and finds them;
``storage_directory`` is held by one run at a time. ``shared_files`` handles files that several checkpoints refer to,
``adopted_snapshot`` the snapshot that the job was started from. ``restored_state`` and ``restored_channels`` give the
parts to the subtasks of a plan. ``found_checkpoint`` finds the one that a user's path means. ``local_files`` lie beside
the tasks while they run.
"""

from __future__ import annotations

from engine.runtime.storage.adopted_snapshot import check_claimable as check_claimable
from engine.runtime.storage.checkpoint_files import (
    CheckpointFiles as CheckpointFiles,
    SavepointRestore as SavepointRestore,
    TaskSnapshot as TaskSnapshot,
    unusable_storage as unusable_storage,
)
from engine.runtime.storage.found_checkpoint import (
    FoundCheckpoint as FoundCheckpoint,
    find_checkpoint as find_checkpoint,
    selected_operators as selected_operators,
)
from engine.runtime.storage.local_files import LocalFiles as LocalFiles, local_state_name as local_state_name
from engine.runtime.storage.restored_channels import NOTHING_IN_FLIGHT as NOTHING_IN_FLIGHT
from engine.runtime.storage.restored_state import (
    RestoredJob as RestoredJob,
    RestoredOperator as RestoredOperator,
    take_over_state as take_over_state,
)
from engine.runtime.storage.shared_files import SharedStreams as SharedStreams, check_forms as check_forms
from engine.runtime.storage.storage_directory import open_storage as open_storage
