"""An operator that holds its task's input: what waits meanwhile, and what does not wait."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.graph.job import Job
from engine.observe.trace_events import CheckpointCompleted
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, Trace, checked, every, execution

HOLD_NS = 20 * US


class Slow(Operator):
    """Holds the input for so long after each batch, and logs when batches and timers come."""

    def __init__(self, notes: list[tuple[str, int]]) -> None:
        self._notes = notes

    def process_batch(self, batch: Batch) -> None:
        now_ns = self.context.processing_time_ns()
        self._notes.append(("batch", now_ns))
        self.context.hold_input()
        self.context.hold_input()
        self.context.register_processing_timer_ns(now_ns + HOLD_NS)
        self.output.emit(batch)

    def on_processing_time_ns(self, time_ns: int) -> None:
        self._notes.append(("timer", time_ns))
        self.context.release_input()
        self.context.release_input()


def slow_job(notes: list[tuple[str, int]], into: Any, records: int = 5) -> Job:
    job = Job("held", parallelism=1)
    numbers = job.source(SequenceSource(0, records), name="numbers")
    return numbers.rebalance().via(lambda: Slow(notes), name="slow").collect(into, name="out")


def test_no_element_is_taken_while_the_input_is_held() -> None:
    """Timers still fire. The next batch comes at the very instant that one releases the input; two holds count once."""
    notes: list[tuple[str, int]] = []
    results = CollectedResults()
    checked(execution(slow_job(notes, results), batch_size=1)).raise_on_failure()

    assert results.records == list(range(5))
    batches = [at_ns for what, at_ns in notes if what == "batch"]
    timers = [at_ns for what, at_ns in notes if what == "timer"]
    assert [after - before for before, after in pairwise(batches)] == [HOLD_NS] * 4
    assert batches[1:] == timers[:4]


@pytest.mark.parametrize(("mode", "waits"), [("aligned", True), ("unaligned", False)])
def test_a_barrier_waits_unless_it_overtakes(mode: str, waits: bool) -> None:
    """As with an output without credit: an aligned barrier queues behind the records, an unaligned one does not."""
    trace = Trace()
    job = slow_job([], CollectedResults(), records=12)
    checked(
        execution(job, batch_size=1, mode=mode, checkpoint_interval=every(ns=7 * US), instruments=[trace])
    ).raise_on_failure()
    first = trace.of(CheckpointCompleted)[0]
    start_ns = trace.events[0].time_ns
    assert (first.time_ns - start_ns > 2 * HOLD_NS) == waits


def test_a_task_that_fails_while_it_holds_its_input_starts_anew_without() -> None:
    """A hold belongs to one attempt: the next one takes elements from the beginning."""
    results = CollectedResults()
    made = execution(
        slow_job([], results), kills=[("slow", 30 * US)], batch_size=1, checkpoint_interval=every(ns=5 * US)
    )
    checked(made).raise_on_failure()
    assert sorted(results.records) == list(range(5))
