"""Bulk formats whose records are bytes, gathered into blocks of a fixed number of bytes: Avro, and raw bytes.

The bytes of a file depend on its records alone, not on the batches in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.elements.batch import Batch
from engine.elements.errors import check_whole
from operators.files.writing.part_files import RecordError

DEFAULT_BLOCK_BYTES = 16_000
"""As in Avro."""


class Blocks(Protocol):
    """The records of a file, and what stands around them."""

    header: bytes
    """What a file begins with."""

    def encode(self, record: Any) -> bytes:
        """The bytes of one record. Raises ``ValueError``."""

    def block(self, records: list[bytes]) -> bytes:
        """A block of encoded records."""


class BlockFormat:
    """Base of such formats. ``block_bytes``: how many bytes of records are gathered before a block is written."""

    is_bulk = True

    def __init__(self, records: Blocks, block_bytes: int = DEFAULT_BLOCK_BYTES) -> None:
        check_whole("block_bytes", block_bytes)
        self._blocks = records
        self.block_bytes = block_bytes

    def encode_batch(self, batch: Batch) -> list[bytes]:
        """The bytes of each record. Raises :class:`RecordError`."""
        rows: list[bytes] = []
        try:
            rows.extend(map(self._blocks.encode, batch.values))
        except ValueError as error:
            raise RecordError(len(rows), batch.values[len(rows)], error) from error
        return rows

    def select(self, rows: list[bytes], positions: Sequence[int]) -> list[bytes]:
        """The rows at ``positions``."""
        return list(map(rows.__getitem__, positions))

    def open_writer(self, write: Callable[[bytes], None]) -> BlockPartWriter:
        """A writer of one file."""
        return BlockPartWriter(self._blocks, self.block_bytes, write)


class BlockPartWriter:
    """Writes the blocks of one file."""

    def __init__(self, records: Blocks, block_bytes: int, write: Callable[[bytes], None]) -> None:
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
