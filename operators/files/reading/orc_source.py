"""ORC files as input: stripes in order, as rows (pyarrow, extra ``parquet``; Flink: ``OrcColumnarRowInputFormat``).

A file is one split, since pyarrow does not say where a stripe begins. A position is ``(stripe, records after its
beginning, checksum of the file's footer)``; a file with another footer is another file, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Literal
from zlib import crc32

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StateError
from engine.elements.source import SourceContext
from operators.files.formats import CorruptFileError, import_orc, import_pyarrow
from operators.files.reading.splits import FileSplitReader, SplitRange, position_behind
from state_backends.base import number, row, whole


class OrcInputFormat:
    """Records of ORC files.

    ``columns``     the columns to read, in order; ``None``: all;
    ``record``      ``"dict"`` or ``"tuple"``;
    ``prepared``    is called with each record as a dict, and returns what is emitted; a ``ValueError`` names the file;
    ``on_corrupt``  ``"fail"``, or ``"skip"`` = leave out stripes that cannot be read; counter
                    ``numCorruptStripesSkipped``.
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
        """The whole file."""
        return [(0, None)]

    def open_split(self, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext) -> OrcSplitReader:
        """A reader of ``file``."""
        return OrcSplitReader(self, file, split, position, context)


class OrcSplitReader(FileSplitReader):
    """Reads the stripes of one file."""

    def __init__(
        self, format: OrcInputFormat, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext
    ) -> None:
        super().__init__(file, split, context)
        self._format = format
        self._orc: Any = None
        self._footer, self._stripes = self._opened()
        self._stripe, self._next = -1, 0
        self._records: list[Any] = []
        self._taken = 0
        if position is not None:
            self._restore(*position)

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

    def _restore(self, stripe: int, records: int, footer: int) -> None:
        if footer != self._footer or stripe >= self._stripes:
            raise self._changed("its footer is another one")
        if stripe < 0:
            return
        self._next = stripe
        if not self._load() or records > len(self._records):
            raise StateError(
                f"file {self._path!r} of source {self._context.name!r}: the checkpoint says that {records} records of"
                f" stripe {stripe} were read, which has {len(self._records)}\n"
                "  go on from another checkpoint, or start without one"
            )
        self._taken = records

    def _load(self) -> bool:
        while self._next < self._stripes:
            stripe, self._next = self._next, self._next + 1
            records = self._records_of(stripe)
            if records:
                self._stripe, self._records, self._taken = stripe, records, 0
                return True
        return False

    def _records_of(self, stripe: int) -> list[Any]:
        pyarrow, format = import_pyarrow("ORC"), self._format
        if self._orc is None:
            self._opened()
        try:
            batch = self._orc.read_stripe(stripe, columns=None if format.columns is None else list(format.columns))
            return [self._shaped(one) for one in batch.to_pylist()]
        except (pyarrow.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            if format.on_corrupt == "fail":
                raise CorruptFileError(self._path, "ORC", f"stripe {stripe}: {error}") from error
            self._context.count("numCorruptStripesSkipped")
            return []

    def _shaped(self, record: dict[str, Any]) -> Any:
        format = self._format
        if format.columns is not None:
            record = {name: record[name] for name in format.columns}
        if format.prepared is not None:
            return format.prepared(record)
        return tuple(record.values()) if format.record == "tuple" else record

    def ready(self) -> int:
        """How many records are sure to come next, at least one before the end of the file."""
        if self._taken == len(self._records) and not self._load():
            return 0
        return len(self._records) - self._taken

    def read(self, max_records: int) -> Batch | None:
        if not self.ready():
            return None
        start, self._taken = self._taken, min(self._taken + max_records, len(self._records))
        return Batch(self._records[start : self._taken])

    def position(self) -> tuple[int, int, int]:
        if self._stripe < 0:
            return (-1, 0, self._footer)
        return (*position_behind(self._stripe, 0, self._taken - 1), self._footer)
