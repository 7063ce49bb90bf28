"""Parquet whose records are checked as strictly as rows that go to Spark."""

from __future__ import annotations

from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch
from operators.files.writing import ParquetFormat, RecordError
from spark_bridge.strict_types import first_misfit


class StrictParquetFormat(ParquetFormat):
    """A datetime without a zone in a ``timestamp``, 0.1 in a ``float`` and a struct with another field are errors, too,
    at any depth. A batch of columns has none of these."""

    def encode_batch(self, batch: Batch) -> Any:
        """The records of a batch as a ``pyarrow.RecordBatch``. Raises ``RecordError``."""
        if not isinstance(batch, ColumnBatch) and batch.values:
            for field, values in zip(self.schema, self._fields_of(batch.values), strict=True):
                misfit = first_misfit(field.type, values)
                if misfit is not None:
                    position, why = misfit
                    problem = f"column {field.name!r} is {field.type}, and {values[position]!r} does not fit: {why}"
                    raise RecordError(position, batch.values[position], ValueError(problem))
        return super().encode_batch(batch)
