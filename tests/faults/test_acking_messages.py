"""Messages to and from ackers get lost, come late or come twice: records are sent again, and none is missing."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.explore.invariants import invariants_for
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import FaultMix, parse_fault
from engine.graph.job import Job
from operators.basic import CollectedResults, CollectSink
from operators.sources import SequenceSource
from tests.explore.subjects import case_with
from tests.runtime.acking.acked_jobs import pipeline
from tests.runtime.support import MS, US

RECORDS = 12
ROWS = Counter(repr(number * 10 + 1) for number in range(RECORDS))
MESSAGES = {"acker_init", "acker_ack", "acker_reply"}


def build(parallelism: int | None) -> Job:
    return pipeline(CollectedResults(), RECORDS)


def relay(parallelism: int | None) -> Job:
    """One record, one bolt: as small as a tree can be."""
    job = Job("relay")
    number = job.source(SequenceSource(0, 1), name="number")
    return number.rebalance().sink(CollectSink(CollectedResults()), name="sink", parallelism=1)


SUBJECT, RELAY = Subject(build), Subject(relay)
CONFIG = {
    "mode": "acking",
    "checkpoint_interval": "5us",
    "cost.link_latency_ns": 1 * US,
    "acking.timeout_ns": 1 * MS,
    "acking.recovery_ns": 3 * US,
    # A drawn pause lasts about as long.
    "heartbeat_timeout_ns": 200 * US,
}


def run(*faults: str, subject: Subject = SUBJECT, mix: FaultMix | None = None, seed: str = "0") -> FinishedCase:
    case = case_with(CONFIG, *faults, mix=mix, seed=seed)
    finished = run_case(subject, case, invariants_for("at-least-once", only=["V1", "V13", "V14"]))
    assert finished.outcome == "finished", (finished.outcome, finished.error)
    assert not finished.violations, finished.violations
    return finished


def rows(finished: FinishedCase, uid: str = "sink") -> Counter[str]:
    return Counter(next(iter(finished.committed.values())))


@pytest.mark.parametrize(
    ("text", "timed_out"),
    [
        ("lose:acker_init numbers*#1", 1),
        ("lose:acker_ack ones[1]#1", 1),
        ("lose:acker_ack sink*#2", 1),
        ("lose:acker_reply numbers[0]#1", 1),
        ("duplicate:acker_init numbers*#1", 0),
        ("duplicate:acker_init numbers*#1~2us", 0),
        ("duplicate:acker_ack tens*#3", 1),
        ("duplicate:acker_reply *#1", 0),
        ("late:acker_init *#1~100us", 0),
        ("late:acker_ack sink*#1~100us", 0),
        ("late:acker_reply *#1~100us", 0),
        ("late:acker_reply *#1~5ms", 1),
        ("late:acker_init *#1~5ms", 1),
    ],
)
def test_one_message_costs_at_most_one_replay(text: str, timed_out: int) -> None:
    """The record whose root the message is about is sent again after its timeout, if the loss matters at all."""
    finished = run(text)
    assert [str(fault) for fault in finished.faults] == [str(parse_fault(text))]
    acking = finished.result.acking
    assert acking is not None
    assert (acking.timed_out, acking.replayed) == (timed_out, timed_out)
    assert acking.completed == RECORDS
    again = rows(finished) - ROWS
    assert not ROWS - rows(finished)
    assert sum(again.values()) == timed_out


def test_an_init_that_comes_twice_does_not_complete_a_record_that_is_lost() -> None:
    """Its value would be 0, and the source would be told of success, while the only tuple dies with its receiver."""
    finished = run("duplicate:acker_init number*#1", "crash:sink[0]@before:user.process#1", subject=RELAY)
    assert len(finished.faults) == 2
    acking = finished.result.acking
    assert acking is not None
    assert acking.replayed == 1
    assert rows(finished) == Counter(["0"])


def test_a_task_that_is_cut_off_is_heard_again() -> None:
    """In a partition no message passes between a task and the ackers, either; its records are sent again."""
    finished = run("partition:sink[0]@2us~8us")
    acking = finished.result.acking
    assert acking is not None
    assert acking.timed_out > 0
    assert not ROWS - rows(finished)


def test_no_record_is_missing_whatever_becomes_of_messages() -> None:
    """Drawn together with deaths of tasks, ackers and processes; each kind of fault hits each kind of message."""
    chances = {"lose": 40_000, "duplicate": 40_000, "late": 40_000, "partition": 10_000, "crash": 4_000, "pause": 1_000}
    mix = FaultMix(chances, most=10)
    hit: Counter[tuple[str, str]] = Counter()
    for seed in range(60):
        finished = run(mix=mix, seed=str(seed))
        assert not ROWS - rows(finished), (seed, finished.faults)
        hit.update((fault.kind, fault.target.split()[0]) for fault in finished.faults if "acker_" in fault.target)
    assert {(kind, message) for kind in ("lose", "duplicate", "late") for message in MESSAGES} <= {*hit}, hit
