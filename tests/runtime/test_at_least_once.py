"""At-least-once: no record is lost, and exactly the records that the cut oracle predicted are counted twice."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.observe.cut_oracle import CutOracle
from engine.observe.trace_events import ChannelBlocked
from engine.runtime.config import CostModel
from engine.runtime.execution import ExecutionResult
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, Trace, every, run

RECORDS = 80


def total_count(into: CollectedResults) -> Job:
    """Two sources of one running total."""
    job = Job("total")
    fast = job.source(SequenceSource(0, RECORDS), name="fast")
    slow = job.source(SequenceSource(0, RECORDS), name="slow")
    total = fast.union(slow).key_by(lambda number: 0, value=lambda number: 1).reduce(lambda a, b: a + b, name="total")
    return total.collect(into, name="out")


def killed_run(mode: str, killed_at_us: int, seed: int) -> tuple[ExecutionResult, CollectedResults, CutOracle]:
    """A run with one slow link whose total is killed."""
    results, oracle = CollectedResults(), CutOracle()
    result = run(
        total_count(results),
        mode=mode,
        kills=[("total", killed_at_us * US)],
        instruments=[oracle],
        seed=str(seed),
        batch_size=4,
        channel_capacity=1_000,
        checkpoint_interval=every(ns=17 * US),
        restart=FixedDelayRestart(None, 0),
        cost=CostModel(slow_links={"slow": 9 * US}),
    )
    return result, results, oracle


@pytest.mark.parametrize("killed_at_us", [20, 30, 47, 55, 68, 79])
def test_duplicates_are_those_the_oracle_predicted(killed_at_us: int) -> None:
    """After a restart from a cut with k orphans the total is too high by exactly k, and never too low."""
    seen = 0
    for seed in range(5):
        result, results, oracle = killed_run("at-least-once", killed_at_us, seed)

        restored = result.restores[1].checkpoint_id
        verdict = None if restored is None else oracle.verdict(restored)
        orphans = 0 if verdict is None else verdict.orphans
        assert max(results.records) == 2 * RECORDS + orphans
        assert all(one.in_transit == 0 for one in oracle.verdicts)
        seen += orphans
    assert seen or killed_at_us < 26


@pytest.mark.parametrize("killed_at_us", [30, 68])
def test_aligned_barriers_prevent_them(killed_at_us: int) -> None:
    """The same run with alignment counts every record once, and the oracle finds no orphan."""
    result, results, oracle = killed_run("aligned", killed_at_us, 0)

    assert result.attempts == 2
    assert Counter(results.records) == Counter(range(1, 2 * RECORDS + 1))
    assert oracle.held


def test_without_failure_nothing_is_counted_twice() -> None:
    """Orphans are a prediction: without a restart the output is right."""
    results, oracle = CollectedResults(), CutOracle()

    run(
        total_count(results),
        mode="at-least-once",
        instruments=[oracle],
        batch_size=4,
        checkpoint_interval=every(ns=17 * US),
        cost=CostModel(slow_links={"slow": 9 * US}),
    )

    assert not oracle.held
    assert Counter(results.records) == Counter(range(1, 2 * RECORDS + 1))


def test_nothing_is_blocked() -> None:
    """At-least-once never blocks a channel."""
    trace = Trace()

    run(
        total_count(CollectedResults()),
        mode="at-least-once",
        instruments=[trace],
        checkpoint_interval=every(ns=17 * US),
        cost=CostModel(slow_links={"slow": 9 * US}),
    )

    assert trace.of(ChannelBlocked) == []
