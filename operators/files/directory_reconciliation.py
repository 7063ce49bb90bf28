"""What a restored file sink does about what failed attempts have left in its directory.

Flink leaves it there: hidden files of checkpoints that never completed stay for ever, and a restore from an older
checkpoint, after newer ones had committed files, repeats their records. This step, which comes before anything is
restored, brings the directory back to exactly what the checkpoint covers:

* Hidden files that earlier attempts opened behind the checkpoint are deleted: no checkpoint can commit them any more.
* Visible files that were opened behind the checkpoint, and that a *later* checkpoint has committed, are hidden again:
  their records will be replayed.
* A file that was open in the checkpoint, and that a later one has committed, is taken back under its hidden name; the
  restore cuts it to its length in the checkpoint, and goes on.
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

from operators.files.bucket import Bucket, BucketState
from operators.files.recoverable_writer import RecoverableWriter, name_taken
from operators.files.unique_names import attempt_of

CounterState = tuple[int, int, list[tuple[str, int]]]
"""Subtask, its greatest counter, and the buckets whose own next counter is lower."""


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
        self._hidden = re.compile(rf"\.{self._visible.pattern}\.inprogress\.([0-9a-f-]+)")
        self.retracted = 0
        """How many visible files were taken out of sight."""

    def clean_up(self, counters: RestoredCounters) -> None:
        """Delete and hide what was opened behind the checkpoint. Raises ``StorageError`` when the directory holds the
        output of another run."""
        for relative in self._writer.files():
            bucket_id, name = posixpath.split(relative)
            if match := self._visible.fullmatch(name):
                if self._opened_behind(bucket_id, match, counters):
                    if not counters.by_subtask:
                        raise name_taken(self._writer.path(relative))
                    self._hide(bucket_id, name)
            elif match := self._hidden.fullmatch(name):
                opened_in = attempt_of(match[3])
                earlier = opened_in is not None and opened_in < self._attempt
                if earlier and self._opened_behind(bucket_id, match, counters):
                    self._writer.delete(relative)

    def _opened_behind(self, bucket_id: str, match: re.Match[str], counters: RestoredCounters) -> bool:
        subtask, counter = int(match[1]), int(match[2])
        mine = subtask % self._parallelism == self._subtask
        return mine and counters.opened_behind(subtask, bucket_id, counter)

    def _hide(self, bucket_id: str, name: str) -> None:
        incarnation, attempt = self._attempt
        hidden = f".{name}.retracted.{incarnation}-{attempt}"
        self._writer.rename(posixpath.join(bucket_id, name), posixpath.join(bucket_id, hidden))
        self.retracted += 1

    def take_back(self, states: Iterable[BucketState]) -> None:
        """Give files that were open in the checkpoint, and are visible now, their hidden names again."""
        writer = self._writer
        for state in states:
            if state.in_progress is not None:
                temporary, target, _, _ = state.in_progress
                if not writer.exists(temporary) and writer.exists(target):
                    writer.rename(target, temporary)
                    self.retracted += 1
