"""Work on Spark's executors: a search has the runs, the order and the first failure of one process, a sweep the rows of
processes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from engine.elements.errors import JobFileError, WorkerError
from engine.explore.run import Subject
from engine.explore.search import Chunk, MadeRun, explore
from engine.study import StudyTable, sweep
from spark_bridge.errors import SparkBridgeError
from spark_bridge.executor_pool import ExecutorPool, pool_session
from tests.cli.conftest import Weir
from tests.explore.search.test_campaign import TWICE, standard, what_was_seen

PATIENCE_SECONDS = 20.0
"""Tasks begin, and are cancelled, long before."""


def test_a_search_on_spark_finds_what_one_process_finds(spark: Any) -> None:
    """The same report and the same rows, down to which failure is the first: the job travels, its file does not."""
    subject: Subject = standard()
    order, hire = replace(TWICE, runs=30, keep_going=True), lambda _jobs, make: ExecutorPool[Chunk](spark, make)
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
    with ExecutorPool(spark, partial(_spans, 1, 1_000, 0)) as pool:
        assert list(pool.in_order(iter(spans))) == spans


def test_what_fails_on_an_executor_is_told(spark: Any) -> None:
    """With its traceback, after the chunks before it."""
    got: list[tuple[int, int]] = []
    with (
        ExecutorPool(spark, partial(_spans, 1, 9, -1)) as pool,
        pytest.raises(WorkerError, match=r"(?s)an executor failed:.*ValueError: broken on purpose"),
    ):
        got.extend(pool.in_order(iter([(number * 3, 3) for number in range(9)])))
    assert got == [(0, 3), (3, 3), (6, 3)]


def _held(begun: Path, over: Path) -> Callable[[int], int]:
    """Makes 0 at once, another number only when ``over`` is there."""

    def made(number: int) -> int:
        if number:
            begun.touch()
            while not over.exists():
                time.sleep(0.05)
        return number

    return made


def test_a_search_that_ends_early_stops_its_tasks(spark: Any, tmp_path: Path) -> None:
    """It does not wait for them, and the session serves the next one."""
    tracker, begun, over = spark.sparkContext.statusTracker(), tmp_path / "begun", tmp_path / "over"
    pool = ExecutorPool[int](spark, partial(_held, begun, over), most=1)
    # In a thread: where no task is cancelled, it would wait for ever.
    leaving = threading.Thread(target=pool.__exit__, args=(None, None, None))
    try:
        # One core is free for 0, whichever begins first.
        assert next(pool.in_order([(0,), (1,)])) == 0
        _wait_until(begun.exists)
        assert len(tracker.getActiveJobsIds()) == 1
        leaving.start()
        _wait_until(lambda: not leaving.is_alive())
        assert list(tracker.getActiveJobsIds()) == []
    finally:
        over.touch()
        pool.__exit__(None, None, None)
    with ExecutorPool[int](spark, partial(_held, begun, over)) as pool:
        assert list(pool.in_order([(0,), (1,)])) == [0, 1]


def _wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < end, "nothing has happened"
        time.sleep(0.02)


def test_a_job_that_cannot_travel_is_refused(spark: Any) -> None:
    """With what it holds, and where that belongs."""
    lock = threading.Lock()
    with pytest.raises(JobFileError, match=r"the job cannot be sent to executors: .*lock.*\n  fix: open files, locks"):
        ExecutorPool(spark, lambda: lambda first, _count: (first, lock))


class _Lost:
    """What tasks are made of, when they cannot be had any more."""

    def mapPartitions(self, _made: object) -> Any:
        raise Py4JError("Job cancelled because SparkContext was shut down")


def test_a_cluster_that_is_lost_ends_a_search(spark: Any) -> None:
    """The error says what to do, and speaks of runs: a search has no checkpoint to resume from."""
    with ExecutorPool(spark, partial(_spans, 1, 1_000, 0)) as pool:
        pool._one_task = _Lost()
        with pytest.raises(SparkBridgeError, match="search again: the same seed makes the same runs"):
            list(pool.in_order(iter([(0, 3)])))


def _slow_first(number: int) -> int:
    time.sleep(0 if number else 1.0)
    return os.getpid()


def test_results_are_told_as_they_end(spark: Any) -> None:
    """Whichever ends first; a worker serves one task after the other, and is not started anew for each."""
    with ExecutorPool(spark, lambda: _slow_first, most=1) as pool:
        told = list(pool.as_they_end((number,) for number in range(12)))

    assert sorted(number for number, _ in told) == list(range(12))
    assert told[0][0] != 0
    assert len({process for _, process in told}) <= spark.sparkContext.defaultParallelism


STUDY = """
from engine import Job, SequenceSource
from steps_of_totals import rest

def job(keys="5", name="totals"):
    job = Job(name)
    numbers = job.source(SequenceSource(0, 300, splits=2), name="numbers")
    numbers.key_by(rest(int(keys))).reduce(max, name="max").collect([])
    return job
"""
STEPS = "def rest(keys):\n    return lambda number: number % keys\n"


@pytest.fixture
def weir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weir]:
    """The command line in a directory with a job file, and a module that this imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "totals.py").write_text(STUDY)
    (tmp_path / "steps_of_totals.py").write_text(STEPS)
    yield Weir(tmp_path)
    for name in ("weir_job_totals", "steps_of_totals"):
        sys.modules.pop(name, None)


def test_a_sweep_on_spark_has_the_rows_of_processes(spark: Any, weir: Weir) -> None:
    """From the command line: the job and the module beside its file travel, also one with a case that fails. The two
    write to one file: what one has made, the other does not make again."""
    asked = (
        "sweep", "totals.py", "--grid", "mode=aligned,unaligned", "--grid", "keys=3,x", "--set",
        "checkpoint_interval=20us", "--set", "batch_size=8", "--json",
    )  # fmt: skip
    here = weir(*asked, "--seeds", "2", "--jobs", "2")
    there = weir(*asked, "--seeds", "1", "--on", "spark", "--out", "rows.jsonl")
    more = weir(*asked, "--seeds", "2", "--on", "spark", "--out", "rows.jsonl")

    assert [row["status"] for row in here.json()] == ["ok", "ok", "failed", "failed"] * 2
    assert there.json() == here.json()[::2]
    assert more.json() == here.json()


def test_a_study_goes_to_executors_without_its_file(spark: Any, tmp_path: Path) -> None:
    """A function with what it refers to; a case may die there, and one that is killed ends no other."""

    def study(x: int) -> int:
        if x == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return x * factor

    factor = 3
    table: StudyTable = sweep(study, x=range(4), on="spark")
    assert [row.get("value") for row in table] == [0, 3, None, 9]
    assert table.failed[0]["error"] == "its process died (exit code -9)"


def test_a_study_that_cannot_travel_is_refused(spark: Any, tmp_path: Path) -> None:
    """Before its first case runs, here or there."""
    lock, ran = threading.Lock(), tmp_path / "ran"

    def study(x: int) -> int:
        with lock:
            ran.touch()
        return x

    with pytest.raises(JobFileError, match=r"the study cannot be sent to executors: .*lock.*\n  fix: open files"):
        sweep(study, x=range(4), on="spark")
    assert not ran.exists()


def test_a_session_serves_jobs_and_pools(spark: Any) -> None:
    """A pool takes the session that runs, however Java compiles in it."""
    assert pool_session(None) is spark
    assert pool_session("local[2]") is spark
