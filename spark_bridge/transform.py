"""``stream.via(spark_transform(fn, ...))``: a stream operator whose work is a Spark DataFrame function.

Rules.
1. Rows wait in operator state until their batch is cut, so a restored job cuts the same batches from what it had
   and what it reads again. No batch is in flight at a barrier: a batch is run whole between two elements.
2. An event-time batch is closed by the watermark, and its results carry the last timestamp of the period, so they
   stand in the stream before the watermark that closed it.
3. Results come in canonical order: Spark's own order depends on partitions and threads.
4. Rows of a period that is closed already are late: counted, and sent to side output ``late``.
5. The call blocks in wall time; in virtual time it takes what ``cost_ns`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch
from engine.elements.operator import Operator
from engine.graph.partitioner import GlobalPartitioner, Partitioner
from spark_bridge.batch import function_name, run_batch
from spark_bridge.crossing import DEFAULT_PARQUET_THRESHOLD_ROWS
from spark_bridge.cuts import BarrierCut, Cut, EventTimeCut, Period, RowsCut
from spark_bridge.errors import SparkBridgeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from state_backends.operator_state import OperatorListState

LATE_TAG = "late"
_STATE_NAME = "spark-rows"
_CLOSED_NAME = "spark-closed-until"
_EVERYTHING = Period(MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS, "rows")


@dataclass(frozen=True, slots=True)
class SparkTransform:
    """The specification that ``stream.via`` takes; see :func:`spark_transform`.

    It asks for parallelism 1 behind a global partitioner: one batch holds all rows of its cut, and one session
    serves the process anyway.
    """

    fn: Callable[[DataFrame], DataFrame]
    schema: str
    cut: Cut
    name: str
    result_schema: str | None = None
    cost_ns: int | Callable[[int], int] = 0
    parquet_threshold_rows: int = DEFAULT_PARQUET_THRESHOLD_ROWS
    parallelism: int = 1

    @property
    def partitioner(self) -> Partitioner:
        """How rows reach the operator."""
        return GlobalPartitioner()

    def create_operator(self) -> Operator:
        """A fresh operator for one attempt."""
        return SparkTransformOperator(self)


def spark_transform(
    fn: Callable[[DataFrame], DataFrame],
    *,
    schema: str,
    cut: Cut,
    name: str | None = None,
    result_schema: str | None = None,
    cost_ns: int | Callable[[int], int] = 0,
    parquet_threshold_rows: int = DEFAULT_PARQUET_THRESHOLD_ROWS,
) -> SparkTransform:
    """Run ``fn`` on whole batches of a stream.

    Args:
        fn: DataFrame to DataFrame; must be a deterministic function of the rows.
        schema: DDL string of the rows; records are dicts or sequences in that order.
        cut: where batches end, see :mod:`spark_bridge.cuts`.
        name: of the operator; default the function's name.
        result_schema: DDL string that results must have.
        cost_ns: virtual duration of a batch, or a function of its number of rows.
        parquet_threshold_rows: batches of at least this many rows cross as Parquet files.
    """
    return SparkTransform(
        fn,
        schema,
        cut,
        name if name is not None else function_name(fn).rsplit(".", 1)[-1],
        result_schema,
        cost_ns,
        parquet_threshold_rows,
    )


class SparkTransformOperator(Operator):
    """Buffers rows by period and runs the function on each period that is complete."""

    def __init__(self, spec: SparkTransform) -> None:
        self._spec = spec
        self._periods: dict[int, tuple[Period, list[Any]]] = {}
        self._last_period = Period(0, 0, "")
        self._closed_until_ms = MIN_TIMESTAMP_MS
        self._batches = 0
        self._rows_state: OperatorListState
        self._closed_state: OperatorListState

    def initialize_state(self) -> None:
        """Take back the rows that were waiting."""
        backend = self.context.operator_backend()
        self._rows_state = backend.list_state(_STATE_NAME)
        self._closed_state = backend.list_state(_CLOSED_NAME)
        for start_ms, end_ms, label, rows in self._rows_state.get():
            self._periods[start_ms] = (Period(start_ms, end_ms, label), list(rows))
        for closed_until_ms, batches in self._closed_state.get():
            self._closed_until_ms, self._batches = closed_until_ms, batches

    def process_batch(self, batch: Batch) -> None:
        """Put each row to its period."""
        if isinstance(self._spec.cut, EventTimeCut):
            self._sort_into_periods(self._spec.cut, batch)
            return
        rows = self._rows_of(_EVERYTHING)
        rows.extend(batch.values)
        if isinstance(self._spec.cut, RowsCut):
            self._run_full_batches(rows, self._spec.cut.rows)

    def _sort_into_periods(self, cut: EventTimeCut, batch: Batch) -> None:
        if batch.timestamps is None:
            raise SparkBridgeError(
                f"{self.context.name}: an event-time cut needs timestamps: give the source a WatermarkStrategy"
            )
        late: list[int] = []
        period, rows = self._last_period, None
        for position, (row, timestamp_ms) in enumerate(zip(batch.values, batch.timestamps, strict=True)):
            if rows is None or not period.start_ms <= timestamp_ms < period.end_ms:
                period = cut.period_of(timestamp_ms)
                rows = self._rows_of(period) if period.end_ms > self._closed_until_ms else []
            if period.end_ms <= self._closed_until_ms:
                late.append(position)
            else:
                rows.append(row)
        self._last_period = period
        if late:
            self.context.metrics.count("numLateRecordsDropped", len(late))
            self.output.emit_side(LATE_TAG, batch.take(late))

    def _rows_of(self, period: Period) -> list[Any]:
        entry = self._periods.get(period.start_ms)
        if entry is None:
            entry = self._periods[period.start_ms] = (period, [])
        return entry[1]

    def _run_full_batches(self, rows: list[Any], size: int) -> None:
        while len(rows) >= size:
            full = rows[:size]
            del rows[:size]
            self._run(Period(0, 0, f"rows {self._batches * size + 1}-{(self._batches + 1) * size}"), full)

    def process_watermark(self, timestamp_ms: int) -> None:
        """Run every period that the watermark has closed, oldest first; then pass the watermark on."""
        if isinstance(self._spec.cut, EventTimeCut):
            due = sorted(start for start, (period, _) in self._periods.items() if period.end_ms - 1 <= timestamp_ms)
            for start in due:
                period, rows = self._periods.pop(start)
                self._closed_until_ms = max(self._closed_until_ms, period.end_ms)
                self._run(period, rows)
        self.output.emit_watermark(timestamp_ms)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        """A barrier cut ends its batch here."""
        if isinstance(self._spec.cut, BarrierCut):
            self._drain(f"before checkpoint {checkpoint_id}")

    def finish(self) -> None:
        """What is left is the last batch; event-time periods were closed by the maximum watermark."""
        self._drain("last rows")

    def _drain(self, label: str) -> None:
        for start in sorted(self._periods):
            period, rows = self._periods.pop(start)
            self._run(Period(period.start_ms, period.end_ms, label), rows)

    def _run(self, period: Period, rows: list[Any]) -> None:
        if not rows:
            return
        spec = self._spec
        self._batches += 1
        results = run_batch(
            spec.fn,
            rows,
            spec.schema,
            label=f"{self.context.name}: {period.label}",
            result_schema=spec.result_schema,
            parquet_threshold_rows=spec.parquet_threshold_rows,
        )
        self.context.metrics.count("numSparkBatches")
        self.context.metrics.count("numSparkRows", len(rows))
        cost = spec.cost_ns(len(rows)) if callable(spec.cost_ns) else spec.cost_ns
        if cost:
            self.context.spend(cost)
        stamps = [period.end_ms - 1] * len(results) if isinstance(spec.cut, EventTimeCut) else None
        self.output.emit(Batch(list(results), stamps))

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Rows still waiting, one element per period."""
        self._rows_state.update(
            [
                [period.start_ms, period.end_ms, period.label, rows]
                for _, (period, rows) in sorted(self._periods.items())
                if rows
            ]
        )
        self._closed_state.update([[self._closed_until_ms, self._batches]])

    def fingerprint(self) -> object:
        """Rows waiting per period."""
        return (
            self._closed_until_ms,
            self._batches,
            tuple((start, tuple(map(repr, rows))) for start, (_, rows) in sorted(self._periods.items())),
        )
