"""A changelog under load: it is materialised again and again while keys change and checkpoints wait for slow storage.

Each key changes many times between two materialisations, in four kinds of state. Storage is slow, so materialisations,
uploads of the log and checkpoints overlap. If a change is cut off with the log, replayed twice, or missing from both
the materialised state and the log after it, a row differs. A file that is deleted too early, or stays, is found as in
``shared_files.py``::

    weir explore examples/scenarios/changelog_load.py
    weir explore examples/scenarios/changelog_load.py --set state_backend=changelog:lsm --fault crash
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import CollectionSource, Job, KeyedProcessContext, KeyedProcessFunction, Pause
from operators.log.connectors import LogSink

KEYS = "abc"
ROUNDS = 6
RECORDS_A_ROUND = 4
PAUSE_MS = 1
DUE_MS = 10_000

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 6,
    "checkpoint_interval": "900us",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "cost.storage_latency_ns": 400_000,
    "state_backend": "changelog",
    "materialization_interval_ns": 1_000_000,
    "inline_state_bytes": 0,
    "retained": 1,
    "promises": {
        "aligned": "exactly-once",
        "unaligned": "exactly-once",
        "aligned-timeout": "exactly-once",
        "at-least-once": "at-least-once",
    },
}


class KeepInMany(KeyedProcessFunction):
    """Keeps the records of a key in four states and a timer; emits the content of the states."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """A value, a sum, the last numbers as a list, and a map that loses entries."""
        self._seen = ctx.value_state("seen", 0)
        self._sum = ctx.reducing_state("sum", lambda one, two: one + two)
        self._last = ctx.list_state("last")
        self._parts = ctx.map_state("parts")

    def process_element(self, value: str, ctx: KeyedProcessContext) -> Iterable[object]:
        """Change all of them; each record sets the timer anew, and it is due at the end."""
        seen = self._seen.get() + 1
        self._seen.update(seen)
        self._sum.add(seen)
        if seen % 3 == 1:
            self._last.clear()
        self._last.add(seen)
        self._parts.put(str(seen % 4), seen)
        if seen % 5 == 0:
            self._parts.remove(str((seen + 1) % 4))
        ctx.delete_event_time_timer(DUE_MS + seen - 1)
        ctx.register_event_time_timer(DUE_MS + seen)
        parts = "".join(f"{name}:{part} " for name, part in sorted(self._parts.entries()))
        last = "".join(f"{number} " for number in self._last.get() or ())
        return [(value, seen, self._sum.get(), last, parts)]

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[object]:
        """Once for each key: the timer of its last record."""
        return [(ctx.current_key, "timer", timestamp_ms - DUE_MS)]


def job(parallelism: int | None = None) -> Job:
    """Two sources in rounds with pauses, one keyed operator, one sink."""
    made = Job("changelog-load", parallelism=parallelism or 2, max_parallelism=8)
    streams = []
    for name in ("first", "second"):
        items: list[object] = []
        for _ in range(ROUNDS):
            items += [key for _ in range(RECORDS_A_ROUND // 2) for key in KEYS]
            items.append(Pause(PAUSE_MS))
        streams.append(made.source(CollectionSource(items), name=name, uid=name, parallelism=1))
    kept = streams[0].union(streams[1]).key_by(lambda key: key).process(KeepInMany, name="keep", uid="keep")
    return kept.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
