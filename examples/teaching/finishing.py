"""The end: the last records are published by a last checkpoint, and a task that is done waits for it.

One source has a single record and is done early. What then? A task at its end cannot just go: what its sink wrote since
the last checkpoint is not committed yet, and checkpoints of the tasks that go on must still be possible without it.
So a task that has reached its end takes part in one more checkpoint, and leaves when that has completed; tasks that are
gone count as finished in those that follow. When all sources are done, one last checkpoint commits the rest.

A crash in that last checkpoint is the interesting one: everything has been read, nothing has been published. The job
goes back to the checkpoint before, with some tasks finished in it and others not.

Try every schedule, every crash::

    weir check examples/teaching/finishing.py --mode aligned
    weir check examples/teaching/finishing.py --mode unaligned

The streams are rebalanced, although there is a single sink: no barrier overtakes records from one task to the next of
the same number.
"""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.log.connectors import LogSink

SCENARIO = {
    "batch_size": 1,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "modes": ["aligned", "unaligned"],
    "crashes": 1,
    "promises": {"aligned": "exactly-once", "unaligned": "exactly-once"},
}


def job() -> Job:
    """A source of one record and one of three, straight into a sink; rows are the records."""
    made = Job("finishing", max_parallelism=8)
    short = made.source(SequenceSource(0, 1), name="short", uid="short")
    long = made.source(SequenceSource(10, 13), name="long", uid="long")
    return short.union(long).rebalance().sink(LogSink("rows"), name="out", uid="out", chain=False)
