"""Avro container files as output: a bulk format with a schema (Flink: ``AvroWriters``, ``AvroBulkWriter``).

Records are gathered into blocks of a fixed number of bytes before compression, so the bytes of a file depend on its
records alone. A part is closed by every checkpoint, as of every bulk format. :class:`operators.files.bucketing`'s
``AvroWriter`` writes the same files and keeps them open.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import StorageError, check_whole
from operators.files.formats import AvroFile, AvroRecords, CorruptFileError
from operators.files.writing.part_files import RecordError

DEFAULT_BLOCK_BYTES = 16_000
"""As in Avro."""


class AvroFormat:
    """Records with a schema, as Avro container files.

    ``schema``, ``codec``  see :class:`operators.files.formats.AvroRecords`;
    ``block_bytes``        how many bytes of records are gathered before a block is written.
    """

    is_bulk = True

    def __init__(self, schema: object, *, codec: str = "null", block_bytes: int = DEFAULT_BLOCK_BYTES) -> None:
        check_whole("block_bytes", block_bytes)
        self.records = AvroRecords(schema, codec)
        self.block_bytes = block_bytes

    def encode_batch(self, batch: Batch) -> list[bytes]:
        """The bytes of each record. Raises :class:`RecordError`."""
        rows: list[bytes] = []
        try:
            rows.extend(map(self.records.encode, batch.values))
        except ValueError as error:
            raise RecordError(len(rows), batch.values[len(rows)], error) from error
        return rows

    def select(self, rows: list[bytes], positions: Sequence[int]) -> list[bytes]:
        """The rows at ``positions``."""
        return list(map(rows.__getitem__, positions))

    def open_writer(self, write: Callable[[bytes], None]) -> AvroPartWriter:
        """A writer of one file."""
        return AvroPartWriter(self.records, self.block_bytes, write)

    def encode(self, record: Any) -> str:
        """The record as JSON, as :meth:`lines_of` shows it. Raises ``ValueError``."""
        data = self.records.header + self.records.block([self.records.encode(record)])
        return self.lines_of("record", data)[0]

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a whole file as JSON. Raises ``StorageError`` when it is torn."""
        return avro_lines(path, content)


def avro_lines(path: str, content: bytes) -> list[str]:
    """The records of a container file, each as a line of JSON. Raises ``StorageError`` when it is torn."""
    try:
        return [
            json.dumps(one, ensure_ascii=False, separators=(",", ":"), default=_as_text)
            for one in AvroFile(io.BytesIO(content), path).all_records()
        ]
    except CorruptFileError as error:
        raise StorageError(f"{path} is no whole Avro file: {error}") from error


def _as_text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


class AvroPartWriter:
    """Writes the blocks of one file."""

    def __init__(self, records: AvroRecords, block_bytes: int, write: Callable[[bytes], None]) -> None:
        self._records = records
        self._block_bytes = block_bytes
        self._write = write
        self._has_begun = False
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0

    def add(self, rows: list[bytes], start: int, stop: int) -> int:
        """Take rows up to and including the one that fills the block."""
        for position in range(start, stop):
            self._gathered.append(rows[position])
            self._gathered_bytes += len(rows[position])
            if self._gathered_bytes >= self._block_bytes:
                self.write_block()
                return position + 1
        return stop

    @property
    def gathered_bytes(self) -> int:
        """Bytes of records that are in no block yet."""
        return self._gathered_bytes

    def write_block(self) -> None:
        """Write the gathered records, and the header before the first ones."""
        if not self._has_begun:
            self._has_begun = True
            self._write(self._records.header)
        if self._gathered:
            gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
            self._write(self._records.block(gathered))

    def finish(self) -> None:
        """Write the last block."""
        self.write_block()

    def dispose(self) -> None:
        """It holds no resource."""
