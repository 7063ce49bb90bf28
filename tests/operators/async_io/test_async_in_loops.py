"""Asynchronous requests inside of an iteration: they keep the loop alive, and come back after failures."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from operators.basic import CollectedResults
from operators.sources import CollectionSource
from tests.runtime.support import US, checked, every, execution

NUMBERS = [3, 1, 7, 2, 5]


def countdown(results: CollectedResults, parallelism: int) -> Job:
    """Each number goes round until it is 0, one request of 5 µs a round, and is counted when it leaves."""
    job = Job("countdown", parallelism=parallelism, max_parallelism=8)
    numbers = job.source(CollectionSource([(number, number) for number in NUMBERS]), name="numbers", parallelism=1)
    loop = numbers.rebalance().iterate(name="loop")
    asked = loop.async_map(lambda one: (one[0], one[1] - 1), latency_ns=5 * US, capacity=2, ordered=False, name="ask")
    loop.close_with(asked.filter(lambda one: one[1] > 0, name="again"))
    return asked.filter(lambda one: one[1] == 0, name="done").collect(results, name="out", uid="out")


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("kill_us", [None, 8, 21])
def test_a_request_in_flight_keeps_the_loop_alive(parallelism: int, kill_us: int | None) -> None:
    """All numbers come to 0, though nothing but requests is under way for most of the time."""
    results = CollectedResults()
    made = execution(
        countdown(results, parallelism),
        kills=[] if kill_us is None else [("ask", kill_us * US)],
        batch_size=2,
        checkpoint_interval=every(ns=6 * US),
        max_concurrent=1,
        restart=FixedDelayRestart(None, 1 * US),
    )
    checked(made).raise_on_failure()

    assert Counter(results.records) == Counter((number, 0) for number in NUMBERS)
