"""Parquet files as output: a bulk format with a schema, written by pyarrow (extra ``parquet``).

Rules:

* Every record is checked against the schema before any of its batch is written. Arrow converts many values silently
  (``True`` to 1.0, a time cut to its date). Here a value of another type is an error that names record and column.
* Rows are gathered into row groups of a fixed number of rows. A group is written when it is full, and the last one with
  the footer when the part is closed. So the bytes of a file depend only on its records, not on the batches.
* Readers cannot use a file without its footer, so a part cannot stay open over a checkpoint.

Source: ``ParquetBulkWriter`` and ``ParquetWriterFactory``, with Arrow's schema in place of Avro's.
"""

from __future__ import annotations

import datetime
import decimal
import io
import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch
from engine.elements.errors import ConfigurationError, StorageError, check_whole, shorten
from operators.files.formats import import_pyarrow, visible_files
from operators.files.writing.part_files import RecordError
from state_backends.files import FileSystem

DEFAULT_ROW_GROUP_ROWS = 1 << 16

_STRETCH_ROWS = 1 << 12
"""Number of rows handled at a time, so that they stay in the processor's cache. It changes no result."""

_PYTHON_TYPES: dict[type, str] = {
    bool: "bool", int: "int64", float: "float64", str: "string", bytes: "binary", datetime.date: "date32",
    datetime.datetime: "timestamp[us]",
}  # fmt: skip


class SchemaMismatchError(ValueError):
    """A record does not fit the schema; the message names the column, its type and the value."""


