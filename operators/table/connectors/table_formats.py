"""The formats of tables: CSV, JSON Lines, text and Parquet, read and written by a schema.

Rules
-----
* A record is a dict with the physical columns of the table, in the schema's order. ``None`` is a null.
* A value that does not have its column's type is malformed; the error names file, line, column and value. Types are
  not guessed: ``"7"`` is not a BIGINT in JSON, nor ``7.0`` in CSV. A whole number is a DOUBLE, though.
* A source can read what the sink writes: nulls in CSV are empty fields on both sides.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, shorten
from operators.files.formats import (
    CsvFormat,
    CsvRowFormat,
    JsonLinesFormat,
    JsonLinesRowFormat,
    LineError,
    LineParser,
    RowFormat,
    TextFormat,
    TextRowFormat,
)
from operators.files.reading import ParquetInputFormat
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.connectors.factories import Schema, TableDefinition

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_GREATEST_DOUBLE = int(sys.float_info.max)
_RANGES = {"BIGINT": (_LEAST, _MOST), "DOUBLE": (-_GREATEST_DOUBLE, _GREATEST_DOUBLE)}
"""The limits of whole numbers."""
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def _bigint(text: str) -> int:
    if _INTEGER.fullmatch(text) is None or not _LEAST <= int(text) <= _MOST:
        raise ValueError("a BIGINT is a whole number of 64 bits")
    return int(text)


def _double(text: str) -> float:
    if "_" in text or text != text.strip():
        raise ValueError("a DOUBLE is a decimal number")
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("a BOOLEAN is true or false")
    return text.lower() == "true"


_FROM_TEXT: dict[str, Callable[[str], Any]] = {"BIGINT": _bigint, "DOUBLE": _double, "BOOLEAN": _boolean, "STRING": str}
_PYTHON: dict[str, tuple[type, ...]] = {
    "BIGINT": (int,), "DOUBLE": (float, int), "BOOLEAN": (bool,), "STRING": (str,), "BYTES": (bytes,),
}  # fmt: skip


def value_of_text(text: str, kind: str) -> Any:
    """A text as a value of a column's type. Raises ``ValueError``."""
    if kind not in _FROM_TEXT:
        raise ValueError(f"there is no text for {kind}")
    return _FROM_TEXT[kind](text)


def _converter(kind: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        return value_of_text(text, kind)

    # An error names the type by this name.
    convert.__name__ = kind
    return convert


def _refuse_bytes(schema: Schema, format: str) -> None:
    for name, kind in schema.items():
        if kind == "BYTES":
            raise ConfigurationError(
                f"column {name!r} is BYTES, which format {format!r} cannot hold; use format 'parquet', or a STRING"
            )


def _refuse_encoding(options: Options, key: str) -> None:
    encoding = options[key]
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        options.refuse([f"{key!r} is {encoding!r}, for reading only: sinks write UTF-8, which would be read as that"])


def typed_column(name: str, values: Sequence[Any], kind: str) -> list[Any]:
    """Values of a column of that type; a DOUBLE takes ints. Raises ``LineError`` that names column and value."""
    allowed = _PYTHON[kind]
    found = dict.fromkeys(map(type, values))
    for one in found:
        if one is not type(None) and one not in allowed:
            wrong = next(value for value in values if type(value) is one)
            raise LineError(f"column {name!r}: {wrong!r} is no {kind}")
    if int in found:
        least, most = _RANGES[kind]
        for value in [one for one in values if type(one) is int and not least <= one <= most]:
            raise LineError(_out_of_range(name, value, kind))
        if kind == "DOUBLE":
            return [float(value) if type(value) is int else value for value in values]
    return list(values)


def _out_of_range(name: str, value: int, kind: str) -> str:
    return f"column {name!r}: {shorten(value)} is no {kind}: it does not fit 64 bits"


class CsvTableFormat:
    """Format ``csv``."""

    identifier = "csv"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("csv.field-delimiter", "text", "the character between two fields", ","),
            ConfigOption("csv.header", "boolean", "whether the first line of each file names its columns", False),
            ConfigOption("csv.null-literal", "object", "the text that stands for null; sinks write an empty one", ""),
            ConfigOption("csv.encoding", "text", "of the files that are read; sinks write UTF-8", "utf-8"),
        )

    def input_format(self, table: TableDefinition) -> CsvFormat:
        columns = table.physical
        _refuse_bytes(columns, self.identifier)
        null = table.options["csv.null-literal"]
        return CsvFormat(
            tuple(columns),
            types={name: _converter(kind) for name, kind in columns.items() if kind != "STRING"},
            header=table.options["csv.header"],
            delimiter=table.options["csv.field-delimiter"],
            null_values=() if null is None else (null,),
            encoding=table.options["csv.encoding"],
        )

    def output_format(self, table: TableDefinition) -> RowFormat:
        columns, options = table.physical, table.options
        _refuse_bytes(columns, self.identifier)
        # (An input format says so itself.)
        delimiter = options["csv.field-delimiter"]
        if len(delimiter) != 1 or delimiter in '"\r\n':
            options.refuse([f"'csv.field-delimiter' is {delimiter!r}: it takes one character, other than a quote"])
        if options["csv.header"] or options["csv.null-literal"] not in ("", None):
            options.refuse(
                [f"{key!r} is for reading only: sinks write no header, and null as an empty field"
                 for key in options.given_among(("csv.header", "csv.null-literal"))]
            )  # fmt: skip
        _refuse_encoding(options, "csv.encoding")
        return CheckedRowFormat(CsvRowFormat(tuple(columns), delimiter=delimiter), columns, _as_csv)


def _as_csv(row: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value).lower() if type(value) is bool else value for name, value in row.items()}


