"""Work that mail interrupts is resumed where it was, however long the task had to wait in between."""

from __future__ import annotations

import pytest

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.runtime.config import CostModel
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, checked, every, execution

RECORD_NS = 10 * US


class SendsAhead(Operator):
    """Sends a record ahead of every barrier, as a writer that sends committables to its committer."""

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch)

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> None:
        self.output.emit(Batch((-checkpoint_id,)))


@pytest.mark.parametrize("capacity", [1, 2])
@pytest.mark.parametrize("interval_ns", [4 * US, 6 * US, 9 * US, 12 * US])
def test_a_slow_task_gets_on_between_checkpoints(interval_ns: int, capacity: int) -> None:
    """Each barrier interrupts a record and fills the output, so that the task must wait before it goes on."""
    results = CollectedResults()
    job = Job("ahead", parallelism=1)
    numbers = job.source(SequenceSource(0, 6), name="numbers")
    numbers.rebalance().via(SendsAhead, name="slow").rebalance().collect(results, name="out")
    cost = CostModel(record_ns=500, stragglers={"slow": RECORD_NS // 500}, link_latency_ns=3 * US)
    made = execution(
        job,
        mode="unaligned",
        batch_size=3,
        channel_capacity=capacity,
        checkpoint_interval=every(ns=interval_ns),
        cost=cost,
    )
    checked(made, at_most=20_000).raise_on_failure()

    assert [one for one in results.records if one >= 0] == list(range(6))


def test_time_spent_on_a_record_is_spent_once() -> None:
    """However often checkpoints interrupt it: ten records take ten records' time."""
    ended = {}
    for interval_ns in (3 * US, 7 * US, 1_000 * US):
        job = Job("ahead", parallelism=1)
        numbers = job.source(SequenceSource(0, 10), name="numbers")
        numbers.rebalance().via(SendsAhead, name="slow").collect(CollectedResults(), name="out")
        cost = CostModel(source_record_ns=100, record_ns=RECORD_NS)
        made = execution(job, mode="unaligned", batch_size=4, checkpoint_interval=every(ns=interval_ns), cost=cost)
        checked(made).raise_on_failure()
        ended[interval_ns] = made.kernel.now_ns
    assert max(ended.values()) - min(ended.values()) < RECORD_NS, ended
