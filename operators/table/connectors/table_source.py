"""The files of a table as a source: their records, with the partition columns from the paths of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from engine.elements.source import SourceContext, SplitReader
from operators.files.reading import FileSource, split_range
from operators.files.writing import PartitionPathError, partition_values
from operators.table.connectors.factories import TableDefinition
from operators.table.types import data_type

if TYPE_CHECKING:
    from collections.abc import Mapping


def text_in_path(table: TableDefinition, column: str, value: object) -> str:
    """A value of a partition column as it stands in paths, the same for equal values. Raises
    :class:`PartitionPathError` for one that a source would not read back."""
    kind, default_name = data_type(table.schema[column]), table.options["partition.default-name"]
    try:
        text: str = kind.to_text(kind.checked(value))
    except ValueError as error:
        raise PartitionPathError(f"partition column {column!r}: {error}") from None
    if text == default_name:
        raise PartitionPathError(
            f"partition column {column!r} is {text!r}, which stands for null\n"
            "  choose another name for that with 'partition.default-name'"
        )
    return text


def values_of_partition(path: str, table: TableDefinition) -> dict[str, Any]:
    """The values of the partition columns in ``path``, of their types. Raises :class:`PartitionPathError`."""
    texts = partition_values(path, table.partition_keys, table.options["partition.default-name"])
    values: dict[str, Any] = {}
    for key, text in zip(table.partition_keys, texts, strict=True):
        kind = table.schema[key]
        try:
            values[key] = None if text is None else data_type(kind).of_text(text)
        except ValueError as error:
            raise PartitionPathError(
                f"partition column {key!r} is declared {kind}, and the path says {text!r}: {error}"
            ) from None
    return values


class TableFileSource(FileSource):
    """A ``FileSource`` whose records are dicts in the order of a table's schema."""

    def __init__(self, path: str, format: Any, table: TableDefinition, **options: Any) -> None:
        super().__init__(path, format, **options)
        self._table = table

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """See :class:`operators.files.reading.file_source.FileSource`. Raises ``ConfigurationError`` when the path does
        not name the partition."""
        reader = super().open_split(split, position, context)
        if not self._table.partition_keys:
            return reader
        path = split_range(split).path
        try:
            values = values_of_partition(path.rpartition("/")[0], self._table)
        except PartitionPathError as error:
            reader.close()
            raise ConfigurationError(
                f"{path} is no file of a partition: {error}\n  declare the column STRING, or move the file"
            ) from None
        return _PartitionReader(reader, self._table.schema, values)


class _PartitionReader:
    """Adds the values of a partition to each record."""

    def __init__(self, reader: SplitReader, schema: Mapping[str, str], values: dict[str, Any]) -> None:
        self._reader = reader
        self._template = {name: values.get(name) for name in schema}

    def ready(self) -> int:
        """See the protocol; every reader of files has it."""
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
