"""Records in flight: what a checkpoint must store when its barriers do not wait.

In mode ``unaligned`` a barrier overtakes the records in front of it, on both sides of a channel. That is quick, however
full the channels are. But no task has the overtaken records in its state: they are sent before the cut and received
after it. They become part of the checkpoint, and a restore puts them back into their channels before anything else.
A checkpoint without them loses them, because the sources will not send them again.

* Mode ``aligned``: no record is in flight across the cut, so none is stored.
* Mode ``unaligned``: the records in the channels are stored; exactly-once all the same.
* Mode ``aligned-timeout``: a barrier waits for a while, then overtakes. Here the timeout expires at once.

Try every schedule, every crash::

    weir check examples/teaching/in_flight.py --mode unaligned

The tasks are slow here and take one record at a time. A channel holds two records, so barriers meet full channels.
"""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.log.connectors import LogSink

SCENARIO = {
    "batch_size": 1,
    "channel_capacity": 2,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "modes": ["unaligned", "aligned-timeout", "aligned"],
    "aligned_timeout_ns": 1,
    "crashes": 1,
    "checkpoints": 1,
    "promises": {"unaligned": "exactly-once", "aligned-timeout": "exactly-once", "aligned": "exactly-once"},
}


def job() -> Job:
    """A source of two records, rebalanced over two writers, into one sink; rows are the records."""
    made = Job("in-flight", parallelism=2, max_parallelism=8)
    numbers = made.source(SequenceSource(0, 2), name="numbers", uid="numbers", parallelism=1)
    written = numbers.rebalance().map(lambda number: number, name="write", uid="write")
    return written.sink(LogSink("rows"), name="out", uid="out", parallelism=1, chain=False)
