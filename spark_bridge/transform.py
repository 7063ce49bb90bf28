"""``stream.via(spark_transform(fn, ...))``: a stream operator whose work is a Spark DataFrame function.

Rules.
1. Rows wait in operator state until their batch is cut, so a restored job cuts the same batches, from its state and
   from rows that it reads again. No batch is in flight at a barrier: a batch is run whole between two elements.
2. The watermark closes an event-time batch, and its results carry the last timestamp of the period. So they come
   before the watermark that closed it.
3. Results come in canonical order: Spark's own order depends on partitions and threads.
4. A row is late when the watermark has closed its period already, whether the period had rows or not: it is counted,
   and sent to side output ``late``. The watermark is state (see :mod:`operators.time.event_clock`), so a row that was
   late stays late in the next attempt.
5. The call blocks in wall time; in virtual time it takes the time given by ``cost_ns``.
6. A function that takes several periods at once runs right before a barrier, on all that have closed since the one
   before: no exactly-once sink would show their results earlier. Until then the watermark that leaves stays below the
   first of them. Without checkpoints it runs whenever a period closes.
7. With ``by`` there are several subtasks, each with the rows of its key groups: the function runs once on each part.
8. Columns stay columns until they are in Spark, and results of columns leave as columns, if columns can hold them.
9. Without ``result_schema`` the results of all batches have the columns of the first one, over restores, too.
10. Periods do not overlap. A period function that breaks this, or a cut that was changed between a checkpoint and its
   restore, would spread the rows of one period over several batches: it is an error at the first such row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.elements.batch import MAX_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch
from engine.elements.errors import shorten
from engine.elements.operator import Operator
from engine.graph.partitioner import GlobalPartitioner, Partitioner
from operators.time import EventClock, missing_timestamps
from spark_bridge.batch_function import function_name, run_batch
from spark_bridge.crossing import DEFAULT_PARQUET_THRESHOLD_ROWS, collect_canonical, collect_table
from spark_bridge.cuts import BarrierCut, Cut, EventTimeCut, Period, RowsCut
from spark_bridge.errors import SparkBridgeError
from spark_bridge.period_column import (
    COLUMN_TYPE,
    Rows,
    check_labels,
    is_table,
    joint_label,
    results_by_period,
    together,
    with_period,
)
from spark_bridge.result_columns import Columns, FirstColumns, See
from spark_bridge.transform_arguments import check_arguments, is_duration
from spark_bridge.waiting import EVERYTHING, KeyColumn, PeriodRows, WaitingRows, as_batch
from state_backends.api import OperatorListState
from state_backends.base import whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from engine.observe.provenance import Lineage

LATE_TAG = "late"
_BATCHES_STATE = "spark-batches"


@dataclass(frozen=True, slots=True)
class SparkTransform:
    """The specification that ``stream.via`` takes; see :func:`spark_transform`.

    Without ``by`` it requires parallelism 1 after a global partitioner: one batch holds all rows of its cut.
    """

    fn: Callable[[DataFrame], DataFrame]
    schema: str
    cut: Cut
    name: str
    result_schema: str | None = None
    cost_ns: int | Callable[[int], int] = 0
    parquet_threshold_rows: int = DEFAULT_PARQUET_THRESHOLD_ROWS
    period_column: str | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        """Refuse arguments that would otherwise fail in the middle of a run, or silently never end a batch."""
        check_arguments(
            self.fn, self.schema, self.cut, cost_ns=self.cost_ns, period_column=self.period_column, by=self.by
        )

    @property
    def rows_schema(self) -> str:
        """Of the rows that the function gets."""
        return self.schema if self.period_column is None else f"{self.schema}, {self.period_column} {COLUMN_TYPE}"

    @property
    def parallelism(self) -> int | None:
        return 1 if self.by is None else None

    @property
    def partitioner(self) -> Partitioner:
        return GlobalPartitioner() if self.by is None else KeyColumn.of(self.by, self.schema).partitioner

    def create_operator(self) -> Operator:
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
    period_column: str | None = None,
    by: str | None = None,
) -> SparkTransform:
    """Run ``fn`` on whole batches of a stream.

    Args:
        fn: DataFrame to DataFrame; its result must depend on the rows only, not on their order.
        schema: DDL string of the rows; records are dicts or sequences in that order.
        cut: where batches end, see :mod:`spark_bridge.cuts`.
        name: of the operator; default the function's name.
        result_schema: DDL string that results must have; without it, all must have the columns of the first batch.
        cost_ns: virtual duration of a batch, or a function from its number of rows to that.
        parquet_threshold_rows: batches of at least this many rows cross as Parquet files.
        period_column: says that ``fn`` can take several periods at once. It is then called once per checkpoint, for all
            periods that have closed since the one before. Its rows have one more column of this name, with the label
            of their period; its result must have the column, too, and records leave without it. Results of a period
            must depend on the rows of that period only: group by the column. Needs ``event_time_cut``.
        by: the column with a key. The operator may then have several subtasks: each calls ``fn`` on the rows of its
            keys, so that results must depend on the rows of one key only. Not with ``rows_cut``.

    Raises:
        SparkBridgeError: an argument is of the wrong kind; the message names it.
    """
    return SparkTransform(
        fn,
        schema,
        cut,
        name if name is not None else function_name(fn).rsplit(".", 1)[-1],
        result_schema,
        cost_ns,
        parquet_threshold_rows,
        period_column,
        by,
    )


@dataclass(frozen=True, slots=True)
class CutRows:
    """The rows of one batch; their results carry ``timestamp_ms``."""

    label: str
    rows: Rows
    timestamp_ms: int | None = None


RunRows = Callable[[SparkTransform, str, Sequence[CutRows], See], Sequence[Rows]]
"""Calls the function of a specification, in the operator of this name, once: on one batch, or on several if it has a
column for periods. Gives the results of each, in canonical order: of columns as a table."""


def run_in_session(spec: SparkTransform, name: str, batches: Sequence[CutRows], see: See) -> Sequence[Rows]:
    """Run the function with the session of this process."""
    column, labels = spec.period_column, [one.label for one in batches]
    rows = batches[0].rows
    if column is not None:
        check_labels(labels, name)
        rows = together([with_period(one.rows, column, one.label) for one in batches])
    results = run_batch(
        spec.fn,
        rows,
        spec.rows_schema,
        label=f"{name}: {joint_label(labels)}",
        result_schema=spec.result_schema,
        period_column=column,
        parquet_threshold_rows=spec.parquet_threshold_rows,
        take=collect_table if is_table(rows) else collect_canonical,
        see=see,
    )
    return [results] if column is None else results_by_period(results, column, labels, name)


class SparkTransformOperator(Operator):
    """Buffers rows by period and runs the function on each period that is complete.

    ``run_rows`` says how; a job on Spark sets another way, because its executors have no session.
    """

    spends_per_batch = True

    _clock: EventClock
    _waiting: WaitingRows
    _first_columns: FirstColumns | None
    _batches_state: OperatorListState

    def __init__(self, spec: SparkTransform) -> None:
        self.run_rows: RunRows = run_in_session
        self._spec = spec
        self._batches = 0

    @property
    def spec(self) -> SparkTransform:
        """What the operator does."""
        return self._spec

    def initialize_state(self) -> None:
        backend = self.context.operator_backend()
        self._clock = EventClock(self.context)
        self._waiting = WaitingRows(backend, self.context.name, owned=None if self._spec.by is None else self._owned)
        self._first_columns = None if self._spec.result_schema is not None else FirstColumns(backend)
        self._batches_state = backend.list_state(_BATCHES_STATE, whole)
        for batches in self._batches_state.get():
            self._batches = batches

    def _owned(self, batch: Batch) -> Batch:
        """The records of the key groups of this subtask."""
        assert self._spec.by is not None
        context = self.context
        key = KeyColumn.of(self._spec.by, self._spec.schema)
        return key.records_of(batch, context.subtask, context.parallelism, context.max_parallelism)

    def process_batch(self, batch: Batch) -> None:
        if not batch:
            return
        if self.lineage is not None:
            self._tell_where_they_wait(self.lineage, batch)
        if isinstance(self._spec.cut, EventTimeCut):
            self._sort_into_periods(self._spec.cut, batch)
            return
        waiting = self._waiting.of(EVERYTHING)
        waiting.add(batch)
        if isinstance(self._spec.cut, RowsCut):
            self._run_full_batches(waiting, self._spec.cut.rows)

    def _tell_where_they_wait(self, lineage: Lineage, batch: Batch) -> None:
        cut = self._spec.cut
        if not isinstance(cut, EventTimeCut):
            lineage.waits(len(batch))
            return
        for row, timestamp_ms in zip(batch.values, batch.timestamps or (), strict=False):
            period = self._period_at(cut, row, timestamp_ms)
            if not self._is_closed(period):
                lineage.waits(1, period.label)

    def _sort_into_periods(self, cut: EventTimeCut, batch: Batch) -> None:
        stamps = batch.timestamp_column if isinstance(batch, ColumnBatch) else batch.timestamps
        if stamps is None:
            raise missing_timestamps(self)
        late = self._waiting.sort(batch, stamps, partial(self._period_at, cut), self._is_closed)
        if late:
            self.context.metrics.count("numLateRecordsDropped", len(late))
            self.output.emit_side(LATE_TAG, batch.take(late))

    def _period_at(self, cut: EventTimeCut, row: Any, timestamp_ms: int) -> Period:
        try:
            return cut.period_at(timestamp_ms)
        except SparkBridgeError as error:
            raise SparkBridgeError(f"{self.context.name}: {error}\n  record  {shorten(row)}") from None
        except Exception as error:
            raise self.user_error("period function", row, error) from error

    def _is_closed(self, period: Period) -> bool:
        return period.end_ms - 1 <= self._clock.watermark_ms

    def _run_full_batches(self, waiting: PeriodRows, size: int) -> None:
        while len(waiting) >= size:
            full = waiting.first(size).taken()
            self._run([CutRows(f"rows {self._batches * size + 1}-{(self._batches + 1) * size}", full)])

    def process_watermark(self, timestamp_ms: int) -> None:
        """Run every period that the watermark has closed, oldest first; then pass the watermark on."""
        self._clock.advance(timestamp_ms)
        if not self._waits_for_barrier or self._clock.watermark_ms >= MAX_TIMESTAMP_MS:
            self._run_periods(self._closed())
        self._pass_watermark_on()

    @property
    def _waits_for_barrier(self) -> bool:
        return self._spec.period_column is not None and self.context.checkpointing_enabled

    def _pass_watermark_on(self) -> None:
        # The results of a closed period are still to come, and carry its last timestamp.
        held = [period.end_ms - 2 for period in self._closed()]
        self.output.emit_watermark(min([self._clock.watermark_ms, *held]))

    def _closed(self) -> list[Period]:
        """Those with rows, oldest first."""
        if not isinstance(self._spec.cut, EventTimeCut):
            return []
        return [period for period in self._waiting.periods() if self._is_closed(period)]

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        if isinstance(self._spec.cut, BarrierCut):
            self._drain(f"before checkpoint {checkpoint_id}")
        elif closed := self._closed():
            self._run_periods(closed)
            self._pass_watermark_on()

    def finish(self) -> None:
        """The remaining rows are the last batch; the maximum watermark has closed event-time periods."""
        self._drain("last rows")

    def _drain(self, label: str) -> None:
        periods = self._waiting.periods()
        if isinstance(self._spec.cut, EventTimeCut):
            self._run_periods(periods)
            return
        for period in periods:
            self._run([CutRows(label, self._waiting.take(period).taken())])

    def _run_periods(self, periods: Iterable[Period]) -> None:
        taken = [CutRows(one.label, self._waiting.take(one).taken(), one.end_ms - 1) for one in periods]
        if self._spec.period_column is not None:
            self._run(taken)
            return
        for one in taken:
            self._run([one])

    def _run(self, batches: Sequence[CutRows]) -> None:
        """One call of the function."""
        batches = [one for one in batches if len(one.rows)]
        if not batches:
            return
        rows = sum(len(one.rows) for one in batches)
        self._batches += len(batches)
        label = joint_label([one.label for one in batches])
        results = self.run_rows(self._spec, self.context.name, batches, partial(self._see, label))
        self.context.metrics.count("numSparkBatches")
        self.context.metrics.count("numSparkRows", rows)
        self._spend(rows)
        for one, found in zip(batches, results, strict=True):
            self._emit(one, found)

    def _see(self, label: str, columns: Columns) -> None:
        if self._first_columns is not None:
            self._first_columns.check(label, columns)

    def _emit(self, batch: CutRows, results: Rows) -> None:
        made = as_batch(results, batch.timestamp_ms)
        if self.lineage is None:
            self.output.emit(made)
            return
        self.lineage.emitting(None, batch.label if batch.timestamp_ms is not None else None)
        self.output.emit(made)
        self.lineage.emitted()

    def _spend(self, rows: int) -> None:
        cost_ns = self._spec.cost_ns
        if callable(cost_ns):
            cost_ns = self._cost_of(cost_ns, rows)
        if cost_ns:
            self.context.spend(cost_ns)

    def _cost_of(self, cost_ns: Callable[[int], int], rows: int) -> int:
        try:
            answer = cost_ns(rows)
            if not is_duration(answer):
                raise TypeError(f"a cost is a whole number of ns, at least 0, not {answer!r}")
        except Exception as error:
            raise self.user_error("cost function", f"{rows} rows", error) from error
        return answer

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._clock.snapshot()
        self._waiting.snapshot()
        if self._first_columns is not None:
            self._first_columns.snapshot()
        self._batches_state.update([self._batches])

    def fingerprint(self) -> object:
        columns = None if self._first_columns is None else self._first_columns.fingerprint()
        return self._clock.watermark_ms, self._batches, self._waiting.fingerprint(), columns
