"""One large batch of a Spark transform, in columns: what a job adds to the way into Spark and back.

The yardstick is a Parquet round trip through the same session: the table is written, Spark reads it, runs the function
and writes its result, and that is read back. A run of the job makes columns, collects them into one batch, lets Spark
run the function, puts the result into canonical order and sends it on as columns. The session runs already; the clock
is the wall's, because Spark is another process.
"""

from __future__ import annotations

import gc
import os
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.keyed_sum import scratch_directory
from benchmarks.measure import Paired, Result, below, interleaved, per_second
from engine.elements.batch import Batch
from engine.elements.columns import ColumnBatch
from engine.graph.job import Job
from operators.basic import SinkOperator
from operators.columns import ColumnSource

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "id bigint, key string, value double, ok boolean"
_KEYS = 1_000
_BATCH_SIZE = 100_000


class _Sums:
    """A sink that counts records and adds up a column of them."""

    name = "sums"

    def __init__(self) -> None:
        self.count = self.total = 0

    def create_operator(self) -> SinkOperator:
        return _SumOperator(self)


class _SumOperator(SinkOperator):
    def __init__(self, sums: _Sums) -> None:
        self._sums = sums

    def process_batch(self, batch: Batch) -> None:
        assert isinstance(batch, ColumnBatch), "the results have become rows"
        self._sums.count += len(batch)
        self._sums.total += int(batch.columns["id"].sum())


def same_rows(frame: Any) -> Any:
    """The function of the transform: all rows, one column computed anew."""
    return frame.selectExpr("id", "key", "value * 2 AS value", "ok")


def make_table(rows: int) -> pa.Table:
    """Four columns, one of each kind that is frequent."""
    import numpy as np
    import pyarrow as pa

    ids = np.arange(rows, dtype=np.int64)
    keys = np.array([f"key-{number}" for number in range(_KEYS)], dtype=object)[ids * 7919 % _KEYS]
    return pa.table({"id": ids, "key": pa.array(keys), "value": ids / 8, "ok": ids % 3 == 0})


class LargeBatch:
    """One batch of ``rows`` rows."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._table = make_table(rows)

    def job(self) -> float:
        """Seconds of a run of the job."""
        from spark_bridge import rows_cut, spark_transform

        sums = _Sums()
        job = Job("large-batch")
        transform = spark_transform(same_rows, schema=SCHEMA, cut=rows_cut(self._rows))
        started = time.perf_counter()
        job.source(ColumnSource(self._table), name="rows").via(transform, name="same").sink(sums)
        job.run(batch_size=_BATCH_SIZE)
        seconds = time.perf_counter() - started
        self._check(sums.count, sums.total)
        return seconds

    def round_trip(self) -> float:
        """Seconds of the same by Parquet files, without a job."""
        import pyarrow.compute as pc
        from pyarrow import parquet

        from spark_bridge import get_session

        session = get_session()
        with scratch_directory() as directory:
            there, back = os.path.join(directory, "there.parquet"), os.path.join(directory, "back")
            started = time.perf_counter()
            parquet.write_table(self._table, there, compression="none", use_dictionary=False)
            same_rows(session.read.parquet(there)).write.parquet(back)
            found = parquet.read_table(back)
            seconds = time.perf_counter() - started
        self._check(found.num_rows, pc.sum(found.column("id")).as_py())
        return seconds

    def _check(self, count: int, total: int) -> None:
        assert (count, total) == (self._rows, self._rows * (self._rows - 1) // 2), (count, total)


def measure(quick: bool) -> list[Result]:
    """The job beside the round trip; nothing when Spark is not installed."""
    if find_spec("pyspark") is None:
        return []
    rows, rounds = (100_000, 2) if quick else (1_000_000, 7)
    batch = LargeBatch(rows)
    # The first batches start workers and compile plans.
    for _ in range(2):
        batch.job()
        batch.round_trip()
    gc.collect()
    pairs = interleaved(batch.round_trip, {"job": batch.job}, rounds)["job"]
    return [_result(rows, pairs)]


def _result(rows: int, pairs: Paired) -> Result:
    from spark_bridge import batch_times

    times = tuple(1 / one for one in pairs.speed_ratios)
    last = batch_times()[-1]
    details = {
        "rows_per_s": per_second(rows, pairs.seconds),
        "round_trip_rows_per_s": per_second(rows, pairs.reference_seconds),
        "last_batch_s": round(last.seconds, 2),
        "last_batch_into_spark_s": round(last.into_spark, 2),
    }
    case = f"a batch of {rows:,} rows of 4 columns in a job"
    return Result(case, "× time of a Parquet round trip", times, below(1.3), details)
