"""Which incarnations are used up when a run goes on from the snapshot of another one.

Sinks name their files by incarnation and attempt, and tell by these names what a dead attempt has left. A run in a new
storage directory would begin with incarnation 1 again: it would take files of the first run for its own, or give two
files one name. So it begins behind the incarnation in the snapshot, that of the storage directory in which the snapshot
lies, and that of the run of whose output directory it takes possession.
"""

from __future__ import annotations

import os
import posixpath

from engine.cli.inspection import find_checkpoint
from engine.cli.runs.directory import REPORT_NAME, read_report
from engine.cli.settings import place
from engine.runtime.storage import SavepointRestore
from state_backends.base import CorruptStateError
from state_backends.snapshots import CheckpointStorage


def used_incarnations(start: SavepointRestore | None, output_dir: str, job_name: str) -> int:
    """The highest incarnation that runs before this one have had, 0 for a run that goes on from nothing."""
    if start is None:
        return 0
    found = find_checkpoint(*place(start.path))
    used = [found.location().read_metadata().incarnation, _of_output(output_dir)]
    if found.job_dir is not None:
        storage = CheckpointStorage(found.file_system, posixpath.dirname(found.job_dir), job_name)
        if storage.job_dir == found.job_dir:
            used.append(_of_storage(storage))
    return max(used)


def _of_storage(storage: CheckpointStorage) -> int:
    try:
        return storage.incarnation()
    except CorruptStateError:
        # The snapshot can be read, and it is the snapshot that was asked for.
        return 0


def _of_output(directory: str) -> int:
    return read_report(directory)[1] if os.path.exists(os.path.join(directory, REPORT_NAME)) else 0
