"""Two bolts in a row behind two spouts, in mode acking: a record that is lost on its way is sent again."""

from __future__ import annotations

from engine import CollectedResults, CollectSink, Job, SequenceSource

SCENARIO = {
    "modes": ["acking"],
    "batch_size": 1,
    "checkpoint_interval": "5us",
    "cost.link_latency_ns": 1_000,
    "acking.timeout_ns": 1_000_000,
    "acking.recovery_ns": 3_000,
    "heartbeat_timeout_ns": 200_000,
    "promises": {"acking": "at-least-once"},
}


def job(parallelism: int | None = None) -> Job:
    """numbers -> tens -> ones -> sink, every arrow a channel."""
    made = Job("acked", parallelism=2)
    numbers = made.source(SequenceSource(0, 24, splits=2), name="numbers", uid="numbers")
    tens = numbers.rebalance().map(lambda number: number * 10, name="tens", uid="tens")
    ones = tens.key_by(lambda number: number % 7).map(lambda number: number + 1, name="ones", uid="ones")
    results = CollectedResults(transactional=False)
    return ones.rebalance().sink(CollectSink(results), name="sink", uid="sink", parallelism=1)
