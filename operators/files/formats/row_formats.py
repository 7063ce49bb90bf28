"""How a file sink writes records as lines of text. A format is pure: one record in, one line without its end out."""

from __future__ import annotations

import csv
import datetime
import decimal
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from engine.elements.errors import ConfigurationError


class RowFormat(Protocol):
    """Encodes records as lines.

    It may have a ``line_end`` other than a line break, and a method ``encode_many(records)``: the lines of all of them,
    or ``None`` when each must be encoded by itself.
    """

    def encode(self, record: Any) -> str:
        """The line for ``record``, without line break. Raises ``ValueError`` or ``TypeError`` when it cannot be
        written."""


class JsonLinesRowFormat:
    """One JSON value per line, the keys of a dict in its own order.

    Dates and times are written in ISO 8601, ``Decimal`` as text. NaN and infinities are refused: they are
    not JSON.
    """

    def __init__(self) -> None:
        self.encode = _compact_json_encoder()

    def __reduce__(self) -> tuple[type[JsonLinesRowFormat], tuple[()]]:
        # The job travels to other processes; the encoder does not.
        return JsonLinesRowFormat, ()


class TextRowFormat:
    """Each record is a ``str`` and a line.

    ``line_end``  what is written after each; the text must not have a line break then. With ``""`` texts are written
                  as they are, one directly after the other.
    """

    def __init__(self, line_end: str = "\n") -> None:
        if line_end not in ("\n", "\r\n", ""):
            raise ConfigurationError(f"line_end is {line_end!r}; it must be '\\n', '\\r\\n' or ''")
        self.line_end = line_end

    def encode_many(self, records: list[Any]) -> list[str] | None:
        """The lines of all records, or ``None`` when each must be encoded by itself."""
        try:
            # Faster than asking for each whether it is text.
            text = "".join(records)
        except TypeError:
            return None
        return None if self.line_end and ("\n" in text or "\r" in text) else records

    def encode(self, record: Any) -> str:
        if not isinstance(record, str):
            raise TypeError(f"a line of text is a str, not {type(record).__name__}")
        if self.line_end and ("\n" in record or "\r" in record):
            raise ValueError("the text has a line break, and a record must be one line")
        return record


def _compact_json_encoder() -> Callable[[Any], str]:
    encoder = json.JSONEncoder(
        ensure_ascii=False, check_circular=False, separators=(",", ":"), allow_nan=False, default=_json_default
    )
    make_encoder = getattr(json.encoder, "c_make_encoder", None)
    if make_encoder is None:
        return encoder.encode
    # ``JSONEncoder.encode`` builds this very object again for every record, which takes longer than using it.
    chunks = make_encoder(None, _json_default, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda record: "".join(chunks(record, 0))


def _json_default(value: object) -> str:
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON; turn it into something that is before the sink")


def check_csv_signs(delimiter: object, quote: object) -> None:
    """Raises ``ConfigurationError`` unless both are single characters, and not the same."""
    for name, sign in (("delimiter", delimiter), ("quote", quote)):
        if type(sign) is not str or len(sign) != 1 or sign in "\r\n":
            raise ConfigurationError(f"{name} must be one character, got {sign!r}")
    if delimiter == quote:
        raise ConfigurationError(f"delimiter must be one character, got {delimiter!r}, which is the quote")


_BLANKS = " \t"


class CsvRowFormat:
    """One CSV row per line, no header (a bucket is the concatenation of its files).

    ``columns`` selects and orders the fields of dict records; records that are tuples or lists need none. ``None`` is
    written as ``null``, a field with a delimiter in it between two ``quote`` signs.
    """

    def __init__(
        self, columns: Sequence[str] | None = None, *, delimiter: str = ",", quote: str = '"', null: str = ""
    ) -> None:
        if isinstance(columns, str) or (columns is not None and not columns):
            raise ConfigurationError(f"columns must be a sequence of names, got {columns!r}")
        check_csv_signs(delimiter, quote)
        self._columns = None if columns is None else tuple(columns)
        self._delimiter, self._quote, self._null = delimiter, quote, null
        self._line = ""
        self._writer = csv.writer(self, delimiter=delimiter, quotechar=quote, lineterminator="")

    def __reduce__(self) -> tuple[partial[CsvRowFormat], tuple[Sequence[str] | None]]:
        # The job travels to other processes; the writer does not.
        signs = {"delimiter": self._delimiter, "quote": self._quote, "null": self._null}
        return partial(CsvRowFormat, **signs), (self._columns,)

    def write(self, text: str) -> int:
        """Called by the CSV writer with the text of a row."""
        self._line = text
        return len(text)

    def encode(self, record: Any) -> str:
        if isinstance(record, dict):
            if self._columns is None:
                raise TypeError("the record is a dict: give CsvRowFormat the columns to write")
            try:
                record = [record[column] for column in self._columns]
            except KeyError as error:
                has = ", ".join(map(repr, record)) or "none"
                raise ValueError(f"the record has no column {error.args[0]!r}; it has {has}") from error
        elif not isinstance(record, (tuple, list)):
            raise TypeError(f"a CSV row is a tuple, a list or a dict, not {type(record).__name__}")
        if self._null and None in record:
            record = [self._null if value is None else value for value in record]
        self._writer.writerow(record)
        if "\n" in self._line or "\r" in self._line:
            raise ValueError("a field has a line break, and a row must be one line")
        # Readers take a line of blanks for no row at all.
        return self._line if self._line.strip(_BLANKS) else f"{self._quote}{self._line}{self._quote}"
