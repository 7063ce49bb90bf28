"""Formats of records in files: ``row_formats`` write them as lines, ``file_formats`` read them, ``compressed_files``
opens compressed files. ``avro_blocks`` frames Avro container files. ``file_listing`` finds files, and knows which of
them are hidden from readers.
"""

from __future__ import annotations

from operators.files.formats.avro_blocks import (
    AvroBlock as AvroBlock,
    AvroFile as AvroFile,
    AvroRecords as AvroRecords,
    import_fastavro as import_fastavro,
)
from operators.files.formats.compressed_files import (
    Compression as Compression,
    CorruptFileError as CorruptFileError,
    check_compression as check_compression,
    codec_of as codec_of,
    import_orc as import_orc,
    import_pyarrow as import_pyarrow,
    open_input as open_input,
)
from operators.files.formats.file_formats import (
    CsvFormat as CsvFormat,
    JsonLinesFormat as JsonLinesFormat,
    LineError as LineError,
    LineFormat as LineFormat,
    LineParser as LineParser,
    TextFormat as TextFormat,
    check_encoding as check_encoding,
)
from operators.files.formats.file_listing import (
    checked_paths as checked_paths,
    is_hidden as is_hidden,
    list_files as list_files,
    stands_for as stands_for,
    visible_files as visible_files,
)
from operators.files.formats.row_formats import (
    CsvRowFormat as CsvRowFormat,
    JsonLinesRowFormat as JsonLinesRowFormat,
    RowFormat as RowFormat,
    TextRowFormat as TextRowFormat,
)
