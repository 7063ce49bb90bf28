"""Reads a log on disk from its files alone, without a lock, also while a process writes to it.

Rules.

* With ``read_committed`` the reader emits the records of a transaction when it has seen the commit marker, and skips
  them when it has seen the abort marker. Until then the records after them wait: they are above the last stable offset,
  which the reader finds by itself. It looks ahead only as far as the next transaction.
* At the end of the log a batch may not be whole *yet*. A segment with a successor is finished: an incomplete batch in
  it is damage.
* A position is the offset after the last record emitted or skipped, with the checksum of the batch before it. A reader
  that resumes must find the same batch before its position. Otherwise the log was cut short or replaced since (Kafka
  detects this by leader epochs, KIP-320).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from engine.elements.errors import DataLossError
from operators.log.disk.log_segments import Segment, base_offsets, has_preamble
from operators.log.disk.partition_transactions import PartitionTransactions
from operators.log.disk.record_batches import SEGMENT_PREAMBLE, BadBatch, RecordBatch, read_batches
from operators.log.disk.topics import partition_directory, partitions_of
from operators.log.port import (
    COMMIT_MARKER,
    DATA,
    READ_COMMITTED,
    LogCorruptError,
    LogEntry,
    LogRecord,
    OffsetOutOfRangeError,
    Producer,
    decided,
    stable_offset,
)
from state_backends.files import FileSystem

_BATCHES_AT_A_TIME = 256
_PREAMBLE_BYTES = len(SEGMENT_PREAMBLE)


class Extent(NamedTuple):
    """The offsets of a partition: from ``earliest`` to before ``end``, decided up to ``stable``. ``at_or_after`` is the
    first offset of a batch not older than the given time, ``end`` if there is none."""

    earliest: int
    end: int
    stable: int
    at_or_after: int


class RecordRun(NamedTuple):
    """Records of one batch: the offset of the first, those after it follow without a gap; and their append time."""

    first_offset: int
    values: list[object]
    time_ms: int


class PartitionScan:
    """Reads the whole batches of a partition in order, up to its present end."""

    def __init__(self, fs: FileSystem, directory: str, where: str, offset: int | None = None) -> None:
        """``offset``: begin with the segment that contains it, ``None`` = with the first."""
        self._fs, self._directory, self._where = fs, directory, where
        bases = base_offsets(fs, directory)
        # A partition without a segment has not been written to yet.
        self.earliest = bases[0] if bases else 0
        at = 0 if offset is None else max(0, bisect_right(bases, offset) - 1)
        self._base: int | None = bases[at] if bases else None
        self._position = _PREAMBLE_BYTES
        self.next_offset = 0 if self._base is None else self._base

    def more(self) -> list[RecordBatch]:
        """The next few batches; none when the present end is reached.

        Raises :class:`LogCorruptError`, and :class:`OffsetOutOfRangeError` when retention has overtaken the reader.
        """
        while True:
            # List the names before reading: a segment that had a successor before it was read is complete.
            bases = base_offsets(self._fs, self._directory)
            if self._base is None:
                if not bases:
                    return []
                self._base = self.next_offset = bases[0]
            if self._base not in bases:
                raise OffsetOutOfRangeError(self._where, self.next_offset, bases[0] if bases else 0, self.next_offset)
            try:
                batches, bad = self._read_segment(self._base)
            except FileNotFoundError:
                if self._base in base_offsets(self._fs, self._directory):
                    # The segment still exists: do not take this error for the end of the partition.
                    raise
                continue
            if batches:
                return batches
            following = [base for base in bases if base > self._base]
            if not following and (bad is None or bad.position == self._position):
                return []
            if not following or bad is not None or following[0] != self.next_offset:
                why = bad.why if bad is not None else f"offset {following[0]} follows {self.next_offset}"
                raise LogCorruptError(Segment(self._base, 0).path(self._directory), self._position, why)
            self._base, self._position = following[0], _PREAMBLE_BYTES

    def _read_segment(self, base: int) -> tuple[list[RecordBatch], BadBatch | None]:
        path = Segment(base, 0).path(self._directory)
        with closing(self._fs.open_random(path)) as file:
            if file.size < self._position > _PREAMBLE_BYTES:
                return [], BadBatch(file.size, "the file is shorter than what was read of it")
            if not has_preamble(file):
                # The segment may have just been begun.
                why = "it does not begin as a segment of this version of the log does"
                return [], BadBatch(self._position, why)
            found = list(islice(read_batches(file, self._position, file.size, self.next_offset), _BATCHES_AT_A_TIME))
        batches = [one for one in found if isinstance(one, RecordBatch)]
        bad = next((one for one in found if isinstance(one, BadBatch)), None)
        if batches:
            self._position = batches[-1].position + batches[-1].size_bytes
            self.next_offset = batches[-1].end_offset
        return batches, bad


def extent_of(fs: FileSystem, directory: str, where: str, at_ns: int | None = None) -> Extent:
    """The present extent of a partition; reads all of it."""
    scan = PartitionScan(fs, directory, where)
    transactions, at_or_after = PartitionTransactions(), None
    while batches := scan.more():
        for batch in batches:
            transactions.take(batch)
            if at_ns is not None and at_or_after is None and batch.at_ns >= at_ns:
                at_or_after = batch.first_offset
    end = scan.next_offset
    return Extent(scan.earliest, end, transactions.stable_offset(end), end if at_or_after is None else at_or_after)


class StableEnd:
    """Follows a partition as it grows, up to where all is decided: to read what is new in steps that come out the same
    when they are repeated. Each batch is looked at once.

    A *position* is an offset, and the checksum of the batch before it, as of a :class:`PartitionReader`.
    """

    def __init__(self, fs: FileSystem, directory: str, where: str, position: tuple[int, int | None] | None) -> None:
        """``position``: an earlier one, from which to go on; ``None`` = the beginning of what there is."""
        offset, crc = (None, None) if position is None else position
        # All that began before an earlier position is decided, so it need not be looked at again.
        at = None if crc is None or offset is None else offset - 1
        self._scan = PartitionScan(fs, directory, where, at)
        self._transactions = PartitionTransactions()
        self._ends: deque[tuple[int, int | None]] = deque()
        """Of batches after the position."""
        self.position: tuple[int, int | None] = (self._scan.earliest, None) if position is None else (*position,)

    def look(self) -> None:
        """Take in what was written since. Raises what :class:`PartitionReader` raises."""
        while batches := self._scan.more():
            for batch in batches:
                self._transactions.take(batch)
                if batch.end_offset > self.position[0]:
                    self._ends.append((batch.end_offset, batch.crc))

    def advance(self, most: int | None = None) -> tuple[int, int | None]:
        """Move the position over decided batches, by at least one and at most about so many offsets; returns it."""
        stable, start = self._transactions.stable_offset(self._scan.next_offset), self.position[0]
        while self._ends and self._ends[0][0] <= stable:
            if most is not None and self.position[0] > start and self._ends[0][0] - start > most:
                break
            self.position = self._ends.popleft()
        return self.position


class PartitionReader:
    """Hands out the records of a partition from an offset on, in order.

    :ivar offset: the offset after the last record emitted or skipped
    :ivar crc: the checksum of the batch before it; ``None`` if there is none yet
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        where: str,
        offset: int,
        *,
        crc: int | None = None,
        isolation: str = READ_COMMITTED,
    ) -> None:
        """``crc``: as in the position. Raises :class:`OffsetOutOfRangeError` when ``offset`` is deleted."""
        self._where, self._is_committed_only = where, isolation == READ_COMMITTED
        self.offset, self.crc = offset, crc
        self._start = offset
        # A resumed reader has seen the end of every transaction before its offset. A new one must find out whether an
        # older transaction is still open.
        self._scan = PartitionScan(fs, directory, where, None if crc is None else offset - 1)
        if offset < self._scan.earliest:
            raise OffsetOutOfRangeError(where, offset, self._scan.earliest, self._scan.next_offset)
        self._queue: deque[RecordBatch] = deque()
        self._committed: dict[Producer, bool] = {}
        """By producer: whether its transaction commits; for markers that were read ahead and not yet passed."""
        self._current: list[object] = []
        self._first = 0
        """The offset of the first of them."""
        self._next = 0
        self._current_batch: RecordBatch | None = None
        self._is_checked = False

    def read(self, max_records: int, before: int | None = None) -> tuple[list[object], list[int]]:
        """Up to ``max_records`` records below offset ``before``, and their append times in ms; empty if there are none
        now. Raises :class:`DataLossError` when the log was cut short or replaced."""
        values: list[object] = []
        times_ms: list[int] = []
        while len(values) < max_records and (run := self.next_run(max_records - len(values), before)) is not None:
            values += run.values
            times_ms += [run.time_ms] * len(run.values)
        return values, times_ms

    def next_run(self, max_records: int, before: int | None = None) -> RecordRun | None:
        """The same of one batch, whose offsets have no gaps; ``None`` if there are none now."""
        if self._next == len(self._current) and not self._advance(before):
            return None
        batch = self._current_batch
        assert batch is not None, "there are records, so there is their batch"
        stop = min(len(self._current), self._next + max_records)
        if before is not None:
            stop = min(stop, before - self._first)
            if stop <= self._next:
                return None
        run = RecordRun(self._first + self._next, self._current[self._next : stop], batch.at_ns // 1_000_000)
        self._next = stop
        self.offset, self.crc = self._first + stop, batch.crc
        return run

    def is_at(self, offset: int) -> bool:
        """Whether all records before ``offset`` are emitted or will never be."""
        if self._next < len(self._current):
            return self._first + self._next >= offset
        if self._queue:
            return self._queue[0].first_offset >= offset
        return self._scan.next_offset >= offset

    def _advance(self, before: int | None) -> bool:
        """Make the next batch that may be emitted the current one."""
        while True:
            if not self._queue and not self._look_ahead():
                return False
            head = self._queue[0]
            if before is not None and head.first_offset >= before:
                return False
            if head.kind != DATA:
                self._skip(head)
                if head.producer is not None:
                    self._committed.pop(head.producer, None)
                continue
            if self._is_committed_only and head.producer is not None:
                committed = self._committed.get(head.producer)
                if committed is None:
                    if not self._look_ahead():
                        return False
                    continue
                if not committed:
                    self._skip(head)
                    continue
            self._queue.popleft()
            if head.end_offset <= self._start:
                continue
            self._current, self._first = head.values(self._where), head.first_offset
            self._current_batch, self._next = head, max(0, self._start - head.first_offset)
            return True

    def _skip(self, head: RecordBatch) -> None:
        """Skip a batch without emitting it. The position still moves past it, so the batch does not count as lag."""
        self._queue.popleft()
        if head.end_offset > self.offset:
            self.offset, self.crc = head.end_offset, head.crc

    def _look_ahead(self) -> bool:
        try:
            batches = self._scan.more()
        except OffsetOutOfRangeError as error:
            raise self._loss(f"retention has deleted what comes next: {error}") from error
        if not self._is_checked:
            self._check(batches)
        for batch in batches:
            if batch.kind != DATA and batch.producer is not None:
                self._committed[batch.producer] = batch.kind == COMMIT_MARKER
        self._queue.extend(batches)
        return bool(batches)

    def _check(self, batches: list[RecordBatch]) -> None:
        """Check that the batch before the position is the one that was read."""
        if not batches:
            if self._scan.next_offset < self._start:
                raise self._loss(f"the partition ends with offset {self._scan.next_offset}: the log was cut")
            self._is_checked = True
            return
        if batches[-1].end_offset < self._start:
            return
        self._is_checked = True
        for batch in batches:
            if self.crc is not None and batch.first_offset < self._start <= batch.end_offset and batch.crc != self.crc:
                raise self._loss("the record before it is another one: the log was cut and written again, or replaced")

    def _loss(self, why: str) -> DataLossError:
        return DataLossError(
            f"{self._where} was read up to offset {self._start}, and cannot be read on: {why}\n"
            "  fix: bring the old log back, or start the job anew in another storage directory; with"
            " retention, keep more than a job can fall behind"
        )


def entries_of(fs: FileSystem, log: str, topic: str, partition: int) -> list[LogEntry]:
    """All present entries of a partition, including markers and undecided records."""
    where = f"{topic}-{partition} of log {log}"
    scan, entries = PartitionScan(fs, partition_directory(log, topic, partition), where), list[LogEntry]()
    while batches := scan.more():
        for batch in batches:
            entries += batch.entries(where)
    return entries


def committed_records(fs: FileSystem, log: str, topic: str, *, waits: bool = True) -> list[list[LogRecord]]:
    """The committed records by partition, as a reader sees them; empty if the topic does not exist.

    ``waits``: only up to the last stable offset, as a continuing reader sees them; else everything committed by now.
    """
    result = []
    for number in range(partitions_of(fs, log, topic) or 0):
        entries = entries_of(fs, log, topic, number)
        end = entries[-1].offset + 1 if entries else 0
        result.append(decided(entries, stable_offset(entries, end) if waits else end))
    return result
