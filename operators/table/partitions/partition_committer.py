"""Decides which partitions are committed when: the machine of the operator (Flink: ``PartitionCommitter``).

* After every completed checkpoint each writer announces the partitions that got files with it. The trigger gets the
  partitions of a message at once; blank names are skipped.
* When all writers have announced a checkpoint, the trigger decides. Partitions already announced for later checkpoints
  may be committed with it. Every older checkpoint is forgotten: after a lost notification, a writer announces the next
  checkpoint, and never the older number.
* The end of the input has the number ``END_OF_INPUT``: everything is committed.
* Received announcements are not state. After a restore all writers announce again; the watermark starts again, too.
* A message from before a rescale (in flight in the checkpoint) counts only together with messages that have the same
  number of writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from operators.table.partitions.partition_triggers import CommitTrigger

END_OF_INPUT = MAX_TIMESTAMP_MS
"""Stands for a checkpoint in the last announcement of a writer (Flink: ``Long.MAX_VALUE``)."""


class TaskTracker:
    """Counts which tasks have reached which checkpoint (Flink: ``TaskTracker``)."""

    def __init__(self) -> None:
        self._reported: dict[int, tuple[int, dict[int, None]]] = {}

    def add(self, checkpoint_id: int, task: int, number_of_tasks: int) -> bool:
        """``task`` has reached ``checkpoint_id``; returns whether all have. Then it and older ones are forgotten."""
        expected, tasks = self._reported.get(checkpoint_id, (number_of_tasks, {}))
        if expected != number_of_tasks:
            tasks = {}
        tasks[task] = None
        self._reported[checkpoint_id] = number_of_tasks, tasks
        if len(tasks) < number_of_tasks:
            return False
        self._reported = {known: entry for known, entry in self._reported.items() if known > checkpoint_id}
        return True

    def fingerprint(self) -> object:
        return tuple((known, count, tuple(sorted(tasks))) for known, (count, tasks) in sorted(self._reported.items()))


class PartitionCommitter:
    """See the rules of the module. ``trigger`` decides."""

    def __init__(self, trigger: CommitTrigger) -> None:
        self._trigger = trigger
        self._tracker = TaskTracker()
        self._watermark_ms = MIN_TIMESTAMP_MS

    def restore(self, lists: dict[str, list[Any]]) -> None:
        """Continue from the lists of a snapshot."""
        self._trigger.restore(lists)

    def on_watermark(self, watermark_ms: int) -> None:
        """Event time has advanced."""
        self._watermark_ms = max(self._watermark_ms, watermark_ms)

    def on_snapshot(self, checkpoint_id: int) -> dict[str, list[Any]]:
        """The state, by name of list."""
        return self._trigger.snapshot(checkpoint_id, self._watermark_ms)

    def on_message(
        self, checkpoint_id: int, task: int, number_of_tasks: int, partitions: Sequence[str], now_ms: int
    ) -> list[str]:
        """``task`` announces ``partitions``; returns those to commit now.

        Raises :class:`engine.elements.errors.StateError` when all have announced a checkpoint that cannot be judged.
        """
        for partition in partitions:
            if partition.strip():
                self._trigger.add(partition, now_ms)
        if not self._tracker.add(checkpoint_id, task, number_of_tasks):
            return []
        if checkpoint_id == END_OF_INPUT:
            return self._trigger.take_all()
        # By the watermark at the snapshot: later records may belong to the same partition
        # (mutant "judged by the watermark of the completion").
        return self._trigger.take_committable(checkpoint_id, now_ms)

    def fingerprint(self) -> object:
        return self._trigger.fingerprint(), self._tracker.fingerprint(), self._watermark_ms
