"""Timers: they are state like any other, and belong to a key.

Each key remembers how many records it has seen, and has set a timer for event time 100: then it says how many. The
timer is in the snapshot. After a restore it is still set, or fires if the watermark has passed it; what it has emitted
before the checkpoint it does not emit again, and what it has emitted behind it, it does.

Event time advances by watermarks, which no checkpoint stores: sources say them again. A timer must not fire while a
record that belongs before it is still to come. With two sources that is the *slower* one's business: the watermark of a
task is the minimum over its channels.

Try every schedule, every crash::

    weir check examples/teaching/timers.py --mode aligned
    weir check examples/teaching/timers.py --mode unaligned
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import CollectionSource, Job, KeyedProcessContext, KeyedProcessFunction, WatermarkStrategy
from operators.log.log_sink import LogSink

SCENARIO = {
    "batch_size": 1,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "modes": ["aligned", "unaligned"],
    "crashes": 1,
    "checkpoints": 1,
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once"},
}

Reading = tuple[str, int]
"""A key, and an event time in ms."""

DUE_MS = 100


class SayHowMany(KeyedProcessFunction):
    """Emits ``(key, records before the timer)`` once per key."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """One number per key."""
        self._seen = ctx.value_state("seen", 0)

    def process_element(self, value: Reading, ctx: KeyedProcessContext) -> Iterable[object]:
        """Count, and have the timer set; setting it again changes nothing."""
        if value[1] <= DUE_MS:
            self._seen.update(self._seen.get() + 1)
            ctx.register_event_time_timer(DUE_MS)
        return ()

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[tuple[object, int]]:
        """Event time 100 has come."""
        return ((ctx.current_key, self._seen.get()),)


def job() -> Job:
    """Two sources of two readings each; two tasks with timers; rows ``(key, how many)``."""
    made = Job("timers", parallelism=2, max_parallelism=8)
    times = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1])
    left = made.source(
        CollectionSource([("a", 10), ("b", 150)]), watermarks=times, name="left", uid="left", parallelism=1
    )
    right = made.source(
        CollectionSource([("a", 60), ("b", 90)]), watermarks=times, name="right", uid="right", parallelism=1
    )
    said = left.union(right).key_by(lambda reading: reading[0]).process(SayHowMany, name="say", uid="say")
    return said.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
