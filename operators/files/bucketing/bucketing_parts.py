"""The parts of a bucketing sink, from their opening to their end (Flink: ``BucketingSink``).

Rules, in the words of that sink:

* A part is *in progress*, then *pending*, then *finished*: each step is a renaming.
* A bucket has one part in progress. Before a record is written, the sink opens a new part if there is none, if the
  present one is *larger* than the batch size, or if it is *older* than the rollover interval. So a part exceeds the
  batch size by one record at most.
* A new part takes the next count that no finished, pending or in-progress file has. Counters are in no checkpoint:
  the names in the directory protect the files of other attempts.
* A part that was not written to for *longer* than the threshold is closed, but only at the periodic check.
* A snapshot stores the length of each part in progress (after a flush; here an fsync of it and of the directories)
  and books pending parts under its id. When a checkpoint has completed, the sink finishes its pending parts and those
  of all earlier ones.
* A restore from checkpoint ``n`` finishes the parts that are pending in ``n``. The part in progress becomes finished,
  too: it is cut to its length in ``n``, even if it was written to or renamed since. Where files cannot be cut, a file
  beside it gives the valid length. It is not written to again. A file system may cut it later
  (:mod:`operators.files.bucketing.late_truncation`): until then it keeps its name, and is in all snapshots.
* Other files in the directory stay: parts opened after ``n`` and never finished are orphans for ever.

Some steps are more careful than in Flink, so that a file is right for readers at every moment, and after a power
failure. A part is cut (or its valid length written) *before* it is finished. The valid length appears whole or not at
all, and belongs to the checkpoint restored last. A part that is too short is an error. A part in progress may have a
zombie as writer. If neither a lease nor a valid length keeps it out, a copy of the checkpoint's content becomes
finished.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.elements.errors import StorageError
from operators.files.bucketing.late_truncation import LateTruncations
from operators.files.bucketing.names import BucketingNames
from operators.files.bucketing.part_writers import RecordRows
from operators.files.bucketing.valid_length import has_valid_length, write_valid_length
from operators.files.writing import LineRows, PartFile, RecoverableStream, RecoverableWriter
from state_backends.base import list_of, number, optional, path_below, row, such_that, whole
from state_backends.files import FileSystem

BucketSnapshot = tuple[Any, ...]
"""State of one bucket: its id, part in progress or ``None``, its valid length, times of the last write and of creation
in ms, pending parts, pending parts of each checkpoint."""


_NAMES = list_of(path_below)

BUCKET_SNAPSHOT = such_that(
    "a bucket with a length of its part if it has one",
    row(path_below, optional(path_below), number, number, number, _NAMES, list_of(row(whole, _NAMES))),
    lambda bucket: (bucket[1] is None) == (bucket[2] == -1) and bucket[2] >= -1,
)
"""Its shape."""


@dataclass(slots=True)
class _Bucket:
    id: str
    last_written_ms: int
    counter: int = 0
    part: PartFile | None = None
    """The part in progress."""
    created_ms: int = 0
    pending: list[str] = field(default_factory=list)
    pending_by_checkpoint: dict[int, list[str]] = field(default_factory=dict)
    synced_bytes: int = 0

    def snapshot(self) -> BucketSnapshot:
        booked = [(known, list(parts)) for known, parts in sorted(self.pending_by_checkpoint.items())]
        return (
            self.id,
            None if self.part is None else self.part.stream.target,
            -1 if self.part is None else self.part.size_bytes,
            self.last_written_ms,
            self.created_ms,
            list(self.pending),
            booked,
        )


class BucketingParts:
    """All buckets of one subtask.

    ``directory``         of the sink; buckets are below it;
    ``batch_size_bytes``, ``rollover_interval_ms`` (``None`` = never), ``inactive_threshold_ms``  see the rules;
    ``truncates``         whether files can be cut: called at most once, when a restore needs it;
    ``keeps_valid_length``  whether a restore keeps a valid length that a restore from another checkpoint has written
                          (as in Flink, where rows then appear twice);
    ``late``              for a file system that cuts files later;
    ``missing``           is called for each part that a restore cannot find by any of its names;
    ``open_part``         makes the open part of a stream, for a bucket and a time of creation;
    ``sync``              whether a snapshot waits until the bytes of its parts are on the disk.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        names: BucketingNames,
        *,
        subtask: int,
        batch_size_bytes: int,
        rollover_interval_ms: int | None,
        inactive_threshold_ms: int,
        truncates: Callable[[], bool],
        keeps_valid_length: bool = False,
        missing: Callable[[str], None],
        late: LateTruncations | None = None,
        open_part: Callable[[RecoverableStream, str, int], PartFile] = PartFile,
        sync: bool = True,
    ) -> None:
        self._fs = fs
        self._new_part = open_part
        # Parts have names of their own, so hidden names need no unique end.
        self._files = RecoverableWriter(fs, directory, unique=str, sync=sync)
        self._path = self._files.path
        self._names = names
        self._subtask = subtask
        self._batch_size_bytes = batch_size_bytes
        self._rollover_ms = rollover_interval_ms
        self._threshold_ms = inactive_threshold_ms
        self._truncates = truncates
        self._can_truncate: bool | None = None
        self._keeps_valid_length = keeps_valid_length
        self._missing = missing
        self._late = late
        self._being_cut: dict[tuple[str, str], tuple[str, int]] = {}
        """By bucket and part: its present name, and the length it is being cut to."""
        self._buckets: dict[str, _Bucket] = {}
        self._opened: list[tuple[str, str]] = []

    # --- records ------------------------------------------------------------------------------------------

    def write(self, bucket_id: str, rows: LineRows | RecordRows, now_ms: int) -> None:
        """Write rows to a bucket."""
        bucket = self._buckets.get(bucket_id)
        if bucket is None:
            bucket = self._buckets[bucket_id] = _Bucket(bucket_id, now_ms)
        taken, count = 0, len(rows)
        while taken < count:
            part = bucket.part
            if part is None or part.size_bytes > self._batch_size_bytes or self._is_too_old(bucket, now_ms):
                self._close_part(bucket)
                part = self._open_part(bucket, now_ms)
            taken = part.add_up_to(self._batch_size_bytes, rows, taken, count, now_ms)
        bucket.last_written_ms = now_ms

    def _is_too_old(self, bucket: _Bucket, now_ms: int) -> bool:
        return self._rollover_ms is not None and now_ms - bucket.created_ms > self._rollover_ms

    def _open_part(self, bucket: _Bucket, now_ms: int) -> PartFile:
        fs, names = self._fs, self._names
        directory = self._path(bucket.id)
        fs.make_dirs(directory)
        # A bucket may come back very often: list the existing names once, instead of asking file by file.
        taken = frozenset(() if bucket.counter else fs.list_dir(directory))
        while True:
            part = names.part(self._subtask, bucket.counter)
            bucket.counter += 1
            worn = (part, names.pending(part), names.in_progress(part))
            if taken.isdisjoint(worn) and not any(fs.exists(posixpath.join(directory, one)) for one in worn):
                break
        stream = self._files.begin(posixpath.join(bucket.id, names.in_progress(part)), part, exclusive=True)
        try:
            bucket.part = self._new_part(stream, bucket.id, now_ms)
        except BaseException:
            stream.close()
            raise
        bucket.synced_bytes, bucket.created_ms = 0, now_ms
        self._opened.append((bucket.id, part))
        return bucket.part

    def _close_part(self, bucket: _Bucket) -> None:
        if bucket.part is None:
            return
        name = bucket.part.close_for_commit().target
        bucket.part = None
        self._rename(bucket.id, self._names.in_progress(name), self._names.pending(name))
        if not self._names.finishes_on_close:
            bucket.pending.append(name)

    def close_inactive(self, now_ms: int) -> None:
        """Close the parts that were not written to for too long, and those that are too old."""
        for bucket in self._buckets.values():
            if now_ms - bucket.last_written_ms > self._threshold_ms or self._is_too_old(bucket, now_ms):
                self._close_part(bucket)

    def close_parts(self) -> None:
        """Close all parts; they become pending."""
        for bucket in self._buckets.values():
            self._close_part(bucket)
        self._files.sync_directories()

    def abandon(self) -> None:
        """Close the open files without changing any name."""
        for bucket in self._buckets.values():
            if bucket.part is not None:
                bucket.part.dispose()
                bucket.part = None

    # --- checkpoints --------------------------------------------------------------------------------------

    def snapshot(self, checkpoint_id: int) -> list[BucketSnapshot]:
        """The state of all buckets; books pending parts under ``checkpoint_id``."""
        for bucket in self._buckets.values():
            if bucket.part is not None and bucket.synced_bytes != bucket.part.size_bytes:
                bucket.synced_bytes = bucket.part.persist().size_bytes
            bucket.pending_by_checkpoint[checkpoint_id] = bucket.pending
            bucket.pending = []
        # Names before state: a checkpoint must not refer to a file that a crash can lose.
        self._files.sync_directories()
        being_cut: list[BucketSnapshot] = [
            (bucket, part, length_bytes, 0, 0, [], [])
            for (bucket, part), (_, length_bytes) in sorted(self._being_cut.items())
        ]
        return [*(bucket.snapshot() for _, bucket in sorted(self._buckets.items())), *being_cut]

    def take_opened(self) -> list[tuple[str, str]]:
        """Bucket and final name of each part that was opened since the last call."""
        opened, self._opened = self._opened, []
        return opened

    def commit(self, checkpoint_id: int) -> None:
        """Finish the pending parts of this checkpoint and of all before it; forget buckets that are then empty."""
        for _, bucket in sorted(self._buckets.items()):
            for known in sorted(one for one in bucket.pending_by_checkpoint if one <= checkpoint_id):
                for part in bucket.pending_by_checkpoint[known]:
                    if not self._finish(bucket.id, part):
                        raise StorageError(
                            f"{self._path(bucket.id, self._names.pending(part))} was to be finished as {part!r} but is"
                            " gone\n  something else deletes files in the sink's directory"
                        )
                del bucket.pending_by_checkpoint[known]
        self._files.sync_directories()
        self._buckets = {
            name: bucket
            for name, bucket in self._buckets.items()
            if bucket.part is not None or bucket.pending or bucket.pending_by_checkpoint
        }

    def _finish(self, bucket: str, part: str) -> bool:
        """Finish a pending part unless that was done before; false when the part does not exist."""
        for name in (self._names.pending(part), part):
            if self._fs.exists(self._path(bucket, name)):
                self._rename(bucket, name, part)
                return True
        return False

    # --- restore ------------------------------------------------------------------------------------------

    def restore(self, buckets: Iterable[BucketSnapshot], now_ms: int = 0) -> None:
        """Finish the parts that are in progress or pending in these states, of any subtask. Idempotent."""
        for bucket, part, length_bytes, _, _, _, booked in buckets:
            if part is not None:
                self._restore_part(bucket, part, length_bytes, now_ms)
            for _, parts in booked:
                for pending in parts:
                    if not self._finish(bucket, pending):
                        self._missing(self._path(bucket, pending))
        self._files.sync_directories()

    def _restore_part(self, bucket: str, part: str, length_bytes: int, now_ms: int) -> None:
        names, fs = self._names, self._fs
        found = [
            name for name in (names.pending(part), names.in_progress(part), part) if fs.exists(self._path(bucket, name))
        ]
        if self._can_truncate is None:
            self._can_truncate = self._truncates()
        if not found:
            if self._can_truncate:
                raise StorageError(
                    f"{self._path(bucket, part)} was to be cut to {length_bytes} bytes but is gone, by all its names\n"
                    "  something else deletes files in the sink's directory"
                )
            self._missing(self._path(bucket, part))
            return
        name = found[0]
        path = self._path(bucket, name)
        size_bytes = fs.size(path)
        if size_bytes < length_bytes:
            raise StorageError(
                f"{path} has {size_bytes} bytes, but the checkpoint says that {length_bytes} were written\n"
                "  something else has changed it, or its storage has lost data"
            )
        if not self._can_truncate:
            self._mark_valid(bucket, part, length_bytes)
        elif self._late is None and name == names.in_progress(part):
            self._finish_copy(bucket, name, part, length_bytes)
            return
        elif size_bytes > length_bytes:
            if self._late is None:
                fs.truncate(path, length_bytes)
            elif not self._late.begin(path, length_bytes, now_ms):
                self._being_cut[bucket, part] = name, length_bytes
                return
        self._rename(bucket, name, part)

    def _finish_copy(self, bucket: str, name: str, part: str, left: int) -> None:
        copied = f".{part}.copied"
        copy = self._files.begin(posixpath.join(bucket, copied), part)
        try:
            self._files.copy_to(copy, self._path(bucket, name), left)
            copy.close_for_commit()
        finally:
            copy.close()
        self._rename(bucket, copied, part)
        # Make the new name durable before deleting the old one: a crash must not lose both.
        self._files.sync_directories()
        self._fs.delete(self._path(bucket, name))
        self._files.changed(bucket)

    @property
    def is_cutting(self) -> bool:
        """Whether restored parts are still being cut."""
        return bool(self._being_cut)

    def look_again(self, now_ms: int) -> bool:
        """Finish the restored parts that are cut by now; returns whether all are. Raises ``StorageError`` when one
        takes too long."""
        late = self._late
        assert late is not None, "nothing is cut later"
        for (bucket, part), (name, _) in sorted(self._being_cut.items()):
            if late.is_done(self._path(bucket, name), now_ms):
                del self._being_cut[bucket, part]
                self._rename(bucket, name, part)
        self._files.sync_directories()
        return not self._being_cut

    def _mark_valid(self, bucket: str, part: str, length_bytes: int) -> None:
        path = self._path(bucket, self._names.valid_length(part))
        # A different valid length exists if the job now goes back further than before: all records after the restored
        # checkpoint come again.
        if not (self._fs.exists(path) and (self._keeps_valid_length or has_valid_length(self._fs, path, length_bytes))):
            # The length at the checkpoint: the rest of the file comes again (mutant "valid length of the whole file").
            write_valid_length(self._fs, path, length_bytes)

    # --- files --------------------------------------------------------------------------------------------

    def _rename(self, bucket: str, source: str, target: str) -> None:
        if source != target:
            self._files.rename(posixpath.join(bucket, source), posixpath.join(bucket, target))
        # Even if the name is already right: the attempt that renamed it may have died before the name was durable.
        self._files.changed(bucket)

    def fingerprint(self) -> object:
        known = tuple((*bucket.snapshot(), bucket.counter) for _, bucket in sorted(self._buckets.items()))
        cutting = None if self._late is None else (self._late.fingerprint(), tuple(sorted(self._being_cut.items())))
        return known, tuple(self._opened), cutting
