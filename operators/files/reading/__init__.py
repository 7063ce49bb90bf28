"""Files as sources. Jobs use ``file_source``. ``split_enumerator`` and ``split_coordinator`` hand out ``splits``;
``enumerated_source_operator`` reads them through ``line_reader``, ``stream_formats``, ``parquet_source``,
``avro_source`` or ``orc_source``, which share ``record_formats``.
"""

from __future__ import annotations

from operators.files.reading.avro_source import AvroInputFormat as AvroInputFormat
from operators.files.reading.file_source import FileSource as FileSource
from operators.files.reading.orc_source import OrcInputFormat as OrcInputFormat
from operators.files.reading.parquet_source import ParquetInputFormat as ParquetInputFormat
from operators.files.reading.splits import split_range as split_range
from operators.files.reading.stream_formats import FixedLengthFormat as FixedLengthFormat
