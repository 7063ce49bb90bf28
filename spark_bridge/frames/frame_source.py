"""``spark_source(df)``: a Spark DataFrame as a bounded source of a job, with positions.

A position is the number of the next row in a split of :mod:`spark_bridge.frames.frame_rows`. In the simulator the rows
are in memory. On Spark the driver computes them once and stores them beside the checkpoints, where executors read them:
a DataFrame itself cannot travel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import check_whole
from engine.elements.source import SourceContext, SplitReader
from engine.elements.suggestions import nearest
from operators.sources import RangeReader, start_in
from spark_bridge.batch_function import condensed_lines
from spark_bridge.canonical import python_rows
from spark_bridge.errors import SparkBridgeError
from spark_bridge.frames.frame_rows import SplitRows, refuse_other_rows, rows_of_frame, store_splits
from spark_bridge.jvm import is_spark_error
from spark_bridge.session import get_session, require_pyspark
from state_backends.base import whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMES = ("timestamp", "bigint", "int")
_NO_SPLITS: Sequence[SplitRows] = ()


def spark_source(
    df: DataFrame | Callable[[SparkSession], DataFrame],
    *,
    splits: int = 1,
    timestamps: str | None = None,
    order_by: str | Sequence[str] = (),
) -> FrameSource:
    """The rows of a DataFrame as records: dicts of plain values, like the results of ``spark_transform``.

    Args:
        df: a DataFrame, or a function that makes it of a session: then the job can be loaded without one. It is
            computed when the job starts, once in each process, and must have the same rows each time: a job that goes
            on from a checkpoint refuses others.
        splits: how many subtasks can read it side by side.
        timestamps: the column of event times, a ``timestamp`` or whole ms since 1970.
        order_by: the columns that rows are ordered by first, then by all others; default ``timestamps``.

    Raises:
        SparkBridgeError: an argument is of the wrong kind, or a column is not there; the message names it.
    """
    require_pyspark()
    check_whole("splits", splits)
    first = [order_by] if isinstance(order_by, str) else list(order_by)
    made = FrameSource(df, splits, timestamps, first or ([] if timestamps is None else [timestamps]))
    if not callable(df):
        made.check(df)
    return made


class FrameSource:
    """See :func:`spark_source`, which makes it. ``df`` is ``None`` on executors."""

    position_shape = staticmethod(whole)

    def __init__(
        self, df: Any, splits: int, timestamps: str | None, order_by: Sequence[str],
        rows: Sequence[SplitRows] = _NO_SPLITS,
    ) -> None:  # fmt: skip
        self._df, self._splits, self._timestamps, self._order_by = df, splits, timestamps, order_by
        self._rows = rows
        self._stored: dict[str, FrameSource] = {}

    def check(self, df: object) -> None:
        """Raises :class:`SparkBridgeError` unless ``df`` is a DataFrame that can be read by the other arguments."""
        from pyspark.sql import DataFrame

        if not isinstance(df, DataFrame):
            raise SparkBridgeError(
                f"spark_source: df must be a Spark DataFrame, or a function of a session that returns one, not"
                f" {type(df).__name__}: for a list use CollectionSource, for a pandas or pyarrow table"
                " spark.createDataFrame(table)"
            )
        if df.isStreaming:
            raise SparkBridgeError(
                "spark_source: df is a stream, which has no end and no rows to come back to: write it to a log"
                ' (df.writeStream.format("weir.log")) and read that with LogSource'
            )
        for name in self._order_by:
            _check_column(df, "order_by" if name != self._timestamps else "timestamps", name)
        if self._timestamps is not None:
            _check_column(df, "timestamps", self._timestamps)
            kind = df.schema[self._timestamps].dataType.simpleString()
            if kind not in _TIMES:
                raise SparkBridgeError(
                    f"spark_source: timestamps= names column {self._timestamps!r} of type {kind}; it must be a"
                    " timestamp, or whole ms since 1970 as bigint: cast it"
                )

    def _computed(self, source: str) -> Sequence[SplitRows]:
        """The same rows in all attempts of this process."""
        if not self._rows:
            assert self._df is not None, "executors get rows, which the driver has computed"
            try:
                df = self._df
                if callable(df):
                    df = df(get_session())
                    self.check(df)
                self._rows = rows_of_frame(df, self._order_by, self._splits)
            except Exception as error:
                told = "\n  ".join(condensed_lines(error))
                cause = None if is_spark_error(error) or isinstance(error, SparkBridgeError) else error
                raise SparkBridgeError(f"source {source!r}: its DataFrame cannot be read:\n  {told}") from cause
        return self._rows

    def on_executors(self, source: str, directory: str | None) -> FrameSource:
        """What executors get. ``source``: its name; ``directory``: for the rows, ``None``: without any."""
        if directory is None:
            return FrameSource(None, self._splits, self._timestamps, self._order_by)
        if directory not in self._stored:
            # A new directory for new files: a worker of a process that has died may still have the old ones mapped.
            rows = store_splits(self._computed(source), directory)
            self._stored[directory] = FrameSource(None, self._splits, self._timestamps, self._order_by, rows)
        return self._stored[directory]

    def splits(self, context: SourceContext) -> Sequence[str]:
        return [split.id for split in self._computed(context.name)]

    def refuse_changed_splits(self, known: Iterable[str], ids: Sequence[str], context: SourceContext) -> None:
        """A restored job reads the rows that it has begun to read."""
        refuse_other_rows(context.name, known, ids)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """A reader whose next row has the number ``position``."""
        rows = next(one for one in self._computed(context.name) if one.id == split)
        start = start_in(0, rows.count, position, split, context.name)
        return RangeReader(partial(_read, rows.load(), self._timestamps, context.name), start, rows.count)


def _check_column(df: DataFrame, argument: str, name: object) -> None:
    if name not in df.columns:
        close = nearest(str(name), df.columns)
        hint = f"did you mean {close!r}?" if close else f"it has {', '.join(df.columns)}"
        raise SparkBridgeError(f"spark_source: {argument}= names {name!r}, which is no column of the DataFrame; {hint}")


def _read(table: Any, timestamps: str | None, source: str, start: int, stop: int) -> Batch:
    taken = table.slice(start, stop - start)
    rows = python_rows(taken)
    if timestamps is None:
        return Batch(rows)
    times = _times(taken.column(timestamps))
    if None in times:
        row = rows[times.index(None)]
        raise SparkBridgeError(
            f"source {source!r}: column {timestamps!r} of event times is null in row {row}: drop such rows, or fill"
            " them, before spark_source"
        )
    return Batch(rows, times)


def _times(column: Any) -> list[Any]:
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return list(column.to_pylist())
    microseconds = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if one is None else one // 1000 for one in microseconds]
