"""Records that are late in every run, for the watermarks of their one source tell so: no task may count them."""

from __future__ import annotations

from engine import CollectionSource, Job, TumblingEventTimeWindows, WatermarkStrategy
from operators.log.connectors.log_sink import LogSink

KEYS = "ab"
WINDOWS = 6
SIZE_MS = 10

SCENARIO = {"batch_size": 1, "checkpoint_interval": "5rec", "modes": ["aligned", "unaligned"]}


def job(parallelism: int | None = None) -> Job:
    """In each window two records per key; two windows later one more, which is late; rows are ``(key, window, n)``."""
    made = Job("late-records", parallelism=parallelism or 2, max_parallelism=8)
    readings = [
        (key, window * SIZE_MS + at) for window in range(WINDOWS) for at in (1, 2, 1 - 2 * SIZE_MS) for key in KEYS
    ]
    at_once = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1]).with_interval_ns(1_000)
    source = CollectionSource([one for one in readings if one[1] >= 0])
    read = made.source(source, watermarks=at_once, name="read", uid="read", parallelism=1)
    windows = read.key_by(lambda reading: reading[0]).window(TumblingEventTimeWindows.of(SIZE_MS))
    counts = windows.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", uid="count")
    return counts.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
