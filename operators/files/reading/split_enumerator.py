"""The enumerator of a file source: assigns splits to readers, and remembers the files seen. A pure machine.

Rules (Flink: ``StaticFileSplitEnumerator``, ``ContinuousFileSplitEnumerator``)
-------------------------------------------------------------------------------
* Splits are pulled: a reader gets one only when it asks for one.
* Bounded: a request of a reader that is not registered is ignored. A request that finds no split left is answered with
  *no more splits*.
* Continuous: a request waits, one per reader, in the order of the first requests. Requests and discovery passes serve
  the waiting readers; readers that are gone by then are skipped and forgotten.
* Continuous: a split is taken if its **path** was never seen; the paths of the first enumeration are seen. So only the
  first split of a file found later is taken, and the discovery must not cut such a file. A file that changes is not
  read again.
* Splits that come back from a reader are added at the end. This alone does not serve a reader; :meth:`serve` does.
* The checkpoint holds the unassigned splits, and the paths that were seen if the enumerator is continuous. Assigned and
  unfinished splits are in the checkpoints of the readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from operators.files.reading.splits import FileSourceSplit


class Assign(NamedTuple):
    """Send a split to a reader."""

    reader: int
    split: FileSourceSplit


class NoMoreSplits(NamedTuple):
    """Tell a reader that it will never get another split."""

    reader: int


Instruction = Assign | NoMoreSplits


class PendingSplits(NamedTuple):
    """A checkpoint of an enumerator (Flink: ``PendingSplitsCheckpoint``). ``paths``: ``None`` if it is bounded."""

    splits: tuple[FileSourceSplit, ...]
    paths: tuple[str, ...] | None


LIFO, FIFO = "lifo", "fifo"
ORDERS = (LIFO, FIFO)
"""The orders of assignment, by the names that users choose them by."""


class SplitAssigner:
    """Keeps the splits that no reader has. It hands out first the split added last (Flink: ``SimpleSplitAssigner``), or
    with ``fifo`` the one added first: files in the order of their paths, then later ones. There is no locality: every
    reader has the same claim to a split."""

    def __init__(self, order: str = LIFO) -> None:
        self._splits: deque[FileSourceSplit] = deque()
        self._order = order

    def next_split(self) -> FileSourceSplit | None:
        """Remove and return the next split to hand out; ``None`` when there is none."""
        if not self._splits:
            return None
        return self._splits.pop() if self._order == LIFO else self._splits.popleft()

    def add_splits(self, splits: Iterable[FileSourceSplit]) -> None:
        """Take new splits, or splits that came back from a reader."""
        self._splits.extend(splits)

    def remaining(self) -> list[FileSourceSplit]:
        """All splits, in the order in which they were added, for :meth:`add_splits` of another assigner."""
        return list(self._splits)


class FileSplitEnumerator:
    """Hands out its initial splits; a continuous enumerator also hands out splits of later files.

    ``seen``  paths whose further splits are ignored, besides those of ``splits``; ``None``: bounded.
    """

    def __init__(
        self,
        splits: Iterable[FileSourceSplit],
        seen: Iterable[str] | None = None,
        assigner: SplitAssigner | None = None,
    ) -> None:
        self._assigner = SplitAssigner() if assigner is None else assigner
        first = list(splits)
        self._assigner.add_splits(first)
        self._seen = None if seen is None else dict.fromkeys([*seen, *(split.path for split in first)])
        self._readers: dict[int, None] = {}
        self._waiting: dict[int, None] = {}

    def register_reader(self, reader: int) -> None:
        """A reader has started."""
        self._readers[reader] = None

    def unregister_reader(self, reader: int) -> None:
        """A reader is gone. Its waiting request will be skipped."""
        self._readers.pop(reader, None)

    def request_split(self, reader: int) -> list[Instruction]:
        """A reader asks for a split; in a continuous source it waits until there is one."""
        if self._seen is not None:
            self._waiting[reader] = None
            return self.serve()
        if reader not in self._readers:
            return []
        split = self._assigner.next_split()
        return [NoMoreSplits(reader) if split is None else Assign(reader, split)]

    def add_splits_back(self, splits: Iterable[FileSourceSplit]) -> None:
        """Add back the splits of a reader that has failed."""
        self._assigner.add_splits(splits)

    def discover(self, splits: Iterable[FileSourceSplit]) -> list[Instruction]:
        """Take the splits that a discovery pass has found. (Bounded sources have no such pass; its result would be
        ignored.)"""
        if self._seen is not None:
            for split in splits:
                if split.path not in self._seen:
                    self._seen[split.path] = None
                    self._assigner.add_splits([split])
        return self.serve()

    def serve(self) -> list[Instruction]:
        """Give the available splits to waiting readers."""
        served: list[Instruction] = []
        for reader in list(self._waiting):
            if reader in self._readers:
                split = self._assigner.next_split()
                if split is None:
                    break
                served.append(Assign(reader, split))
            del self._waiting[reader]
        return served

    def snapshot(self) -> PendingSplits:
        """The unassigned splits, and all paths that were seen."""
        return PendingSplits(tuple(self._assigner.remaining()), None if self._seen is None else tuple(self._seen))

    def fingerprint(self) -> object:
        remaining, readers = tuple(self._assigner.remaining()), tuple(self._readers)
        return (
            (remaining, readers)
            if self._seen is None
            else (remaining, tuple(self._seen), readers, tuple(self._waiting))
        )


class AssignmentTracker:
    """Remembers the splits assigned since each checkpoint, to take them back when a reader goes back to a checkpoint
    (Flink: ``SplitAssignmentTracker``)."""

    def __init__(self) -> None:
        self._epoch = 0
        self._assigned: dict[int, list[tuple[int, FileSourceSplit]]] = {}

    def assigned(self, reader: int, split: FileSourceSplit) -> None:
        """A split was sent to a reader."""
        self._assigned.setdefault(reader, []).append((self._epoch, split))

    def checkpoint(self, checkpoint_id: int) -> None:
        """Splits assigned from now on are in no checkpoint up to this one."""
        self._epoch = checkpoint_id

    def completed(self, checkpoint_id: int) -> None:
        """Splits assigned before this checkpoint are in the state of a reader for good."""
        for reader, assigned in list(self._assigned.items()):
            kept = [one for one in assigned if one[0] >= checkpoint_id]
            if kept:
                self._assigned[reader] = kept
            else:
                del self._assigned[reader]

    def take_back(self, reader: int, checkpoint_id: int | None) -> list[FileSourceSplit]:
        """The splits that a reader loses by going back to a checkpoint or its beginning, in the order of assignment."""
        assigned = self._assigned.get(reader, [])
        lost = [one for one in assigned if checkpoint_id is None or one[0] >= checkpoint_id]
        kept = assigned[: len(assigned) - len(lost)]
        if kept:
            self._assigned[reader] = kept
        else:
            self._assigned.pop(reader, None)
        return [split for _, split in lost]

    def fingerprint(self) -> object:
        return (self._epoch, tuple((reader, tuple(splits)) for reader, splits in self._assigned.items()))
