"""One partition of a log on disk: append, make durable, roll, read, recover, retain.

Rules.

* Only the last segment is written to. A full segment is fsynced before the next begins, so a torn tail is always in the
  last one. The name of a new segment is made durable at once.
* Appended records are in memory until ``flush`` gives them to the operating system; then they survive the death of the
  process. ``sync`` makes them survive a power cut.
* Recovery reads the files. The first bad batch is the end, and recovery cuts off the rest, *unless* that batch had been
  durable. Three things show that: a whole batch after it (see ``record_batches``), a segment after it, or
  ``durable_offset``, which the caller has stored elsewhere. Then the log is damaged: :class:`LogCorruptError`.
* Retention deletes whole segments, the oldest first. It never deletes the last segment, nor anything after the last
  stable offset, because a reader cannot have read that yet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from operators.log.disk.log_segments import Segment, base_offsets, batches_from, has_preamble
from operators.log.disk.partition_transactions import PartitionTransactions
from operators.log.disk.record_batches import (
    SEGMENT_PREAMBLE,
    BadBatch,
    RecordBatch,
    encode_batch,
    read_batches,
    whole_batches_behind,
)
from operators.log.port import DATA, LogCorruptError, OffsetOutOfRangeError, Producer
from state_backends.files import FileSystem, WritableFile

BUFFER_BYTES = 1 << 18
"""How many bytes may wait in memory before the operating system gets them."""


class Retention(NamedTuple):
    """The least that is kept of a partition, ``None`` = everything. The excess over any limit is deleted."""

    bytes: int | None = None
    records: int | None = None
    segments: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing is ever deleted."""
        return self == Retention()


class RecoveryPoint(NamedTuple):
    """Where recovery may begin: everything before was durable when the point was written."""

    offset: int
    segment: int
    position: int
    transactions: tuple[Any, ...]


