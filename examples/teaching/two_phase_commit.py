"""Two-phase commit: why a sink publishes when a checkpoint has *completed*, and not when it has taken part in it.

A sink writes into a transaction. With the barrier it *pre-commits*: everything is written, and it can be committed
whatever happens from now on. The name of the transaction goes into the state. When the checkpoint has completed, the
sink commits; if it died in between, the restored state knows what to commit, and committing twice does nothing.

What if it commits with the barrier? Then a crash before the checkpoint completes restores an older one. The records
come again, and they are published already.

Try every schedule, every crash::

    weir check examples/teaching/two_phase_commit.py
    weir check examples/teaching/two_phase_commit.py --param commit=barrier
    weir check examples/teaching/two_phase_commit.py --param commit=never

All endings of the first are correct. The second publishes a row twice. The third shows what the transactions are for:
it writes at once, and needs no barrier at all to repeat itself.
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
    """The mistake: everything that is pre-committed is committed at once."""

    def snapshot_state(self, checkpoint_id: int) -> None:
        """As usual, and then as if the checkpoint had completed."""
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
