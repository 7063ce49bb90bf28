"""Alignment: why a task waits for all barriers of a checkpoint before it takes its snapshot.

Two sources count up one total per key. A checkpoint's barrier comes from each of them, and not at the same time. In
between, records from the faster source lie behind its barrier: the checkpoint's source position does *not* cover them,
after a restore they come again. If they are already in the counter when it takes its snapshot, they are counted twice.

* Mode ``aligned`` blocks the faster channel until the slower barrier is there: exactly-once.
* Mode ``at-least-once`` takes whatever comes: nothing is lost, but after a crash some records are counted twice.

Try every schedule, every crash::

    weir check examples/teaching/counting.py --mode aligned
    weir check examples/teaching/counting.py --mode at-least-once

The first says that all endings are correct. The second shows the shortest way to a record counted twice: a barrier
from one source, a record behind it, the other barrier, the crash.
"""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.log.log_sink import LogSink

SCENARIO = {
    "batch_size": 1,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "modes": ["aligned", "at-least-once"],
    "crashes": 1,
    "checkpoints": 1,
    "promises": {"aligned": "exactly-once", "at-least-once": "at-least-once"},
}

KEYS = "ab"


def job() -> Job:
    """Two sources of two records each; two counters; rows ``(key, how many so far)``."""
    made = Job("counting", parallelism=2, max_parallelism=8)
    left = made.source(SequenceSource(0, 2), name="left", uid="left", parallelism=1)
    right = made.source(SequenceSource(0, 2), name="right", uid="right", parallelism=1)
    ones = left.union(right).key_by(lambda number: KEYS[number], value=lambda number: (KEYS[number], 1))
    counts = ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count")
    return counts.sink(LogSink("counts"), name="out", uid="out", parallelism=1, chain=False)
