"""Parquet files as input: row groups in order, as columns or as rows.

Rules
-----
* A row group belongs to the split in whose bytes it begins. So a file can be cut only between two row groups.
* A position is ``(offset of the row group, records after it, checksum of the file's footer)``. A file with another
  footer is another file, and refused.
* A column has one of the types of :mod:`engine.elements.columns`. Other Parquet types are converted where no
  information is lost (shorter numbers, dictionaries, timestamps to whole ms), and refused otherwise. Rows may also
  hold nulls and lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, Literal, NamedTuple
from zlib import crc32

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch, ColumnError, checked_columns
from engine.elements.errors import ConfigurationError, StateError
from engine.elements.source import SourceContext
from operators.files.formats import CorruptFileError, import_pyarrow
from operators.files.reading.record_formats import BLOCK_POSITION, prepared_record
from operators.files.reading.splits import FileSplitReader, SplitRange, position_behind

_FOOTER_TAIL = 8
"""Length of the metadata, and ``PAR1``."""


class _RowGroup(NamedTuple):
    number: int
    offset: int
    rows: int
    size_bytes: int


class ParquetInputFormat:
    """Records of Parquet files.

    ``columns``     the columns to read, in order; ``None``: all;
    ``record``      ``"columns"`` for batches of columns (needs numpy), ``"dict"`` or ``"tuple"`` for rows;
    ``timestamps``  the column with event times in ms, with ``record="columns"``;
    ``types``       required types of columns: ``BIGINT``, ``DOUBLE``, ``BOOLEAN``, ``STRING`` or ``BYTES``. A file
                    with another type is refused, but a DOUBLE may be whole numbers;
    ``prepared``    for rows of any types: is called with each record as a dict of Arrow's values, and returns what is
                    emitted; a ``ValueError`` names the file.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        record: Literal["columns", "dict", "tuple"] = "columns",
        timestamps: str | None = None,
        types: Mapping[str, str] | None = None,
        prepared: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise ConfigurationError(f"columns={columns!r}: give a list of names")
        if record not in ("columns", "dict", "tuple"):
            raise ConfigurationError(f"record must be 'columns', 'dict' or 'tuple', got {record!r}")
        if timestamps is not None and record != "columns":
            raise ConfigurationError("timestamps= names a column: use record='columns', or a watermark strategy")
        if timestamps is not None and columns is not None and timestamps not in columns:
            raise ConfigurationError(f"timestamps={timestamps!r} is not among columns={list(columns)!r}")
        self.columns = None if columns is None else tuple(columns)
        self.record = record
        self.timestamps = timestamps
        self.types = dict(types or {})
        self.prepared = prepared

    position_shape = staticmethod(BLOCK_POSITION)

    def cut(self, file: BinaryIO, path: str, split_bytes: int) -> list[tuple[int, int | None]]:
        """Ranges of row groups, of at least ``split_bytes`` bytes each except the last."""
        starts, size = [0], 0
        for group in _row_groups(_opened(file, path)):
            if size >= split_bytes:
                starts.append(group.offset)
                size = 0
            size += group.size_bytes
        return list(zip(starts, [*starts[1:], None], strict=True))

    def open_split(
        self, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext
    ) -> ParquetSplitReader:
        """A reader of a split of ``file``."""
        return ParquetSplitReader(self, file, split, position, context)


def _opened(file: BinaryIO, path: str) -> Any:
    pyarrow = import_pyarrow()
    try:
        return pyarrow.parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CorruptFileError(path, "Parquet", str(error)) from error


def _row_groups(parquet: Any) -> list[_RowGroup]:
    groups = []
    for index in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(index)
        chunks = [group.column(at) for at in range(group.num_columns)]
        offsets = [
            one.data_page_offset
            if one.dictionary_page_offset is None
            else min(one.data_page_offset, one.dictionary_page_offset)
            for one in chunks
        ]
        size = sum(one.total_compressed_size for one in chunks)
        groups.append(_RowGroup(index, min(offsets, default=0), group.num_rows, size))
    return groups


