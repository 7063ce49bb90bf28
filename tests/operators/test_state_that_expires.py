"""State of a user's function that expires, by the clock of the job."""

from __future__ import annotations

from typing import Any

import pytest

from engine.graph.job import Job
from engine.runtime.config import CostModel, RunConfig
from engine.runtime.execution import Execution
from operators.basic import CollectedResults, KeyedProcessContext, KeyedProcessFunction
from operators.sources import SequenceSource
from state_backends.base import StateTtlConfig

MS = 1_000_000
THREE_MS = StateTtlConfig(ttl_ms=3)


class Seen(KeyedProcessFunction):
    """For each record, the earlier records that each kind of state still has; one record per millisecond."""

    def open(self, ctx: KeyedProcessContext) -> None:
        self.first = ctx.value_state("first", ttl=THREE_MS)
        self.all = ctx.list_state("all", ttl=THREE_MS)
        self.parts = ctx.map_state("parts", ttl=THREE_MS)
        self.total = ctx.reducing_state("total", lambda a, b: a + b, ttl=THREE_MS)

    def process_element(self, value: int, ctx: KeyedProcessContext) -> list[Any]:
        if self.first.get() is None:
            self.first.update(value)
        self.all.add(value)
        self.parts.put(value % 4, value)
        self.total.add(value)
        return [(self.first.get(), list(self.all.get() or ()), sorted(self.parts.values()), self.total.get())]


@pytest.mark.parametrize("backend", ["heap", "lsm", "changelog"])
def test_state_expires_by_virtual_time(backend: str) -> None:
    """Values, elements and entries are gone 3 ms after their last write, on every backend."""
    job, results = Job("expiring"), CollectedResults()
    numbers = job.source(SequenceSource(0, 8), name="numbers").key_by(lambda _: 0)
    numbers.process(Seen, name="seen").collect(results)
    cost = CostModel(source_record_ns=MS)
    config = RunConfig(batch_size=1, cost=cost, state_backend=backend, checkpoint_interval=None)

    Execution(job.plan(), config).run().raise_on_failure()

    assert results.records == [
        (0, [0], [0], 0),
        (0, [0, 1], [0, 1], 1),
        (0, [0, 1, 2], [0, 1, 2], 3),
        (3, [1, 2, 3], [1, 2, 3], 6),
        (3, [2, 3, 4], [2, 3, 4], 10),
        (3, [3, 4, 5], [3, 4, 5], 15),
        (6, [4, 5, 6], [4, 5, 6], 21),
        (6, [5, 6, 7], [5, 6, 7], 28),
    ]
