"""Avro container files as output: a bulk format with a schema (Flink: ``AvroWriters``, ``AvroBulkWriter``).

Records are gathered into blocks of a fixed number of bytes before compression, so the bytes of a file depend on its
records alone. A part is closed by every checkpoint, as of every bulk format. :class:`operators.files.bucketing`'s
``AvroWriter`` writes the same files and keeps them open.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from typing import Any

from engine.elements.errors import StorageError
from operators.files.formats import AvroFile, AvroRecords, CorruptFileError
from operators.files.writing.block_format import DEFAULT_BLOCK_BYTES, BlockFormat


class AvroFormat(BlockFormat):
    """Records with a schema, as Avro container files.

    ``schema``, ``codec``  see :class:`operators.files.formats.AvroRecords`;
    ``block_bytes``        how many bytes of records are gathered before a block is written.
    """

    def __init__(self, schema: object, *, codec: str = "null", block_bytes: int = DEFAULT_BLOCK_BYTES) -> None:
        self.records = AvroRecords(schema, codec)
        super().__init__(self.records, block_bytes)

    def encode(self, record: Any) -> str:
        """The record as JSON, as :meth:`lines_of` shows it. Raises ``ValueError``."""
        data = self.records.header + self.records.block([self.records.encode(record)])
        return self.lines_of("record", data)[0]

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a whole file as JSON. Raises ``StorageError`` when it is torn."""
        return avro_lines(path, content)

    def merge_files(self, contents: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Write one file with the records of all, for compaction."""
        writer = self.open_writer(write)
        for content in contents:
            rows = list(
                map(self.records.encode, AvroFile(io.BytesIO(content), "a file that is compacted").all_records())
            )
            at = 0
            while at < len(rows):
                at = writer.add(rows, at, len(rows))
        writer.finish()


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
