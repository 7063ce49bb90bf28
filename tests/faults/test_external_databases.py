"""Faults of databases: each request may get lost, and its transaction be aborted or fenced; drawn faults can be
survived, and losses are reported."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.elements.errors import DataLossError, JobFailedError
from engine.explore.invariants import invariants_for
from engine.explore.run import FinishedCase, Measure, Subject, run_case
from engine.explore.search import Swarm
from engine.explore.search.swarm import possible_kinds
from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from operators.databases import DatabaseExchange, DatabaseSink, MemoryDatabase, UpsertSink
from operators.log.port import FATES
from operators.sources import SequenceSource
from tests.explore.subjects import case_with

ROWS = Counter(f"({number},)" for number in range(30))


def build(parallelism: int | None) -> Job:
    job = Job("outside", max_parallelism=4)
    numbers = job.source(SequenceSource(0, 30), name="numbers", uid="numbers")
    rows = numbers.rebalance().map(lambda number: (number,), name="keep", uid="keep", parallelism=2)
    sink = DatabaseSink(MemoryDatabase(), "rows", ("number",), batch_rows=2)
    rows.sink(sink, name="out", uid="out", parallelism=2, chain=False)
    last = rows.map(lambda row: (row[0] % 3, row[0])).key_by(lambda row: row[0])
    upsert = UpsertSink(MemoryDatabase(), "last", ("key", "number"), key=["key"], version="number", batch_rows=2)
    return last.sink(upsert, name="last", uid="last", parallelism=2)


SUBJECT = Subject(build)
CONFIG = {"batch_size": 2, "checkpoint_interval": "7rec"}


def run(*faults: str, mix: FaultMix | None = None, seed: str = "0") -> FinishedCase:
    case = case_with(CONFIG, *faults, mix=mix, seed=seed)
    return run_case(SUBJECT, case, invariants_for(only=["V7", "V8", "V14"]))


def history_of(finished: FinishedCase, uid: str = "out") -> list[DatabaseExchange]:
    sink = finished.view.world.sinks[uid]
    assert isinstance(sink, DatabaseSink | UpsertSink)
    assert isinstance(sink.database, MemoryDatabase)
    return sink.database.history


def struck(finished: FinishedCase) -> list[DatabaseExchange]:
    return [one for uid in ("out", "last") for one in history_of(finished, uid) if one.fate != "delivered"]


def is_right(finished: FinishedCase) -> bool:
    last = ["(0, 27)", "(1, 28)", "(2, 29)"]
    return Counter(finished.committed["out"]) == ROWS and finished.committed["last"] == last


@pytest.mark.parametrize(
    "text",
    [
        "answer-lost:take-over#3",
        "answer-lost:begin#2",
        "request-lost:write rows:out/1/*#3",
        "answer-lost:write#2",
        "expire:write#3",
        "fence:write#2",
        "expire:prepare*#2",
        "answer-lost:prepare#1",
        "fence:prepare*#1",
        "request-lost:commit rows:out/0*#1",
        "answer-lost:commit#2",
        "fence:commit#2",
        "late-marker:commit#1",
        "late-marker:abort#1",
        "answer-lost:abort#1",
        "request-lost:upsert last:*#2",
        "answer-lost:upsert#1",
        "fence:upsert last:last/*#1",
    ],
)
def test_an_exact_fault_strikes_once_and_is_survived(text: str) -> None:
    """The request that it names suffers it; the job restarts if it must, and every row is there once."""
    finished = run(text, "crash:keep[0]@after:notify.send#1")
    fault = parse_fault(text)

    assert fault in finished.faults
    hit = [one for one in struck(finished) if one.request.kind != "late"]
    assert [one.fate for one in hit] == [fault.kind]
    assert fault.target.split()[0].rstrip("*") == hit[0].request.kind
    assert finished.outcome == "finished"
    assert is_right(finished)
    assert finished.violations == []


def test_a_late_end_of_a_transaction_changes_nothing() -> None:
    """It arrives in the middle of the next transaction of the same subtask, and its own transaction has ended."""
    finished = run("late-marker:commit#1")
    late = [one for one in history_of(finished) if one.request.kind == "late"]
    assert [(one.fate, one.result) for one in late] == [("late-marker", "repeated")]
    following = history_of(finished)[late[0].number + 1].request
    assert following.subtask == late[0].request.subtask
    assert following.transaction != late[0].request.transaction
    assert is_right(finished)


def test_a_prepared_transaction_that_somebody_rolls_back_ends_the_job() -> None:
    """No restart can repair this loss; the error says so, and no row is there twice."""
    finished = run("expire:commit#2")

    assert finished.outcome == "failed"
    assert isinstance(finished.error, JobFailedError)
    assert finished.error.exit_code == DataLossError.exit_code
    assert Counter(finished.committed["out"]) < ROWS


def test_a_writer_that_is_fenced_writes_nothing_more_until_it_has_taken_over() -> None:
    """The request itself is refused, and the next successful request of the subtask is to take over."""
    finished = run("fence:write#2")
    history = history_of(finished)
    (hit,) = (one for one in history if one.fate == "fence")
    assert hit.result == "fenced"
    behind = [one for one in history[hit.number + 1 :] if one.request.subtask == hit.request.subtask]
    first = next(one for one in behind if one.request.kind not in ("commit", "abort"))
    assert (first.request.kind, first.result) == ("take-over", "ok")


def test_what_is_drawn_can_be_survived() -> None:
    """Any mixture: each row once, V7, V8 and V14 hold; the same faults, requested exactly, give the same run."""
    mix = FaultMix(dict.fromkeys(FATES[1:], 60_000) | {"crash": 1_000, "pause": 300}, most=8)
    kinds: Counter[tuple[str, str]] = Counter()
    for seed in range(20):
        finished = run(mix=mix, seed=str(seed))
        assert finished.outcome == "finished", finished.violations
        assert is_right(finished), seed
        assert finished.violations == [], seed
        kinds.update((one.fate, one.request.kind) for one in struck(finished))
        if seed < 4:
            again = run(*map(str, finished.faults), seed=str(seed))
            assert history_of(again) == history_of(finished)
    assert {fate for fate, _ in kinds} == set(FATES[1:])
    assert {request for fate, request in kinds if fate == "expire"} <= {"begin", "write", "prepare"}


def test_a_search_draws_faults_for_jobs_with_databases() -> None:
    """They are possible, in proportion to the requests that the job makes."""
    measure = Measure.of(SUBJECT)
    assert measure.requests["commit"] >= 4
    assert measure.requests["upsert"] >= 4
    assert {*FATES[1:]} <= {*possible_kinds(Swarm(), measure)}
