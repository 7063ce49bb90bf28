"""Sums in batches that are large enough for running values. New keys come late, and each value has a list that the
function of the user goes on to change."""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.log.connectors.log_sink import LogSink

EARLY_KEYS, LATE_KEYS = 6, 9
RECORDS = 300

SCENARIO = {
    "batch_size": 30,
    "checkpoint_interval": "60rec",
    "state_backend": "heap",
    "inline_state_bytes": 0,
    "cost.storage_latency_ns": 20_000,
    "modes": ["aligned", "unaligned"],
    "faults": ["crash", "rescale", "lose", "write-error"],
}

Reduced = tuple[int, int, list[int]]
"""Key, sum, and all numbers."""


def _key(number: int) -> int:
    return number % (EARLY_KEYS if number < RECORDS // 2 else LATE_KEYS)


def _one(number: int) -> Reduced:
    return (_key(number), number, [number])


def _add(before: Reduced, record: Reduced) -> Reduced:
    numbers = before[2]
    numbers += record[2]
    return (before[0], sum(numbers), numbers)


def _add_numbers(before: int, number: int) -> int:
    return before + number


def job(parallelism: int | None = None, values: str = "numbers") -> Job:
    """One source and a transactional sink; rows are the sum of a key after each record. ``values=lists``: sums have the
    numbers with them."""
    made = Job("running-sums", max_parallelism=8)
    numbers = made.source(SequenceSource(0, RECORDS), name="numbers", uid="numbers", parallelism=1)
    if values == "lists":
        reduced = (
            numbers.map(_one, name="one")
            .key_by(lambda record: record[0])
            .reduce(_add, name="sum", uid="sum", parallelism=parallelism or 1)
        )
        rows = reduced.map(lambda found: (found[0], found[1]), name="row")
    else:
        rows = numbers.key_by(_key).reduce(_add_numbers, name="sum", uid="sum", parallelism=parallelism or 1)
    return rows.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
