"""The standard scenario: two sources, two keyed counters, one sink with transactions, 80 records, two checkpoints.

It is small enough for some hundred runs a second, and large enough for everything that can happen
between two checkpoints: barriers that wait for each other, records that overtake them, transactions left open. Search
it for a crash that loses or repeats a row::

    weir explore examples/standard_scenario.py --runs 1000
    weir explore examples/standard_scenario.py --mode at-least-once --promise exactly-once

The first finds nothing. The second finds that a job in mode at-least-once counts records twice, and tells how.

Rows are ``(key, how many so far)``. Every record adds one, so the rows are the same in any order of the records of the
two sources. A record that is counted twice shows as an unexpected count, and a lost one as a missing
count.
"""

from __future__ import annotations

from engine import CollectedResults, ConfigurationError, Job, SequenceSource
from operators.log.connectors import LogSink

RECORDS = 80
KEYS = "abcdef"

SCENARIO = {
    "batch_size": 4,
    "channel_capacity": 8,
    "checkpoint_interval": "27rec",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "aligned_timeout_ns": 2_000,
    "crashes": 1,
    "promises": {
        "aligned": "exactly-once",
        "unaligned": "exactly-once",
        "aligned-timeout": "exactly-once",
        "at-least-once": "at-least-once",
    },
}


def _key(number: int) -> str:
    return KEYS[number % len(KEYS)]


def job(sink: str = "log", records: str = str(RECORDS)) -> Job:
    """``sink``: ``log`` for a transactional log, ``collect`` for a list; ``records``: of both sources together."""
    if sink not in ("log", "collect"):
        raise ConfigurationError(f"sink is {sink!r}; it must be 'log' or 'collect'")
    half = int(records) // 2
    made = Job("standard-scenario", parallelism=2, max_parallelism=8)
    first = made.source(SequenceSource(0, half), name="first", uid="first", parallelism=1)
    second = made.source(SequenceSource(half, int(records)), name="second", uid="second", parallelism=1)
    ones = first.union(second).key_by(_key, value=lambda number: (_key(number), 1))
    counts = ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count")
    if sink == "collect":
        return counts.collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
    return counts.sink(LogSink("counts"), name="out", uid="out", parallelism=1, chain=False)
