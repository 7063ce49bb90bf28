"""ORC files as output: a bulk format with a schema, written by pyarrow (extra ``parquet``; Flink: ``OrcBulkWriter``).

Records are checked as for Parquet. They are handed to pyarrow in pieces of a fixed number of rows, so the bytes of a
file depend on its records alone; pyarrow ends a stripe after ``stripe_bytes``. Readers need the footer, so a part
cannot stay open over a checkpoint.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, StorageError, check_whole
from operators.files.formats import import_orc, import_pyarrow
from operators.files.writing.parquet_format import FooterGate, ParquetFormat, row_as_json

_COMPRESSIONS = {"none": "uncompressed", "snappy": "snappy", "zlib": "zlib", "zstd": "zstd"}


class OrcFormat:
    """Records with a schema, as ORC.

    ``schema``        as of :class:`operators.files.writing.ParquetFormat`;
    ``stripe_bytes``  about how many bytes a stripe has;
    ``piece_rows``    how many rows are gathered before they are handed on;
    ``compression``   ``"none"``, ``"snappy"``, ``"zlib"`` or ``"zstd"``.
    """

    is_bulk = True

    def __init__(
        self, schema: object, *, stripe_bytes: int = 1 << 26, piece_rows: int = 1 << 12, compression: str = "snappy"
    ) -> None:
        check_whole("stripe_bytes", stripe_bytes)
        check_whole("piece_rows", piece_rows)
        if compression not in _COMPRESSIONS:
            names = ", ".join(map(repr, _COMPRESSIONS))
            raise ConfigurationError(f"compression is {compression!r}; it must be one of {names}")
        import_orc()
        self._rows = ParquetFormat(schema)
        self.schema = self._rows.schema
        self.stripe_bytes = stripe_bytes
        self.piece_rows = piece_rows
        self.compression = compression
        self.encode = self._rows.encode
        self.encode_batch = self._rows.encode_batch

    def select(self, rows: Any, positions: Sequence[int]) -> Any:
        """The rows at ``positions``."""
        return self._rows.select(rows, positions)

    def open_writer(self, write: Callable[[bytes], None]) -> OrcPartWriter:
        """A writer of one file."""
        return OrcPartWriter(self, write)

    def merge_files(self, contents: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Write one file with the records of all, for compaction."""
        orc, writer = import_orc(), self.open_writer(write)
        for content in contents:
            source = orc.ORCFile(io.BytesIO(content))
            for stripe in range(source.nstripes):
                rows, at = source.read_stripe(stripe).cast(self.schema), 0
                while at < rows.num_rows:
                    at = writer.add(rows, at, rows.num_rows)
        writer.finish()

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a whole file as JSON. Raises ``StorageError`` when it is torn."""
        pa, orc = import_pyarrow("ORC"), import_orc()
        try:
            rows = orc.ORCFile(io.BytesIO(content)).read().to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StorageError(f"{path} is no whole ORC file: {error}") from error
        return list(map(row_as_json, rows))


class OrcPartWriter:
    """Writes the stripes of one file, and its footer."""

    def __init__(self, format: OrcFormat, write: Callable[[bytes], None]) -> None:
        self._format = format
        self._write = write
        self._ready: list[bytes] = []
        """Bytes that pyarrow has written. The file gets them afterwards: pyarrow ends the process when an error of the
        file reaches its own writer as it is closed."""
        self._gate = FooterGate(self._ready.append)
        # Always: what an abandoned writer adds at its end is never handed on.
        self._gate.is_open = True
        self._gathered: list[Any] = []
        self._gathered_rows = 0
        self._writer: Any = None

    def add(self, rows: Any, start: int, stop: int) -> int:
        """Take rows up to and including the one that fills the piece."""
        count = min(stop - start, self._format.piece_rows - self._gathered_rows)
        self._gathered.append(rows.slice(start, count))
        self._gathered_rows += count
        if self._gathered_rows == self._format.piece_rows:
            self._write_piece()
        return start + count

    def _opened(self) -> Any:
        if self._writer is None:
            pa, orc = import_pyarrow("ORC"), import_orc()
            self._writer = orc.ORCWriter(
                pa.PythonFile(self._gate, mode="w"),
                stripe_size=self._format.stripe_bytes,
                compression=_COMPRESSIONS[self._format.compression],
            )
        return self._writer

    def _write_piece(self) -> None:
        pa, gathered = import_pyarrow("ORC"), self._gathered
        table = pa.Table.from_batches(gathered, schema=self._format.schema).combine_chunks()
        self._gathered, self._gathered_rows = [], 0
        self._opened().write(table)
        self._hand_on()

    def _hand_on(self) -> None:
        data = b"".join(self._ready)
        self._ready.clear()
        if data:
            self._write(data)

    def finish(self) -> None:
        """Write the last rows and the footer."""
        if self._gathered_rows or self._writer is None:
            self._write_piece()
        self._opened().close()
        self._hand_on()

    def dispose(self) -> None:
        """Nothing is handed on any more."""
