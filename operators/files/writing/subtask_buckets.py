"""All buckets of one subtask of a file sink (Flink: ``Buckets``), exactly as Flink has them.

Rules beyond those of one bucket:

* The greatest part counter of the subtask is one element of a **union** list: after a restore, every subtask starts at
  the greatest of all. Buckets are ordinary list state, one element for each.
* The first record for a bucket creates it. The bucket is dropped when, after a confirmation, it has no open part and
  no file that waits to be committed.
* A restored bucket without an open part is committed, reported inactive, and not kept. Restored buckets of one id are
  merged in the order of the list.
* If another operator commits (Flink: ``FileWriter``), a bucket without an open part or files to hand out is dropped.
  This happens one checkpoint after it became empty, so a bucket that gets records in every checkpoint is not created
  again each time.
* Closing does not publish. The files of failed attempts are not examined: hidden files of checkpoints that never
  completed stay, and their part numbers are used again. (The file sink cleans up: see
  :mod:`operators.files.writing.directory_reconciliation`.)

A batch is divided among buckets so that every part gets the same number, and is cut at the same record, as if the
records came one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from operators.files.writing.bucket import Bucket, BucketsListener, BucketState, PartNames, PartSettings
from operators.files.writing.part_files import PartEncoder, Rows, positions
from operators.files.writing.recoverable_writer import PendingFile, RecoverableWriter, ResumeHandle
from operators.files.writing.rolling_policies import EventRule, RollingPolicy, check_rolling_policy


class Buckets:
    """The buckets of one subtask.

    ``encoder``   the format's; rows given to :meth:`write` were encoded by it;
    ``names``     of parts;
    ``listener``  is notified about buckets and parts;
    ``unique``    gives each instance of a bucket its own name instead of the subtask's. Pending files are then handed
                  out, and another operator commits them.
    """

    def __init__(
        self,
        writer: RecoverableWriter,
        encoder: PartEncoder,
        policy: RollingPolicy,
        names: PartNames,
        listener: BucketsListener | None = None,
        unique: Callable[[], str] | None = None,
    ) -> None:
        check_rolling_policy(policy, bulk=encoder.is_bulk)
        rule = EventRule(policy)
        self._settings = PartSettings(writer, encoder, policy, rule, listener)
        self.shows_records = not rule.never and rule.size_limit_bytes is None
        """Whether the policy is asked about each record."""
        self._names = names
        self._listener = listener
        self._unique = unique
        self.active: dict[str, Bucket] = {}
        self.max_part_counter = 0

    def _bucket(self, bucket_id: str) -> Bucket:
        if self._unique is None:
            return Bucket(bucket_id, self._names, self.max_part_counter, self._settings)
        return Bucket(bucket_id, self._names._replace(owner=self._unique()), 0, self._settings)

    # --- restore ------------------------------------------------------------------------------------------

    def initialize(self, states: Iterable[BucketState], counters: Iterable[int] = ()) -> list[str]:
        """Take over the states assigned to this subtask, and the counters of *all* subtasks.

        Returns the final names of files in them that are neither pending nor committed. Raises ``StorageError`` when
        one cannot be resumed or committed.
        """
        # The highest of all subtasks, whose parts this one may now own: no name is used twice
        # (mutant "part counter lost").
        self.max_part_counter = max(counters, default=0)
        gone: list[str] = []
        for state in states:
            bucket = self._bucket(state.bucket_id)
            if self._unique is None:
                gone += bucket.restore(state)
            else:
                bucket.take_over(state)
            known = self.active.get(bucket.id)
            if self._unique is None and not bucket.is_active:
                self._report_inactive(bucket)
            elif known is None:
                self.active[bucket.id] = bucket
            else:
                known.merge(bucket)
        return gone

    # --- records ------------------------------------------------------------------------------------------

    def write(self, bucket_id: str, rows: Rows, records: list[Any] | None, now_ms: int) -> None:
        """Write rows to one bucket. ``records``: their records, needed if the policy is asked about each."""
        bucket = self.active.get(bucket_id)
        if bucket is None:
            bucket = self.active[bucket_id] = self._bucket(bucket_id)
            if self._listener is not None:
                self._listener.bucket_created(bucket_id)
        bucket.write(rows, len(rows), records, now_ms)
        if self._unique is None:
            self.max_part_counter = max(self.max_part_counter, bucket.next_counter)

    def write_each(self, bucket_ids: Sequence[str], rows: Rows, records: list[Any] | None, now_ms: int) -> None:
        """Write each row to its bucket."""
        assert len(bucket_ids) == len(rows), (len(bucket_ids), len(rows))
        if self._unique is not None or self._settings.event_rule.never:
            self._write_between(0, len(bucket_ids), bucket_ids, rows, records, now_ms)
            return
        new = [one for one in dict.fromkeys(bucket_ids) if one not in self.active]
        # A new bucket starts at the present greatest counter, which grows when other parts roll before it.
        cuts = sorted(first for first in map(bucket_ids.index, new) if first)
        for start, stop in pairwise([0, *cuts, len(bucket_ids)]):
            self._write_between(start, stop, bucket_ids, rows, records, now_ms)

    def _write_between(
        self, start: int, stop: int, bucket_ids: Sequence[str], rows: Rows, records: list[Any] | None, now_ms: int
    ) -> None:
        encoder = self._settings.encoder
        if records is None:
            for bucket_id, group in encoder.group(rows, bucket_ids, start, stop).items():
                self.write(bucket_id, group, None, now_ms)
            return
        for bucket_id, found in positions(bucket_ids, start, stop).items():
            self.write(bucket_id, encoder.select(rows, found), list(map(records.__getitem__, found)), now_ms)

    def on_processing_time(self, now_ms: int) -> None:
        """The periodic check: the policy is asked about every open part."""
        for bucket in self.active.values():
            bucket.on_processing_time(now_ms)

    def close_part(self, bucket_id: str) -> None:
        """Close the open part of a bucket, if it has one, regardless of the policy."""
        if bucket_id in self.active:
            self.active[bucket_id].close_part()

    def close_all_parts(self) -> None:
        """Close every open part: no records follow."""
        for _, bucket in sorted(self.active.items()):
            bucket.close_part()

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> list[BucketState]:
        """The state of every bucket, sorted by id. Files in it are durable; their names are once the writer has synced
        its directories."""
        return [bucket.on_snapshot(checkpoint_id) for _, bucket in sorted(self.active.items())]

    def counters(self, subtask: int) -> tuple[int, int, list[tuple[str, int]]]:
        """The subtask, its greatest counter, and the buckets whose own next counter is lower."""
        greatest = self.max_part_counter
        lagging = [(one.id, one.next_counter) for one in self.active.values() if one.next_counter < greatest]
        return subtask, greatest, sorted(lagging)

    def hand_out(self, *, flush: bool) -> list[tuple[str, PendingFile | ResumeHandle]]:
        """Bucket and file of all files that another operator commits or cleans up with the next checkpoint. Files are
        durable; their names are once the writer has synced its directories."""
        self.active = {bucket_id: bucket for bucket_id, bucket in self.active.items() if bucket.is_active}
        # All closed files: no other operator knows of them (mutant "last file not handed out").
        return [(bucket_id, one) for bucket_id, bucket in sorted(self.active.items()) for one in bucket.hand_out(flush)]

    def persist(self) -> list[BucketState]:
        """The state of every bucket, after everything pending was handed out."""
        return [bucket.persist() for _, bucket in sorted(self.active.items())]

    def commit_up_to(self, checkpoint_id: int) -> None:
        """Checkpoint ``checkpoint_id`` has completed: make its files and those of all before it visible.

        Raises ``StorageError``.
        """
        for bucket_id, bucket in sorted(self.active.items()):
            bucket.on_confirmed(checkpoint_id)
            if not bucket.is_active:
                del self.active[bucket_id]
                self._report_inactive(bucket)

    def commit_now(self) -> None:
        """Close every part and commit all files: there are no checkpoints, and no records follow."""
        writer = self._settings.writer
        self.close_all_parts()
        for bucket_id, bucket in sorted(self.active.items()):
            for file in bucket.pending:
                writer.commit(file)
            del self.active[bucket_id]
            self._report_inactive(bucket)

    def _report_inactive(self, bucket: Bucket) -> None:
        if self._listener is not None:
            self._listener.bucket_inactive(bucket.id)

    def close(self) -> None:
        """Close open parts as streams. Nothing is renamed or deleted."""
        for bucket in self.active.values():
            bucket.dispose()

    def fingerprint(self) -> object:
        return self.max_part_counter, tuple(bucket.fingerprint() for _, bucket in sorted(self.active.items()))
