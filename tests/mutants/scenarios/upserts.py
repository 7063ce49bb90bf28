"""The last count of each key in a table, written by an upsert that knows of no versions: the last one wins."""

from __future__ import annotations

from engine import Job, MemoryDatabase, SequenceSource, UpsertSink

KEYS = "abcd"

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 8,
    "checkpoint_interval": "7rec",
    "cost.record_ns": 400,
    "modes": ["aligned", "unaligned"],
}


def job(parallelism: int | None = None) -> Job:
    """One source, counts per key, and a table."""
    made = Job("upserts", parallelism=parallelism or 2, max_parallelism=8)
    numbers = made.source(SequenceSource(0, 40), name="numbers", uid="numbers", parallelism=1)
    ones = numbers.key_by(lambda number: KEYS[number % 4], value=lambda number: (KEYS[number % 4], 1))
    counts = ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count", parallelism=1)
    table = UpsertSink(MemoryDatabase(), "rows", ("key", "count"), key=("key",), batch_rows=1)
    return counts.sink(table, name="out", uid="out", parallelism=1, chain=False)
