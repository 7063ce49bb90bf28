"""Checkpoints and savepoints without their job: ``reader`` shows every entry of keyed state from any backend, compares
two snapshots and writes one in full; ``writer`` makes or changes a savepoint.
"""

from __future__ import annotations

from state_backends.offline.reader import (
    EntryDifference as EntryDifference,
    SnapshotContent as SnapshotContent,
    StateEntry as StateEntry,
    differences as differences,
    keyed_blocks as keyed_blocks,
    keyed_state_names as keyed_state_names,
    operator_elements as operator_elements,
    write_in_full as write_in_full,
)
from state_backends.offline.writer import SnapshotWriter as SnapshotWriter
