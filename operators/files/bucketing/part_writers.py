"""Writers of the bucketing sink: how the records of a part become bytes (Flink: ``Writer``, ``StreamWriterBase``).

Rules.

* A writer is opened for one part and writes through the function that it gets. It may gather records, but ``flush``
  brings everything into the file, in a form that can be read if the file ends there: a restore cuts it there.
* ``get_pos`` is the size of the part, gathered records included: the sink rolls by it. After a flush it is the size of
  the file.
* Each part has a writer of its own, made by ``duplicate`` from the one that the job file has.
* A record that does not fit raises before anything of it is gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol
from zlib import crc32

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StorageError, WeirError, check_whole, shorten
from operators.files.formats import AvroRecords, RowFormat
from operators.files.writing import (
    BlockPartWriter,
    PartFile,
    RecordError,
    RecoverableStream,
    ResumeHandle,
    avro_lines,
    is_bulk,
    line_end_of,
    split_lines,
)
from state_backends.codec import default_codec

WRITER_METHODS = ("open", "write", "flush", "get_pos", "close", "duplicate", "encode", "lines_of")
SEQUENCE_MAGIC = b"WEIRSEQ\x01"
_HEAD_BYTES = 8
"""Length and checksum before each record of a sequence."""


class Writer(Protocol):
    """Writes the records of one part."""

    def open(self, write: Callable[[bytes], None]) -> None:
        """The part is new; ``write`` appends to it."""

    def write(self, record: Any) -> None:
        """Add a record. Raises ``ValueError`` or ``TypeError`` when it does not fit."""

    def flush(self) -> None:
        """Everything written so far is in the file, which could end here."""

    def get_pos(self) -> int:
        """The size of the part in bytes."""

    def close(self) -> None:
        """The part ends: flush."""

    def duplicate(self) -> Writer:
        """A fresh one with the same settings."""

    def encode(self, record: Any) -> str:
        """The record as a line of text, as :meth:`lines_of` returns it."""

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a part, cut to its valid length. Raises ``StorageError`` when it is torn."""


class _DirectWriter:
    """Base of writers that gather nothing: each record is in the file at once."""

    def __init__(self) -> None:
        self._position = 0
        self._write_part: Callable[[bytes], None]

    def open(self, write: Callable[[bytes], None]) -> None:
        self._write_part = write

    def _put(self, data: bytes) -> None:
        self._write_part(data)
        self._position += len(data)

    def flush(self) -> None:
        pass

    def get_pos(self) -> int:
        return self._position

    def close(self) -> None:
        pass


class LineWriter(_DirectWriter):
    """The lines of a row format: ``JsonLinesRowFormat()``, ``CsvRowFormat()``, ``TextRowFormat()`` (Flink:
    ``StringWriter``)."""

    def __init__(self, format: RowFormat) -> None:
        if is_bulk(format) or not callable(getattr(format, "encode", None)):
            raise ConfigurationError(f"LineWriter takes lines, such as JsonLinesRowFormat(), not {format!r}")
        super().__init__()
        self.format = format

    def write(self, record: Any) -> None:
        self._put((self.format.encode(record) + line_end_of(self.format)).encode())

    def duplicate(self) -> LineWriter:
        return LineWriter(self.format)

    def encode(self, record: Any) -> str:
        return self.format.encode(record)

    def lines_of(self, path: str, content: bytes) -> list[str]:
        return split_lines(path, content, line_end_of(self.format))


class AvroWriter:
    """An Avro container file; a flush ends a block (Flink: ``AvroKeyValueSinkWriter``). Parameters as of
    :class:`operators.files.writing.AvroFormat`."""

    def __init__(self, schema: object, *, codec: str = "null", block_bytes: int = 16_000) -> None:
        check_whole("block_bytes", block_bytes)
        self._records = AvroRecords(schema, codec)
        self._block_bytes = block_bytes
        self._part: BlockPartWriter
        self._written = 0

    def open(self, write: Callable[[bytes], None]) -> None:
        def counted(data: bytes) -> None:
            write(data)
            self._written += len(data)

        self._part = BlockPartWriter(self._records, self._block_bytes, counted)

    def write(self, record: Any) -> None:
        self._part.add([self._records.encode(record)], 0, 1)

    def flush(self) -> None:
        self._part.write_block()

    def get_pos(self) -> int:
        return self._written + self._part.gathered_bytes

    def close(self) -> None:
        self.flush()

    def duplicate(self) -> AvroWriter:
        return AvroWriter(self._records.schema, codec=self._records.codec, block_bytes=self._block_bytes)

    def encode(self, record: Any) -> str:
        data = self._records.header + self._records.block([self._records.encode(record)])
        return self.lines_of("record", data)[0]

    def lines_of(self, path: str, content: bytes) -> list[str]:
        return avro_lines(path, content)


