"""Open part files: they write encoded records to a recoverable stream, for row and bulk formats alike.

* A *row* format writes each record when it comes. The file can be persisted and resumed, and its size is known after
  every record.
* A *bulk* format gathers records, writes them when it has enough, and needs an ending (such as a footer). Such a file
  cannot be persisted while it is open, so every checkpoint closes it. Its size grows in steps.

Records are encoded a batch at a time, before any of the batch is written: a bad record leaves no trace in a file. Only
the format knows its encoded batches (*rows*); positions in rows equal those of the records.

Source: ``InProgressFileWriter``, ``RowWisePartWriter``, ``BulkPartWriter``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import accumulate, islice
from typing import Any, Protocol

from engine.elements.batch import Batch
from engine.elements.errors import StorageError
from operators.files.formats import RowFormat
from operators.files.writing.recoverable_writer import PendingFile, RecoverableStream, ResumeHandle

Rows = Any
"""The records of a batch as one format has encoded them."""


class RecordError(Exception):
    """A record cannot be encoded; the cause is chained. ``position``: that of the record in its batch."""

    def __init__(self, position: int, record: Any, cause: Exception) -> None:
        super().__init__(str(cause))
        self.position = position
        self.record = record
        self.cause = cause


class BulkWriter(Protocol):
    """Writes the records of one file in bulk (Flink: ``BulkWriter``)."""

    def add(self, rows: Rows, start: int, stop: int) -> int:
        """Take rows from ``start`` on, up to ``stop``, in order. Stops after the first row that makes it write to the
        file, and returns the position after the last row taken. So a caller that watches the size of the file sees
        every change, for any batches."""

    def finish(self) -> None:
        """Write the rest, and the ending."""

    def dispose(self) -> None:
        """Release everything without writing."""


class BulkFormat(Protocol):
    """A format of files that are written in bulk."""

    is_bulk: bool
    """True."""

    def encode_batch(self, batch: Batch) -> Rows:
        """The records of ``batch``. Raises :class:`RecordError` for one that does not fit."""

    def select(self, rows: Rows, positions: Sequence[int]) -> Rows:
        """The rows at ``positions``, in that order."""

    def open_writer(self, write: Callable[[bytes], None]) -> BulkWriter:
        """A writer of one file, which writes through ``write``."""

    def encode(self, record: Any) -> str:
        """The record as a line of text, as :meth:`lines_of` returns it."""

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a whole file. Raises ``StorageError`` when it is torn."""


Format = RowFormat | BulkFormat


def is_bulk(format: Format) -> bool:
    """Whether files of ``format`` are written in bulk."""
    return bool(getattr(format, "is_bulk", False))


def line_end_of(format: Format) -> str:
    """The text that a row format writes after each line."""
    end = getattr(format, "line_end", "\n")
    assert isinstance(end, str), end
    return end


class LineRows:
    """Lines without their ends, and the bytes of all of them with ends, once these have been made."""

    __slots__ = ("_content", "_ends", "line_end", "lines")

    def __init__(self, lines: list[str], line_end: str, content: bytes | None = None) -> None:
        self.lines = lines
        self.line_end = line_end
        self._content = content
        self._ends: list[int] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def whole(self) -> bytes:
        """The bytes of all lines."""
        if self._content is None:
            self._content = joined(self.lines, self.line_end)
        return self._content

    @property
    def ends(self) -> list[int]:
        """Where each line ends in the bytes of all of them."""
        if self._ends is None:
            more, lines = len(self.line_end), self.lines
            sizes = map(len, lines if self.whole.isascii() else map(str.encode, lines))
            self._ends = list(accumulate(map(more.__add__, sizes)))
        return self._ends

    def content(self, start: int, stop: int) -> bytes:
        """The bytes of the lines from ``start`` up to ``stop``."""
        if stop - start == len(self.lines):
            return self.whole
        return self.whole[self.ends[start - 1] if start else 0 : self.ends[stop - 1]]


def joined(lines: list[str], line_end: str) -> bytes:
    """The bytes of lines with their ends."""
    return (line_end.join(lines) + line_end).encode()


def split_lines(path: str, content: bytes, line_end: str) -> list[str]:
    """The lines of a whole part. Without line ends they cannot be told apart, and are one. Raises ``StorageError``
    when the part is torn."""
    text = content.decode()
    if not line_end:
        return [text] if text else []
    lines = text.split(line_end)
    if lines.pop():
        raise StorageError(f"{path} does not end with a line break, so no file sink has committed it")
    return lines


