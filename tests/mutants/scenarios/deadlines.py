"""Two timers per key: a deadline an hour away, which is set first, and a short one that must not wait for it."""

from __future__ import annotations

from collections.abc import Iterable

from engine import CollectionSource, Job, KeyedProcessContext, KeyedProcessFunction, Pause
from operators.log.connectors.log_sink import LogSink

KEYS = "abc"
ROUNDS = 3
WAIT_MS, DEADLINE_MS, PAUSE_MS, LAST_PAUSE_MS = 2, 3_600_000, 1, 6

SCENARIO = {
    "batch_size": 2,
    "checkpoint_interval": "1200us",
    "inline_state_bytes": 0,
    "cost.storage_latency_ns": 700_000,
    "modes": ["aligned", "unaligned"],
    "faults": ["crash", "rescale", "lose", "duplicate", "write-error"],
}


class LetGoInTime(KeyedProcessFunction):
    """Keeps the records of a key for a while; after an hour it would give up."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self._held = ctx.list_state("held")

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessContext) -> Iterable[object]:
        """The first record that is held back sets both timers."""
        if self._held.get() is None:
            now_ms = ctx.processing_time_ms()
            ctx.register_processing_time_timer(now_ms + DEADLINE_MS)
            ctx.register_processing_time_timer(now_ms + WAIT_MS)
        self._held.add(value)
        return ()

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[object]:
        rows = self._held.get() or []
        self._held.clear()
        return rows


def job(parallelism: int | None = None) -> Job:
    """One source in rounds with pauses; rows are the records, each once."""
    made = Job("deadlines", parallelism=parallelism or 2, max_parallelism=8)
    items: list[object] = []
    for number in range(ROUNDS):
        items += [*((key, number) for key in KEYS), Pause(PAUSE_MS)]
    source = CollectionSource([*items, Pause(LAST_PAUSE_MS)])
    readings = made.source(source, name="readings", uid="readings", parallelism=1).key_by(lambda reading: reading[0])
    held = readings.process(LetGoInTime, name="hold", uid="hold")
    return held.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
