"""Every named point is visited, and after a death there the output is that of a run without faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from engine.explore.run import Subject, run_case
from engine.faults.fault import Fault
from engine.faults.injector import FaultInjector
from engine.faults.process import worker_of
from engine.observe.points import AFTER, BEFORE, MASTER, POINTS, TORN
from engine.runtime.faulted import JOB_MANAGER, PROCESS
from tests.cases import crossed
from tests.explore.search import sink_deaths
from tests.faults.point_jobs import EXPECTED, MODES, case_of, output, ran, ticking, without_amount

Visits = dict[tuple[str, str, str], int]
"""How often an actor came by at a point in a phase."""

FIRST = Fault("crash", "count[1]", point="notify.send", phase=AFTER)
"""A crash, to have something to recover from."""


def visits(mode: str) -> Visits:
    """The visits of a run without faults; for points of the recovery those of a run with one."""
    _, calm = ran(mode)
    _, recovered = ran(mode, FIRST)
    recovery = {key: count for key, count in recovered.processes.visits.items() if key[0].startswith("restore.")}
    return dict(sorted({**calm.processes.visits, **recovery}.items()))


def counted(seen: Visits, point: str, phase: str, victim: str) -> int:
    """How many visits count for the death of a victim."""
    return sum(
        count
        for (where, when, actor), count in seen.items()
        if (where, when) == (point, phase) and (victim in (actor, JOB_MANAGER, PROCESS) or (victim == worker_of(actor)))
    )


def deaths(mode: str, *, every: bool) -> Iterator[tuple[Fault, ...]]:
    """A death at each point in each phase: of the visiting actor, its worker, the job manager and the process."""
    done: dict[tuple[str, str, str], None] = {}
    seen = visits(mode)
    for point, phase, actor in seen:
        is_recovery = point.startswith("restore.")
        first = (FIRST,) if is_recovery else ()
        worker = worker_of(actor)
        victims = [actor, JOB_MANAGER, PROCESS] if worker is None else [actor, worker, JOB_MANAGER, PROCESS]
        for victim in victims:
            if phase == TORN and victim == JOB_MANAGER != actor:
                continue
            kind = "task" if victim == actor else victim
            if not every and (point, phase, kind) in done:
                continue
            done[point, phase, kind] = None
            count = counted(seen, point, phase, victim)
            chosen = {1, (count + 1) // 2, count} if every else {(count + 1) // 2}
            for number in sorted({count} if is_recovery else chosen):
                yield (*first, Fault("crash", victim, point=point, phase=phase, number=number))


def check_deaths(mode: str, chosen: Iterable[tuple[Fault, ...]], **settings: object) -> None:
    """The run for which each of them was planned survives it."""
    runs = 0
    for faults in chosen:
        finished, injector = ran(mode, *faults, **settings)

        told = [str(fault) for fault in faults]
        assert (finished.outcome, finished.violations) == ("finished", []), (told, finished.error)
        assert output(finished) == EXPECTED, told
        assert without_amount(injector.struck) == list(faults), (told, injector.struck)
        runs += 1
    assert runs > 50


@crossed(quick=2, mode=["aligned", "unaligned"], half=[0, 1])
def test_whoever_dies_at_a_point_each_row_is_committed_once(mode: str, half: int) -> None:
    """A death of every kind at every point in every phase, once, is survived with each row committed once."""
    # In steps of five, for the victims come in fours: each half has all of them.
    numbered = enumerate(deaths(mode, every=False))
    check_deaths(mode, (faults for number, faults in numbered if number % 5 % 2 == half))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_whoever_dies_at_any_visit_each_row_is_committed_once(mode: str) -> None:
    """The same for every actor, at its first, middle and last visit."""
    check_deaths(mode, deaths(mode, every=True))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_deaths_are_survived_by_other_backends_and_regions(mode: str) -> None:
    """The same with incremental snapshots of a store of files, local copies, and failover by regions."""
    settings = {"state_backend": "lsm", "snapshot": "incremental", "local_recovery": True, "failover": "region"}
    check_deaths(mode, deaths(mode, every=False), **settings)


@pytest.mark.parametrize("heartbeat_timeout_ns", [5_000, 1_000_000_000])
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_a_task_paused_at_any_point_harms_nothing(mode: str, heartbeat_timeout_ns: int) -> None:
    """Paused for 20 us at any point, and whether it is declared dead meanwhile or not, each row is committed once."""
    seen: dict[tuple[str, str], None] = {}
    given_up = 0
    for (point, phase, actor), count in visits(mode).items():
        if actor == JOB_MANAGER or phase == TORN or point.startswith("restore.") or (point, phase) in seen:
            continue
        seen[point, phase] = None
        pause = Fault("pause", actor, point=point, phase=phase, number=(count + 1) // 2, for_ns=20_000)
        finished, injector = ran(mode, pause, heartbeat_timeout_ns=heartbeat_timeout_ns)

        assert (finished.outcome, finished.violations) == ("finished", []), (str(pause), finished.error)
        assert output(finished) == EXPECTED, str(pause)
        assert injector.struck == (pause,)
        given_up += finished.result.attempts > 1
    assert given_up > len(seen) // 2 if heartbeat_timeout_ns == 5_000 else not given_up


def test_every_point_and_phase_is_visited() -> None:
    """A few runs visit every point in every phase that it has."""
    found: set[tuple[str, str]] = set()
    for mode in ("aligned", "unaligned"):
        found |= ran(mode, FIRST, checkpoint_interval="9us", retained=1)[1].points.keys()
    rescale = Fault("rescale", PROCESS, point="notify.send", phase=AFTER, amount=3)
    found |= ran("aligned", rescale)[1].points.keys()
    slow = {"cost.record_ns": 500_000, "checkpoint_interval": "3ms", "cost.slow_links.far": 0}
    backend = {"state_backend": "changelog", "snapshot": "incremental", "materialization_interval_ns": 1_000_000}
    found |= ran("aligned", **slow, **backend)[1].points.keys()
    injector = FaultInjector()
    timed = case_of("aligned")
    config = {**timed.config, "cost.record_ns": 500_000, "checkpoint_interval": "3ms"}
    config = {name: value for name, value in config.items() if not name.startswith("cost.slow_links")}
    run_case(Subject(ticking), replace(timed, config=config), interference=injector)
    found |= injector.points.keys()

    crash = Fault("crash", "count[1]", point="user.process", phase=BEFORE)
    found |= ran("acking", crash, **{"acking.timeout_ns": 500_000})[1].points.keys()

    for sink, death in (("compacting", ()), ("bucketing", sink_deaths.RECOVERING[:1]), ("log", ())):
        case = sink_deaths.case_of("aligned", *death)
        found |= sink_deaths.ran(sink_deaths.subject_of(sink), case)[1].points.keys()

    assert sorted({(name, phase) for name, point in POINTS.items() for phase in point.phases} - found) == []
    assert {phase for _, phase in found} == {BEFORE, AFTER, TORN}


def test_points_of_the_job_manager_are_visited_by_it_alone() -> None:
    """The visiting actor is the one that the point names."""
    _, injector = ran("unaligned", FIRST)

    for point, _, actor in injector.processes.visits:
        if POINTS[point].actor == MASTER or point.startswith("manifest."):
            assert actor == JOB_MANAGER, point
        elif POINTS[point].actor == "task":
            assert actor.endswith("]"), (point, actor)
