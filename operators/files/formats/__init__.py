"""How records stand in files: ``row_formats`` write them as lines, ``file_formats`` read them, ``compressed_files``
opens what is compressed. ``file_listing`` finds files, and knows which of them are hidden from readers.
"""

from __future__ import annotations

from operators.files.formats.compressed_files import (
    Compression,
    CorruptFileError,
    check_compression,
    codec_of,
    open_input,
)
from operators.files.formats.file_formats import (
    CsvFormat,
    JsonLinesFormat,
    LineError,
    LineFormat,
    LineParser,
    TextFormat,
)
from operators.files.formats.file_listing import checked_paths, is_hidden, list_files, stands_for
from operators.files.formats.row_formats import CsvRowFormat, JsonLinesRowFormat, RowFormat, TextRowFormat

__all__ = [
    "Compression",
    "CorruptFileError",
    "CsvFormat",
    "CsvRowFormat",
    "JsonLinesFormat",
    "JsonLinesRowFormat",
    "LineError",
    "LineFormat",
    "LineParser",
    "RowFormat",
    "TextFormat",
    "TextRowFormat",
    "check_compression",
    "checked_paths",
    "codec_of",
    "is_hidden",
    "list_files",
    "open_input",
    "stands_for",
]
