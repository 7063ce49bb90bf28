"""Compressed text: rows written by a row format, gathered and compressed as one stream per file.

A compressed file cannot be cut at a record and continued, so this is a bulk format: every checkpoint closes the part.
The compressor gets text in blocks that end after the record that fills them. So the bytes of a file, and the size that
rolling policies see, depend only on its records, not on the batches in which they came.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StorageError, shorten
from operators.files.formats import RowFormat
from operators.files.writing.part_files import LineRows, encode_lines, is_bulk, line_end_of, split_lines

BLOCK_BYTES = 1 << 16
"""Bytes of text that are compressed together."""

_GZIP_FORMAT = 31
"""For zlib: the largest window, with the header and the trailer of gzip; its header has no time in it."""


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...

    def flush(self) -> bytes: ...


_COMPRESSORS: dict[str, Callable[[], _Compressor]] = {
    "gzip": lambda: zlib.compressobj(6, zlib.DEFLATED, _GZIP_FORMAT),
    "bz2": bz2.BZ2Compressor,
    "xz": lzma.LZMACompressor,
}
_DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress, "bz2": bz2.decompress, "xz": lzma.decompress,
}  # fmt: skip


class BulkTextFormat:
    """Lines of a row format, compressed.

    ``row_format``   how a record becomes a line;
    ``compression``  ``"gzip"``, ``"bz2"`` or ``"xz"``. Give the sink the suffix that readers know it by.
    """

    is_bulk = True

    def __init__(self, row_format: RowFormat, compression: Literal["gzip", "bz2", "xz"] = "gzip") -> None:
        if compression not in _COMPRESSORS:
            raise ConfigurationError(
                f"compression is {compression!r}; it must be one of {', '.join(sorted(_COMPRESSORS))}. "
                "To write text as it is, give the sink the row format"
            )
        # A text has a method ``encode`` too, but another one.
        is_row_format = callable(getattr(row_format, "encode", None)) and not isinstance(row_format, str | type)
        if not is_row_format or is_bulk(row_format):
            raise ConfigurationError(
                f"row_format is {shorten(row_format)}; it must be JsonLinesRowFormat(), CsvRowFormat() or"
                " TextRowFormat(), or an object with a method encode that makes a line of a record"
            )
        self.row_format = row_format
        self.compression = compression
        self.encode = row_format.encode
        self._line_end = line_end_of(row_format)

    def __reduce__(self) -> tuple[type[BulkTextFormat], tuple[RowFormat, str]]:
        # The job travels to other processes; the encoder does not.
        return BulkTextFormat, (self.row_format, self.compression)

    def encode_batch(self, batch: Batch) -> LineRows:
        """The lines of a batch. Raises :class:`operators.files.writing.part_files.RecordError`."""
        return encode_lines(self.row_format, batch.values, self._line_end)

    def select(self, rows: LineRows, positions: Sequence[int]) -> LineRows:
        """The lines at ``positions``."""
        return LineRows(list(map(rows.lines.__getitem__, positions)), self._line_end)

    def open_writer(self, write: Callable[[bytes], None]) -> BulkTextWriter:
        """A writer that compresses one file."""
        return BulkTextWriter(write, _COMPRESSORS[self.compression]())

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The lines of a whole file. Raises ``StorageError`` when it is torn."""
        try:
            text = _DECOMPRESS[self.compression](content)
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise StorageError(f"{path} is no whole {self.compression} file: {error}") from error
        return split_lines(path, text, self._line_end)


class BulkTextWriter:
    """Compresses the lines of one file."""

    __slots__ = ("_block", "_block_bytes", "_compressor", "_write")

    def __init__(self, write: Callable[[bytes], None], compressor: _Compressor) -> None:
        self._write = write
        self._compressor = compressor
        self._block: list[bytes] = []
        self._block_bytes = 0

    def add(self, rows: Any, start: int, stop: int) -> int:
        """Take rows up to and including the one that fills the block."""
        ends = rows.ends
        before = ends[start - 1] if start else 0
        full = bisect_left(ends, before + BLOCK_BYTES - self._block_bytes, start, stop)
        taken = min(full + 1, stop)
        self._block.append(rows.content(start, taken))
        self._block_bytes += len(self._block[-1])
        if self._block_bytes >= BLOCK_BYTES:
            self._compress()
        return taken

    def _compress(self) -> None:
        data = self._compressor.compress(b"".join(self._block))
        self._block, self._block_bytes = [], 0
        if data:
            self._write(data)

    def finish(self) -> None:
        """Write the last block, and the end of the stream."""
        self._compress()
        self._write(self._compressor.flush())

    def dispose(self) -> None:
        """It holds no resource."""
