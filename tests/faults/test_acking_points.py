"""Mode ``acking``: a death or a pause at any named point loses no record of a job without state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from engine.explore.cases import Case
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import Fault, parse_fault
from engine.faults.injector import FaultInjector
from engine.faults.process import worker_of
from engine.graph.job import Job
from engine.observe.points import AFTER
from engine.runtime.faulted import JOB_MANAGER, PROCESS
from operators.basic import CollectedResults, CollectSink
from operators.sources import SequenceSource
from tests.operators.log.connectors.log_job import job as logged

RECORDS = 5
EXPECTED = Counter(repr(number * 10) for number in range(RECORDS))
FIRST = Fault("crash", "tens[0]", point="user.process", phase=AFTER)
"""A crash that has records sent again, and a task recover."""


def tens(parallelism: int | None = None) -> Job:
    """numbers -> tens -> sink, each in two subtasks."""
    job = Job("tens", parallelism=parallelism or 2)
    numbers = job.source(SequenceSource(0, RECORDS, splits=2), name="numbers")
    multiplied = numbers.rebalance().map(lambda number: number * 10, name="tens")
    multiplied.rebalance().sink(CollectSink(CollectedResults(transactional=False)), name="out", chain=False)
    return job


def ran(*faults: Fault, **settings: Any) -> tuple[FinishedCase, FaultInjector]:
    """The job, run to its end with these faults."""
    config = {
        "mode": "acking",
        "batch_size": 1,
        "checkpoint_interval": "3us",
        "master_recovery_ns": 1_000,
        "cost.record_ns": 300,
        "cost.link_latency_ns": 1_000,
        "acking.timeout_ns": 60_000,
        "acking.recovery_ns": 2_000,
        **settings,
    }
    injector = FaultInjector(faults)
    return run_case(Subject(tens), Case(config=config, faults=faults), interference=injector), injector


def check(*faults: Fault, **settings: Any) -> FinishedCase:
    """The job comes to its end, and no record is missing in its output."""
    finished, injector = ran(*faults, **settings)
    told = [str(fault) for fault in faults]
    assert (finished.outcome, finished.violations) == ("finished", []), (told, finished.error)
    rows = Counter(row for one in finished.committed.values() for row in one)
    assert not EXPECTED - rows, (told, EXPECTED - rows)
    assert rows.keys() == EXPECTED.keys(), told
    assert len(injector.struck) == len(faults), (told, injector.struck)
    return finished


def places() -> Iterator[tuple[tuple[Fault, ...], str, str, str, int]]:
    """Every point, phase and actor, with its number of visits; points of a recovery are counted after a first crash."""
    calm, disturbed = ran()[1].processes.visits, ran(FIRST)[1].processes.visits
    for (point, phase, actor), count in sorted({**disturbed, **calm}.items()):
        first = () if (point, phase, actor) in calm else (FIRST,)
        yield first, point, phase, actor, count


@pytest.mark.parametrize(
    "who",
    [
        "who comes by",
        PROCESS,
        pytest.param("worker", marks=pytest.mark.slow),
        pytest.param(JOB_MANAGER, marks=pytest.mark.slow),
    ],
)
def test_whoever_dies_at_any_point_no_record_is_missing(who: str) -> None:
    """The visiting task or acker, its worker, the job manager and the process die, before and after each step."""
    struck = []
    for first, point, phase, actor, count in places():
        victim = {"who comes by": actor, "worker": worker_of(actor)}.get(who, who)
        if victim is not None and not (first and point == FIRST.point):
            check(*first, Fault("crash", victim, point=point, phase=phase, number=(count + 1) // 2))
            struck.append(point)
    assert len(struck) > 30
    assert set(struck) >= {"acker.receive", "spout.replay", "offsets.commit", "source.emit", "user.process"}


@pytest.mark.parametrize(("for_ns", "heartbeat_ns"), [(5_000, 10_000), (200_000, 1_000_000), (200_000, 10_000)])
def test_whoever_is_paused_at_any_point_no_record_is_missing(for_ns: int, heartbeat_ns: int) -> None:
    """For less than a timeout, and for several; and for so long that it is declared dead, and replaced."""
    runs = replaced = 0
    for first, point, phase, actor, count in places():
        if actor != JOB_MANAGER and not point.startswith("restore.") and not first:
            pause = Fault("pause", actor, point=point, phase=phase, number=(count + 1) // 2, for_ns=for_ns)
            replaced += check(pause, heartbeat_timeout_ns=heartbeat_ns).result.attempts > 1
            runs += 1
    assert runs > 20
    assert (replaced > 10) == (for_ns > heartbeat_ns)


@pytest.mark.parametrize("longer_ns", range(500, 8_000, 1_500))
def test_a_source_that_wakes_behind_its_successor_does_not_end_the_stream(longer_ns: int) -> None:
    """Its successor reads uncommitted offsets again, and those records must not come after the end."""
    heartbeat_ns, settings = 10_000, {"acking.max_pending": 1, "checkpoint_interval": "1s"}
    calm = ran(**settings)[1].processes.visits
    last = calm["source.emit", AFTER, "numbers[0]"]
    pause = Fault("pause", "numbers[0]", point="source.emit", phase=AFTER, number=last, for_ns=heartbeat_ns + longer_ns)
    finished = check(pause, heartbeat_timeout_ns=heartbeat_ns, **settings)
    assert finished.result.attempts == 2
    acking = finished.result.acking
    assert acking is not None
    assert acking.replayed == 0


def test_a_power_cut_takes_nothing_that_was_acknowledged() -> None:
    """Committed offsets cover only records that are durable in the log, at whatever microsecond the machine dies."""
    subject = Subject(lambda parallelism: logged(20, delivery="at-least-once", parallelism=parallelism))
    config = {
        "mode": "acking",
        "checkpoint_interval": "2us",
        "cost.link_latency_ns": 1_000,
        "cost.record_ns": 300,
        "acking.timeout_ns": 60_000,
    }
    again = 0
    for at_us in range(1, 17):
        faults = tuple(parse_fault(text) for text in (f"crash:process@{at_us}us", "lose-unsynced:*log#1"))
        finished = run_case(subject, Case(config=config, faults=faults))
        rows = Counter(finished.committed["out0"])
        assert finished.outcome == "finished", (at_us, finished.error)
        assert rows.keys() == {str(number) for number in range(20)}, at_us
        again += rows.total() - 20
    assert again
