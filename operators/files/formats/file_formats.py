"""Formats of text files with one record per line: CSV, JSON Lines, plain text.

A format opens a *parser* per file. Parsers work on blocks of lines, so that the loop over records runs in
C. Only a block with an error in it is parsed again, line by line, to find the line and the reason.
Parsers are pure: the reader handles bytes, offsets and line numbers.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any, Literal, Protocol

from engine.elements.errors import ConfigurationError
from operators.files.formats.row_formats import check_csv_signs

_MOST_CHARACTERS = 1 << 24
"""Of a field. A line has no more bytes (:mod:`operators.files.reading.line_reader`), so sinks write such fields."""
csv.field_size_limit(max(csv.field_size_limit(), _MOST_CHARACTERS))


class LineError(ValueError):
    """A line does not match the format; the message says why."""


class LineParser(Protocol):
    """Parses the lines of one file."""

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        """One record per line, or ``None`` when not every line is exactly one good record. May also raise any error in
        that case."""

    def parse_line(self, line: str) -> tuple[Any, ...]:
        """``(record,)``, or ``()`` for a line without a record (blank). Raises ``LineError``."""


class LineFormat(Protocol):
    """Describes a file format with one record per line."""

    encoding: str
    has_header: bool

    def parser(self, header: str | None) -> LineParser:
        """A parser for a file whose first line is ``header``. Raises ``LineError`` when that is not a header."""


def check_encoding(encoding: str) -> str:
    """``encoding``, if line breaks can be found in its bytes. Raises ``ConfigurationError``."""
    try:
        newline = "\n".encode(encoding)
    except LookupError:
        raise ConfigurationError(f"unknown encoding {encoding!r}") from None
    if newline != b"\n":
        raise ConfigurationError(
            f"encoding {encoding!r} writes a line break as {newline!r}; files are read in blocks of bytes that end "
            "with b'\\n'. Convert the file, to UTF-8 for instance"
        )
    return encoding


class TextFormat:
    """Each line is a record, without its line break. Empty lines are records too."""

    has_header = False

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = check_encoding(encoding)

    def parser(self, header: str | None) -> LineParser:
        return _TextParser()


class _TextParser:
    __slots__ = ()

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        return [line[:-1] if line.endswith("\r") else line for line in lines]

    def parse_line(self, line: str) -> tuple[Any, ...]:
        return (line.removesuffix("\r"),)


class JsonLinesFormat:
    """Each line is one JSON value; blank lines are skipped. ``NaN`` and infinities, which are not JSON, are refused.

    ``exact``  whether a number with a fraction or an exponent becomes a ``Decimal``, with all its digits.
    """

    has_header = False

    def __init__(self, encoding: str = "utf-8", *, exact: bool = False) -> None:
        self.encoding = check_encoding(encoding)
        self._exact = exact

    def parser(self, header: str | None) -> LineParser:
        return _JsonLinesParser(Decimal if self._exact else float)


def _refuse_constant(constant: str) -> Any:
    raise LineError(f"{constant} is not JSON")


_SEPARATORS = ("NaN", "Infinity")
"""Words between the values of a block: they are not JSON, and the decoder says where it meets them."""
_SEPARATOR = object()
"""What the decoder makes of a separator. Of the other constants it makes a ``KeyError``."""


class _JsonLinesParser:
    __slots__ = ("_block_decoders", "_raw_decode")

    def __init__(self, number: Callable[[str], Any]) -> None:
        # The decoder's own way to read floats is the quickest.
        given = None if number is float else number
        self._raw_decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=given).raw_decode
        self._block_decoders = [
            (word, json.JSONDecoder(parse_constant={word: _SEPARATOR}.__getitem__, parse_float=given).raw_decode)
            for word in _SEPARATORS
        ]

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        separators = len(lines) - 1
        for word, raw_decode in self._block_decoders:
            # One call for all lines, whose values then share the texts of their keys.
            text = f"[{f',{word},'.join(lines)}]"
            if text.count(word) == separators:
                found, end = raw_decode(text)
                # All separators are outside the values, and one value is between two of them: each line is one value.
                if end == len(text) and found[1::2] == [_SEPARATOR] * separators and len(found) == 2 * separators + 1:
                    values: list[Any] = found[::2]
                    return values
        return None

    def parse_line(self, line: str) -> tuple[Any, ...]:
        text = line.strip(" \t\r")
        if not text:
            return ()
        try:
            value, end = self._raw_decode(text)
        except json.JSONDecodeError as error:
            raise LineError(f"not JSON: {error.msg} at column {error.colno}") from None
        except RecursionError:
            raise LineError("JSON nested too deeply") from None
        except LineError:
            raise
        except ValueError as error:
            # Python does not read numbers with thousands of digits.
            raise LineError(f"not JSON that can be read: {error}") from None
        if end != len(text):
            raise LineError(f"more than one JSON value: extra text at column {end + 1}")
        return (value,)


def _refuse_types_among(columns: Sequence[object]) -> None:
    for column in columns:
        if isinstance(column, str):
            continue
        problem = f"columns holds {column!r}, and a column is a name, as a text"
        pair = column if isinstance(column, tuple | list) and len(column) == 2 else ()
        if pair and isinstance(pair[0], str) and callable(pair[1]):
            convert = getattr(pair[1], "__name__", "function")
            problem += f"\n  fix: name it {pair[0]!r}, and give its type with types={{{pair[0]!r}: {convert}}}"
        raise ConfigurationError(problem)


class CsvFormat:
    """Comma-separated values, one record per line.

    ``columns``      the columns to read, in the order of the record. With a header they select from it by name
                     (``None`` = all); without one they name the fields from left to right and must be
                     complete;
    ``types``        column -> function of the text (``int``, ``float``, any callable); other columns stay text;
    ``header``       whether the first line names the columns;
    ``record``       ``"dict"`` (column -> value) or ``"tuple"``;
    ``null_values``  texts that become ``None`` in every column instead of being converted;
    ``quote``        the sign around fields with delimiters in them.

    A quoted field may hold delimiters and doubled quotes, but no line break: a file with such a field is
    refused with an error that names the line, since a reader must be able to start at any line.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        types: Mapping[str, Callable[[str], Any]] | None = None,
        header: bool = True,
        record: Literal["dict", "tuple"] = "dict",
        delimiter: str = ",",
        quote: str = '"',
        null_values: Sequence[str] = (),
        encoding: str = "utf-8",
    ) -> None:
        if isinstance(columns, str | Mapping):
            raise ConfigurationError(f"columns={columns!r}: give a list of names; types go into types={{'name': int}}")
        _refuse_types_among(columns or ())
        self.columns = None if columns is None else tuple(columns)
        self.types = dict(types or {})
        self.has_header = header
        self.record = record
        self.delimiter, self.quote = delimiter, quote
        self.null_values = tuple(null_values)
        self.encoding = check_encoding(encoding)
        self._check()

    def _check(self) -> None:
        columns = self.columns
        if self.record not in ("dict", "tuple"):
            raise ConfigurationError(f"record must be 'dict' or 'tuple', got {self.record!r}")
        if columns is None and not self.has_header:
            raise ConfigurationError("a CSV file without a header needs columns=('name', ...) for its fields")
        if columns is not None and (not columns or len(set(columns)) != len(columns)):
            raise ConfigurationError(f"columns must be different names, at least one, got {columns!r}")
        if columns is not None and (unknown := [name for name in self.types if name not in columns]):
            raise ConfigurationError(f"types names columns {unknown!r} that are not among columns={columns!r}")
        for name, convert in self.types.items():
            # Otherwise every line would be malformed, and skipped if that is the setting.
            if not callable(convert):
                raise ConfigurationError(f"types[{name!r}] is {convert!r}; it must be a function of the text, as int")
        check_csv_signs(self.delimiter, self.quote)

    def parser(self, header: str | None) -> LineParser:
        """A parser for a file with this header. Raises ``LineError`` when a column is missing in it."""
        if header is None:
            assert self.columns is not None
            return _CsvParser(self, self.columns, self.columns)
        try:
            [present] = _strict_rows([header], self.delimiter, self.quote)
        except csv.Error as error:
            raise LineError(f"the header is {_explain(str(error))}") from None
        if len(set(present)) != len(present):
            raise LineError(f"the header names a column twice: {present!r}")
        if not present:
            raise LineError("the header is empty")
        columns = tuple(present) if self.columns is None else self.columns
        missing = [name for name in (*columns, *self.types) if name not in present]
        if missing:
            raise LineError(f"the header has no column {missing[0]!r}; it has {present!r}")
        return _CsvParser(self, tuple(present), columns)


