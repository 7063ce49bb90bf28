"""Faults of external systems: each does what it says, drawn faults can be survived, and losses are reported."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from engine.elements.errors import DataLossError, JobFailedError
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.external import ExternalFaults
from engine.faults.fault import Fault, FaultMix, parse_fault
from engine.faults.opportunities import Struck
from engine.graph.job import Job
from engine.runtime.kernel import ChoiceRecorder
from operators.log.connectors.log_sink import LogSink
from operators.log.memory_transaction_log import MemoryTransactionLog
from operators.log.port import FATES
from operators.log.port.transaction_log import Exchange
from operators.sources import SequenceSource
from tests.explore.subjects import case_with

ROWS = Counter(str(number) for number in range(30))


def build(parallelism: int | None) -> Job:
    job = Job("outside", max_parallelism=4)
    numbers = job.source(SequenceSource(0, 30), name="numbers", uid="numbers")
    kept = numbers.rebalance().map(lambda number: number, name="keep", uid="keep", parallelism=2)
    return kept.sink(LogSink("rows", partitions=2), name="out", uid="out", parallelism=2, chain=False)


SUBJECT = Subject(build)
CONFIG = {"batch_size": 2, "checkpoint_interval": "7rec"}


def run(*faults: str, mix: FaultMix | None = None, seed: str = "0") -> FinishedCase:
    return run_case(SUBJECT, case_with(CONFIG, *faults, mix=mix, seed=seed))


def log_of(finished: FinishedCase) -> MemoryTransactionLog:
    sink = finished.view.world.sinks["out"]
    assert isinstance(sink, LogSink)
    assert isinstance(sink.log, MemoryTransactionLog)
    return sink.log


def struck(finished: FinishedCase) -> list[Exchange]:
    return [exchange for exchange in log_of(finished).history if exchange.fate != "delivered"]


def rows(finished: FinishedCase) -> Counter[str]:
    return Counter(finished.committed["out"])


@pytest.mark.parametrize(
    "text",
    [
        "answer-lost:commit#2",
        "request-lost:commit out/0*#1",
        "request-lost:append out/1/*#3",
        "expire:append*#2",
        "fence:prepare*#1",
        "fence:begin*#3",
        "late-marker:commit#1",
        "answer-lost:init#2",
    ],
)
def test_an_exact_fault_strikes_once_and_is_survived(text: str) -> None:
    """The request that it names suffers it; the job restarts if it must, and commits each row once."""
    finished = run(text, "crash:keep[0]@after:notify.send#1")
    fault = parse_fault(text)

    assert fault in finished.faults
    hit = [exchange for exchange in struck(finished) if exchange.request.kind != "late"]
    assert [exchange.fate for exchange in hit] == [fault.kind]
    assert fault.target.split()[0].rstrip("*") == hit[0].request.kind
    assert finished.outcome == "finished"
    assert rows(finished) == ROWS
    log_of(finished).validate()


def test_the_number_counts_the_requests_that_match() -> None:
    """The third append of subtask 1, and no other."""
    finished = run("request-lost:append out/1/*#3")
    appends = [
        exchange.fate
        for exchange in log_of(finished).history
        if exchange.request.kind == "append" and str(exchange.request.transactional_id).startswith("out/1/")
    ]
    assert appends.index("request-lost") == 2
    assert appends.count("request-lost") == 1


@pytest.mark.parametrize("kind", ["expire", "fence"])
def test_a_prepared_transaction_that_is_given_up_ends_the_job(kind: str) -> None:
    """No restart can repair this loss; the error says so, and no row is there twice."""
    finished = run(f"{kind}:commit#2")

    assert finished.outcome == "failed"
    assert isinstance(finished.error, JobFailedError)
    assert isinstance(finished.error.__cause__, DataLossError)
    assert finished.error.exit_code == DataLossError.exit_code
    assert rows(finished) < ROWS


def test_what_is_drawn_can_be_survived() -> None:
    """Any mixture commits each row once; the same faults, requested exactly, give the same run."""
    mix = FaultMix(dict.fromkeys(FATES[1:], 60_000) | {"crash": 1_000, "pause": 300}, most=8)
    kinds: Counter[str] = Counter()
    for seed in range(25):
        finished = run(mix=mix, seed=str(seed))
        assert finished.outcome == "finished", finished.violations
        assert rows(finished) == ROWS, seed
        log_of(finished).validate()
        kinds.update(fault.kind for fault in finished.faults)
        if seed < 5:
            again = run(*map(str, finished.faults), seed=str(seed))
            assert log_of(again).history == log_of(finished).history
    assert set(FATES[1:]) <= set(kinds), kinds


def test_nothing_that_is_prepared_is_given_up_by_chance() -> None:
    """Only requests before the end of a transaction may draw ``expire`` and ``fence``."""
    mix = FaultMix({"expire": 50_000, "fence": 50_000}, most=6)
    hit: Counter[str] = Counter()
    for seed in range(30):
        hit.update(exchange.request.kind for exchange in struck(run(mix=mix, seed=str(seed))))
    assert hit.keys() == {"begin", "append", "prepare"}


def test_a_log_goes_by_its_own_clock() -> None:
    """A task whose clock is hours ahead does not age a transaction."""
    finished = run("clock-jump:out[0]@3us=7200000000000", "clock-jump:out[0]@3us~7200s")
    assert finished.outcome == "finished"
    assert rows(finished) == ROWS
    assert not [exchange for exchange in log_of(finished).history if exchange.request.kind == "expire"]


def test_a_source_that_is_rewound_breaks_every_promise() -> None:
    """Three records too short: they come twice. Two too far: they never come. The reported position was right."""
    short = run("rewind:numbers/*#1=-3", "crash:process@after:notify.send#2")
    assert sum((rows(short) - ROWS).values()) == 3
    assert not ROWS - rows(short)
    far = run("rewind:numbers/*#1=2", "crash:process@after:notify.send#2")
    assert sum((ROWS - rows(far)).values()) == 2
    assert not rows(far) - ROWS


def test_a_rewind_that_never_comes_is_unused() -> None:
    """Without a restore no split is opened at a position."""
    finished = run("rewind:numbers/*#1=-3")
    assert [str(fault) for fault in finished.unused] == ["rewind:numbers/*#1=-3"]
    assert rows(finished) == ROWS


def test_faults_are_copied_with_the_log_they_befall() -> None:
    """A copy of both goes on by itself: faults that strike there do not strike here."""
    choices = ChoiceRecorder("0")
    faults = ExternalFaults((Fault("request-lost", "append"),), FaultMix(), Struck(FaultMix(), choices))
    sink = LogSink("rows")
    faults.attach({"out": sink})
    copied_faults, copied_sink = pickle.loads(pickle.dumps((faults, sink)))
    assert faults.is_armed
    with pytest.raises(Exception, match="no answer"):
        copied_sink.log.append(None, "rows", 0, [1], 0, 0)
    assert copied_faults.unused == ()
    assert len(faults.unused) == 1
