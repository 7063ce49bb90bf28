"""Files that checkpoints share: each stays while a checkpoint refers to it, and is deleted with the last one.

Most keys rest while a few change, so incremental checkpoints refer to files of older ones. Keys are forgotten and come
back, so some files become unused while others stay. Few checkpoints are retained, and they follow each other closely.

A file that is deleted too early makes a retained checkpoint unreadable (V6). One that stays after the last checkpoint
that refers to it is found when the job has finished (V14). If a restore reads state from the wrong file, a row
differs::

    weir explore examples/scenarios/shared_files.py
    weir explore examples/scenarios/shared_files.py --set state_backend=lsm
    weir explore examples/scenarios/shared_files.py --set state_backend=changelog:lsm --fault crash
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import Job, KeyedProcessContext, KeyedProcessFunction, SequenceSource
from operators.log.connectors import LogSink

RECORDS = 72
RESTING = 24
"""The number of keys with one record each; then a few keys take turns."""
BUSY = 3
FORGET_EVERY = 4

SCENARIO = {
    "batch_size": 3,
    "channel_capacity": 6,
    "checkpoint_interval": "6rec",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "aligned_timeout_ns": 2_000,
    "cost.record_ns": 300,
    "cost.storage_latency_ns": 900,
    "snapshot": "incremental",
    "inline_state_bytes": 0,
    "retained": 1,
    "promises": {
        "aligned": "exactly-once",
        "unaligned": "exactly-once",
        "aligned-timeout": "exactly-once",
        "at-least-once": "at-least-once",
    },
}


class CountAndForget(KeyedProcessFunction):
    """Emits ``(key, records since it was forgotten)``; forgets a key after a number of records."""

    def open(self, ctx: KeyedProcessContext) -> None:
        """A number, and a list of as many entries."""
        self._seen = ctx.value_state("seen", 0)
        self._numbers = ctx.list_state("numbers")

    def process_element(self, value: int, ctx: KeyedProcessContext) -> Iterable[object]:
        """Count one more record."""
        seen = self._seen.get() + 1
        self._seen.update(seen)
        self._numbers.add(seen)
        row = (ctx.current_key, *(self._numbers.get() or ()))
        if seen == FORGET_EVERY:
            self._seen.clear()
            self._numbers.clear()
        return [row]


def _key(number: int) -> int:
    return number if number < RESTING else number % BUSY


def job(parallelism: int | None = None) -> Job:
    """Two sources, a keyed operator with two states, one sink; rows are a key and the numbers that it keeps."""
    made = Job("shared-files", parallelism=parallelism or 2, max_parallelism=8)
    half = RECORDS // 2
    first = made.source(SequenceSource(0, half), name="first", uid="first", parallelism=1)
    second = made.source(SequenceSource(half, RECORDS), name="second", uid="second", parallelism=1)
    counts = first.union(second).key_by(_key).process(CountAndForget, name="count", uid="count")
    return counts.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
