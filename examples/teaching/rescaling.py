"""Rescaling: a job dies with two counters and resumes with one, or with three.

Keyed state is divided by *key groups*. A key always belongs to the same one of ``max_parallelism`` groups, and each
task owns a range of them. Another number of tasks means other ranges. Each new task reads the parts of the old
snapshots in its range. Every group must have exactly one owner, which also gets its timers and records in flight.

The number of sinks changes, too. The state holds the transactions that a removed sink had pre-committed, and another
sink commits them. The sink that takes over the names of transactions that are in no state aborts these.

Try every schedule, with the job killed and resumed at another parallelism::

    weir check examples/teaching/rescaling.py --mode aligned
    weir run examples/teaching/rescaling.py --parallelism 3
"""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.log.connectors import LogSink

SCENARIO = {
    "batch_size": 1,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "parallelism": 2,
    "modes": ["aligned", "unaligned"],
    "crashes": 1,
    "checkpoints": 1,
    "faults": ["rescale:process@after:notify.send#1=1", "rescale:process@before:notify.send#1=3"],
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once"},
}

KEYS = "ab"


def job() -> Job:
    """One source of four records; counters and sinks in the parallelism of the job; rows ``(key, how many so far)``."""
    made = Job("rescaling", parallelism=2, max_parallelism=8)
    numbers = made.source(SequenceSource(0, 4), name="numbers", uid="numbers", parallelism=1)
    ones = numbers.key_by(lambda number: KEYS[number % 2], value=lambda number: (KEYS[number % 2], 1))
    counts = ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count")
    return counts.sink(LogSink("counts", partitions=2), name="out", uid="out")
