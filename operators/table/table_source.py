"""The files of a table as a source: their records, with the columns that are in the paths of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.source import SourceContext, SplitReader
from operators.files.file_source import FileSource
from operators.files.file_splits import split_range
from operators.table.factories import TableDefinition
from operators.table.partition_path import PartitionPathError, partition_values
from operators.table.table_formats import value_of_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class TableFileSource(FileSource):
    """A ``FileSource`` whose records are dicts in the order of a table's schema."""

    def __init__(self, path: str, format: Any, table: TableDefinition, **options: Any) -> None:
        super().__init__(path, format, **options)
        self._schema = table.schema
        self._partition_keys = table.partition_keys
        self._default_name: str = table.options["partition.default-name"]

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """See :class:`operators.files.file_source.FileSource`. Raises ``ConfigurationError`` when the path does not
        name the partition."""
        if not self._partition_keys:
            return super().open_split(split, position, context)
        values = self._partition(split_range(split).path)
        return _PartitionReader(super().open_split(split, position, context), self._schema, values)

    def _partition(self, path: str) -> dict[str, Any]:
        keys = self._partition_keys
        directory = path.rpartition("/")[0]
        try:
            texts = partition_values(directory, keys, self._default_name)
        except PartitionPathError as error:
            raise ConfigurationError(f"{path} is no file of a partition: {error}") from None
        values: dict[str, Any] = {}
        for key, text in zip(keys, texts, strict=True):
            try:
                values[key] = None if text is None else value_of_text(text, self._schema[key])
            except ValueError as error:
                raise ConfigurationError(
                    f"{path}: partition column {key!r} is declared {self._schema[key]}, and the path says {text!r}: "
                    f"{error}\n  declare it STRING, or move the file"
                ) from None
        return values


class _PartitionReader:
    """Adds the values of a partition to each record."""

    def __init__(self, reader: SplitReader, schema: Mapping[str, str], values: dict[str, Any]) -> None:
        self._reader = reader
        self._template = {name: values.get(name) for name in schema}

    def ready(self) -> int:
        """Every reader of files knows."""
        count: int = self._reader.ready()  # type: ignore[attr-defined]
        return count

    def read(self, max_records: int) -> Batch | None:
        batch = self._reader.read(max_records)
        if batch is None or not batch:
            return batch
        template = self._template
        return Batch([{**template, **row} for row in batch.values], batch.timestamps)

    def position(self) -> Any:
        return self._reader.position()

    def available_at_ns(self, now_ns: int) -> int:
        return self._reader.available_at_ns(now_ns)

    def close(self) -> None:
        self._reader.close()