class ParquetFormat:
    """Records with a schema, as Parquet.

    ``schema``          a ``pyarrow.Schema``, or the columns in order: name -> ``int``, ``float``, ``bool``, ``str``,
                        ``bytes``, ``datetime.date``, ``datetime.datetime``, a name of Arrow's such as ``"int32"``, or a
                        ``pyarrow.DataType``;
    ``row_group_rows``  how many rows are gathered before they are written. They are in memory until then, for each open
                        part;
    ``compression``     ``"snappy"``, ``"zstd"``, ``"gzip"`` or ``"none"``.

    A record is a dict with exactly the columns of the schema, or a tuple or list in their order. Batches of columns are
    taken as they are. ``None`` is a null, unless the schema forbids it.
    """

    is_bulk = True

    def __init__(
        self, schema: object, *, row_group_rows: int = DEFAULT_ROW_GROUP_ROWS, compression: str = "snappy"
    ) -> None:
        self._arrow = import_pyarrow()
        self.schema = self._schema_of(schema)
        check_whole("row_group_rows", row_group_rows)
        if compression not in ("snappy", "zstd", "gzip", "none"):
            raise ConfigurationError(f"compression is {compression!r}; it must be 'snappy', 'zstd', 'gzip' or 'none'")
        self.row_group_rows = row_group_rows
        self.compression = compression
        self._names: tuple[str, ...] = tuple(self.schema.names)
        positions = map(itemgetter, range(len(self._names)))
        self._getters = (tuple(positions), tuple(map(itemgetter, self._names)))
        """For tuples and lists, and for dicts."""
        self._allowed = [_allowed_types(self._arrow, field.type) for field in self.schema]

    def _schema_of(self, schema: object) -> Any:
        pa = self._arrow
        if isinstance(schema, Mapping):
            schema = pa.schema([(name, self._type_of(name, kind)) for name, kind in schema.items()])
        if not isinstance(schema, pa.Schema) or not len(schema) or len(set(schema.names)) != len(schema):
            raise ConfigurationError(
                f"schema is {shorten(schema)}; it must be a pyarrow.Schema or a dict from names to types, with at "
                "least one column and no name twice"
            )
        return schema

    def _type_of(self, name: object, kind: object) -> Any:
        pa = self._arrow
        if isinstance(name, str):
            if isinstance(kind, pa.DataType):
                return kind
            try:
                if isinstance(kind, type) and kind in _PYTHON_TYPES:
                    return pa.type_for_alias(_PYTHON_TYPES[kind])
                if isinstance(kind, str):
                    return pa.type_for_alias(kind)
            except ValueError:
                pass
        raise ConfigurationError(
            f"column {name!r} of the schema has type {kind!r}; it must be one of int, float, bool, str, bytes, date "
            "and datetime, a name of Arrow's such as 'int32', or a pyarrow.DataType"
        )

    # --- records ------------------------------------------------------------------------------------------

    def encode_batch(self, batch: Batch) -> Any:
        """The records of a batch as a ``pyarrow.RecordBatch``. Raises ``RecordError``."""
        if isinstance(batch, ColumnBatch):
            arrays = self._arrays(self._columns_of(batch), batch)
        elif len(batch.values) <= _STRETCH_ROWS:
            arrays = self._arrays(self._fields_of(batch.values), batch)
        else:
            arrays = self._arrays_by_stretches(batch.values)
        return self._arrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _arrays_by_stretches(self, rows: list[Any]) -> list[Any]:
        stretches: list[list[Any]] = []
        for at in range(0, len(rows), _STRETCH_ROWS):
            stretch = Batch(rows[at : at + _STRETCH_ROWS])
            try:
                stretches.append(self._arrays(self._fields_of(stretch.values), stretch))
            except RecordError as error:
                error.position += at
                raise
        return [self._arrow.concat_arrays(column) for column in zip(*stretches, strict=True)]

    def _arrays(self, columns: list[Any], batch: Batch) -> list[Any]:
        return [self._array(position, column, batch) for position, column in enumerate(columns)]

    def _columns_of(self, batch: ColumnBatch) -> list[Any]:
        found = batch.columns
        if found.keys() != dict.fromkeys(self._names).keys():
            raise RecordError(0, batch.values[0], self._other_fields(found))
        return [found[name] for name in self._names]

    def _fields_of(self, rows: list[Any]) -> list[Any]:
        # Nearly always all rows are of one kind and as long as the schema; counting is the fastest check.
        if not rows:
            return [[] for _ in self._names]
        kind, count = type(rows[0]), len(rows)
        known = issubclass(kind, dict | tuple | list) and list(map(type, rows)).count(kind) == count
        if known and list(map(len, rows)).count(len(self._names)) == count:
            try:
                return [list(map(getter, rows)) for getter in self._getters[issubclass(kind, dict)]]
            except KeyError:
                pass
        return self._fields_of_mixed(rows)

    def _fields_of_mixed(self, rows: list[Any]) -> list[list[Any]]:
        """Row by row: to find the row that does not fit, or because dicts and tuples are mixed."""
        names = self._names
        fields: list[list[Any]] = [[] for _ in names]
        for position, row in enumerate(rows):
            if isinstance(row, dict):
                if row.keys() != dict.fromkeys(names).keys():
                    raise RecordError(position, row, self._other_fields(row))
                row = [row[name] for name in names]
            elif not isinstance(row, tuple | list):
                why = f"a Parquet record is a dict, a tuple or a list, not {type(row).__name__}"
                raise RecordError(position, row, SchemaMismatchError(why))
            elif len(row) != len(names):
                why = f"{len(row)} fields instead of {len(names)}: {', '.join(names)}"
                raise RecordError(position, row, SchemaMismatchError(why))
            for field, value in zip(fields, row, strict=True):
                field.append(value)
        return fields

    def _other_fields(self, found: Mapping[Any, Any]) -> SchemaMismatchError:
        missing = [name for name in self._names if name not in found]
        if missing:
            return SchemaMismatchError(f"there is no column {missing[0]!r}, which the schema has")
        more = next(name for name in found if name not in self._names)
        return SchemaMismatchError(f"there is a column {more!r}, which the schema has not: {', '.join(self._names)}")

    def _array(self, column: int, values: Any, batch: Batch) -> Any:
        pa, field, allowed = self._arrow, self.schema.field(column), self._allowed[column]
        is_array = hasattr(values, "dtype") and values.dtype != object
        if is_array and allowed is not None and type(values[0].item()) not in allowed:
            raise self._misfit(column, 0, values[0].item(), batch)
        uniform = is_array or allowed is None or list(map(type, values)).count(allowed[0]) == len(values)
        if allowed is not None and not uniform:
            for kind in dict.fromkeys(map(type, values)):
                if kind not in allowed and (kind is not type(None) or not field.nullable):
                    position = next(at for at, value in enumerate(values) if type(value) is kind)
                    raise self._misfit(column, position, values[position], batch)
        try:
            if is_array:
                return pa.array(values).cast(field.type, safe=True)
            return pa.array(values, type=field.type, from_pandas=False)
        except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
            for position, value in enumerate(values.tolist() if is_array else values):
                try:
                    pa.array([value], type=field.type)
                except (pa.ArrowException, OverflowError, ValueError, TypeError) as reason:
                    raise self._misfit(column, position, value, batch, reason) from error
            raise self._misfit(column, 0, values[0], batch, error) from error

    def _misfit(
        self, column: int, position: int, value: Any, batch: Batch, reason: Exception | None = None
    ) -> RecordError:
        field = self.schema.field(column)
        null = "" if field.nullable else " not null"
        why = f"column {field.name!r} is {field.type}{null}, and {shorten(value)} is of type {type(value).__name__}"
        mismatch = SchemaMismatchError(why if reason is None else f"{why}: {reason}")
        return RecordError(position, batch.values[position], mismatch)

    def select(self, rows: Any, positions: Sequence[int]) -> Any:
        """The rows at ``positions``."""
        return rows.take(self._arrow.array(positions, type=self._arrow.int64()))

    def open_writer(self, write: Callable[[bytes], None]) -> ParquetPartWriter:
        """A writer of one file."""
        return ParquetPartWriter(self, write)

    # --- reading back -------------------------------------------------------------------------------------

    def encode(self, record: Any) -> str:
        """The record as JSON, as :meth:`lines_of` shows it. Raises ``SchemaMismatchError``."""
        try:
            rows = self.encode_batch(Batch([record]))
        except RecordError as error:
            raise error.cause from error.cause.__cause__
        return row_as_json(rows.to_pylist()[0])

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a whole file as JSON. Raises ``StorageError`` when it is torn."""
        return list(map(row_as_json, _rows_of(path, content)))


def _allowed_types(pa: Any, kind: Any) -> tuple[type, ...] | None:
    """The Python types of a column of scalars; ``None`` for nested and rare ones, which are left to Arrow's checks."""
    types = pa.types
    table: tuple[tuple[Callable[[Any], bool], tuple[type, ...]], ...] = (
        (types.is_boolean, (bool,)),
        (types.is_integer, (int,)),
        (types.is_floating, (float, int)),
        (types.is_string, (str,)),
        (types.is_large_string, (str,)),
        (types.is_binary, (bytes,)),
        (types.is_large_binary, (bytes,)),
        (types.is_date, (datetime.date,)),
        (types.is_timestamp, (datetime.datetime,)),
        (types.is_decimal, (decimal.Decimal, int)),
    )
    return next((allowed for is_kind, allowed in table if is_kind(kind)), None)


