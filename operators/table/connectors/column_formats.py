"""The formats of tables whose files have a schema of their own: Parquet, Avro and ORC.

Rules
-----
* Columns have the types of Arrow or Avro that hold every value of the table's type: see ``arrow`` and ``avro`` of
  :mod:`operators.table.types`. Every column may be null.
* A record of a file is checked against the table, as the rows of a sink are. One that does not fit ends the job; it is
  no damage that ``on-corrupt`` could leave out.
* ORC has no time of day. pyarrow reads its timestamps in nanoseconds of 64 bits: only those of the years 1678 to 2261
  are written.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.files.formats import AvroRecords, import_pyarrow
from operators.files.reading import AvroInputFormat, OrcInputFormat, ParquetInputFormat
from operators.files.writing import AvroFormat, OrcFormat, ParquetFormat
from operators.table.connectors.connector_options import ConfigOption
from operators.table.connectors.factories import TableDefinition
from operators.table.connectors.table_formats import refuse_map_keys
from operators.table.connectors.table_rows import CheckedBulkFormat, RowCheck, Types
from operators.table.types import DataType, TimestampType, TimeType, has_part

_SIMPLE = ("BIGINT", "DOUBLE", "BOOLEAN", "STRING", "BYTES")
"""Types whose columns Parquet reads and writes whole, without a look at each row."""
_ORC_YEARS = (1678, 2261)


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
        columns = tuple(table.physical)
        if _is_simple(table):
            return ParquetInputFormat(columns, record="dict", types=table.physical)
        return ParquetInputFormat(columns, record="dict", prepared=RowCheck(table.physical_types))

    def output_format(self, table: TableDefinition) -> Any:
        rows = ParquetFormat(
            _arrow_schema(table.physical_types),
            compression=table.options["parquet.compression"],
            row_group_rows=table.options["parquet.row-group-rows"],
        )
        return rows if _is_simple(table) else CheckedBulkFormat(rows, table.physical_types)


def _is_simple(table: TableDefinition) -> bool:
    return all(kind in _SIMPLE for kind in table.physical.values())


def _arrow_schema(types: Types) -> dict[str, Any]:
    pa = import_pyarrow()
    return {name: kind.arrow(pa) for name, kind in types.items()}


def _on_corrupt(identifier: str, what: str) -> ConfigOption:
    meaning = f"what is done with {what} whose records cannot be read"
    return ConfigOption(f"{identifier}.on-corrupt", "choice", meaning, "fail", ("fail", "skip"))


class AvroTableFormat:
    """Format ``avro``: container files; a message is one record without a header."""

    identifier = "avro"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("avro.codec", "choice", "of the files that are written", "null", ("null", "deflate")),
            _on_corrupt("avro", "a block"),
        )

    def input_format(self, table: TableDefinition) -> AvroInputFormat:
        refuse_map_keys(table.physical_types, self.identifier)
        return AvroInputFormat(
            tuple(table.physical), prepared=RowCheck(table.physical_types), on_corrupt=table.options["avro.on-corrupt"]
        )

    def output_format(self, table: TableDefinition) -> CheckedBulkFormat:
        refuse_map_keys(table.physical_types, self.identifier)
        rows = AvroFormat(_avro_schema(table.physical_types), codec=table.options["avro.codec"])
        return CheckedBulkFormat(rows, table.physical_types)

    def message_format(self, table: TableDefinition) -> AvroMessages:
        refuse_map_keys(table.physical_types, self.identifier)
        return AvroMessages(table.physical_types)


def _avro_schema(types: Types) -> dict[str, Any]:
    # Names by position: those of columns may meet, such as a_b and the field b of a.
    fields = [{"name": name, "type": ["null", kind.avro(f"row_{at}")]} for at, (name, kind) in enumerate(types.items())]
    return {"type": "record", "name": "row", "fields": fields}


class AvroMessages:
    """Rows of a table as single records of Avro, which reader and writer know the schema of."""

    def __init__(self, types: Types) -> None:
        self._records, self._check = AvroRecords(_avro_schema(types)), RowCheck(types)

    def encode(self, row: Any) -> bytes:
        """The message of a row. Raises ``ValueError``."""
        return self._records.encode(self._check(row))

    def decode(self, message: bytes) -> Any:
        """The row of a message. Raises ``ValueError``."""
        return self._check(self._records.decode(message))


class OrcTableFormat:
    """Format ``orc``."""

    identifier = "orc"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption(
                "orc.compression", "choice", "of the files that are written", "snappy",
                ("snappy", "zlib", "zstd", "none"),
            ),
            ConfigOption("orc.stripe-size", "size", "about how large a stripe is", 64 << 20),
            _on_corrupt("orc", "a stripe"),
        )  # fmt: skip

    def input_format(self, table: TableDefinition) -> OrcInputFormat:
        _refuse_times(table.physical_types)
        return OrcInputFormat(
            tuple(table.physical), prepared=RowCheck(table.physical_types), on_corrupt=table.options["orc.on-corrupt"]
        )

    def output_format(self, table: TableDefinition) -> CheckedBulkFormat:
        types = table.physical_types
        _refuse_times(types)
        rows = OrcFormat(
            _arrow_schema(types),
            stripe_bytes=table.options["orc.stripe-size"],
            compression=table.options["orc.compression"],
        )
        return CheckedBulkFormat(rows, types, _check_years)


def _refuse_times(types: Types) -> None:
    for name, kind in types.items():
        if has_part(kind, lambda one: isinstance(one, TimeType)):
            raise ConfigurationError(
                f"column {name!r} is {kind.name}, and ORC has no time of day\n"
                "  declare it TIMESTAMP or STRING, or use format 'parquet' or 'avro'"
            )
        if has_part(kind, lambda one: isinstance(one, TimestampType)) and not isinstance(kind, TimestampType):
            raise ConfigurationError(
                f"column {name!r} is {kind.name}, and format 'orc' takes timestamps only as columns of their own\n"
                "  use format 'parquet' or 'avro'"
            )


def _check_years(value: Any, kind: DataType) -> None:
    least, most = _ORC_YEARS
    if isinstance(value, datetime.datetime) and not least <= value.year <= most:
        raise kind.wrong(value, f"format 'orc' holds the years {least} to {most}")
