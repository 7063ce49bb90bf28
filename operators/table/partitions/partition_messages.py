"""The messages between writers, compaction and the committer of partitions: plain tuples, because they may be in flight
in an unaligned checkpoint. The first element is the kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ANNOUNCEMENT, FILE, END_OF_CHECKPOINT, UNIT, END_MARKER = "announcement", "file", "end-of-checkpoint", "unit", "end"

Message = tuple[Any, ...]


def announcement(checkpoint_id: int, task: int, number_of_tasks: int, partitions: Sequence[str]) -> Message:
    """``task`` has made its files of ``checkpoint_id`` visible; they are in ``partitions``."""
    return ANNOUNCEMENT, checkpoint_id, task, number_of_tasks, list(partitions)


def written_file(checkpoint_id: int, task: int, partition: str, name: str, size_bytes: int) -> Message:
    """``task`` has closed a file that ``checkpoint_id`` covers."""
    return FILE, checkpoint_id, task, partition, name, size_bytes


def end_of_checkpoint(checkpoint_id: int, task: int, number_of_tasks: int) -> Message:
    """``task`` has committed all files of ``checkpoint_id`` that it has announced."""
    return END_OF_CHECKPOINT, checkpoint_id, task, number_of_tasks


def unit(unit_id: int, partition: str, names: Sequence[str]) -> Message:
    """These files become one."""
    return UNIT, unit_id, partition, list(names)


def end_marker(checkpoint_id: int, announced_id: int) -> Message:
    """All units of ``checkpoint_id`` have been sent, on behalf of the completed ``announced_id``."""
    return END_MARKER, checkpoint_id, announced_id