class JsonTableFormat:
    """Format ``json``: one object per line."""

    identifier = "json"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption(
                "json.fail-on-missing-field", "boolean", "whether a field that is missing is malformed, not null", False
            ),
        )

    def input_format(self, table: TableDefinition) -> TypedJsonFormat:
        _refuse_bytes(table.physical, self.identifier)
        return TypedJsonFormat(table.physical, may_be_missing=not table.options["json.fail-on-missing-field"])

    def output_format(self, table: TableDefinition) -> RowFormat:
        _refuse_bytes(table.physical, self.identifier)
        return CheckedRowFormat(JsonLinesRowFormat(), table.physical)


class TextTableFormat:
    """Format ``text``: each line is the one column of the table."""

    identifier = "text"

    def options(self) -> Sequence[ConfigOption]:
        return (ConfigOption("text.encoding", "text", "of the files that are read; sinks write UTF-8", "utf-8"),)

    def input_format(self, table: TableDefinition) -> TypedTextFormat:
        return TypedTextFormat(_only_column(table.physical), table.options["text.encoding"])

    def output_format(self, table: TableDefinition) -> RowFormat:
        column = _only_column(table.physical)
        _refuse_encoding(table.options, "text.encoding")
        return CheckedRowFormat(TextRowFormat(), table.physical, lambda row: row[column])


def _only_column(schema: Schema) -> str:
    if list(schema.values()) != ["STRING"]:
        raise ConfigurationError(
            "format 'text' is for one STRING column beside the partition columns; the schema has "
            f"{', '.join(f'{name} {kind}' for name, kind in schema.items())}"
        )
    return next(iter(schema))


class ParquetTableFormat:
    """Format ``parquet``."""

    identifier = "parquet"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption(
                "parquet.compression", "choice", "of the files that are written", "snappy",
                ("snappy", "zstd", "gzip", "none"),
            ),
            ConfigOption("parquet.row-group-rows", "number", "rows of a row group that is written", 1 << 16),
        )  # fmt: skip

    def input_format(self, table: TableDefinition) -> ParquetInputFormat:
        return ParquetInputFormat(tuple(table.physical), record="dict", types=table.physical)

    def output_format(self, table: TableDefinition) -> Any:
        from operators.files.writing import ParquetFormat

        kinds = {"BIGINT": "int64", "DOUBLE": "float64", "BOOLEAN": "bool", "STRING": "string", "BYTES": "binary"}
        return ParquetFormat(
            {name: kinds[kind] for name, kind in table.physical.items()},
            compression=table.options["parquet.compression"],
            row_group_rows=table.options["parquet.row-group-rows"],
        )


class TypedJsonFormat(JsonLinesFormat):
    """JSON objects with the columns of a schema; other fields are left out."""

    def __init__(self, schema: Schema, *, may_be_missing: bool) -> None:
        super().__init__()
        self._schema, self._may_be_missing = schema, may_be_missing

    def parser(self, header: str | None) -> LineParser:
        return _TypedParser(super().parser(header), self._schema, self._may_be_missing)


class TypedTextFormat(TextFormat):
    """Lines as dicts with one column."""

    def __init__(self, column: str, encoding: str) -> None:
        super().__init__(encoding)
        self._column = column

    def parser(self, header: str | None) -> LineParser:
        return _TextParser(super().parser(header), self._column)


class _TextParser:
    def __init__(self, lines: LineParser, column: str) -> None:
        self._lines, self._column = lines, column

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        column = self._column
        return [{column: line} for line in self._lines.parse_block(lines) or ()]

    def parse_line(self, line: str) -> tuple[Any, ...]:
        return tuple({self._column: one} for one in self._lines.parse_line(line))


class _TypedParser:
    def __init__(self, objects: LineParser, schema: Schema, may_be_missing: bool) -> None:
        self._objects, self._schema, self._may_be_missing = objects, schema, may_be_missing

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        objects = self._objects.parse_block(lines)
        if objects is None:
            return None
        names = tuple(self._schema)
        columns = self._columns(objects)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _columns(self, objects: list[Any]) -> list[list[Any]]:
        for one in objects:
            if type(one) is not dict:
                raise LineError(f"{one!r} is no JSON object")
            if not self._may_be_missing:
                for name in self._schema:
                    if name not in one:
                        raise LineError(f"column {name!r}: the object has no such field; it has {', '.join(one)}")
        return [typed_column(name, [one.get(name) for one in objects], kind) for name, kind in self._schema.items()]

    def parse_line(self, line: str) -> tuple[Any, ...]:
        objects = self._objects.parse_line(line)
        if not objects:
            return ()
        return (dict(zip(self._schema, (column[0] for column in self._columns(list(objects))), strict=True)),)


class CheckedRowFormat:
    """Writes dicts that have exactly the columns of a schema."""

    def __init__(
        self, rows: RowFormat, schema: Schema, prepared: Callable[[dict[str, Any]], Any] = lambda row: row
    ) -> None:
        self._rows, self._schema, self._prepared = rows, schema, prepared

    def encode(self, record: Any) -> str:
        schema = self._schema
        if not isinstance(record, Mapping) or record.keys() != schema.keys():
            found = f"is {type(record).__name__}"
            if isinstance(record, Mapping):
                found = f"has {', '.join(map(str, record))}"
            raise ValueError(f"a row of the table is a dict with {', '.join(schema)}; this one {found}")
        row = {}
        for name, kind in schema.items():
            value = record[name]
            if value is not None and type(value) not in _PYTHON[kind]:
                raise ValueError(f"column {name!r}: {value!r} is no {kind}")
            if type(value) is int and not _RANGES[kind][0] <= value <= _RANGES[kind][1]:
                raise ValueError(_out_of_range(name, value, kind))
            row[name] = value
        return self._rows.encode(self._prepared(row))
