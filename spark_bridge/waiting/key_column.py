"""The column by whose values the rows of a Spark transform are spread over its subtasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch
from engine.elements.errors import shorten
from engine.elements.suggestions import nearest
from engine.graph.column_partitioner import ColumnHashPartitioner
from spark_bridge.errors import SparkBridgeError
from spark_bridge.sinks import schema_of
from state_backends.base import infer_key_type, key_group_function, operator_index_for_key_group


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """``position``: of the column in rows that are sequences."""

    name: str
    position: int

    @classmethod
    def of(cls, name: str, schema: str) -> KeyColumn:
        """Raises :class:`SparkBridgeError` when the schema has no such column."""
        names: list[str] = schema_of(schema).names
        if name not in names:
            close = nearest(name, names)
            hint = f"did you mean {close!r}?" if close else f"it has {', '.join(names)}"
            raise SparkBridgeError(f"spark_transform: by= names {name!r}, which is no column of schema=; {hint}")
        return cls(name, names.index(name))

    def __call__(self, row: Any) -> Any:
        """The key of a row."""
        if isinstance(row, Mapping) and self.name in row:
            return row[self.name]
        if isinstance(row, Sequence) and not isinstance(row, str | bytes) and len(row) > self.position:
            return row[self.position]
        raise SparkBridgeError(
            f"spark_transform: by= names column {self.name!r}, which row {shorten(row)} does not have: rows are dicts,"
            " or sequences in the order of schema="
        )

    @property
    def partitioner(self) -> ColumnHashPartitioner:
        """Sends each row to the owner of its key group."""
        return ColumnHashPartitioner(self, fields=(self.name,))

    def records_of(self, batch: Batch, subtask: int, parallelism: int, max_parallelism: int) -> Batch:
        """The records that the partitioner sends to a subtask."""
        if parallelism == 1 or not len(batch):
            return batch
        keys = batch.columns[self.name].tolist() if isinstance(batch, ColumnBatch) else list(map(self, batch.values))
        group_of = key_group_function(infer_key_type(keys[0]), max_parallelism)
        owner = {key: operator_index_for_key_group(max_parallelism, parallelism, group_of(key)) for key in set(keys)}
        return batch.take([at for at, key in enumerate(keys) if owner[key] == subtask])
