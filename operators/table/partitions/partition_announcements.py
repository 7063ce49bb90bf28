"""What a writer tells of its partitions (Flink: ``StreamingFileWriter``): a machine that listens to the buckets.

* A bucket that is created makes its partition *new* and *in progress*, since now; one that becomes inactive makes it
  *committable* and ends its progress. A restored bucket is not created: in Flink its partition is in no progress that
  anybody knows of, and only the rolling policy closes its part. Until then the committer, which had heard of the
  partition before the failure, commits it without the rows of that part. So the writer says which are *resumed*.
* Before a snapshot the parts of those partitions in progress are closed which the predicate would commit now; otherwise
  a part that stays open would keep rows out of a partition that is committed.
* A snapshot books what is new under its id.
* A completed checkpoint has the files committed first, then what is committable or new up to it is announced: also if
  there is nothing, for the committer counts. A partition that is open again by then is announced as new.
* Whatever a lost announcement named is restored as a bucket. One without an open part becomes inactive at once, and is
  announced. One with an open part might never become inactive, if rows keep coming between a snapshot and its
  completion; so what is *resumed* is new, too, and announced with the next checkpoint.
* What a restore has made committable is in no bucket any more when that checkpoint is taken. Nobody would know of it
  after a second failure. So it is state until it is announced; in Flink nothing of this is.
"""

from __future__ import annotations

from collections.abc import Iterable

from operators.table.partitions.partition_triggers import CommitPredicate


class PartitionAnnouncements:
    """Books of one writer. ``predicate``: of the commit trigger, or ``None`` if partitions are not committed.

    The clock is set by whoever drives it, before anything that may open a bucket.
    """

    def __init__(self, predicate: CommitPredicate | None = None) -> None:
        self._predicate = predicate
        self.now_ms = 0
        self._new: dict[str, None] = {}
        self._new_by_checkpoint: dict[int, dict[str, None]] = {}
        self._committable: dict[str, None] = {}
        self._in_progress: dict[str, int] = {}
        """Partition -> since when."""
        self._announced_id = -1

    # --- what the buckets tell ----------------------------------------------------------------------------

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
        """Go on from what was :attr:`committable` in a snapshot."""
        self._committable.update(dict.fromkeys(committable))

    @property
    def committable(self) -> list[str]:
        """The state: what is visible, and waits for a completed checkpoint to be announced."""
        return list(self._committable)

    def to_close(self, watermark_ms: int) -> list[str]:
        """The partitions whose open part is to be closed before a snapshot."""
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
        """The files of ``checkpoint_id`` and of all before are visible: the partitions to announce; ``None`` for a
        notification that is older than the last one."""
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
