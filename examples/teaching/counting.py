"""Alignment: why a task waits for all barriers of a checkpoint before it takes its snapshot.

Two sources count up one total per key. The counter gets a barrier of the checkpoint from each source, and not at the
same time. Until the second barrier is there, records of the faster source stand behind its barrier. The checkpoint's
source position does *not* cover these records: the source reads them again after a restore. If the counter takes them
before its snapshot, it counts them twice.

* Mode ``aligned`` blocks the faster channel until the slower barrier is there: exactly-once.
* Mode ``at-least-once`` takes whatever comes: nothing is lost, but after a crash some records are counted twice.

Try every schedule, every crash::

    weir check examples/teaching/counting.py --mode aligned
    weir check examples/teaching/counting.py --mode at-least-once

The first says that all endings are correct. The second tells the shortest way to a record that is counted twice: the
counter takes a barrier from one source, then a record behind that barrier, then the other barrier and its snapshot.
After the crash the counter restores the record in its count, and the source reads it again.

The counter is the only task with two inputs. So no other task can take a record too early.
"""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.log.connectors import LogSink

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
    """Two sources of two records each; one counter; rows ``(key, how many so far)``."""
    made = Job("counting", max_parallelism=8)
    left = made.source(SequenceSource(0, 2), name="left", uid="left")
    right = made.source(SequenceSource(0, 2), name="right", uid="right")
    ones = left.union(right).key_by(lambda number: KEYS[number], value=lambda number: (KEYS[number], 1))
    counts = ones.reduce(lambda total, one: (total[0], total[1] + one[1]), name="count", uid="count")
    return counts.sink(LogSink("counts"), name="out", uid="out", chain=False)