class SequenceWriter(_DirectWriter):
    """A sequence of records: any values that state can hold, each with its length and checksum (in the manner of
    Hadoop's ``SequenceFile``; Flink: ``SequenceFileWriter``).

    A file is ``WEIRSEQ`` and a version byte, then for each record four bytes of length and four of CRC-32, big-endian,
    and the value in msgpack, as in state.
    """

    def open(self, write: Callable[[bytes], None]) -> None:
        super().open(write)
        self._put(SEQUENCE_MAGIC)

    def write(self, record: Any) -> None:
        data = default_codec().encode(record)
        self._put(len(data).to_bytes(4, "big") + crc32(data).to_bytes(4, "big") + data)

    def duplicate(self) -> SequenceWriter:
        return SequenceWriter()

    def encode(self, record: Any) -> str:
        return repr(default_codec().decode(default_codec().encode(record), "record"))

    def lines_of(self, path: str, content: bytes) -> list[str]:
        return list(map(repr, sequence_records(path, content)))


def sequence_records(path: str, content: bytes) -> Iterator[Any]:
    """The records of a sequence file. Raises ``StorageError`` when it is torn or damaged."""
    if not content.startswith(SEQUENCE_MAGIC):
        raise StorageError(f"{path} is no file of a SequenceWriter: it does not begin with {SEQUENCE_MAGIC!r}")
    at = len(SEQUENCE_MAGIC)
    while at < len(content):
        head = content[at : at + _HEAD_BYTES]
        size = int.from_bytes(head[:4], "big")
        data = content[at + _HEAD_BYTES : at + _HEAD_BYTES + size]
        if len(head) < _HEAD_BYTES or len(data) < size:
            raise StorageError(f"{path} ends in the middle of the record at byte {at}")
        if crc32(data) != int.from_bytes(head[4:], "big"):
            raise StorageError(f"{path}: the record at byte {at} has another checksum: it is damaged")
        yield default_codec().decode(data, path)
        at += _HEAD_BYTES + size


class WriterError(Exception):
    """A writer has failed outside of a record, or not done its duty. ``what`` was called, ``cause`` is its error."""

    def __init__(self, what: str, cause: Exception) -> None:
        super().__init__(what, cause)
        self.what, self.cause = what, cause


@contextmanager
def _calling(what: str) -> Iterator[None]:
    """Turn an error of a writer's own into :class:`WriterError`; those of the storage pass."""
    try:
        yield
    except (OSError, WeirError):
        raise
    except Exception as error:
        raise WriterError(f"{what} of writer", error) from error


def lacks_methods(writer: object) -> bool:
    """Whether an object is no :class:`Writer`."""
    return not all(callable(getattr(writer, name, None)) for name in WRITER_METHODS)


class RecordRows:
    """The records of a batch as they are: a writer encodes them one by one."""

    __slots__ = ("records",)

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)


class WriterEncoder:
    """Hands the records of a batch to the writers of their parts."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def encode(self, batch: Batch) -> RecordRows:
        """The records of ``batch``."""
        return RecordRows(batch.values)

    def group(self, rows: RecordRows, bucket_ids: list[str], start: int, stop: int) -> dict[str, RecordRows]:
        """The records of each bucket, in the order in which buckets appear."""
        found: dict[str, RecordRows] = {}
        for bucket_id, record in zip(islice(bucket_ids, start, stop), rows.records[start:stop], strict=True):
            found.setdefault(bucket_id, RecordRows([])).records.append(record)
        return found

    def open(self, stream: RecoverableStream, bucket_id: str, created_at_ms: int) -> WriterPart:
        """The part that is written to ``stream``. Raises :class:`WriterError`."""
        with _calling("duplicate"):
            writer = self._writer.duplicate()
            if writer is self._writer or lacks_methods(writer):
                raise TypeError(f"it must return another writer for each part, and returned {shorten(writer)}")
        return WriterPart(stream, bucket_id, created_at_ms, writer)


class WriterPart(PartFile):
    """The open part of a bucket, written by a :class:`Writer`."""

    __slots__ = ("_writer",)

    def __init__(self, stream: RecoverableStream, bucket_id: str, created_at_ms: int, writer: Writer) -> None:
        super().__init__(stream, bucket_id, created_at_ms)
        self._writer = writer
        with _calling("open"):
            writer.open(stream.write)

    @property
    def size_bytes(self) -> int:
        return self._writer.get_pos()

    def add_up_to(self, size_bytes: int, rows: RecordRows, start: int, stop: int, now_ms: int) -> int:
        self.last_update_ms = now_ms
        writer, records = self._writer, rows.records
        for position in range(start, stop):
            try:
                writer.write(records[position])
                is_full = writer.get_pos() > size_bytes
            except OSError:
                # The storage has failed, not the writer.
                raise
            except Exception as error:
                raise RecordError(position, records[position], error) from error
            if is_full:
                return position + 1
        return stop

    def persist(self) -> ResumeHandle:
        self._flush("flush", self._writer.flush)
        return super().persist()

    def close_for_commit(self) -> Any:
        self._flush("close", self._writer.close)
        return super().close_for_commit()

    def _flush(self, what: str, flush: Callable[[], None]) -> None:
        with _calling(what):
            flush()
            said, written = self._writer.get_pos(), self.stream.size_bytes
            # Otherwise a restore would cut the part in the middle of a record.
            if said != written:
                raise ValueError(f"get_pos() is {said!r} after it, and the part has {written} bytes")
