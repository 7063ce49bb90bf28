"""ORC files as input: stripes in order, as rows (pyarrow, extra ``parquet``; Flink: ``OrcColumnarRowInputFormat``).

A file is one split, since pyarrow does not say where a stripe begins. A position is ``(stripe, records after its
beginning, checksum of the file's footer)``. A stripe that cannot be read is an error that names the file and the
stripe, or with ``on_corrupt="skip"`` is left out and counted in ``numCorruptStripesSkipped``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO
from zlib import crc32

from engine.elements.errors import ConfigurationError
from engine.elements.source import SourceContext
from operators.files.formats import CorruptFileError, import_orc, import_pyarrow
from operators.files.reading.record_formats import BlockReader, RecordInputFormat
from operators.files.reading.splits import SplitRange


class OrcInputFormat(RecordInputFormat):
    """Records of ORC files; options as of :class:`RecordInputFormat`."""

    kind = "ORC"

    def cut(self, file: BinaryIO, path: str, split_bytes: int) -> list[tuple[int, int | None]]:
        """The whole file."""
        return [(0, None)]

    def open_split(self, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext) -> OrcSplitReader:
        """A reader of ``file``."""
        return OrcSplitReader(self, file, split, position, context)


class OrcSplitReader(BlockReader):
    """Reads the stripes of one file."""

    counter = "numCorruptStripesSkipped"

    def __init__(
        self, format: OrcInputFormat, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext
    ) -> None:
        super().__init__(format, file, split, context)
        self._orc: Any = None
        self._checksum, self._stripes = self._opened()
        self._next = 0
        if position is not None:
            self._restore(position, "its footer is another one")

    def __getstate__(self) -> dict[str, Any]:
        # Open objects of pyarrow cannot be copied; a copy opens the file again.
        return {**self.__dict__, "_orc": None}

    def _opened(self) -> tuple[int, int]:
        pyarrow, orc = import_pyarrow("ORC"), import_orc()
        try:
            self._orc = orc.ORCFile(self._file)
            names = self._orc.schema.names
            tail = self._orc.file_footer_length + self._orc.file_postscript_length + 1
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise CorruptFileError(self._path, "ORC", str(error)) from error
        missing = [name for name in self._format.columns or () if name not in names]
        if missing:
            has = ", ".join(names)
            raise ConfigurationError(f"{self._path}: there is no column {missing[0]!r}; the file has {has}")
        self._file.seek(-tail, 2)
        return crc32(self._file.read(tail)), int(self._orc.nstripes)

    def _resume_at(self, block: int) -> None:
        self._next = block

    def _next_block(self) -> tuple[int, Callable[[], list[dict[str, Any]]]] | None:
        if self._next >= self._stripes:
            return None
        stripe, self._next = self._next, self._next + 1
        return stripe, partial(self._read_stripe, stripe)

    def _read_stripe(self, stripe: int) -> list[dict[str, Any]]:
        pyarrow, columns = import_pyarrow("ORC"), self._format.columns
        if self._orc is None:
            self._opened()
        try:
            rows = self._orc.read_stripe(stripe, columns=None if columns is None else list(columns))
            found: list[dict[str, Any]] = rows.to_pylist()
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise CorruptFileError(self._path, "ORC", f"stripe {stripe}: {error}") from error
        return found