class ParquetSplitReader(FileSplitReader):
    """Reads the row groups of one split."""

    def __init__(
        self, format: ParquetInputFormat, file: BinaryIO, split: SplitRange, position: Any, context: SourceContext
    ) -> None:
        super().__init__(file, split, context)
        self._format = format
        self._parquet: Any = _opened(file, split.path)
        self._footer = self._checksum()
        self._groups = [
            group
            for group in _row_groups(self._parquet)
            if group.rows and group.offset >= split.start and (split.end is None or group.offset < split.end)
        ]
        self._check_columns()
        self._group = self._row = 0
        if position is not None:
            self._restore(*position)
        self._table: Any = None
        """The current row group, once it has been read."""

    def __getstate__(self) -> dict[str, Any]:
        # Open objects of pyarrow cannot be copied; a copy opens the file again.
        return {**self.__dict__, "_parquet": None, "_table": None}

    def _checksum(self) -> int:
        file = self._file
        end = file.seek(0, 2)
        file.seek(end - _FOOTER_TAIL)
        size = int.from_bytes(file.read(4), "little")
        file.seek(end - _FOOTER_TAIL - size)
        return crc32(file.read(size))

    def _check_columns(self) -> None:
        present = self._parquet.schema_arrow.names
        columns = self._format.columns or ()
        missing = [name for name in columns if name not in present]
        if missing:
            raise ConfigurationError(
                f"{self._path}: there is no column {missing[0]!r}; the file has {', '.join(present)}"
            )

    def _restore(self, offset: int, records: int, footer: int) -> None:
        offsets = [group.offset for group in self._groups]
        if footer != self._footer or (offset not in offsets and offset >= 0):
            raise self._changed("its footer is another one")
        if offset >= 0:
            group = offsets.index(offset)
            if records > self._groups[group].rows:
                raise StateError(
                    f"file {self._path!r} of source {self._context.name!r}: the checkpoint says that {records} records"
                    f" of a row group were read which has {self._groups[group].rows}\n"
                    "  go on from another checkpoint, or start without one"
                )
            self._group, self._row = group, records

    def ready(self) -> int:
        """How many records are sure to come next, at least one before the end of the split."""
        if not self._groups:
            return 0
        if self._row == self._groups[self._group].rows and self._group + 1 < len(self._groups):
            self._group, self._row, self._table = self._group + 1, 0, None
        return self._groups[self._group].rows - self._row

    def read(self, max_records: int) -> Batch | None:
        if not self.ready():
            return None
        if self._table is None:
            self._table = self._read_group(self._groups[self._group].number)
        start = self._row
        self._row = min(start + max_records, self._groups[self._group].rows)
        return self._batch(start, self._row)

    def _read_group(self, index: int) -> Any:
        pyarrow = import_pyarrow()
        if self._parquet is None:
            self._parquet = _opened(self._file, self._path)
        try:
            table = self._parquet.read_row_group(index, columns=self._format.columns and list(self._format.columns))
        except (pyarrow.ArrowException, OSError) as error:
            raise CorruptFileError(self._path, "Parquet", f"row group {index}: {error}") from error
        names = self._format.columns or table.column_names
        if self._format.prepared is not None:
            return table.select(list(names))
        plain = {name: self._typed(_plain(table.column(name), name, self._path, pyarrow), name) for name in names}
        if self._format.record != "columns":
            return pyarrow.table(plain)
        try:
            columns, count = checked_columns(plain)
        except ColumnError as error:
            raise ConfigurationError(
                f"{self._path}: {error}\n  or read rows, with record='dict', which may hold nulls and lists"
            ) from error
        stamps = self._format.timestamps
        if stamps is not None and str(columns[stamps].dtype) != "int64":
            raise ConfigurationError(f"{self._path}: timestamps={stamps!r} is no column of whole ms")
        return ColumnBatch(columns, count, None if stamps is None else columns[stamps])

    def _typed(self, column: Any, name: str) -> Any:
        declared = self._format.types.get(name)
        if declared is None:
            return column
        pyarrow = import_pyarrow()
        types, kind = pyarrow.types, column.type
        if declared == "DOUBLE" and types.is_integer(kind):
            return column.cast(pyarrow.float64())
        fits = {
            "BIGINT": types.is_integer,
            "DOUBLE": types.is_floating,
            "BOOLEAN": types.is_boolean,
            "STRING": lambda one: types.is_string(one) or types.is_large_string(one),
            "BYTES": lambda one: types.is_binary(one) or types.is_large_binary(one),
        }
        if not fits[declared](kind) and not types.is_null(kind):
            raise ConfigurationError(
                f"{self._path}: column {name!r} is declared {declared}, and the file has it as {kind}\n"
                "  declare it as the files have it, or read other files"
            )
        return column

    def _batch(self, start: int, stop: int) -> Batch:
        table = self._table
        if isinstance(table, ColumnBatch):
            return table.between(start, stop)
        rows = table.slice(start, stop - start).to_pylist()
        if (prepared := self._format.prepared) is not None:
            return Batch([prepared_record(prepared, row, self._path, "Parquet") for row in rows])
        if self._format.record == "tuple":
            return Batch([tuple(row.values()) for row in rows])
        return Batch(rows)

    def position(self) -> tuple[int, int, int]:
        if not self._groups:
            return (-1, 0, self._footer)
        return (*position_behind(self._groups[self._group].offset, 0, self._row - 1), self._footer)


def _plain(column: Any, name: str, path: str, pyarrow: Any) -> Any:
    """A column whose values are plain, as state requires."""
    types, kind = pyarrow.types, column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_timestamp(kind):
        try:
            return column.cast(pyarrow.timestamp("ms", kind.tz)).cast(pyarrow.int64())
        except pyarrow.ArrowInvalid as error:
            raise ConfigurationError(
                f"{path}: column {name!r}: {error}\n  write it in whole ms, or leave it out"
            ) from error
    leaf = kind
    while types.is_list(leaf) or types.is_large_list(leaf):
        leaf = leaf.value_type
    known = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string,
        types.is_binary, types.is_large_binary, types.is_null,
    )  # fmt: skip
    if not any(test(leaf) for test in known):
        raise ConfigurationError(
            f"{path}: column {name!r} is of type {kind}, for which records have no plain value\n"
            f"  leave it out, with columns=[...], or write it as a number or a string"
        )
    return column
