"""Windows of columns that overlap, of which some have fired and are kept for late records. No record is late."""

from __future__ import annotations

from engine import Job
from operators.columns import ColumnSource, record_count, sum_of
from operators.log.connectors.log_sink import LogSink
from operators.time import WatermarkStrategy
from operators.windows import SlidingEventTimeWindows
from state_backends.base import np

RECORDS = 200

SCENARIO = {
    "batch_size": 8,
    "checkpoint_interval": "25rec",
    "inline_state_bytes": 0,
    "cost.storage_latency_ns": 20_000,
    "modes": ["aligned", "unaligned"],
    "faults": ["crash", "rescale", "lose", "write-error"],
}


def job(parallelism: int | None = None) -> Job:
    """One source and a transactional sink; a row for each window of each key."""
    made = Job("column-windows", max_parallelism=8)
    number = np.arange(RECORDS)
    columns = {"k": number * 31 % 7, "v": number, "at": number * 9}
    times = WatermarkStrategy.for_monotonous_timestamps().with_interval_ns(10_000)
    source = made.source(ColumnSource(columns, timestamps="at"), watermarks=times, name="in", uid="in", parallelism=1)
    windows = source.key_by_column("k").window(SlidingEventTimeWindows.of(200, 80)).allowed_lateness(300)
    results = windows.aggregate_columns(
        {"sum": sum_of("v"), "n": record_count()}, name="windows", uid="windows", parallelism=parallelism or 2
    )
    rows = results.to_rows("k", "window_start", "window_end", "sum", "n", name="rows")
    return rows.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
