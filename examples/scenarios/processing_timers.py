"""Processing-time timers: each is called once, after a restore too, and releases the records held back for its key.

Two operators hold records back and release them by the virtual clock alone: a function that sets a timer for each
key, and sessions of processing time, which merge while records come. The exact time of a timer differs from run
to run, so rows do not contain it. They are ``(operator, key, number)``, one for each record: each record leaves each
operator once, at any time. The sources end with a pause that is longer than any timer. If a restore forgets a timer,
its records are never released, and count as lost.

Search it for a schedule and a crash that lose or repeat a row::

    weir explore examples/scenarios/processing_timers.py
    weir explore examples/scenarios/processing_timers.py --mode unaligned --fault crash

Faults that change the clocks of tasks are left out: a timer set by a clock that is an hour ahead is due after the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine import (
    CollectionSource,
    Job,
    KeyedProcessContext,
    KeyedProcessFunction,
    Pause,
    ProcessingTimeSessionWindows,
    TimeWindow,
)
from operators.log.connectors import LogSink

Reading = tuple[str, int]
"""A key, and the number of the record."""

KEYS = "abc"
ROUNDS = 4
PAUSE_MS = 2
WAIT_MS = 3
GAP_MS = 3
LAST_PAUSE_MS = 9

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 8,
    "checkpoint_interval": "1200us",
    "inline_state_bytes": 0,
    "cost.storage_latency_ns": 700_000,
    "modes": ["aligned", "unaligned", "aligned-timeout"],
    "faults": [
        "crash", "rescale", "raise", "pause", "delay", "clog", "lose", "duplicate", "late", "torn-write", "write-error",
        "lose-unsynced",
    ],
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once", "aligned-timeout": "exactly-once"},
}  # fmt: skip


class LetGoLater(KeyedProcessFunction):
    """Keeps the records of a key, and emits them when the key's timer is called."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """Declare the state of records held back."""
        self._held = ctx.list_state("held")

    def process_element(self, value: Reading, ctx: KeyedProcessContext) -> Iterable[object]:
        """The first record that is held back sets the timer for all records before it is due."""
        if self._held.get() is None:
            ctx.register_processing_time_timer(ctx.processing_time_ms() + WAIT_MS)
        self._held.add(value)
        return ()

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[object]:
        """Release the records."""
        rows = [("timer", *reading) for reading in self._held.get() or ()]
        self._held.clear()
        return rows


def _in_session(key: str, window: TimeWindow, readings: Sequence[Reading]) -> Iterable[object]:
    return [("session", *reading) for reading in readings]


def job(parallelism: int | None = None) -> Job:
    """Two sources in rounds of three records with pauses; two keyed operators; one sink."""
    made = Job("processing-timers", parallelism=parallelism or 2, max_parallelism=8)
    streams = []
    for offset, name in enumerate(("first", "second")):
        items: list[object] = []
        for round_number in range(ROUNDS):
            items += [(key, 2 * round_number + offset) for key in KEYS]
            items.append(Pause(PAUSE_MS + offset * (round_number % 2)))
        items.append(Pause(LAST_PAUSE_MS))
        streams.append(made.source(CollectionSource(items), name=name, uid=name, parallelism=1))
    readings = streams[0].union(streams[1]).key_by(lambda reading: reading[0])
    by_timer = readings.process(LetGoLater, name="timer", uid="timer")
    windows = readings.window(ProcessingTimeSessionWindows.with_gap(GAP_MS))
    by_session = windows.process(_in_session, name="session", uid="session")
    return by_timer.union(by_session).sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)


def expected(inputs: Mapping[str, Sequence[Reading]]) -> Mapping[str, Sequence[object]]:
    """Each record once from each operator."""
    readings = [*inputs["first"], *inputs["second"]]
    return {"out": [(operator, *reading) for operator in ("timer", "session") for reading in readings]}
