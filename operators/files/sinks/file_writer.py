"""The writer of a file sink whose files are committed by another operator (Flink: ``FileWriter``,
``FileWriterBucket``).

Rules, beyond those that it shares with :mod:`operators.files.writing.bucket`:

* A final name is ``{prefix}-{unique}-{counter}{suffix}``. Each *instance* of a bucket has a unique name of its own and
  counts from 0, so there is no counter that subtasks share, and none in the state.
* Ahead of each barrier buckets hand out what is pending, after closing the open part if the policy says so, or if no
  records follow; and the resume handle of the snapshot before, which is outdated once this one is complete.
* Before that, buckets are dropped that have nothing open and nothing to hand out: one checkpoint later than they became
  empty, so that a bucket that is written to in every checkpoint is not made anew each time.
* The state holds only parts that are open. Pending files have travelled to the committer ahead of the barrier.
* A restore resumes the open part; a writer that cannot resume hands it out, as it was persisted, with the next
  checkpoint. What the state of a one-operator file sink holds as pending is handed out too. Of two restored buckets of
  one id, the open part of the later one is closed and handed out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from operators.files.compaction import FileCommittable, clean_up, pending_file
from operators.files.writing import (
    Bucket,
    BucketState,
    PartEncoder,
    PartSettings,
    PendingFile,
    RecoverableWriter,
    ResumeHandle,
    RollingPolicy,
    Rows,
    check_rolling_policy,
)


class UniquePartNames(NamedTuple):
    """The final names of one instance of a bucket. ``hidden``: for files that are to be compacted."""

    prefix: str
    suffix: str
    unique: str
    hidden: bool = False

    def target(self, bucket_id: str, counter: int) -> str:
        """The path of part ``counter``, relative to the sink's directory."""
        dot = "." if self.hidden else ""
        return posixpath.join(bucket_id, f"{dot}{self.prefix}-{self.unique}-{counter}{self.suffix}")


class WriterBucket(Bucket):
    """One instance of a bucket."""

    __slots__ = ("_outdated", "unique")

    def __init__(self, bucket_id: str, unique: str, settings: PartSettings) -> None:
        super().__init__(bucket_id, 0, settings)
        self.unique = unique
        self._outdated: ResumeHandle | None = None
        """Of the newest snapshot, handed out with the next."""

    @property
    def is_active(self) -> bool:
        """Whether it holds anything that was not handed out."""
        return self.part is not None or self._outdated is not None or bool(self.pending)

    def prepare_commit(self, flush: bool) -> list[FileCommittable]:
        """Hand out everything. ``flush``: no records follow."""
        part, policy = self.part, self._settings.policy
        if part is not None and (
            flush or policy.should_roll_on_checkpoint(part) or policy.rolls_on_every_checkpoint
        ):
            self.close_part()
        handed_out = [pending_file(self.id, file) for file in self.pending]
        self.pending = []
        if self._outdated is not None:
            handed_out.append(clean_up(self.id, self._outdated))
            self._outdated = None
        return handed_out

    def snapshot(self) -> BucketState:
        """The open part, if there is one."""
        if self.part is None:
            return BucketState(self.id, [])
        handle = self._outdated = self.part.persist()
        return BucketState(self.id, [], (*handle, self.part.created_at_ms))

    def resume(self, state: BucketState) -> None:
        """Take over what an earlier instance has left."""
        settings = self._settings
        if state.in_progress is not None:
            temporary, target, size_bytes, created_at_ms = state.in_progress
            resumed = ResumeHandle(temporary, target, size_bytes)
            if settings.writer.supports_resume():
                self.part = settings.encoder.open(settings.writer.recover(resumed), self.id, created_at_ms)
            else:
                self.pending.append(resumed.as_pending())
        self.pending += [PendingFile(*file) for _, files in state.booked for file in files]

    def fingerprint(self) -> object:
        """Everything that it goes by."""
        return super().fingerprint(), self.unique, self._outdated


class FileWriter:
    """The buckets of one subtask.

    ``encoder``          the format's; rows given to :meth:`write` were encoded by it;
    ``unique``           gives the unique name of each instance of a bucket;
    ``prefix, suffix``   of part names; ``hidden``: whether their final names are hidden ones.
    """

    def __init__(
        self,
        writer: RecoverableWriter,
        encoder: PartEncoder,
        policy: RollingPolicy,
        unique: Callable[[], str],
        *,
        prefix: str = "part",
        suffix: str = "",
        hidden: bool = False,
    ) -> None:
        check_rolling_policy(policy, bulk=encoder.is_bulk)
        self._writer = writer
        self._encoder = encoder
        self._policy = policy
        self._unique = unique
        self._names = (prefix, suffix, hidden)
        self.active: dict[str, WriterBucket] = {}

    def _bucket(self, bucket_id: str) -> WriterBucket:
        unique = self._unique()
        prefix, suffix, hidden = self._names
        names: Any = UniquePartNames(prefix, suffix, unique, hidden)
        return WriterBucket(bucket_id, unique, PartSettings(self._writer, self._encoder, self._policy, names))

    def initialize(self, states: Iterable[BucketState]) -> None:
        """Take over the states assigned to this subtask. Raises ``StorageError`` when a part cannot be resumed."""
        for state in states:
            bucket = self._bucket(state.bucket_id)
            bucket.resume(state)
            known = self.active.get(bucket.id)
            if known is None:
                self.active[bucket.id] = bucket
            else:
                known.merge(bucket)

    # --- records ------------------------------------------------------------------------------------------

    def write(self, bucket_id: str, rows: Rows, records: list[Any] | None, now_ms: int) -> None:
        """Write rows to one bucket. ``records``: what they were made of, needed if the policy is asked about each."""
        bucket = self.active.get(bucket_id)
        if bucket is None:
            bucket = self.active[bucket_id] = self._bucket(bucket_id)
        bucket.write(rows, len(rows), records, now_ms)

    def write_each(self, bucket_ids: Sequence[str], rows: Rows, records: list[Any] | None, now_ms: int) -> None:
        """Write each row to its bucket."""
        assert len(bucket_ids) == len(rows), (len(bucket_ids), len(rows))
        groups: dict[str, list[int]] = {}
        for position, bucket_id in enumerate(bucket_ids):
            groups.setdefault(bucket_id, []).append(position)
        for bucket_id, found in groups.items():
            whole = len(groups) == 1
            chosen = None if records is None else list(map(records.__getitem__, found))
            self.write(bucket_id, rows if whole else self._encoder.select(rows, found), chosen, now_ms)

    def on_processing_time(self, now_ms: int) -> None:
        """The periodic check: the policy is asked about every open part."""
        for bucket in self.active.values():
            bucket.on_processing_time(now_ms)

    # --- checkpoints --------------------------------------------------------------------------------------

    def prepare_commit(self, *, flush: bool) -> list[FileCommittable]:
        """What the committer gets ahead of the barrier, by bucket. Files are durable; their names are once the writer
        has synced its directories."""
        self.active = {bucket_id: bucket for bucket_id, bucket in self.active.items() if bucket.is_active}
        return [one for _, bucket in sorted(self.active.items()) for one in bucket.prepare_commit(flush)]

    def snapshot(self) -> list[BucketState]:
        """The state of every bucket, sorted by id."""
        return [bucket.snapshot() for _, bucket in sorted(self.active.items())]

    def close(self) -> None:
        """Close the open parts without any promise."""
        for bucket in self.active.values():
            bucket.dispose()

    def fingerprint(self) -> object:
        """What is in each bucket."""
        return tuple(bucket.fingerprint() for _, bucket in sorted(self.active.items()))
