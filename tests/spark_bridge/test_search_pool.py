"""A search on Spark: the runs, the order and the first failure are those of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from py4j.protocol import Py4JError

from engine.elements.errors import JobFileError
from engine.explore.run import Subject
from engine.explore.search import Chunk, MadeRun, WorkerError, explore
from spark_bridge.errors import SparkBridgeError
from spark_bridge.search_pool import SparkPool
from tests.explore.search.test_campaign import TWICE, standard, what_was_seen


def test_a_search_on_spark_finds_what_one_process_finds(spark: Any) -> None:
    """The same report and the same rows, down to which failure is the first: the job travels, its file does not."""
    subject: Subject = standard()
    order, hire = replace(TWICE, runs=30, keep_going=True), lambda _jobs, make: SparkPool[Chunk](spark, make)
    alone: list[MadeRun] = []
    spread: list[MadeRun] = []
    expected = what_was_seen(explore(standard, order, results=alone.extend))
    assert what_was_seen(explore(subject.fresh, order, results=spread.extend, hire=hire)) == expected
    assert spread == alone
    assert any(run.violates for run in alone)


def _spans(least: int, many: int, slow: int) -> Callable[[int, int], tuple[int, int]]:
    """Makes chunks; the one that begins at ``slow`` takes longer, and one at a multiple of ``many`` fails."""

    def made(first: int, count: int) -> tuple[int, int]:
        time.sleep(0.3 if first == slow else least / 1_000)
        if first and first % many == 0:
            raise ValueError("broken on purpose")
        return first, count

    return made


def test_chunks_come_in_order_from_executors(spark: Any) -> None:
    """Whichever task is faster, and however many chunks a task gets."""
    spans = [(number * 3, 3) for number in range(40)]
    with SparkPool(spark, partial(_spans, 1, 1_000, 0)) as pool:
        assert list(pool.in_order(iter(spans))) == spans


def test_what_fails_on_an_executor_is_told(spark: Any) -> None:
    """With its traceback, after the chunks before it."""
    got: list[tuple[int, int]] = []
    with (
        SparkPool(spark, partial(_spans, 1, 9, -1)) as pool,
        pytest.raises(WorkerError, match=r"(?s)an executor failed:.*ValueError: broken on purpose"),
    ):
        got.extend(pool.in_order(iter([(number * 3, 3) for number in range(9)])))
    assert got == [(0, 3), (3, 3), (6, 3)]


def test_a_search_that_ends_early_stops_its_tasks(spark: Any) -> None:
    """Nothing of it runs on, and the session serves the next one."""
    tracker = spark.sparkContext.statusTracker()
    with SparkPool(spark, partial(_spans, 2_000, 1_000, 0)) as pool:
        first = next(pool.in_order(iter([(number * 3, 3) for number in range(60)])))
        assert len(tracker.getActiveJobsIds()) > 0
    assert first == (0, 3)
    end = time.monotonic() + 30
    while tracker.getActiveJobsIds():
        assert time.monotonic() < end, "tasks of the search run on"
        time.sleep(0.05)


def test_a_job_that_cannot_travel_is_refused(spark: Any) -> None:
    """With what it holds, and where that belongs."""
    lock = threading.Lock()
    with pytest.raises(JobFileError, match=r"cannot be sent to executors: .*lock.*\n  fix: open files, locks"):
        SparkPool(spark, lambda: lambda first, _count: (first, lock))


class _Lost:
    """A context whose tasks cannot be had any more."""

    def parallelize(self, *_arguments: object) -> Any:
        raise Py4JError("Job cancelled because SparkContext was shut down")


def test_a_cluster_that_is_lost_ends_a_search(spark: Any) -> None:
    """The error says what to do, and speaks of runs: a search has no checkpoint to resume from."""
    with SparkPool(spark, partial(_spans, 1, 1_000, 0)) as pool:
        context, pool._context = pool._context, _Lost()
        try:
            with pytest.raises(SparkBridgeError, match="search again: the same seed makes the same runs"):
                list(pool.in_order(iter([(0, 3)])))
        finally:
            pool._context = context
