"""The format of tables with one column whose files hold its values and nothing else.

Rules (Flink: ``RawFormatFactory``)
-----------------------------------
* Numbers and BOOLEAN have a fixed number of bytes, big-endian unless ``raw.endianness`` says otherwise; one follows the
  other. STRING and BYTES end with a line break in files, so they must hold none. A message is the value alone.
* There is no null: a sink refuses it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError, StorageError
from operators.files.formats import check_encoding
from operators.files.reading import FixedLengthFormat
from operators.files.writing import BlockFormat
from operators.table.connectors.connector_options import ConfigOption
from operators.table.connectors.factories import TableDefinition
from operators.table.connectors.table_formats import TypedTextFormat
from operators.table.connectors.table_rows import RowCheck

_CODES = {"TINYINT": "b", "SMALLINT": "h", "INT": "i", "BIGINT": "q", "FLOAT": "f", "DOUBLE": "d", "BOOLEAN": "?"}


class RawTableFormat:
    """Format ``raw``."""

    identifier = "raw"

    def options(self) -> Sequence[ConfigOption]:
        return (
            ConfigOption("raw.charset", "text", "of a STRING", "utf-8"),
            ConfigOption("raw.endianness", "choice", "which byte of a number is first", "big-endian",
                         ("big-endian", "little-endian")),
        )  # fmt: skip

    def input_format(self, table: TableDefinition) -> Any:
        values = RawValues(table)
        if values.size is not None:
            return FixedLengthFormat(values.size, values.decode)
        return TypedTextFormat(values.column, "latin-1", lambda line: values.value_of(line.encode("latin-1")))

    def output_format(self, table: TableDefinition) -> RawFormat:
        return RawFormat(RawValues(table))

    def message_format(self, table: TableDefinition) -> RawValues:
        return RawValues(table)


class RawValues:
    """The values of the one column as bytes. ``size``: how many bytes each has, ``None`` = as many as it needs."""

    def __init__(self, table: TableDefinition) -> None:
        types, options = table.physical_types, table.options
        [*names] = types
        kinds = (*_CODES, "STRING", "BYTES")
        if len(names) != 1 or types[names[0]].name not in kinds:
            raise ConfigurationError(
                f"format 'raw' is for one column of type {', '.join(kinds)}, beside the partition columns; the schema"
                f" has {', '.join(f'{name} {kind.name}' for name, kind in types.items())}"
            )
        [self.column] = names
        self._kind = types[self.column]
        self._check = RowCheck(types)
        self._charset = check_encoding(options["raw.charset"])
        code = _CODES.get(self._kind.name)
        order = ">" if options["raw.endianness"] == "big-endian" else "<"
        self._struct = None if code is None else struct.Struct(order + code)
        self.size = None if self._struct is None else self._struct.size

    def encode(self, row: Any) -> bytes:
        """The bytes of a row's value. Raises ``ValueError``."""
        value = self._check(row)[self.column]
        if value is None:
            raise ValueError(f"column {self.column!r}: format 'raw' has no null")
        if self._struct is not None:
            return self._struct.pack(value)
        if isinstance(value, bytes):
            return value
        try:
            return bytes(value.encode(self._charset))
        except UnicodeEncodeError as error:
            raise ValueError(f"column {self.column!r}: {error}") from None

    def value_of(self, data: bytes) -> Any:
        """The value of these bytes. Raises ``ValueError``."""
        if self._struct is not None:
            if len(data) != self.size:
                raise ValueError(f"{self._kind.name} has {self.size} bytes, not {len(data)}")
            return self._struct.unpack(data)[0]
        return data if self._kind.name == "BYTES" else data.decode(self._charset)

    def decode(self, data: bytes) -> Any:
        """The row of these bytes. Raises ``ValueError``."""
        return {self.column: self.value_of(data)}


class _RawBlocks:
    """Values one after the other, those of no fixed size with a line break after each."""

    header = b""

    def __init__(self, values: RawValues) -> None:
        self._values = values

    def encode(self, record: Any) -> bytes:
        data = self._values.encode(record)
        if self._values.size is not None:
            return data
        if b"\n" in data or b"\r" in data:
            raise ValueError(
                f"column {self._values.column!r}: the value has a line break, which ends a value in a file"
            )
        return data + b"\n"

    def block(self, records: list[bytes]) -> bytes:
        return b"".join(records)


class RawFormat(BlockFormat):
    """Writes files of such values."""

    def __init__(self, values: RawValues) -> None:
        super().__init__(_RawBlocks(values))
        self._values = values

    def encode(self, record: Any) -> str:
        """The record as JSON, as :meth:`lines_of` shows it. Raises ``ValueError``."""
        return self._shown(self._values.decode(self._values.encode(record)))

    def _shown(self, row: dict[str, Any]) -> str:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=bytes.hex)

    def lines_of(self, path: str, content: bytes) -> list[str]:
        """The records of a whole file as JSON. Raises ``StorageError`` when it is torn."""
        size = self._values.size
        if size is None:
            parts = content.split(b"\n")
            torn = parts.pop() != b""
        else:
            parts = [content[at : at + size] for at in range(0, len(content), size)]
            torn = bool(len(content) % size)
        if torn:
            raise StorageError(f"{path} ends in the middle of a value")
        return [self._shown(self._values.decode(part)) for part in parts]

    def merge_files(self, contents: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        """Write one file with the records of all, for compaction."""
        for content in contents:
            write(content)
