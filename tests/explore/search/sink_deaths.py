"""Deaths of sinks at every step that they come by: cases, one for each place, and the table of how many there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.explore.cases import FIFO, Case, Setting
from engine.explore.invariants import invariants_for
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import Fault, parse_fault
from engine.faults.injector import FaultInjector
from engine.faults.process import is_torn_by
from engine.graph.job import Job
from engine.observe.points import TORN
from examples import sinks

RECORDS = 24
CONFIG: Mapping[str, Setting] = {
    "batch_size": 3,
    "checkpoint_interval": "7rec",
    "cost.record_ns": 400,
    "heartbeat_timeout_ns": 5_000,
}
MODES = ("aligned", "unaligned", "at-least-once")
PROCESS = "process"
POINTS = (
    "user.process", "sink.write", "sink.open", "sink.fsync", "sink.rename", "sink.dir-fsync", "sink.truncate",
    "sink.delete", "sink.request", "operator.prepare", "operator.finish", "sink.pre-commit", "ack.send",
    "manifest.rename", "notify.send", "sink.commit", "sink.abort", "restore.recover-and-commit", "user.close",
)  # fmt: skip
"""Steps of sinks, and those around them between which a checkpoint becomes one, in the order of a checkpoint."""

RECOVERING = ("crash:process@before:notify.send#2", "crash:process@after:operator.finish#2")
"""Deaths to recover from: with parts open, and with everything waiting to be committed for the last time."""


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a run, in one phase: the first time that a sink comes by, or the last."""

    point: str
    phase: str
    number: int


def subject_of(sink: str, records: int = RECORDS) -> Subject:
    """The job of a sink; what has no parallelism of its own can be resumed with another one."""

    def build(parallelism: int | None) -> Job:
        return sinks.job(sink, str(records), parallelism)

    return Subject(build, label=f"sink-{sink}")


def case_of(mode: str, *faults: str | Fault, **settings: Setting) -> Case:
    """First come, first served, with these faults."""
    exact = tuple(parse_fault(one) if isinstance(one, str) else one for one in faults)
    return Case(config={**CONFIG, "mode": mode, **settings}, faults=exact, scheduler=FIFO)


def ran(subject: Subject, case: Case) -> tuple[FinishedCase, FaultInjector]:
    injector = FaultInjector(case.faults)
    return run_case(subject, case, invariants_for(), interference=injector), injector


def visits(subject: Subject, mode: str, *before: str) -> dict[tuple[str, str], int]:
    """How often tasks come to each point in each phase: in a run without faults, or after some."""
    _, injector = ran(subject, case_of(mode, *before))
    return {key: count for key, count in sorted(injector.points.items()) if key[0] in POINTS}


def places(subject: Subject, mode: str, *before: str) -> list[Place]:
    """The first and the last visit of each, those in the middle of commits and restores too."""
    calm = visits(subject, mode)
    found = []
    for (point, phase), count in visits(subject, mode, *before).items() if before else calm.items():
        # What comes before the first death was done by those without one.
        first = calm.get((point, phase), 0) + 1 if before and count > calm.get((point, phase), 0) else 1
        found += [Place(point, phase, number) for number in sorted({first, (first + count) // 2, count})]
    return found


def deaths(places_: list[Place], victims: tuple[str, ...] = ("*", PROCESS)) -> Iterator[Fault]:
    """Deaths of the task that comes by, and of the whole process, at each place."""
    for place in places_:
        for victim in victims:
            death = Fault("crash", victim, point=place.point, phase=place.phase, number=place.number)
            if place.phase != TORN or is_torn_by(death):
                yield death


def problem(subject: Subject, case: Case) -> str | None:
    """The problem of a case, if it has one."""
    finished, injector = ran(subject, case)
    told = ", ".join(map(str, case.faults))
    if finished.violations:
        return f"{subject.label} in mode {case.config['mode']} with {told}: {finished.violations[0]}"
    if finished.outcome != "finished":
        return f"{subject.label} in mode {case.config['mode']} with {told}: {finished.outcome}, {finished.error}"
    if not injector.struck:
        return f"{subject.label} in mode {case.config['mode']}: {told} never struck"
    return None
