"""Large graphs: a thousand subtasks run, restart and stay deterministic."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.graph.job import Job
from engine.observe.trace import TraceDigest
from operators.sinks import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, every, run


def wide_job(into: CollectedResults, subtasks: int) -> Job:
    """Half of the subtasks read and half of them count, one channel between each pair of neighbours."""
    job = Job("wide", parallelism=subtasks // 2, max_parallelism=1024)
    numbers = job.source(SequenceSource(0, 4 * subtasks, splits=subtasks // 2), name="numbers")
    return numbers.rescale().map(lambda number: number, name="copy", chain=False).collect(into, name="out")


def test_a_thousand_subtasks_run() -> None:
    """A job with 1,000 subtasks takes checkpoints, survives a kill and gives the right result."""
    results = CollectedResults()

    result = run(
        wide_job(results, 1_000), kills=[("copy[250]", 5 * US)], batch_size=2, checkpoint_interval=every(ns=3 * US)
    )

    assert len(result.tasks) == 1_000
    assert result.attempts == 2
    assert result.restores[1].checkpoint_id == 1
    assert Counter(results.records) == Counter(range(4_000))


@pytest.mark.slow
def test_a_thousand_subtasks_all_to_all() -> None:
    """250,000 channels with a shuffle between 500 sources and 500 counts work as four do."""
    digests = []
    for _ in range(2):
        results, digest = CollectedResults(), TraceDigest()
        job = Job("dense", parallelism=500, max_parallelism=1024)
        numbers = job.source(SequenceSource(0, 2_000, splits=500), name="numbers")
        keyed = numbers.key_by(lambda number: number % 1_000, value=lambda number: (number % 1_000, 1))
        keyed.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count").collect(results, name="out")

        run(job, instruments=[digest], checkpoint_interval=None)

        assert Counter(results.records) == Counter((key, count) for key in range(1_000) for count in (1, 2))
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]
