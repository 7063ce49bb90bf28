"""Alignment: why a task waits for all barriers of a checkpoint before it takes its snapshot.

Two sources feed one counter, which keeps a total per key. It gets a barrier of the checkpoint from each source, but not
at the same time. Before the second barrier arrives, the faster source has sent records after its own barrier. The
checkpoint's source position does *not* cover these records: the source reads them again after a restore. If the counter
takes them before its snapshot, it counts them twice.

* Mode ``aligned`` blocks the faster channel until the slower barrier arrives: exactly-once.
* Mode ``at-least-once`` blocks no channel. It loses no record, but after a crash it counts some records twice.

Try every schedule, every crash::

    weir check examples/teaching/counting.py --mode aligned
    weir check examples/teaching/counting.py --mode at-least-once

The first reports that all endings are correct. The second shows the shortest way to a record that is counted twice. The
counter takes a barrier from one source, then a record sent after it, then the other barrier, and takes its snapshot.
After the crash the restored count includes the record, and the source reads it again.

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