class FooterGate:
    """The file that pyarrow writes to. It is open only while a part is being written: an abandoned writer of pyarrow
    writes its footer when it is garbage-collected, at any time."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self.is_open = False
        self.closed = False
        self._position = 0

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._position += len(content)
        if self.is_open:
            self._write(content)
        return len(content)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class ParquetPartWriter:
    """Writes the row groups of one file, and its footer."""

    def __init__(self, format: ParquetFormat, write: Callable[[bytes], None]) -> None:
        self._format = format
        self._gate = FooterGate(write)
        self._gathered: list[Any] = []
        self._gathered_rows = 0
        self._writer: Any = None

    def add(self, rows: Any, start: int, stop: int) -> int:
        """Take rows up to and including the one that fills the row group."""
        count = min(stop - start, self._format.row_group_rows - self._gathered_rows)
        self._gathered.append(rows.slice(start, count))
        self._gathered_rows += count
        if self._gathered_rows == self._format.row_group_rows:
            self._write_group()
        return start + count

    def _opened(self) -> Any:
        if self._writer is None:
            pa, compression = import_pyarrow(), self._format.compression
            self._writer = pa.parquet.ParquetWriter(
                pa.PythonFile(self._gate, mode="w"), self._format.schema, compression=compression
            )
        return self._writer

    def _write_group(self) -> None:
        pa, gathered = import_pyarrow(), self._gathered
        # In one piece: pages must not show where batches ended.
        table = pa.Table.from_batches(gathered, schema=self._format.schema).combine_chunks()
        self._gathered, self._gathered_rows = [], 0
        self._gate.is_open = True
        try:
            self._opened().write_table(table, row_group_size=len(table))
        finally:
            self._gate.is_open = False

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._gathered_rows:
            self._write_group()
        self._gate.is_open = True
        try:
            self._opened().close()
        finally:
            self._gate.is_open = False

    def dispose(self) -> None:
        """Drop the gathered rows without writing them."""
        self._gathered = []
        self._writer = None


def read_committed_parquet(fs: FileSystem, path: str) -> dict[str, list[dict[str, Any]]]:
    """The committed records of Parquet files below ``path``: bucket -> its rows, in the order of the files' names.
    Hidden files and directories are left out.

    Raises ``StorageError`` for a file that is torn.
    """
    buckets: dict[str, list[dict[str, Any]]] = {}
    for bucket, file in visible_files(fs, path):
        buckets.setdefault(bucket, []).extend(_rows_of(file, fs.read_bytes(file)))
    return dict(sorted(buckets.items()))


def _rows_of(path: str, content: bytes) -> list[dict[str, Any]]:
    pa = import_pyarrow()
    try:
        rows: list[dict[str, Any]] = pa.parquet.ParquetFile(io.BytesIO(content)).read().to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{path} is no whole Parquet file: {error}") from error
    return rows


def row_as_json(row: dict[str, Any]) -> str:
    """A row as a line of JSON."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_json_default)


def _json_default(value: object) -> object:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
