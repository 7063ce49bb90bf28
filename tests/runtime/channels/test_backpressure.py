"""Backpressure is real: credit bounds the number of queued records, and a slow task slows everything before it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.graph.job import Job
from engine.observe.trace_events import Send, TaskState
from engine.runtime.config import CostModel
from engine.runtime.kernel import START_NS
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, Trace, checked, every, execution, expected_counts, run, running_count


def through_a_slow_sink(into: Any, records: int = 400) -> Job:
    """A source, a middle task and a sink, none chained."""
    stream = Job("slow").source(SequenceSource(0, records), name="numbers")
    return stream.map(lambda number: number, chain=False, name="middle").collect(into, chain=False, name="out")


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_slow_sink_bounds_what_is_queued(batch_size: int, capacity: int) -> None:
    """No channel ever holds more than its capacity and what one element emits on top."""
    trace, results = Trace(), CollectedResults()

    run(
        through_a_slow_sink(results),
        instruments=[trace],
        batch_size=batch_size,
        channel_capacity=capacity,
        cost=CostModel(stragglers={"out": 1}, record_ns=20 * US),
        checkpoint_interval=None,
    )

    queued = [send.queued for send in trace.of(Send)]
    assert max(queued) <= capacity - 1 + batch_size
    assert results.records == list(range(400))


def test_a_slow_sink_slows_the_source() -> None:
    """With little credit the source ends when the sink does; with credit for all records it does not wait."""

    def source_ended_us(capacity: int) -> int:
        trace = Trace()
        run(
            through_a_slow_sink([]),
            instruments=[trace],
            batch_size=10,
            channel_capacity=capacity,
            cost=CostModel(stragglers={"middle": 0}, record_ns=20 * US),
            checkpoint_interval=None,
        )
        ended = [one for one in trace.of(TaskState) if (one.task, one.state) == ("numbers[0]", "end_of_data")]
        return (ended[0].time_ns - START_NS) // US

    assert source_ended_us(10_000) <= 410
    assert source_ended_us(10) >= 400 * 20 - 2 * (10 + 9) * 20


def test_without_the_credit_check_more_would_be_queued() -> None:
    """The bound is tight: a source that is faster than its sink does fill the channel to its capacity."""
    trace = Trace()

    run(
        through_a_slow_sink([]),
        instruments=[trace],
        batch_size=7,
        channel_capacity=25,
        cost=CostModel(record_ns=20 * US),
        checkpoint_interval=None,
    )

    assert max(send.queued for send in trace.of(Send)) >= 25


@pytest.mark.parametrize("capacity", [1, 2, 10])
@pytest.mark.parametrize("record_ns", [0, 2 * US])
def test_barriers_get_through_backpressure(capacity: int, record_ns: int) -> None:
    """Aligned checkpoints complete at any capacity, and the job comes to its end with the right result."""
    results = CollectedResults()
    job = running_count(Job("tight", parallelism=3), 200, results, keys=7)

    result = checked(
        execution(
            job,
            batch_size=16,
            channel_capacity=capacity,
            checkpoint_interval=every(ns=20 * US),
            cost=CostModel(record_ns=record_ns, stragglers={"count[1]": 4.0}, slow_links={"numbers[0]": 3 * US}),
        )
    ).raise_on_failure()

    assert result.checkpoints.completed > 2
    assert Counter(results.records) == expected_counts(200, 7)
