"""The files between the two passes over a stage with a Spark transform: its input, the rows of each closed period, and
the results of the function.

The transform runs twice over the same stored input, from the same state. In the first pass a closed period becomes a
file and gives no results; in the second pass its results come from files. Only the second pass takes a snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows, sort_canonically
from spark_bridge.crossing import RowSchema, arrow_table, check_result_columns, write_parquet
from spark_bridge.errors import SparkBridgeError
from spark_bridge.transform import SparkTransform

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PART_ROWS = 65_536
"""Spark gives the files of a large period to several executors."""


@dataclass(frozen=True, slots=True)
class ClosedPeriod:
    """Rows that the function of a transform must be run on. ``subtask``: the one of the transform, by its index;
    ``directory``: where they are, as Parquet."""

    subtask: int
    label: str
    rows: int
    directory: str


@dataclass(frozen=True, slots=True)
class PeriodResults:
    """``files``: the results of one period, as Arrow streams, in any order."""

    closed: ClosedPeriod
    files: tuple[str, ...]


class PeriodWriter:
    """Stands in for the function in the first pass: stores its rows below ``directory``, which is of this attempt at
    the task alone."""

    def __init__(self, directory: str, subtask: int, schema: RowSchema) -> None:
        self.closed: list[ClosedPeriod] = []
        self._directory = directory
        self._subtask = subtask
        self._schema = schema

    def __call__(self, spec: SparkTransform, label: str, rows: list[Any]) -> Sequence[Any]:
        """No results."""
        directory = os.path.join(self._directory, f"period-{len(self.closed)}")
        os.makedirs(directory)
        table = arrow_table(rows, self._schema)
        for part, start in enumerate(range(0, len(rows), _PART_ROWS)):
            write_parquet(table.slice(start, _PART_ROWS), Path(directory), part)
        self.closed.append(ClosedPeriod(self._subtask, label, len(rows), directory))
        return ()


class PeriodReader:
    """Stands in for the function in the second pass: gives what it returned, period by period."""

    def __init__(self, results: Sequence[PeriodResults]) -> None:
        self._results = iter(results)

    def __call__(self, spec: SparkTransform, label: str, rows: list[Any]) -> Sequence[Any]:
        """The results of the next period, in canonical order.

        Raises :class:`SparkBridgeError` when it is another period than in the first pass.
        """
        known = next(self._results, None)
        if known is None or (known.closed.label, known.closed.rows) != (label, len(rows)):
            found = "no period" if known is None else f"{known.closed.label!r} with {known.closed.rows} rows"
            raise SparkBridgeError(
                f"{label}: {len(rows)} rows make this batch, and the same input made {found} a moment before\n"
                "  fix: the function given to event_time_cut must depend on the timestamp only"
            )
        return _results_of(known.files)


def _results_of(files: Sequence[str]) -> list[dict[str, Any]]:
    import pyarrow as pa

    batches = [batch for file in files for batch in stored_batches(file)]
    return python_rows(sort_canonically(pa.Table.from_batches(batches))) if batches else []


class ArrowFile:
    """A new file of record batches of one schema; it exists once the first one is added."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_there = False
        self._close: list[Any] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        import pyarrow as pa

        if not self.is_there:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            sink = pa.OSFile(self.path, "wb")
            self._writer = pa.ipc.new_stream(sink, batch.schema)
            self._close = [self._writer, sink]
            self.is_there = True
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Everything that was added can be read now."""
        for one in self._close:
            one.close()


def stored_batches(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of an :class:`ArrowFile`, one after the other."""
    import pyarrow as pa

    with pa.OSFile(path, "rb") as source:
        yield from pa.ipc.open_stream(source)


def store_results(frame: DataFrame, directory: str) -> list[str]:
    """Run a DataFrame and store its rows in ``directory``, each partition where it is. Returns the files.

    Raises :class:`SparkBridgeError` when its rows cannot become records.
    """
    check_result_columns(frame)

    def store(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        file = ArrowFile(os.path.join(directory, f"results-{context.taskAttemptId()}.arrow"))
        for batch in batches:
            file.add(batch)
        file.close()
        if file.is_there:
            yield pa.RecordBatch.from_pydict({"path": [file.path]})

    return [row.path for row in frame.mapInArrow(store, "path string").collect()]