class PartEncoder:
    """Encodes batches for one format, row or bulk."""

    __slots__ = ("_line_end", "format", "is_bulk", "what")

    def __init__(self, format: Format) -> None:
        self.format: Any = format
        self.is_bulk = is_bulk(format)
        self.what = "bulk format" if self.is_bulk else "row format"
        self._line_end = "" if self.is_bulk else line_end_of(format)

    def encode(self, batch: Batch) -> Rows:
        """The records of ``batch``. Raises :class:`RecordError`."""
        if self.is_bulk:
            return self.format.encode_batch(batch)
        return encode_lines(self.format, batch.values, self._line_end)

    def select(self, rows: Rows, positions: Sequence[int]) -> Rows:
        """The rows at ``positions``, in that order."""
        if self.is_bulk:
            return self.format.select(rows, positions)
        return LineRows(list(map(rows.lines.__getitem__, positions)), self._line_end)

    def group(self, rows: Rows, bucket_ids: Sequence[str], start: int, stop: int) -> dict[str, Rows]:
        """The rows from ``start`` up to ``stop`` of each bucket, in the order in which buckets appear."""
        if self.is_bulk:
            found = positions(bucket_ids, start, stop)
            return {bucket_id: self.select(rows, chosen) for bucket_id, chosen in found.items()}
        lines: defaultdict[str, list[str]] = defaultdict(list)
        for bucket_id, line in zip(islice(bucket_ids, start, stop), islice(rows.lines, start, stop), strict=True):
            lines[bucket_id].append(line)
        if len(lines) == 1 and stop - start == len(rows):
            # There is nothing to join again.
            return dict.fromkeys(lines, rows)
        return {bucket_id: LineRows(chosen, self._line_end) for bucket_id, chosen in lines.items()}

    def open(self, stream: RecoverableStream, bucket_id: str, created_at_ms: int) -> PartFile:
        """The part that is written to ``stream``."""
        if self.is_bulk:
            return BulkPart(stream, bucket_id, created_at_ms, self.format.open_writer(stream.write))
        return PartFile(stream, bucket_id, created_at_ms)


def encode_lines(format: RowFormat, values: list[Any], line_end: str) -> LineRows:
    """A line for each of ``values``. Raises :class:`RecordError` for a record without one, or without one in UTF-8."""
    encode_many = getattr(format, "encode_many", None)
    lines: list[str] | None = None if encode_many is None else encode_many(values)
    if lines is None:
        lines = []
        try:
            lines.extend(map(format.encode, values))
            if len(lines) != len(values):
                raise StopIteration("the format let a StopIteration escape")
        except Exception as error:
            raise RecordError(len(lines), values[len(lines)], error) from error
    try:
        return LineRows(lines, line_end, joined(lines, line_end))
    except (UnicodeEncodeError, TypeError) as error:
        position = next(at for at, line in enumerate(lines) if _is_unwritable(line))
        raise RecordError(position, values[position], error) from error


def positions(bucket_ids: Sequence[str], start: int, stop: int) -> dict[str, list[int]]:
    """The positions of each bucket, in the order in which buckets appear."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for position, bucket_id in enumerate(islice(bucket_ids, start, stop), start):
        found[bucket_id].append(position)
    return found


def _is_unwritable(line: object) -> bool:
    return not isinstance(line, str) or any("\ud800" <= character <= "\udfff" for character in line)


class PartFile:
    """The open part of a bucket, as policies see it: here lines, each written when it comes."""

    __slots__ = ("bucket_id", "created_at_ms", "last_update_ms", "stream")

    def __init__(self, stream: RecoverableStream, bucket_id: str, created_at_ms: int) -> None:
        self.stream = stream
        self.bucket_id = bucket_id
        self.created_at_ms = created_at_ms
        self.last_update_ms = created_at_ms

    @property
    def size_bytes(self) -> int:
        """Number of bytes written to the file."""
        return self.stream.size_bytes

    def add(self, rows: Rows, start: int, stop: int, now_ms: int) -> int:
        """Write rows from ``start`` on, up to ``stop``; returns the position after the last row taken."""
        self.stream.write(rows.content(start, stop))
        self.last_update_ms = now_ms
        return stop

    def add_up_to(self, size_bytes: int, rows: Rows, start: int, stop: int, now_ms: int) -> int:
        """The same, up to and including the row that makes the file larger than ``size_bytes``. Finds that row in the
        running sum of sizes."""
        if stop - start == len(rows) and self.stream.size_bytes + len(rows.whole) <= size_bytes:
            return self.add(rows, start, stop, now_ms)
        ends: list[int] = rows.ends
        before = ends[start - 1] if start else 0
        room = before + size_bytes - self.stream.size_bytes
        if ends[stop - 1] > room:
            stop = bisect_right(ends, room, start, stop) + 1
        return self.add(rows, start, stop, now_ms)

    def persist(self) -> ResumeHandle:
        """Make everything written durable; returns a handle to resume from."""
        return self.stream.persist()

    def close_for_commit(self) -> PendingFile:
        """Write the ending, if there is one, and close."""
        return self.stream.close_for_commit()

    def dispose(self) -> None:
        """Close without any promise."""
        self.stream.close()


class BulkPart(PartFile):
    """Records gathered by a writer of their format."""

    __slots__ = ("_writer",)

    def __init__(self, stream: RecoverableStream, bucket_id: str, created_at_ms: int, writer: BulkWriter) -> None:
        super().__init__(stream, bucket_id, created_at_ms)
        self._writer = writer

    def add(self, rows: Rows, start: int, stop: int, now_ms: int) -> int:
        """Write as many as the writer takes before the file grows."""
        self.last_update_ms = now_ms
        taken = self._writer.add(rows, start, stop)
        assert start < taken <= stop, (start, taken, stop)
        return taken

    def add_up_to(self, size_bytes: int, rows: Rows, start: int, stop: int, now_ms: int) -> int:
        """The same: the file does not grow before."""
        return self.add(rows, start, stop, now_ms)

    def persist(self) -> ResumeHandle:
        """Impossible: the records gathered by the writer are in no file yet."""
        raise AssertionError("a bulk part cannot be persisted while it is open; its policy must close it")

    def close_for_commit(self) -> PendingFile:
        """Write the ending too."""
        self._writer.finish()
        return super().close_for_commit()

    def dispose(self) -> None:
        """The writer stops writing too."""
        self._writer.dispose()
        super().dispose()
