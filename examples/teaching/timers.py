"""Timers: they are state like any other, and belong to a key.

For each key the operator counts records up to event time 100 and sets a timer for that time, which emits the count.
The timer is in the snapshot. After a restore it is still set, or fires if the watermark has passed it. A row emitted
before the checkpoint is not emitted again; a row emitted after the checkpoint is.

What if an operator keeps the due times itself, in an attribute? No checkpoint stores an attribute. After a restore the
operator has the counts, but does not know that a timer is due: the timer is lost, and with it a row.

Watermarks advance event time. No checkpoint stores them; the sources send them again. A timer must not fire before the
last record with an earlier event time has arrived. With two sources the *slower* one decides: the watermark of a task
is the minimum over its channels.

Try every schedule, every crash::

    weir check examples/teaching/timers.py --mode aligned
    weir check examples/teaching/timers.py --mode unaligned
    weir check examples/teaching/timers.py --mode aligned --param timers=forgotten

All endings of the first two are correct. The third shows the shortest way to a lost timer: a record sets it, the
checkpoint holds the count, the crash loses the timer, and the row of that key is never emitted.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import (
    Batch,
    CollectionSource,
    ConfigurationError,
    Job,
    KeyedProcessContext,
    KeyedProcessFunction,
    Operator,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from operators.log.connectors import LogSink

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
        """Count, and set the timer; setting it again changes nothing."""
        if value[1] <= DUE_MS:
            self._seen.update(self._seen.get() + 1)
            ctx.register_event_time_timer(DUE_MS)
        return ()

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[tuple[object, int]]:
        """Event time 100 has come."""
        return ((ctx.current_key, self._seen.get()),)


class SaysFromMemory(Operator):
    """The mistake: the count of a key is in state, but its due time is in an attribute."""

    def initialize_state(self) -> None:
        """The counts are restored, but the due times are not."""
        self._keyed = self.context.keyed_backend()
        self._seen = self._keyed.value_state(ValueStateDescriptor("seen", 0))
        self._due_ms: dict[str, int] = {}

    def process_batch(self, batch: Batch) -> None:
        """Count, and remember when the key is due."""
        for key, time_ms in batch.values:
            if time_ms <= DUE_MS:
                self._keyed.set_current_key(key)
                self._seen.update(self._seen.get() + 1)
                self._due_ms[key] = DUE_MS

    def process_watermark(self, timestamp_ms: int) -> None:
        """Emit the counts of the keys that are due."""
        for key in [key for key, due_ms in self._due_ms.items() if due_ms <= timestamp_ms]:
            del self._due_ms[key]
            self._keyed.set_current_key(key)
            self.output.emit(Batch([(key, self._seen.get())]))
        self.output.emit_watermark(timestamp_ms)

    def fingerprint(self) -> object:
        """The part of this operator that is in no state."""
        return list(self._due_ms.items())


def job(timers: str = "kept") -> Job:
    """Two sources of two readings each; two tasks with timers; rows ``(key, how many)``. ``timers``: ``kept`` in state,
    or ``forgotten``."""
    if timers not in ("kept", "forgotten"):
        raise ConfigurationError(f"timers is {timers!r}; it must be 'kept' or 'forgotten'")
    made = Job("timers", parallelism=2, max_parallelism=8)
    times = WatermarkStrategy.for_monotonous_timestamps(lambda reading: reading[1])
    left = made.source(
        CollectionSource([("a", 10), ("b", 150)]), watermarks=times, name="left", uid="left", parallelism=1
    )
    right = made.source(
        CollectionSource([("a", 60), ("b", 90)]), watermarks=times, name="right", uid="right", parallelism=1
    )
    readings = left.union(right).key_by(lambda reading: reading[0])
    if timers == "kept":
        said = readings.process(SayHowMany, name="say", uid="say")
    else:
        said = readings.via(SaysFromMemory, name="say", uid="say")
    return said.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
