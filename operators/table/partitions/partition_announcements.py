"""The partitions that a writer announces (Flink: ``StreamingFileWriter``): a machine that listens to the buckets.

* A created bucket makes its partition *new* and *in progress*. A bucket that becomes inactive makes it *committable*
  and ends its progress. A restored bucket is not created, so in Flink its partition is not in progress, and only the
  rolling policy closes its part. Until then the committer, which knows the partition from before the failure, commits
  it without the rows of that part. Here the writer reports such partitions as *resumed*.
* Before a snapshot the writer closes the parts of partitions in progress that the predicate would commit now. An open
  part would keep rows out of a committed partition.
* A snapshot books new partitions under its id.
* A completed checkpoint first has its files committed. Then the writer announces the partitions committable or new up
  to it, even if there are none, because the committer counts. A partition that is open again is announced as new.
* If an announcement was lost, its partition is restored as a bucket. Without an open part it becomes inactive at once,
  and is announced. With an open part it might never become inactive, if rows keep coming between a snapshot and its
  completion. So a *resumed* partition is also new, and announced with the next checkpoint.
* A partition that a restore has made committable has no bucket at the next checkpoint. After a second failure it would
  be unknown. So it stays in the state until it is announced; Flink has no such state.
"""

from __future__ import annotations

from collections.abc import Iterable

from operators.table.partitions.partition_triggers import CommitPredicate


class PartitionAnnouncements:
    """The partitions of one writer. ``predicate``: the commit trigger's, or ``None`` if partitions are not committed.

    The caller sets the clock before any call that may open a bucket.
    """

    def __init__(self, predicate: CommitPredicate | None = None) -> None:
        self._predicate = predicate
        self.now_ms = 0
        self._new: dict[str, None] = {}
        self._new_by_checkpoint: dict[int, dict[str, None]] = {}
        self._committable: dict[str, None] = {}
        self._in_progress: dict[str, int] = {}
        """Partition -> the time since when it is in progress."""
        self._announced_id = -1

    # --- events of the buckets ----------------------------------------------------------------------------

    def bucket_created(self, bucket_id: str) -> None:
        """See ``BucketsListener``. The first time counts."""
        self._new[bucket_id] = None
        self._in_progress.setdefault(bucket_id, self.now_ms)

    def bucket_inactive(self, bucket_id: str) -> None:
        self._committable[bucket_id] = None
        self._in_progress.pop(bucket_id, None)

    def resumed(self, bucket_id: str, since_ms: int) -> None:
        """A bucket was restored with an open part, which was created at ``since_ms``."""
        self._new[bucket_id] = None
        self._in_progress[bucket_id] = since_ms

    def part_opened(self, bucket_id: str, target: str) -> None:
        """See ``BucketsListener``: partitions are announced, not parts."""

    # --- checkpoints --------------------------------------------------------------------------------------

    def restore(self, committable: Iterable[str]) -> None:
        """Continue from :attr:`committable` of a snapshot."""
        self._committable.update(dict.fromkeys(committable))

    @property
    def committable(self) -> list[str]:
        """The state: partitions that are visible, and wait for a completed checkpoint to be announced."""
        return list(self._committable)

    def to_close(self, watermark_ms: int) -> list[str]:
        """The partitions whose open part must be closed before a snapshot."""
        predicate, now_ms = self._predicate, self.now_ms
        if predicate is None:
            return []
        return [
            partition
            for partition, created_ms in self._in_progress.items()
            if predicate.is_committable(partition, created_ms, now_ms, watermark_ms)
        ]

    def on_snapshot(self, checkpoint_id: int) -> None:
        """A snapshot is taken."""
        self._new_by_checkpoint[checkpoint_id] = self._new
        self._new = {}

    def on_committed(self, checkpoint_id: int) -> list[str] | None:
        """The files of ``checkpoint_id`` and of all before are visible. Returns the partitions to announce; ``None``
        for a notification older than the last one."""
        if checkpoint_id <= self._announced_id:
            return None
        self._announced_id = checkpoint_id
        announced, self._committable = self._committable, {}
        # Of older checkpoints too, whose notification was lost (mutant "only the newest checkpoint announced").
        for known in sorted(known for known in self._new_by_checkpoint if known <= checkpoint_id):
            announced |= self._new_by_checkpoint.pop(known)
        return list(announced)

    def fingerprint(self) -> object:
        return (
            tuple(self._new),
            tuple((known, tuple(new)) for known, new in sorted(self._new_by_checkpoint.items())),
            tuple(self._committable),
            tuple(self._in_progress),
            self._announced_id,
        )
