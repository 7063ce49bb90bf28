"""Joins, requests, first records, ranks and patterns under every fault: their rows depend on event time only, so every
run commits those of one without faults."""

from __future__ import annotations

import pytest

from engine.explore.cases import Case, parse_savepoint
from engine.explore.invariants import invariants_for
from engine.explore.run import Measure, Subject, World, run_case
from engine.explore.search import Swarm
from engine.explore.search.swarm import draw_case
from engine.faults.fault import parse_fault
from engine.graph.job import Job
from operators.files.writing import RETRACTED
from tests.crash.jobs import event_job

RECORDS = 90


def build(parallelism: int | None) -> Job:
    """With one split for each of the two sources."""
    return event_job.job(str(RECORDS), "1", parallelism)


SUBJECT = Subject(build, label="events")
MODES = ("aligned", "unaligned", "aligned-timeout")


def test_the_reference_is_what_a_loop_over_the_input_gives() -> None:
    """The reference for the runs is right itself, and does not depend on any order of records."""
    reference = SUBJECT.reference()
    expected = event_job.expected_rows(RECORDS)

    assert reference.order_dependent is None
    assert {name: sorted(rows) for name, rows in reference.rows.items()} == {
        f"files/{bucket}": rows for bucket, rows in expected.items()
    }
    assert len(expected) == 6


def problems(seeds: range) -> list[str]:
    """The problems of the cases of these seeds. A few may end with an error, where a disk has failed."""
    measure, swarm, found, ended = Measure.of(SUBJECT), Swarm(modes=MODES), [], 0
    for seed in seeds:
        finished = run_case(SUBJECT, draw_case(swarm, measure, f"events/{seed}"), invariants_for())
        ended += finished.outcome == "finished"
        if finished.violations:
            found.append(f"{seed}: {finished.outcome}, {finished.violations[0]}, {list(map(str, finished.faults))}")
    assert ended > 0.9 * len(seeds)
    return found


def test_random_faults_change_no_row() -> None:
    """Under all drawn faults: crashes, lost messages, bad disks, clocks that jump."""
    assert problems(range(8)) == []


@pytest.mark.slow
def test_many_random_faults_change_no_row() -> None:
    """The same for hundreds of runs."""
    assert problems(range(8, 400)) == []


def test_files_that_were_taken_back_stay_hidden() -> None:
    """After a savepoint in vain the job writes parts of other names; no file is called left over."""
    case = Case(
        config={"checkpoint_interval": "60us", "random_first_delay": True},
        savepoints=(parse_savepoint("stop@68125ns->no-claim,parallelism=4"),),
        faults=(parse_fault("crash:job manager@before:sink.rename#5"),),
        seed="events/54",
    )
    world = World()
    finished = run_case(SUBJECT, case, invariants_for(), world=world)

    assert finished.violations == []
    assert any(RETRACTED in path for path in world.files.walk_files("/out"))
