"""Large graphs: a thousand subtasks run, restart and stay deterministic."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace import TraceDigest
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, every, run

SUBTASKS = 1_000
RECORDS = 2_000


def wide_job(into: CollectedResults) -> Job:
    """Half of the subtasks read and half of them collect."""
    job = Job("wide", parallelism=SUBTASKS // 2, max_parallelism=1024)
    numbers = job.source(SequenceSource(0, RECORDS, splits=SUBTASKS // 2), name="numbers")
    return numbers.rescale().map(lambda number: number, name="copy").collect(into, name="out")


def test_a_thousand_subtasks_run() -> None:
    """A job with 1,000 subtasks takes consistent checkpoints and gives the right result."""
    results, oracle = CollectedResults(), CutOracle()

    result = run(wide_job(results), instruments=[oracle], batch_size=4, checkpoint_interval=every(ns=3 * US))

    assert len(result.tasks) == SUBTASKS
    assert result.checkpoints.completed == 3
    assert oracle.held
    assert Counter(results.records) == Counter(range(RECORDS))


@pytest.mark.slow
def test_a_thousand_subtasks_restart() -> None:
    """One task of a thousand is killed: all go back to the checkpoint, and the result is right."""
    results = CollectedResults()

    result = run(wide_job(results), kills=[("copy[250]", 4 * US)], batch_size=2, checkpoint_interval=every(ns=3 * US))

    assert result.restores[1].checkpoint_id == 1
    assert Counter(results.records) == Counter(range(RECORDS))


@pytest.mark.slow
def test_sixty_thousand_channels() -> None:
    """A shuffle between 250 sources and 250 counts is right, and the same twice."""
    digests = []
    for _ in range(2):
        results, digest = CollectedResults(), TraceDigest()
        job = Job("dense", parallelism=250, max_parallelism=1024)
        numbers = job.source(SequenceSource(0, RECORDS, splits=250), name="numbers")
        keyed = numbers.key_by(lambda number: number % 1_000, value=lambda number: (number % 1_000, 1))
        keyed.reduce(lambda a, b: (a[0], a[1] + b[1]), name="count").collect(results, name="out")

        run(job, instruments=[digest], checkpoint_interval=None)

        assert Counter(results.records) == Counter((key, count) for key in range(1_000) for count in (1, 2))
        digests.append(digest.hexdigest())
    assert digests[0] == digests[1]
