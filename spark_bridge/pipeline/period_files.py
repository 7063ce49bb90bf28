"""The files between the two passes over a stage with a Spark transform: its input, the rows of each closed period, and
the results of the function.

The transform runs twice over the same stored input, from the same state. In the first pass a closed period becomes a
file and gives no results; in the second pass its results come from files. Only the second pass takes a snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows, sort_canonically
from spark_bridge.crossing import RowSchema, arrow_table, check_result_columns, write_parquet
from spark_bridge.errors import RowMisfitError, SparkBridgeError, SparkTransformError
from spark_bridge.period_column import Rows, is_table, results_by_period, with_period
from spark_bridge.result_columns import Columns, See
from spark_bridge.transform import CutRows, SparkTransform

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_PART_ROWS = 65_536
"""Spark gives the files of a large period to several executors."""


@dataclass(frozen=True, slots=True)
class ClosedPeriod:
    """Rows that the function of a transform must be run on. ``subtask``: the one of the transform, by its index;
    ``name``: of the operator; ``directory``: where they are, as Parquet."""

    subtask: int
    name: str
    label: str
    rows: int
    directory: str


@dataclass(frozen=True, slots=True)
class PeriodResults:
    """``files``: the results of one call of the function, as Arrow streams, in any order; ``columns``: theirs."""

    closed: tuple[ClosedPeriod, ...]
    files: tuple[str, ...]
    columns: Columns


class PeriodWriter:
    """Stands in for the function in the first pass: stores its rows below ``directory``, which is of this attempt at
    the task alone."""

    def __init__(self, directory: str, subtask: int, schema: RowSchema) -> None:
        self.closed: list[ClosedPeriod] = []
        self._directory = directory
        self._subtask = subtask
        self._schema = schema

    def __call__(self, spec: SparkTransform, name: str, batches: Sequence[CutRows], see: See) -> Sequence[Rows]:
        """No results."""
        for one in batches:
            rows = one.rows if spec.period_column is None else with_period(one.rows, spec.period_column, one.label)
            self._store(rows, name, one.label)
        return [()] * len(batches)

    def _store(self, rows: Rows, name: str, label: str) -> None:
        directory = os.path.join(self._directory, f"period-{len(self.closed)}")
        os.makedirs(directory)
        try:
            table = arrow_table(rows, self._schema)
        except RowMisfitError as error:
            raise error.in_batch(f"{name}: {label}") from None
        for part, start in enumerate(range(0, len(rows), _PART_ROWS)):
            write_parquet(table.slice(start, _PART_ROWS), Path(directory), part)
        self.closed.append(ClosedPeriod(self._subtask, name, label, len(rows), directory))


class PeriodReader:
    """Stands in for the function in the second pass: gives what it returned, period by period."""

    def __init__(self, calls: Sequence[PeriodResults]) -> None:
        self._calls = calls
        self._known: Iterator[tuple[ClosedPeriod, Rows, Columns]] | None = None

    def __call__(self, spec: SparkTransform, name: str, batches: Sequence[CutRows], see: See) -> Sequence[Rows]:
        """The results of the next periods, in canonical order.

        Raises :class:`SparkBridgeError` when these are other periods than in the first pass.
        """
        if self._known is None:
            self._known = chain.from_iterable(_results_of(call, spec) for call in self._calls)
        return [self._next(self._known, name, one, see) for one in batches]

    def _next(
        self, known: Iterator[tuple[ClosedPeriod, Rows, Columns]], name: str, batch: CutRows, see: See
    ) -> Rows:
        closed, results, columns = next(known, (None, (), ()))
        if closed is None or (closed.label, closed.rows) != (batch.label, len(batch.rows)):
            found = "no period" if closed is None else f"{closed.label!r} with {closed.rows} rows"
            raise SparkBridgeError(
                f"{name}: {batch.label}: {len(batch.rows)} rows make this batch, and the same input made {found} a"
                " moment before\n"
                "  fix: the function given to event_time_cut must depend on the timestamp only"
            )
        try:
            if columns:
                see(columns)
        except SparkBridgeError as error:
            raise SparkTransformError(f"{name}: {batch.label}", f"the function of {name}", (str(error),)) from None
        return python_rows(results) if is_table(results) and not is_table(batch.rows) else results


def _results_of(call: PeriodResults, spec: SparkTransform) -> Iterator[tuple[ClosedPeriod, Rows, Columns]]:
    import pyarrow as pa

    batches = [batch for file in call.files for batch in stored_batches(file)]
    results: Rows = sort_canonically(pa.Table.from_batches(batches)) if batches else ()
    by_period = [results]
    if spec.period_column is not None:
        labels = [one.label for one in call.closed]
        by_period = results_by_period(results, spec.period_column, labels, call.closed[0].name)
    return zip(call.closed, by_period, repeat(call.columns, len(call.closed)), strict=True)


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
