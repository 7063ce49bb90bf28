"""The end: a last checkpoint publishes the last records, and a task that has finished its input waits for it.

One source has a single record and ends early. A task at its end cannot leave at once, for two reasons. Its sink has not
committed the output since the last checkpoint, and the other tasks must still be able to take checkpoints without it.
So a task that has reached its end takes part in one more checkpoint, and leaves when that completes. Later checkpoints
record it as finished. When all sources have ended, one last checkpoint commits the rest.

A crash during that last checkpoint is the interesting case: the sources have read everything, and the last records are
not published. The job goes back to the checkpoint before, in which some tasks have finished and others have not.

Try every schedule, every crash::

    weir check examples/teaching/finishing.py --mode aligned
    weir check examples/teaching/finishing.py --mode unaligned

The streams are rebalanced, although there is a single sink. On an edge that connects subtasks of the same number, no
barrier overtakes records.
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
