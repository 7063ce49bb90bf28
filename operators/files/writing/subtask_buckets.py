"""All buckets of one subtask of a file sink (Flink: ``Buckets``), exactly as Flink has them.

Rules beyond those of one bucket:

* The greatest part counter of the subtask is one element of a **union** list: after a restore, every subtask starts at
  the greatest of all. Buckets are ordinary list state, one element for each.
* A bucket is created when a record comes for it. It is dropped when, after a confirmation, nothing in it is open or
  waits to be committed.
* A restored bucket in which nothing is open is committed and reported inactive, and not kept. Restored buckets of one
  id are merged in the order of the list.
* Closing publishes nothing. What a failed attempt has left behind is not looked at: hidden files of checkpoints that
  never completed stay, and their part numbers are used again. (The file sink cleans up: see
  :mod:`operators.files.writing.directory_reconciliation`.)

A batch is divided among buckets so that every part gets the number, and is cut at the record, that it would get if the
records came one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from operators.files.writing.bucket import Bucket, BucketsListener, BucketState, PartNames, PartSettings
from operators.files.writing.part_files import PartEncoder, Rows, positions
from operators.files.writing.recoverable_writer import RecoverableWriter
from operators.files.writing.rolling_policies import RollingPolicy, check_rolling_policy


class Buckets:
    """The buckets of one subtask.

    ``encoder``   the format's; rows given to :meth:`write` were encoded by it;
    ``listener``  is told what becomes of buckets and parts.
    """

    def __init__(
        self,
        writer: RecoverableWriter,
        encoder: PartEncoder,
        policy: RollingPolicy,
        names: PartNames,
        listener: BucketsListener | None = None,
    ) -> None:
        check_rolling_policy(policy, bulk=encoder.is_bulk)
        self._settings = PartSettings(writer, encoder, policy, names, listener)
        self._listener = listener
        self.active: dict[str, Bucket] = {}
        self.max_part_counter = 0

    # --- restore ------------------------------------------------------------------------------------------

    def initialize(self, states: Iterable[BucketState], counters: Iterable[int]) -> list[str]:
        """Take over the states assigned to this subtask, and the counters of *all* subtasks.

        Returns the final names of files in them that are neither pending nor committed. Raises ``StorageError`` when
        one cannot be resumed or committed.
        """
        self.max_part_counter = max(counters, default=0)
        gone: list[str] = []
        for state in states:
            bucket = Bucket(state.bucket_id, self.max_part_counter, self._settings)
            gone += bucket.restore(state)
            known = self.active.get(bucket.id)
            if not bucket.is_active:
                self._report_inactive(bucket)
            elif known is None:
                self.active[bucket.id] = bucket
            else:
                known.merge(bucket)
        return gone

    # --- records ------------------------------------------------------------------------------------------

    def write(self, bucket_id: str, rows: Rows, records: list[Any] | None, now_ms: int) -> None:
        """Write rows to one bucket. ``records``: what they were made of, needed if the policy is asked about each."""
        bucket = self.active.get(bucket_id)
        if bucket is None:
            bucket = self.active[bucket_id] = Bucket(bucket_id, self.max_part_counter, self._settings)
            if self._listener is not None:
                self._listener.bucket_created(bucket_id)
        bucket.write(rows, len(rows), records, now_ms)
        self.max_part_counter = max(self.max_part_counter, bucket.next_counter)

    def write_each(self, bucket_ids: Sequence[str], rows: Rows, records: list[Any] | None, now_ms: int) -> None:
        """Write each row to its bucket."""
        assert len(bucket_ids) == len(rows), (len(bucket_ids), len(rows))
        if self._settings.event_rule.never:
            self._write_between(0, len(bucket_ids), bucket_ids, rows, records, now_ms)
            return
        new = [one for one in dict.fromkeys(bucket_ids) if one not in self.active]
        # A new bucket starts at the greatest counter there is, which grows when other parts roll before it comes.
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
        """Close the open part of a bucket, if it has one, whatever the policy says."""
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

    def commit_up_to(self, checkpoint_id: int) -> None:
        """Checkpoint ``checkpoint_id`` has completed: make visible what it and all before it cover.

        Raises ``StorageError``.
        """
        for bucket_id, bucket in sorted(self.active.items()):
            bucket.on_confirmed(checkpoint_id)
            if not bucket.is_active:
                del self.active[bucket_id]
                self._report_inactive(bucket)

    def commit_now(self) -> None:
        """Close every part and commit everything: there are no checkpoints, and no records follow."""
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
        """Everything that it goes by."""
        return self.max_part_counter, tuple(bucket.fingerprint() for _, bucket in sorted(self.active.items()))
