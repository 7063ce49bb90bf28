"""Two-phase commit: why a sink publishes when a checkpoint has *completed*, and not when it has taken its snapshot.

A sink writes into a transaction. At the barrier it *pre-commits*: all rows are written, and from now on no failure can
prevent the commit. The name of the transaction goes into the state. When the checkpoint completes, the sink commits. If
it dies before that, the restored state names the transaction to commit. A second commit has no effect.

What if the sink commits at the barrier? A crash before the checkpoint completes restores an older one. The sources then
send the records again, although they are published already.

Try every schedule, every crash::

    weir check examples/teaching/two_phase_commit.py
    weir check examples/teaching/two_phase_commit.py --param commit=barrier
    weir check examples/teaching/two_phase_commit.py --param commit=never

All endings of the first are correct. The second publishes a row twice. The third shows the use of transactions: without
them the sink writes at once, and repeats rows even without a barrier.
"""

from __future__ import annotations

from engine import ConfigurationError, Job, Operator, SequenceSource
from operators.log.connectors import LogSink, TransactionalLogSink
from operators.log.port import AT_LEAST_ONCE

SCENARIO = {
    "batch_size": 1,
    "checkpoint_interval": "2rec",
    "cost.source_record_ns": 0,
    "modes": ["aligned"],
    "crashes": 2,
    "checkpoints": 1,
    "promises": {"aligned": "exactly-once"},
}


class CommitsWithTheBarrier(TransactionalLogSink):
    """The mistake: the sink commits at once all that it pre-commits."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Take the snapshot as usual, then act as if the checkpoint had completed."""
        super().snapshot_state(checkpoint_id)
        self.notify_checkpoint_complete(checkpoint_id)


class ImpatientLogSink(LogSink):
    """A sink whose operators commit with the barrier."""

    def create_operator(self) -> Operator:
        """See the class."""
        return CommitsWithTheBarrier(self)

    def fresh(self) -> LogSink:
        """Another one, with an empty log."""
        return ImpatientLogSink(self.topic, partitions=self.partitions)


def job(commit: str = "completion") -> Job:
    """One source of three records, one sink; rows are the records. ``commit``: ``completion``, ``barrier`` or
    ``never``, that is without transactions."""
    sinks = {
        "completion": LogSink("rows"),
        "barrier": ImpatientLogSink("rows"),
        "never": LogSink("rows", delivery=AT_LEAST_ONCE),
    }
    if commit not in sinks:
        raise ConfigurationError(f"commit is {commit!r}; it must be one of {', '.join(sinks)}")
    made = Job("two-phase-commit", max_parallelism=8)
    numbers = made.source(SequenceSource(0, 3), name="numbers", uid="numbers")
    return numbers.sink(sinks[commit], name="out", uid="out", chain=False)
