"""Avro container files as input: blocks in order, as rows.

Rules (Flink: ``AvroInputFormat``)
----------------------------------
* A block belongs to the split in whose bytes it begins. So a file can be cut only between two blocks.
* A position is ``(offset of the block, records after it, checksum of the file's marker and schema)``.
* A block whose records cannot be read is an error that names the file and the block, or with ``on_corrupt="skip"`` is
  left out and counted in ``numCorruptBlocksSkipped``. A block whose end cannot be found is an error always.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO
from zlib import crc32

from engine.elements.errors import ConfigurationError
from engine.elements.source import SourceContext
from operators.files.formats import AvroFile
from operators.files.reading.record_formats import BlockReader, RecordInputFormat
from operators.files.reading.splits import SplitRange


class AvroInputFormat(RecordInputFormat):
    """Records of Avro container files; options as of :class:`RecordInputFormat`."""

    kind = "Avro"

    def cut(self, file: BinaryIO, path: str, split_bytes: int) -> list[tuple[int, int | None]]:
        """Ranges of blocks, of at least ``split_bytes`` bytes each except the last."""
        starts, size = [0], 0
        for block in AvroFile(file, path).places():
            if size >= split_bytes:
                starts.append(block.offset)
                size = 0
            size += block.end - block.offset
        return list(zip(starts, [*starts[1:], None], strict=True))

    def open_split(self, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext) -> AvroSplitReader:
        """A reader of a split of ``file``."""
        return AvroSplitReader(self, file, split, position, context)


class AvroSplitReader(BlockReader):
    """Reads the blocks of one split."""

    counter = "numCorruptBlocksSkipped"

    def __init__(
        self, format: AvroInputFormat, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext
    ) -> None:
        super().__init__(format, file, split, context)
        self._avro = avro = AvroFile(file, split.path)
        self._check_columns()
        self._checksum = crc32(avro.marker + json.dumps(avro.schema, sort_keys=True).encode())
        self._next = max(split.start, avro.first)
        if position is not None:
            self._restore(position, "its header is another one")

    def _check_columns(self) -> None:
        fields = self._avro.schema.get("fields", []) if isinstance(self._avro.schema, dict) else []
        present = [field["name"] for field in fields]
        missing = [name for name in self._format.columns or () if name not in present]
        if missing or not present:
            what = f"there is no column {missing[0]!r}" if missing else "its schema is no record"
            raise ConfigurationError(f"{self._path}: {what}; the file has {', '.join(present) or self._avro.schema}")

    def _resume_at(self, block: int) -> None:
        self._next = block

    def _next_block(self) -> tuple[int, Callable[[], list[dict[str, Any]]]] | None:
        end = self._split.end
        if end is not None and self._next >= end:
            return None
        block = self._avro.block_at(self._next)
        if block is None:
            return None
        self._next = block.end
        return block.offset, partial(self._avro.records, block)
