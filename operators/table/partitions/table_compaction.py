"""Compaction of the small files of a table: the machines (Flink: ``TableCompactCoordinator``, ``CompactOperator``).

* Writers close all parts at every checkpoint and commit them as ``.uncompacted-{name}``, which readers do not see.
* One coordinator gathers the files by their checkpoint, which is in the message: without alignment, files of a later
  checkpoint could come early. When all writers have committed a checkpoint, the coordinator packs its files and those
  of older ones, oldest first: per checkpoint and partition into bins of the target size (:func:`pack`). Each bin is a
  *unit*. Units are numbered from 0 in each checkpoint, across partitions. After them comes an end marker.
* Every compactor gets all units; number *u* is for subtask *u* modulo the parallelism.
* A unit becomes ``compacted-{name}``, after its first file. If that file exists, the unit was compacted before a
  failure. This requires that a unit consists of the same files again. So files are packed writer by writer, in each
  writer's order, because in-flight messages of an unaligned checkpoint may come in another order. And the state of each
  checkpoint contains its target size: a new target size applies only to later checkpoints.
* At the end marker a compactor announces the partitions of its units, as writers do without compaction. A checkpoint
  that never completed is not announced: its partitions are announced with the next completed one.
* The files of a unit are deleted when a later checkpoint has completed; after the end of the input at once, because
  there may be no further one.
* Files that the coordinator got after the restored checkpoint are forgotten: their writers resume at that checkpoint.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from operators.table.partitions.partition_committer import END_OF_INPUT, TaskTracker
from state_backends.base import list_of, path_below, positive, row, whole

UNCOMPACTED_PREFIX, COMPACTED_PREFIX = ".uncompacted-", "compacted-"

LOOK_BACK = 10
"""How many bins are open at most."""

Item = TypeVar("Item")


def pack(items: Iterable[Item], target: int, weight: Callable[[Item], int]) -> list[list[Item]]:
    """Packs ``items`` into bins that weigh ``target`` at most (Flink: ``BinPacking``): first fit, bounded look back.

    Each item goes to the first open bin in which it still fits. If there is none, it opens a new bin, even if it alone
    is heavier than ``target``. When more than ``LOOK_BACK`` bins are open, the oldest is closed.
    """
    bins: list[list[Item]] = []
    weights: list[int] = []
    first_open = 0
    for item in items:
        heavy = weight(item)
        for position in range(first_open, len(bins)):
            if weights[position] + heavy <= target:
                bins[position].append(item)
                weights[position] += heavy
                break
        else:
            bins.append([item])
            weights.append(heavy)
            if len(bins) - first_open > LOOK_BACK:
                first_open += 1
    return bins


class WrittenFile(NamedTuple):
    """A file that writer ``task`` has closed. ``name`` is relative to the directory of ``partition``."""

    task: int
    partition: str
    name: str
    size_bytes: int


class CompactionUnit(NamedTuple):
    """Files of one partition that are merged into one."""

    unit_id: int
    partition: str
    names: tuple[str, ...]

    @property
    def target(self) -> str:
        """The name of the merged file."""
        return compacted_name(self.names[0])


class CompactedCheckpoint(NamedTuple):
    """The units of one checkpoint; ``announced_id``: the completed checkpoint that requested them."""

    checkpoint_id: int
    announced_id: int
    units: tuple[CompactionUnit, ...]


def compacted_name(name: str) -> str:
    """The name of the compacted file of a unit with this first file."""
    return COMPACTED_PREFIX + name.removeprefix(UNCOMPACTED_PREFIX)


class TableCompactCoordinator:
    """Decides which files are compacted together. See the rules of the module."""

    def __init__(self, target_size_bytes: int) -> None:
        self._target_bytes = target_size_bytes
        self._files: dict[int, tuple[int, list[WrittenFile]]] = {}
        """By checkpoint: the target size, and the files."""
        self._tracker = TaskTracker()

    def on_file(self, checkpoint_id: int, file: WrittenFile) -> None:
        """A writer has closed ``file`` for ``checkpoint_id``."""
        self._booked(checkpoint_id).append(file)

    def _booked(self, checkpoint_id: int) -> list[WrittenFile]:
        return self._files.setdefault(checkpoint_id, (self._target_bytes, []))[1]

    def on_end_of_checkpoint(
        self, checkpoint_id: int, task: int, number_of_tasks: int
    ) -> tuple[CompactedCheckpoint, ...]:
        """A writer has committed its files of ``checkpoint_id``; returns what must be compacted now."""
        if not self._tracker.add(checkpoint_id, task, number_of_tasks):
            return ()
        # End markers are counted, so every checkpoint needs one, even without files.
        self._booked(checkpoint_id)
        due = sorted(known for known in self._files if known <= checkpoint_id)
        return tuple(CompactedCheckpoint(known, checkpoint_id, _units(*self._files.pop(known))) for known in due)

    def on_snapshot(self, checkpoint_id: int) -> list[tuple[int, int, list[tuple[int, str, str, int]]]]:
        """The state: ``(checkpoint, target size, files)`` of everything not compacted yet."""
        self._booked(checkpoint_id)
        return [
            (known, target_bytes, [(task, partition, name, size_bytes) for task, partition, name, size_bytes in files])
            for known, (target_bytes, files) in sorted(self._files.items())
        ]

    def restore(self, elements: Sequence[Any], checkpoint_id: int | None) -> None:
        """Continue from ``elements`` of the state of ``checkpoint_id``."""
        self._files = {
            known: (target_bytes, [WrittenFile(*file) for file in files])
            for known, target_bytes, files in elements
            if checkpoint_id is None or known <= checkpoint_id
        }

    def fingerprint(self) -> object:
        return repr(sorted(self._files.items())), self._tracker.fingerprint()


def _units(target_bytes: int, files: list[WrittenFile]) -> tuple[CompactionUnit, ...]:
    by_partition: dict[str, list[WrittenFile]] = {}
    for file in sorted(dict.fromkeys(files), key=lambda one: one.task):
        by_partition.setdefault(file.partition, []).append(file)
    bins = [
        (partition, packed)
        for partition, members in by_partition.items()
        for packed in pack(members, target_bytes, lambda member: member.size_bytes)
    ]
    return tuple(
        CompactionUnit(number, partition, tuple(file.name for file in packed))
        for number, (partition, packed) in enumerate(bins)
    )


FILES_TO_COMPACT = row(whole, positive, list_of(row(whole, path_below, path_below, whole)))
COMPACTED_FILES = row(whole, list_of(path_below))
"""The shapes of an element of the coordinator's state, and of a compactor's."""


class TableCompactor:
    """The memory of one subtask of the compactors. See the rules of the module."""

    def __init__(self, subtask: int, parallelism: int) -> None:
        self._subtask = subtask
        self._parallelism = parallelism
        self._partitions: dict[str, None] = {}
        """Partitions that are not announced yet."""
        self._expired: list[str] = []
        """Files compacted since the last snapshot."""
        self._expired_by_checkpoint: dict[int, list[str]] = {}

    def selects(self, unit_id: int) -> bool:
        """Whether a unit is for this subtask."""
        return unit_id % self._parallelism == self._subtask

    def on_compacted(self, unit: CompactionUnit) -> None:
        """``unit`` is compacted: its files are not needed any more."""
        self._partitions[unit.partition] = None
        self._expired += [posixpath.join(unit.partition, name) for name in unit.names]

    def on_end_marker(self, checkpoint_id: int, announced_id: int) -> list[str] | None:
        """All units of ``checkpoint_id`` have come: the partitions to announce for it, or ``None`` if it must not be
        announced."""
        if checkpoint_id != announced_id:
            return None
        announced, self._partitions = list(self._partitions), {}
        return announced

    def on_snapshot(self, checkpoint_id: int) -> list[tuple[int, list[str]]]:
        """The state: files to delete, by the checkpoint that must be complete."""
        if self._expired:
            self._expired_by_checkpoint[checkpoint_id] = self._expired
            self._expired = []
        return sorted(self._expired_by_checkpoint.items())

    def restore(self, elements: Sequence[Any]) -> None:
        """Continue from ``elements`` of the state; of several subtasks, after a rescale."""
        for known, files in elements:
            self._expired_by_checkpoint.setdefault(known, []).extend(files)

    def take_expired(self, checkpoint_id: int) -> list[str]:
        """``checkpoint_id`` is complete: the files to delete."""
        due = sorted(known for known in self._expired_by_checkpoint if known <= checkpoint_id)
        return [file for known in due for file in self._expired_by_checkpoint.pop(known)]

    def take_all_expired(self) -> list[str]:
        """No checkpoint may follow: the files to delete."""
        expired, self._expired = self._expired, []
        return self.take_expired(END_OF_INPUT) + expired

    def fingerprint(self) -> object:
        return tuple(self._partitions), tuple(self._expired), repr(sorted(self._expired_by_checkpoint.items()))
