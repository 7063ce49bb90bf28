"""Record acking: each record is handled at least once, whatever dies, and no source waits for ever.

Records take two ways to one sink: each makes two tuples, and one way spreads them over several tasks again. Timeouts
are short, and a source may only have a few unanswered records. Tasks, ackers and sources die; messages to and
from ackers are lost, late or doubled. The state of dead tasks is lost, so the job has none: rows are ``(way, number)``.

If a record is acknowledged before all tuples made from it are handled, it is lost when a task dies in between. If it is
never acknowledged, it is sent again until the job fails, or occupies a place of the pending records for ever (V13)::

    weir explore examples/scenarios/record_acking.py
    weir explore examples/scenarios/record_acking.py --fault crash --fault lose

The mode by itself promises nothing, because it loses state. This job has no state: ``SCENARIO`` gives its promise.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import CollectedResults, CollectSink, Job, SequenceSource

RECORDS = 30

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 6,
    "checkpoint_interval": "7us",
    "modes": ["acking"],
    "cost.record_ns": 400,
    "acking.timeout_ns": 1_000_000,
    "acking.max_pending": 5,
    "acking.ackers": 2,
    "acking.recovery_ns": 20_000,
    "promises": {"acking": "at-least-once"},
}

Row = tuple[str, int]


def _twice(row: Row) -> Iterable[Row]:
    return (row, (f"{row[0]}-again", row[1]))


def job(parallelism: int | None = None) -> Job:
    """One source of two splits, two ways, one sink that shows rows at once."""
    made = Job("record-acking", parallelism=parallelism or 2, max_parallelism=8)
    numbers = made.source(SequenceSource(0, RECORDS, splits=2), name="numbers", uid="numbers", parallelism=2)
    straight = numbers.rebalance().map(lambda number: ("straight", number), name="straight", uid="straight")
    around = numbers.rebalance().map(lambda number: ("around", number), name="around", uid="around")
    spread = around.rebalance().flat_map(_twice, name="spread", uid="spread", chain=False)
    rows = straight.union(spread).rebalance()
    sink = CollectSink(CollectedResults(transactional=False))
    return rows.sink(sink, name="out", uid="out", parallelism=1, chain=False)
