"""Windows: the contents of a window are state until the watermark closes it.

Readings are counted per key and 100 ms of event time. The snapshot holds each window that is open at the checkpoint,
together with the timer that will close it. After a crash between the closing of a window and the next checkpoint, the
window is open again. It closes a second time with the same contents, and the sink aborts the transaction of the first
time.

Try every schedule, every crash::

    weir check examples/teaching/windows.py --mode aligned
    weir check examples/teaching/windows.py --mode at-least-once

In mode at-least-once a window can count a reading twice: no reading is lost, but the count is wrong. The expected row
is then *missing*, although every record was read at least once. At-least-once promises the effects of each record, and
a sum shows all effects in one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine import CollectionSource, Job, ProcessWindowFunction, TimeWindow, TumblingEventTimeWindows, WatermarkStrategy
from operators.log.connectors import LogSink
from operators.windows import WindowContext

SCENARIO = {
    "batch_size": 1,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "modes": ["aligned", "at-least-once"],
    "crashes": 1,
    "checkpoints": 1,
    "promises": {"aligned": "exactly-once", "at-least-once": "none"},
}

SIZE_MS = 100


class HowMany(ProcessWindowFunction):
    """Emits ``(key, start of the window, readings in it)``."""

    def process(self, key: Any, ctx: WindowContext, elements: Sequence[Any]) -> Iterable[tuple[Any, int, int]]:
        """The window is complete."""
        assert isinstance(ctx.window, TimeWindow)
        return ((key, ctx.window.start, len(elements)),)


def job() -> Job:
    """Two sources of two readings each; two tasks with windows; rows ``(key, window, how many)``."""
    made = Job("windows", parallelism=2, max_parallelism=8)
    times = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1])
    left = made.source(
        CollectionSource([("a", 10), ("b", 120)]), watermarks=times, name="left", uid="left", parallelism=1
    )
    right = made.source(
        CollectionSource([("a", 60), ("b", 150)]), watermarks=times, name="right", uid="right", parallelism=1
    )
    counted = (
        left.union(right)
        .key_by(lambda reading: reading[0])
        .window(TumblingEventTimeWindows.of(SIZE_MS))
        .process(HowMany(), name="count", uid="count")
    )
    return counted.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
