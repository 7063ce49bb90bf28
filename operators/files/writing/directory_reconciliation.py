"""What a restored file sink does about what failed attempts have left in its directory.

Flink leaves it there: hidden files of checkpoints that never completed stay for ever, and a restore from an older
checkpoint, after newer ones had committed files, repeats their records. This step, which comes before anything is
restored, brings the directory back to exactly what the checkpoint covers:

* Hidden files that earlier attempts opened behind the checkpoint are deleted: no checkpoint can commit them any more.
* Visible files that were opened behind the checkpoint, and that a *later* checkpoint has committed, are hidden again:
  their records will be replayed.
* A file that was open in the checkpoint is given to this attempt alone: :mod:`operators.files.writing.open_part_fence`.
* Without any counters no checkpoint of this sink has completed. What is visible then belongs to somebody else, and is
  an error.

Part ``c`` of subtask ``s`` was opened behind the checkpoint if ``c`` is at least the counter of ``s`` in it; in a
bucket that was active then, at least the bucket's own counter, which may be lower. A subtask that is not in the
checkpoint existed before (then ``c`` is below all counters) or later (then above).

The files of subtask ``s`` are looked after by subtask ``s`` modulo the parallelism; a file that was open, by whoever
gets its state.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import Any

from engine.elements.errors import OutputAheadError
from operators.files.writing.bucket import Bucket
from operators.files.writing.open_part_fence import OpenPartFence
from operators.files.writing.recoverable_writer import RecoverableWriter, name_taken
from operators.files.writing.unique_names import attempt_of
from state_backends.base import list_of, path_below, row, whole

PART_COUNTERS = "part-counters"
"""The union list in which subtasks file theirs."""

CounterState = tuple[int, int, list[tuple[str, int]]]
"""Subtask, its greatest counter, and the buckets whose own next counter is lower."""


COUNTER_STATE = row(whole, whole, more=(list_of(row(path_below, whole)),))
"""Its shape. (Checkpoints of older versions do not say which buckets lag.)"""


def counter_state(subtask: int, max_part_counter: int, buckets: Iterable[Bucket]) -> CounterState:
    """What a checkpoint must hold for this step."""
    lagging = [(bucket.id, bucket.next_counter) for bucket in buckets if bucket.next_counter < max_part_counter]
    return subtask, max_part_counter, sorted(lagging)


class RestoredCounters:
    """The counters of all subtasks in a checkpoint."""

    def __init__(self, states: Iterable[Any]) -> None:
        self.by_subtask: dict[int, int] = {}
        self._lagging: dict[tuple[int, str], int] = {}
        # (Checkpoints of older versions do not say which buckets lag.)
        for subtask, counter, *lagging in states:
            self.by_subtask[subtask] = max(counter, self.by_subtask.get(subtask, 0))
            self._lagging.update(((subtask, bucket), lower) for pairs in lagging for bucket, lower in pairs)
        self._greatest = max(self.by_subtask.values(), default=0)

    def opened_behind(self, subtask: int, bucket_id: str, counter: int) -> bool:
        """Whether this part was opened behind the checkpoint."""
        first = self._lagging.get((subtask, bucket_id))
        return counter >= (self.by_subtask.get(subtask, self._greatest) if first is None else first)


class DirectoryReconciliation:
    """Brings the directory of one subtask back to what a checkpoint covers."""

    def __init__(
        self,
        writer: RecoverableWriter,
        prefix: str,
        suffix: str,
        subtask: int,
        parallelism: int,
        attempt: tuple[int, int],
    ) -> None:
        """``attempt``: incarnation and attempt that restores now."""
        self._writer = writer
        self._subtask = subtask
        self._parallelism = parallelism
        self._attempt = attempt
        self._visible = re.compile(rf"{re.escape(prefix)}-(\d+)-(\d+){re.escape(suffix)}")
        self._hidden = re.compile(rf"\.({self._visible.pattern})\.(inprogress|setaside)\.([0-9a-f-]+)")
        self.open_parts = OpenPartFence(writer, attempt)

    def clean_up(self, counters: RestoredCounters) -> None:
        """Delete and hide what was opened behind the checkpoint. Raises ``StorageError`` when the directory holds the
        output of another run."""
        for relative in self._writer.files():
            bucket_id, name = posixpath.split(relative)
            if match := self._visible.fullmatch(name):
                if self._opened_behind(bucket_id, match[1], match[2], counters):
                    if not counters.by_subtask:
                        # Or to this job, whose only checkpoints cannot be read. No restart changes either.
                        raise OutputAheadError(str(name_taken(self._writer.path(relative))))
                    self.open_parts.hide(relative)
            elif match := self._hidden.fullmatch(name):
                opened_in = attempt_of(match[5])
                earlier = opened_in is not None and opened_in < self._attempt
                if earlier and self._opened_behind(bucket_id, match[2], match[3], counters):
                    self._writer.delete(relative)
                elif match[4] == "setaside":
                    self.open_parts.keep(relative, posixpath.join(bucket_id, match[1]))

    def _opened_behind(self, bucket_id: str, subtask: str, counter: str, counters: RestoredCounters) -> bool:
        mine = int(subtask) % self._parallelism == self._subtask
        return mine and counters.opened_behind(int(subtask), bucket_id, int(counter))
