"""Avro container files as input: blocks in order, as rows.

Rules (Flink: ``AvroInputFormat``)
----------------------------------
* A block belongs to the split in whose bytes it begins. So a file can be cut only between two blocks.
* A position is ``(offset of the block, records after it, checksum of the file's marker and schema)``. A file with
  another header is another file, and refused.
* A block that is damaged is an error that names the file and the block, or with ``on_corrupt="skip"`` is left out and
  counted, if the next one can be found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Literal
from zlib import crc32

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StateError
from engine.elements.source import SourceContext
from operators.files.formats import AvroBlock, AvroFile, CorruptFileError
from operators.files.reading.splits import FileSplitReader, SplitRange, position_behind
from state_backends.base import number, row, whole


class AvroInputFormat:
    """Records of Avro container files.

    ``columns``     the fields to read, in order; ``None``: all;
    ``record``      ``"dict"`` or ``"tuple"``;
    ``prepared``    is called with each record as a dict, and returns what is emitted; a ``ValueError`` names the file;
    ``on_corrupt``  ``"fail"``, or ``"skip"`` = leave out blocks whose records cannot be read; counter
                    ``numCorruptBlocksSkipped``.
    """

    position_shape = staticmethod(row(number, whole, whole))

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        record: Literal["dict", "tuple"] = "dict",
        prepared: Callable[[dict[str, Any]], Any] | None = None,
        on_corrupt: Literal["fail", "skip"] = "fail",
    ) -> None:
        if isinstance(columns, str):
            raise ConfigurationError(f"columns={columns!r}: give a list of names")
        if record not in ("dict", "tuple"):
            raise ConfigurationError(f"record must be 'dict' or 'tuple', got {record!r}")
        if on_corrupt not in ("fail", "skip"):
            raise ConfigurationError(f"on_corrupt must be 'fail' or 'skip', got {on_corrupt!r}")
        self.columns = None if columns is None else tuple(columns)
        self.record = record
        self.prepared = prepared
        self.on_corrupt = on_corrupt

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


class AvroSplitReader(FileSplitReader):
    """Reads the blocks of one split."""

    def __init__(
        self, format: AvroInputFormat, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext
    ) -> None:
        super().__init__(file, split, context)
        self._format = format
        self._avro = avro = AvroFile(file, split.path)
        self._check_columns()
        self._header = crc32(avro.marker + json.dumps(avro.schema, sort_keys=True).encode())
        self._block = -1
        """Where the block in hand begins."""
        self._next = max(split.start, avro.first)
        self._records: list[Any] = []
        self._taken = 0
        if position is not None:
            self._restore(*position)

    def _check_columns(self) -> None:
        fields = self._avro.schema.get("fields", []) if isinstance(self._avro.schema, dict) else []
        present = [field["name"] for field in fields]
        missing = [name for name in self._format.columns or () if name not in present]
        if missing or not present:
            what = f"there is no column {missing[0]!r}" if missing else "its schema is no record"
            raise ConfigurationError(f"{self._path}: {what}; the file has {', '.join(present) or self._avro.schema}")

    def _restore(self, offset: int, records: int, header: int) -> None:
        if header != self._header:
            raise self._changed("its header is another one")
        if offset < 0:
            return
        self._next = offset
        if not self._load() or records > len(self._records):
            raise StateError(
                f"file {self._path!r} of source {self._context.name!r}: the checkpoint says that {records} records"
                f" of the block at byte {offset} were read, which has {len(self._records)}\n"
                "  go on from another checkpoint, or start without one"
            )
        self._taken = records

    def _load(self) -> bool:
        """Read the next block of the split; false at its end."""
        end = self._split.end
        while end is None or self._next < end:
            block = self._avro.block_at(self._next)
            if block is None:
                return False
            self._next = block.end
            records = self._records_of(block)
            if records:
                self._block, self._records, self._taken = block.offset, records, 0
                return True
        return False

    def _records_of(self, block: AvroBlock) -> list[Any]:
        try:
            found = self._avro.records(block)
            return [self._shaped(one) for one in found]
        except CorruptFileError:
            if self._format.on_corrupt == "fail":
                raise
            self._context.count("numCorruptBlocksSkipped")
            return []

    def _shaped(self, record: dict[str, Any]) -> Any:
        format = self._format
        if format.columns is not None:
            record = {name: record[name] for name in format.columns}
        if format.prepared is not None:
            try:
                return format.prepared(record)
            except ValueError as error:
                raise CorruptFileError(self._path, "Avro", f"a record does not fit the table: {error}") from error
        return tuple(record.values()) if format.record == "tuple" else record

    def ready(self) -> int:
        """How many records are sure to come next, at least one before the end of the split."""
        if self._taken == len(self._records) and not self._load():
            return 0
        return len(self._records) - self._taken

    def read(self, max_records: int) -> Batch | None:
        if not self.ready():
            return None
        start, self._taken = self._taken, min(self._taken + max_records, len(self._records))
        return Batch(self._records[start : self._taken])

    def position(self) -> tuple[int, int, int]:
        if self._block < 0:
            return (-1, 0, self._header)
        return (*position_behind(self._block, 0, self._taken - 1), self._header)