class PartitionLog:
    """See the module. ``where`` names the partition in errors; ``never_syncs``: a power cut may lose anything.

    :ivar end_offset: the offset that the next entry will get
    :ivar durable_offset: everything before it survives a power cut
    :ivar transactions: which are open and which were aborted
    :ivar truncated_bytes: how much recovery has cut off
    """

    def __init__(
        self, fs: FileSystem, directory: str, where: str, *, segment_bytes: int, never_syncs: bool = False
    ) -> None:
        self._fs, self._directory, self.where = fs, directory, where
        self._segment_bytes, self._never_syncs = segment_bytes, never_syncs
        self._segments: list[Segment] = []
        self._file: WritableFile | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.end_offset = self.durable_offset = 0
        self.transactions = PartitionTransactions()
        self.truncated_bytes = 0

    def __len__(self) -> int:
        return self.end_offset

    @property
    def earliest_offset(self) -> int:
        """The first offset that is still there."""
        return self._segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many files there are."""
        return len(self._segments)

    # --- recovery -----------------------------------------------------------------------------------------

    def recover(self, durable_offset: int = 0, point: RecoveryPoint | None = None) -> None:
        """Read the segments; begin the first one if there is none.

        ``durable_offset``: everything before it is known to have been durable.
        """
        self._fs.make_dirs(self._directory)
        bases = base_offsets(self._fs, self._directory)
        if not bases:
            if durable_offset:
                raise LogCorruptError(self._directory, 0, f"no segment is there, and offset {durable_offset} was")
            self._begin_segment(0)
            return
        self.end_offset = self.durable_offset = bases[0]
        position = len(SEGMENT_PREAMBLE)
        unread = bases
        if point is not None and point.segment in bases and point.offset >= bases[0]:
            unread, position = bases[bases.index(point.segment) :], point.position
            self._take_over(point, bases)
        for base in unread:
            if not self._recover_segment(base, bases, durable_offset, position):
                break
            position = len(SEGMENT_PREAMBLE)
        self._expect_durable(durable_offset)
        self.durable_offset = max(self.durable_offset, durable_offset)

    def _take_over(self, point: RecoveryPoint, bases: Sequence[int]) -> None:
        """Take everything before ``point`` as it was, without reading it."""
        for base in bases[: bases.index(point.segment)]:
            segment = Segment(base, 0)
            segment.size_bytes = self._fs.size(segment.path(self._directory))
            self._segments.append(segment)
        self.transactions = PartitionTransactions.of(point.transactions)
        self.transactions.forget_before(bases[0])
        self.end_offset = self.durable_offset = point.offset

    def _recover_segment(self, base: int, bases: Sequence[int], durable_offset: int, position: int) -> bool:
        """Read one segment. Returns whether it ends with a whole batch, so that the next segment may follow."""
        segment = Segment(base, position)
        path = segment.path(self._directory)
        if base != self.end_offset and position == len(SEGMENT_PREAMBLE):
            raise LogCorruptError(path, 0, f"it begins with offset {base}, and {self.end_offset} is next")
        size = self._fs.size(path)
        if size < position > len(SEGMENT_PREAMBLE):
            raise LogCorruptError(path, size, f"the file ends there, and {position} bytes of it were durable")
        bad: BadBatch | None = None
        with closing(self._fs.open_random(path)) as file:
            if not has_preamble(file):
                bad = BadBatch(0, "it does not begin as a segment of this version of the log does")
            else:
                for found in read_batches(file, position, size, self.end_offset):
                    if isinstance(found, BadBatch):
                        bad = found
                        break
                    segment.note(found.first_offset, found.position)
                    segment.size_bytes = found.position + found.size_bytes
                    self.end_offset = found.end_offset
                    self.durable_offset = max(self.durable_offset, min(found.durable_offset, found.first_offset))
                    self.transactions.take(found)
        if bad is None:
            self._segments.append(segment)
            return True
        self._cut_off(segment, bad, bases, durable_offset)
        return False

    def _cut_off(self, segment: Segment, bad: BadBatch, bases: Sequence[int], durable_offset: int) -> None:
        """End the partition at a bad batch, if that was not durable."""
        path = segment.path(self._directory)
        following = [base for base in bases if base > segment.base_offset]
        later = [Segment(base, 0).path(self._directory) for base in following]
        content = self._fs.read_bytes(path)
        pieces = [content[bad.position :], *(self._fs.read_bytes(one) for one in later)]
        known = [whole.durable_offset for piece in pieces for whole in whole_batches_behind(piece, 0)]
        if not self._never_syncs:
            # A segment begins only after the one before it is durable, even if the new one is still empty.
            known += following
        if max([durable_offset, *known]) > self.end_offset:
            raise LogCorruptError(path, bad.position, f"{bad.why} (offset {self.end_offset})")
        self.truncated_bytes += sum(map(len, pieces))
        for one in reversed(later):
            self._fs.delete(one)
        if bad.position < len(SEGMENT_PREAMBLE):
            # The segment exists, but no batch in it is durable. Its name stays: it shows where the partition ends.
            self._begin_segment(segment.base_offset)
            return
        self._fs.truncate(path, bad.position)
        self._fs.fsync_dir(self._directory)
        self._segments.append(segment)

    def _expect_durable(self, durable_offset: int) -> None:
        if self.end_offset < durable_offset:
            last = self._segments[-1]
            problem = f"the partition ends with offset {self.end_offset}, and {durable_offset} was durable"
            raise LogCorruptError(last.path(self._directory), last.size_bytes, problem)

    # --- append -------------------------------------------------------------------------------------------

    def append(self, kind: str, producer: Producer | None, values: Sequence[object], sequence: int, at_ns: int) -> None:
        """Append at the end, in memory so far. ``values`` may not be empty. A value that cannot be encoded raises an
        error before anything has changed."""
        first = self.end_offset
        data = encode_batch(kind, first, values, producer, sequence, at_ns, self.durable_offset)
        segment = self._segments[-1]
        if segment.size_bytes + len(data) > self._segment_bytes and segment.base_offset < first:
            self.roll()
            segment = self._segments[-1]
        segment.note(first, segment.size_bytes)
        segment.size_bytes += len(data)
        count = len(values) if kind == DATA else 1
        self.end_offset = first + count
        if producer is not None:
            self.transactions.took(kind, producer, first, count)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Give appended records to the operating system: readers see them, and they survive the death of this
        process."""
        if not self._waiting:
            return
        if self._file is None:
            self._file = self._fs.open_append(self._segments[-1].path(self._directory))
        data = b"".join(self._waiting)
        # Do not keep them for a second try: after an error later calls find the log broken.
        self._waiting, self._waiting_bytes = [], 0
        self._file.write(data)
        self._file.flush()

    def sync(self) -> None:
        """Make appended records survive a power cut."""
        self.flush()
        if self.durable_offset < self.end_offset and not self._never_syncs:
            if self._file is None:
                self._file = self._fs.open_append(self._segments[-1].path(self._directory))
            self._file.fsync()
            self.durable_offset = self.end_offset

    def roll(self) -> None:
        """Begin a new segment, unless the last one is empty."""
        if self._segments[-1].base_offset == self.end_offset:
            return
        self.sync()
        self._close_file()
        self._begin_segment(self.end_offset)

    def _begin_segment(self, base: int) -> None:
        segment = Segment(base, len(SEGMENT_PREAMBLE))
        self._file = self._fs.open_write(segment.path(self._directory))
        self._file.write(SEGMENT_PREAMBLE)
        self._file.flush()
        if not self._never_syncs:
            self._fs.fsync_dir(self._directory)
        self._segments.append(segment)

    def recovery_point(self) -> RecoveryPoint:
        """Where a later recovery may begin. Everything must be durable."""
        last = self._segments[-1]
        return RecoveryPoint(self.end_offset, last.base_offset, last.size_bytes, self.transactions.plain())

    # --- read ---------------------------------------------------------------------------------------------

    def stable_offset(self) -> int:
        """The offset of the first record that is still undecided, or the end."""
        return self.transactions.stable_offset(self.end_offset)

    def batches(self, offset: int) -> Iterator[RecordBatch]:
        """Those that end after ``offset``. Raises :class:`OffsetOutOfRangeError`."""
        if not self.earliest_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(self.where, offset, self.earliest_offset, self.end_offset)
        self.flush()
        at = bisect_right(self._segments, offset, key=_base_of) - 1
        for segment in self._segments[at:]:
            yield from batches_from(self._fs, segment.path(self._directory), segment, offset, segment.size_bytes)

    # --- retention ----------------------------------------------------------------------------------------

    def retain(self, retention: Retention) -> int:
        """Delete segments that are beyond ``retention``; returns how many."""
        stable, deleted = self.stable_offset(), 0
        while len(self._segments) > 1 and self._segments[1].base_offset <= stable and self._is_beyond(retention):
            self._delete_oldest()
            deleted += 1
        return deleted

    def _is_beyond(self, retention: Retention) -> bool:
        """Whether the rest suffices without the oldest segment."""
        oldest, following = self._segments[:2]
        return (
            (retention.bytes is not None and self.size_bytes - oldest.size_bytes >= retention.bytes)
            or (retention.records is not None and self.end_offset - following.base_offset >= retention.records)
            or (retention.segments is not None and len(self._segments) > retention.segments)
        )

    def delete_before(self, offset: int) -> None:
        """Delete the segments that end at or before ``offset``."""
        while len(self._segments) > 1 and self._segments[1].base_offset <= offset:
            self._delete_oldest()

    def _delete_oldest(self) -> None:
        # One by one, each durably: a gap between segments is always damage.
        self._fs.delete(self._segments[0].path(self._directory))
        if not self._never_syncs:
            self._fs.fsync_dir(self._directory)
        del self._segments[0]
        self.transactions.forget_before(self.earliest_offset)

    # --- end ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give everything to the operating system, and close the file."""
        self.flush()
        self._close_file()

    def abandon(self) -> None:
        """Close the file; records in memory are lost, as when a process dies."""
        self._waiting, self._waiting_bytes = [], 0
        self._close_file()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _base_of(segment: Segment) -> int:
    return segment.base_offset
