"""The incarnations that are used up when a run starts from the snapshot of another one.

Sinks name their files by incarnation and attempt, and recognise by these names the files of a dead attempt. A run in a
new storage directory would begin with incarnation 1 again: it would take files of the first run for its own, or give
two files one name. So it begins above three incarnations: that in the snapshot, that of the snapshot's storage
directory, and that of the run whose output directory it takes over.
"""

from __future__ import annotations

import os
import posixpath

from engine.cli.runs.directory import REPORT_NAME, read_report
from engine.cli.settings import place
from engine.runtime.storage import SavepointRestore, find_checkpoint
from state_backends.base import CorruptStateError
from state_backends.snapshots import CheckpointStorage


def used_incarnations(start: SavepointRestore | None, output_dir: str, job_name: str) -> int:
    """The highest incarnation of earlier runs, 0 for a run that does not start from a snapshot."""
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
        # The snapshot itself is readable, and only the snapshot was requested.
        return 0


def _of_output(directory: str) -> int:
    return read_report(directory)[1] if os.path.exists(os.path.join(directory, REPORT_NAME)) else 0
