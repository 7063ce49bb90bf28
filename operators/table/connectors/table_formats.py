"""The formats of tables whose files have lines: CSV, JSON Lines and text, read and written by a schema.

Rules
-----
* A record is a dict with the physical columns of the table, in the schema's order. ``None`` is a null.
* A value that does not have its column's type is malformed; the error names file, line, column and value. Types are
  not guessed: ``"7"`` is not a BIGINT in JSON, nor ``7.0`` in CSV. A whole number is a DOUBLE, though.
* A source can read what the sink writes: nulls in CSV are the same text on both sides.
* The format's ``ignore-parse-errors`` leaves malformed lines out and counts them, in ``numRecordsMalformed``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.files.formats import (
    CsvFormat,
    CsvRowFormat,
    JsonLinesFormat,
    JsonLinesRowFormat,
    LineError,
    LineFormat,
    LineParser,
    RowFormat,
    TextFormat,
    TextRowFormat,
)
from operators.table.connectors.connector_options import ConfigOption, Options
from operators.table.connectors.factories import TableDefinition
from operators.table.connectors.table_rows import CheckedRowFormat, Types, typed_column
from operators.table.types import DataType, has_part, is_map_without_text_keys

IGNORE_PARSE_ERRORS = "ignore-parse-errors"
_IGNORE_MEANING = "whether malformed records are left out and counted, instead of an error"
_ISO = "iso-8601"


def parses_leniently(identifier: str) -> ConfigOption:
    """The option of a format that leaves malformed records out."""
    return ConfigOption(f"{identifier}.{IGNORE_PARSE_ERRORS}", "boolean", _IGNORE_MEANING, False)


def _converter(kind: DataType) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        return kind.of_text(text)

    # An error names the type by this name.
    convert.__name__ = kind.name
    return convert


def refuse_map_keys(types: Types, format: str) -> None:
    """Raises ``ConfigurationError`` for a map whose keys are no texts."""
    for name, kind in types.items():
        if has_part(kind, is_map_without_text_keys):
            raise ConfigurationError(
                f"column {name!r} is {kind.name}, and the keys of a MAP in format {format!r} are STRING\n"
                "  declare it so, or use format 'parquet' or 'orc'"
            )


def _refuse_encoding(options: Options, key: str) -> None:
    encoding = options[key]
    if encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        options.refuse([f"{key!r} is {encoding!r}, for reading only: sinks write UTF-8, which would be read as that"])


class CsvTableFormat:
    """Format ``csv``."""

    identifier = "csv"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("csv.field-delimiter", "text", "the character between two fields", ","),
            ConfigOption("csv.quote-character", "text", "the character around fields with delimiters in them", '"'),
            ConfigOption("csv.header", "boolean", "whether the first line of each file names its columns", False),
            ConfigOption("csv.null-literal", "object", "the text that stands for null", ""),
            ConfigOption("csv.encoding", "text", "of the files that are read; sinks write UTF-8", "utf-8"),
            parses_leniently("csv"),
        )

    def input_format(self, table: TableDefinition) -> CsvFormat:
        columns, options = table.physical_types, table.options
        self._check(table)
        null = options["csv.null-literal"]
        return CsvFormat(
            tuple(columns),
            types={name: _converter(kind) for name, kind in columns.items() if kind.name != "STRING"},
            header=options["csv.header"],
            delimiter=options["csv.field-delimiter"],
            quote=options["csv.quote-character"],
            null_values=(null,),
            encoding=options["csv.encoding"],
        )

    def output_format(self, table: TableDefinition) -> RowFormat:
        columns, options = table.physical_types, table.options
        self._check(table)
        if options["csv.header"]:
            options.refuse(["'csv.header' is for reading only: sinks write no header"])
        _refuse_encoding(options, "csv.encoding")
        rows = CsvRowFormat(
            tuple(columns),
            delimiter=options["csv.field-delimiter"],
            quote=options["csv.quote-character"],
            null=options["csv.null-literal"],
        )
        texts = {name: kind.to_text for name, kind in columns.items() if kind.plain_type in (None, bool)}
        return CheckedRowFormat(rows, columns, texts)

    def message_format(self, table: TableDefinition) -> LineMessages:
        return LineMessages(self.input_format(table), self.output_format(table))

    def _check(self, table: TableDefinition) -> None:
        refuse_map_keys(table.physical_types, self.identifier)
        options = table.options
        delimiter, quote, null = (
            options[f"csv.{name}"] for name in ("field-delimiter", "quote-character", "null-literal")
        )
        problems = [
            f"'csv.{name}' is {sign!r}: it takes one character, other than {other}"
            for name, sign, other in (
                ("field-delimiter", delimiter, "a quote"), ("quote-character", quote, "the delimiter"),
            )
            if len(sign) != 1 or sign in "\r\n" or delimiter == quote
        ]  # fmt: skip
        if type(null) is not str or any(sign in null for sign in (delimiter, quote, "\r", "\n")):
            problems.append(
                f"'csv.null-literal' is {null!r}: it takes a text without delimiters, quotes and line breaks"
            )
        options.refuse(problems)


class JsonTableFormat:
    """Format ``json``: one object per line."""

    identifier = "json"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption(
                "json.fail-on-missing-field", "boolean", "whether a field that is missing is malformed, not null", False
            ),
            ConfigOption(
                "json.timestamp-format.standard", "choice", "how times are written: '2013-01-31 05:17:00' or with a T",
                "sql", ("sql", _ISO),
            ),
            parses_leniently("json"),
        )  # fmt: skip

    def input_format(self, table: TableDefinition) -> TypedJsonFormat:
        refuse_map_keys(table.physical_types, self.identifier)
        return TypedJsonFormat(
            table.physical_types, may_be_missing=not table.options["json.fail-on-missing-field"], iso=_is_iso(table)
        )

    def output_format(self, table: TableDefinition) -> RowFormat:
        types, iso = table.physical_types, _is_iso(table)
        refuse_map_keys(types, self.identifier)
        converters = {name: _to_json(kind, iso) for name, kind in types.items() if kind.plain_type is None}
        return CheckedRowFormat(JsonLinesRowFormat(), types, converters)

    def message_format(self, table: TableDefinition) -> LineMessages:
        return LineMessages(self.input_format(table), self.output_format(table))


def _is_iso(table: TableDefinition) -> bool:
    return bool(table.options["json.timestamp-format.standard"] == _ISO)


def _to_json(kind: DataType, iso: bool) -> Callable[[Any], Any]:
    return lambda value: kind.to_json(value, iso=iso)


class TextTableFormat:
    """Format ``text``: each line is the one column of the table."""

    identifier = "text"

    def options(self) -> Sequence[ConfigOption]:
        return (ConfigOption("text.encoding", "text", "of the files that are read; sinks write UTF-8", "utf-8"),)

    def input_format(self, table: TableDefinition) -> TypedTextFormat:
        return TypedTextFormat(_only_column(table.physical), table.options["text.encoding"])

    def output_format(self, table: TableDefinition) -> RowFormat:
        _only_column(table.physical)
        _refuse_encoding(table.options, "text.encoding")
        return CheckedRowFormat(_OneColumn(), table.physical_types, {})


class _OneColumn:
    """Writes the text in the one column of a row."""

    def __init__(self) -> None:
        self._lines = TextRowFormat()

    def encode(self, record: Any) -> str:
        [(column, text)] = record.items()
        if text is None:
            raise ValueError(f"column {column!r}: format 'text' has no null")
        return self._lines.encode(text)


def _only_column(schema: dict[str, str]) -> str:
    if list(schema.values()) != ["STRING"]:
        raise ConfigurationError(
            "format 'text' is for one STRING column beside the partition columns; the schema has "
            f"{', '.join(f'{name} {kind}' for name, kind in schema.items())}"
        )
    return next(iter(schema))


class TypedJsonFormat(JsonLinesFormat):
    """JSON objects with the columns of a schema; other fields are left out."""

    def __init__(self, types: Types, *, may_be_missing: bool, iso: bool = False) -> None:
        super().__init__(exact=any(has_part(kind, _is_decimal) for kind in types.values()))
        self._types, self._may_be_missing, self._iso = types, may_be_missing, iso

    def parser(self, header: str | None) -> LineParser:
        return _TypedParser(super().parser(header), self._types, self._may_be_missing, self._iso)


def _is_decimal(kind: DataType) -> bool:
    return kind.name.startswith("DECIMAL")


class TypedTextFormat(TextFormat):
    """Lines as dicts with one column. ``value``: what the column has for a line."""

    def __init__(self, column: str, encoding: str, value: Callable[[str], Any] | None = None) -> None:
        super().__init__(encoding)
        self._column, self._value = column, value

    def parser(self, header: str | None) -> LineParser:
        return _TextParser(super().parser(header), self._column, self._value)


class _TextParser:
    def __init__(self, lines: LineParser, column: str, value: Callable[[str], Any] | None) -> None:
        self._lines, self._column, self._value = lines, column, value

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        column, values = self._column, self._lines.parse_block(lines) or ()
        return [{column: one} for one in (values if self._value is None else map(self._value, values))]

    def parse_line(self, line: str) -> tuple[Any, ...]:
        return tuple(self.parse_block([line]) or ())


class _TypedParser:
    def __init__(self, objects: LineParser, types: Types, may_be_missing: bool, iso: bool) -> None:
        self._objects, self._types, self._may_be_missing, self._iso = objects, types, may_be_missing, iso

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        objects = self._objects.parse_block(lines)
        if objects is None:
            return None
        names = tuple(self._types)
        columns = self._columns(objects)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _columns(self, objects: list[Any]) -> list[list[Any]]:
        for one in objects:
            if type(one) is not dict:
                raise LineError(f"{one!r} is no JSON object")
            if not self._may_be_missing:
                for name in self._types:
                    if name not in one:
                        raise LineError(f"column {name!r}: the object has no such field; it has {', '.join(one)}")
        return [
            typed_column(name, [one.get(name) for one in objects], kind, iso=self._iso)
            for name, kind in self._types.items()
        ]

    def parse_line(self, line: str) -> tuple[Any, ...]:
        objects = self._objects.parse_line(line)
        if not objects:
            return ()
        return (dict(zip(self._types, (column[0] for column in self._columns(list(objects))), strict=True)),)


class LineMessages:
    """Rows of a table as single messages, each the line that a file would have."""

    def __init__(self, reading: LineFormat, writing: RowFormat) -> None:
        self._writing = writing
        self._parser = reading.parser(None)
        self._encoding = reading.encoding

    def encode(self, row: Any) -> bytes:
        """The message of a row. Raises ``ValueError``."""
        return self._writing.encode(row).encode()

    def decode(self, message: bytes) -> Any:
        """The row of a message. Raises ``ValueError``."""
        rows = self._parser.parse_line(message.decode(self._encoding))
        if len(rows) != 1:
            raise LineError("the message is blank")
        return rows[0]