def _strict_rows(lines: list[str], delimiter: str, quote: str) -> list[list[str]]:
    # Strict: an open quote at the end, and text after a closing quote, are errors instead of guesses.
    return list(csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True))


_PIECE_LINES = 256
"""So many lines are parsed at a time that rows, columns and records are still in the processor's cache."""


class _CsvParser:
    __slots__ = (
        "_as_dict",
        "_blanks",
        "_columns",
        "_converters",
        "_delimiter",
        "_empty_record",
        "_nulls",
        "_picked",
        "_quote",
        "_width",
    )

    def __init__(self, spec: CsvFormat, present: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._width = len(present)
        self._picked = [present.index(name) for name in columns]
        self._converters = [spec.types.get(name) for name in columns]
        self._delimiter, self._quote = spec.delimiter, spec.quote
        # A line of empty fields is still a record, even with tabs or spaces as delimiters.
        self._blanks = " \t\r".replace(spec.delimiter, "")
        self._nulls = dict.fromkeys(spec.null_values)
        self._as_dict = spec.record == "dict"
        self._empty_record: dict[str, Any] = dict.fromkeys(columns)

    def parse_block(self, lines: list[str]) -> list[Any] | None:
        if self._width == 1 and not all(map(str.strip, lines)):
            # Blank lines; with more columns they have too few fields.
            return None
        records: list[Any] = []
        for start in range(0, len(lines), _PIECE_LINES):
            piece = self._parse_piece(lines[start : start + _PIECE_LINES])
            if piece is None:
                return None
            records += piece
        return records

    def _parse_piece(self, lines: list[str]) -> Sequence[Any] | None:
        texts = self._columns_of(lines)
        if texts is None:
            return None
        columns = list(map(self._convert, texts, self._converters))
        if not self._as_dict:
            return list(zip(*columns, strict=True))
        # A copy that is filled column by column takes half the time of a dict made from names and values.
        records = list(map(dict.copy, repeat(self._empty_record, len(lines))))
        for name, column in zip(self._columns, columns, strict=True):
            for record, value in zip(records, column, strict=True):
                record[name] = value
        return records

    def _columns_of(self, lines: list[str]) -> Sequence[Sequence[str]] | None:
        """The texts of each column that is read, or ``None`` when not every line has all fields."""
        delimiter, width, count = self._delimiter, self._width, len(lines)
        text = f"{delimiter}\n{delimiter}".join(lines)
        if self._quote in text or "\r" in text or len(text) > csv.field_size_limit():
            rows = _strict_rows(lines, delimiter, self._quote)
            # Fewer rows than lines: a quoted field ran over a line break.
            if len(rows) != count or {width} != set(map(len, rows)):
                return None
            transposed = list(zip(*rows, strict=True))
            return [transposed[at] for at in self._picked]
        # Without quotes a field ends at a delimiter. If each line break is in its place, each line has all fields.
        fields, step = text.split(delimiter), width + 1
        if len(fields) != count * step - 1 or fields[width::step] != ["\n"] * (count - 1):
            return None
        return [fields[at::step] for at in self._picked]

    def _convert(self, texts: Sequence[str], converter: Callable[[str], Any] | None) -> Sequence[Any]:
        nulls = self._nulls
        if not nulls:
            return texts if converter is None else list(map(converter, texts))
        if converter is None:
            return [None if text in nulls else text for text in texts]
        return [None if text in nulls else converter(text) for text in texts]

    def parse_line(self, line: str) -> tuple[Any, ...]:
        if not line.strip(self._blanks):
            return ()
        try:
            [row] = _strict_rows([line], self._delimiter, self._quote)
        except csv.Error as error:
            raise LineError(_explain(str(error))) from None
        if len(row) != self._width:
            raise LineError(f"{len(row)} fields instead of {self._width}")
        values = []
        for name, at, converter in zip(self._columns, self._picked, self._converters, strict=True):
            text = row[at]
            try:
                [value] = self._convert([text], converter)
            except Exception as error:
                what = getattr(converter, "__name__", repr(converter))
                raise LineError(f"column {name!r}: {text!r} is no {what} ({type(error).__name__}: {error})") from None
            values.append(value)
        return (dict(zip(self._columns, values, strict=True)) if self._as_dict else tuple(values),)


def _explain(problem: str) -> str:
    if problem == "unexpected end of data":
        return "not CSV: a quoted field does not end on its line (fields with line breaks are not supported)"
    return f"not CSV: {problem}"
