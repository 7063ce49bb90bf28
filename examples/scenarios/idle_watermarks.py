"""Watermarks and idleness: windows fire once, in time, and no record in time is dropped, after restores too.

The source has three splits, each with its own watermarks. One is far ahead. One is slow: it pauses before each
record, but never for as long as the idle timeout, and its records belong to windows that the first has left long ago.
One becomes silent for good. Rows are ``(key, window, count, moment)``; the moment says whether a watermark fired the
window or only the end of the input.

If a restore takes a slow split for idle, or sets a watermark too high, records in time become late: their counts are
too low. If a silent split becomes active again after each restore, it delays the windows until the end: the moment
differs. A window that fires twice adds a row::

    weir explore examples/scenarios/idle_watermarks.py
    weir explore examples/scenarios/idle_watermarks.py --fault crash --mode aligned

Faults that keep a source from reading for long are left out: they rightly lead to idleness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine import (
    CollectionSource,
    Job,
    Pause,
    ProcessWindowFunction,
    TimeWindow,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from operators.log.connectors import LogSink
from operators.windows import WindowContext

Reading = tuple[str, int]
"""A key, and an event time in ms."""

KEYS = "ab"
WINDOW_MS = 20
WINDOWS = 3
PAUSE_MS = 1
IDLE_MS = 4
LAST_PAUSE_MS = 10
END_OF_TIME_MS = 1 << 60

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 8,
    "checkpoint_interval": "1100us",
    "modes": ["aligned", "unaligned", "aligned-timeout"],
    "inline_state_bytes": 0,
    "cost.storage_latency_ns": 700_000,
    "faults": [
        "crash", "rescale", "raise", "lose", "duplicate", "late", "torn-write", "write-error", "lose-unsynced",
    ],
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once", "aligned-timeout": "exactly-once"},
}  # fmt: skip


class CountWithMoment(ProcessWindowFunction):
    """``(key, window start, count, "watermark" or "end")``."""

    def process(self, key: str, ctx: WindowContext, elements: Sequence[Reading]) -> Iterable[object]:
        """Emit the row of a window that has fired."""
        moment = "end" if ctx.current_watermark_ms > END_OF_TIME_MS else "watermark"
        assert isinstance(ctx.window, TimeWindow)
        return [(key, ctx.window.start, len(elements), moment)]


def _source() -> CollectionSource:
    # One window more than the job checks: its first records push the watermark beyond all others.
    ahead: list[object] = [
        (key, window * WINDOW_MS + at) for window in range(WINDOWS + 1) for at in (1, 11) for key in KEYS
    ]
    slow: list[object] = []
    for window in range(WINDOWS + 1):
        for key in KEYS:
            slow += [Pause(PAUSE_MS), (key, window * WINDOW_MS + 15)]
    silent: list[object] = [(key, 5) for key in KEYS]
    return CollectionSource.of_splits(ahead, slow, [*silent, Pause(PAUSE_MS * len(slow) // 2 + LAST_PAUSE_MS)])


def job(parallelism: int | None = None) -> Job:
    """One source of three splits, one window operator, one sink."""
    made = Job("idle-watermarks", parallelism=parallelism or 2, max_parallelism=8)
    strategy = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1])
    strategy = strategy.with_interval_ns(100_000).with_idleness(IDLE_MS)
    readings = made.source(_source(), watermarks=strategy, name="readings", uid="readings", parallelism=1)
    windows = readings.key_by(lambda reading: reading[0]).window(TumblingEventTimeWindows.of(WINDOW_MS))
    counts = windows.process(CountWithMoment(), name="count", uid="count")
    return counts.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
