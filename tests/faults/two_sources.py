"""The small job that faults strike: two sources, a count in subtasks, two sinks; and its expected output."""

from __future__ import annotations

from collections import Counter

from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.sources import SequenceSource


def counted_by_key(results: CollectedResults, records: int, keys: int, parallelism: int = 2) -> Job:
    """``records`` numbers of each source are counted under their remainders: increments of one, so that the order of
    records does not matter."""
    job = Job("counting", max_parallelism=8)
    near = job.source(SequenceSource(0, records), name="near")
    far = job.source(SequenceSource(0, records), name="far")
    pairs = near.union(far).key_by(lambda number: number % keys, value=lambda number: (number % keys, 1))
    counted = pairs.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count", parallelism=parallelism)
    return counted.rebalance().collect(results, name="out", parallelism=2, chain=False)


def expected_by_key(records: int, keys: int) -> Counter[tuple[int, int]]:
    """Its output when each record is counted once."""
    return Counter((key, count) for key in range(keys) for count in range(1, 1 + 2 * len(range(key, records, keys))))
