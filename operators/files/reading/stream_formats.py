"""Formats that read a file record by record, and the reader that turns them into batches and positions.

Rules (Flink: ``StreamFormat``, ``StreamFormatAdapter``, ``ArrayResultIterator``)
---------------------------------------------------------------------------------
* A format that knows its position reports it at the beginning of each batch; the positions of the batch count from it.
* A format that does not is read again from the beginning of its split, and records emitted before are dropped.
* The stored position belongs to the record emitted last. Records that were read ahead are read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from engine.elements.batch import Batch
from engine.elements.errors import MalformedRecordError, UserFunctionError, WeirError, check_whole
from engine.elements.source import SourceContext
from operators.files.reading.splits import NO_OFFSET, CheckpointedPosition, FileSplitReader, SplitRange, position_behind

DEFAULT_FETCH_BYTES = 1 << 16


class MalformedContentError(WeirError):
    """Bytes of a file without lines do not match the format."""

    exit_code = MalformedRecordError.exit_code

    def __init__(self, path: str, offset: int, why: str) -> None:
        self.path, self.offset, self.why = path, offset, why
        super().__init__(f"{path}, about byte {offset}: {why}\n  fix the file, or the format that reads it")

    def __reduce__(self) -> tuple[type[MalformedContentError], tuple[str, int, str]]:
        return MalformedContentError, (self.path, self.offset, self.why)


class RecordReader(Protocol):
    """Reads the records of one split, in order."""

    def read(self) -> tuple[Any] | None:
        """The next record, in a tuple of its own; ``None`` at the end of the split. May raise ``ValueError``."""

    def position(self) -> CheckpointedPosition | None:
        """Where the next record begins; ``None`` if that is unknown."""


class StreamFormat(Protocol):
    """A format of files whose records are read one by one."""

    splittable: bool
    """Whether a reader can begin in the middle of a file."""
    fetch_bytes: int
    """About how many bytes are read ahead of the emitted records."""

    def create_reader(self, file: BinaryIO, start: int, end: int | None) -> RecordReader:
        """A reader of the records that start in ``(start, end]``, and at byte 0 if ``start`` is 0; ``None``: up to the
        end of the file."""

    def restore_reader(self, file: BinaryIO, offset: int, start: int, end: int | None) -> RecordReader:
        """The same, from ``offset`` on, which a reader of the format has reported."""


def is_stream_format(format: object) -> bool:
    """Whether an object has the methods of a :class:`StreamFormat`."""
    return all(callable(getattr(format, name, None)) for name in ("create_reader", "restore_reader"))


class StreamFormatReader(FileSplitReader):
    """Reads one split with a :class:`StreamFormat`."""

    def __init__(
        self, file: BinaryIO, split: SplitRange, format: StreamFormat, position: Any, context: SourceContext
    ) -> None:
        super().__init__(file, split, context)
        self._fetch_bytes = format.fetch_bytes
        self._ready: list[Any] = []
        self._emitted = 0
        start = CheckpointedPosition(NO_OFFSET, 0) if position is None else CheckpointedPosition(*position)
        if start.offset == NO_OFFSET:
            self._reader = self._guarded(lambda: format.create_reader(file, split.start, split.end))
        else:
            self._reader = self._guarded(lambda: format.restore_reader(file, start.offset, split.start, split.end))
        for dropped in range(start.records_after_offset):
            if self._guarded(self._reader.read) is None:
                raise self._changed(f"it has {dropped} records where {start.records_after_offset} had been read")
        self._batch_start = start

    def ready(self) -> int:
        """How many records are sure to come next, at least one before the end of the split."""
        if self._emitted == len(self._ready):
            self._fetch()
        return len(self._ready) - self._emitted

    def read(self, max_records: int) -> Batch | None:
        if not self.ready():
            return None
        stop = min(self._emitted + max_records, len(self._ready))
        records, self._emitted = self._ready[self._emitted : stop], stop
        return Batch(records)

    def _fetch(self) -> None:
        """Read the next batch, which is empty at the end."""
        self._batch_start = self._guarded(self._reader.position) or CheckpointedPosition(*self.position())
        self._ready, self._emitted = [], 0
        fetched_to = self._file.tell() + self._fetch_bytes
        while (record := self._guarded(self._reader.read)) is not None:
            self._ready.append(record[0])
            if self._file.tell() >= fetched_to:
                break

    def _guarded(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except (WeirError, OSError):
            raise
        except ValueError as error:
            offset = self._file.tell()
            raise MalformedContentError(self._split.path, offset, str(error)) from error
        except Exception as error:
            name, attempt = self._context.name, self._context.attempt
            raise UserFunctionError(name, "the format's reader", self._split.path, attempt, error) from error

    def position(self) -> tuple[int, int]:
        """See :class:`engine.elements.source.SplitReader`. A plain tuple, as state holds it."""
        return (*position_behind(*self._batch_start, self._emitted - 1),)


class FixedLengthFormat:
    """Records of ``record_bytes`` bytes each, decoded by ``decode``; their offsets are multiples of that.

    ``reports_positions=False`` makes a restored reader read its split again from the beginning.
    """

    splittable = True

    def __init__(
        self,
        record_bytes: int,
        decode: Callable[[bytes], Any] = bytes,
        *,
        fetch_bytes: int = DEFAULT_FETCH_BYTES,
        reports_positions: bool = True,
    ) -> None:
        check_whole("record_bytes", record_bytes)
        check_whole("fetch_bytes", fetch_bytes)
        self.record_bytes, self.decode = record_bytes, decode
        self.fetch_bytes, self.reports_positions = fetch_bytes, reports_positions

    def create_reader(self, file: BinaryIO, start: int, end: int | None) -> RecordReader:
        first = (start // self.record_bytes + 1) * self.record_bytes if start else 0
        return _FixedLengthReader(self, file, first, end)

    def restore_reader(self, file: BinaryIO, offset: int, start: int, end: int | None) -> RecordReader:
        return _FixedLengthReader(self, file, offset, end)


class _FixedLengthReader:
    def __init__(self, format: FixedLengthFormat, file: BinaryIO, offset: int, end: int | None) -> None:
        self._format, self._file, self._offset, self._end = format, file, offset, end
        file.seek(offset)

    def read(self) -> tuple[Any] | None:
        if self._end is not None and self._offset > self._end:
            return None
        data = self._file.read(self._format.record_bytes)
        if not data:
            return None
        if len(data) < self._format.record_bytes:
            raise ValueError(f"the file ends after {len(data)} of the {self._format.record_bytes} bytes of a record")
        self._offset += len(data)
        return (self._format.decode(data),)

    def position(self) -> CheckpointedPosition | None:
        return CheckpointedPosition(self._offset, 0) if self._format.reports_positions else None
