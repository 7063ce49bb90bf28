"""How fast jobs are searched: cases per minute on one core, and the time to make a failing case small.

The job is the standard scenario: 80 records, three checkpoints, a transactional sink. ``undisturbed`` runs it under
one schedule after the other; ``a crash`` has somebody die somewhere in every case; ``a campaign`` is what ``weir
explore`` does, with configurations, schedules and faults of all kinds drawn, and every twentieth run made twice. The
last shrinks a run in mode at-least-once that counts a record twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.measure import Result, at_least, below, now
from engine.cli.subjects import load_subject, load_subject_and_scenario
from engine.explore.campaign import CampaignOrder, explore
from engine.explore.case import Case
from engine.explore.concrete import concretised
from engine.explore.invariant import Invariant
from engine.explore.invariants import invariants_for
from engine.explore.runner import run_case
from engine.explore.shrink import Budget, shrink
from engine.explore.subject import Subject
from engine.faults.fault import FaultMix, parse_fault

EXACTLY_ONCE = "exactly-once"
STANDARD = str(Path(__file__).parents[1] / "examples/standard_scenario.py")
_UNIT = "cases per minute"
_CRASH = FaultMix({"crash": 20_000}, most=1)


def measure(quick: bool) -> list[Result]:
    """The lines of the table."""
    count, rounds = (30, 3) if quick else (300, 5)
    subject, scenario = load_subject_and_scenario(STANDARD, {})
    plain = [replace(scenario.case(), seed=str(number)) for number in range(count)]
    crashing = [replace(case, mix=_CRASH) for case in plain]
    run_case(subject, plain[0], invariants_for())  # the plan and the reference are made once
    no_invariants: Callable[[], Sequence[Invariant]] = tuple
    trials = {
        "undisturbed, no invariants": partial(_cases, subject, plain, no_invariants),
        "undisturbed": partial(_cases, subject, plain, invariants_for),
        "a crash in each": partial(_cases, subject, crashing, invariants_for),
        "a campaign": partial(_campaign, count),
    }
    goals = {"a crash in each": at_least(6_000), "a campaign": at_least(6_000)}
    results = [
        Result(f"explore, {name}", _UNIT, tuple(60 * count / trial() for _ in range(rounds)), goals.get(name))
        for name, trial in trials.items()
    ]
    return [*results, _shrinking(subject, scenario.case("at-least-once"), rounds)]


def _cases(subject: Subject, cases: Sequence[Case], invariants: Callable[[], Sequence[Invariant]]) -> float:
    start = now()
    for case in cases:
        finished = run_case(subject, case, invariants())
        assert finished.is_over, finished.outcome
        assert not finished.violations, finished.violations
    return now() - start


def _campaign(count: int) -> float:
    start = now()
    report = explore(partial(load_subject, STANDARD, {}), CampaignOrder(runs=count, keep_going=True))
    seconds = now() - start
    assert report.coverage.runs == count, report.coverage.runs
    return seconds


def _shrinking(subject: Subject, case: Case, rounds: int) -> Result:
    """Seconds to make as many failures small, each of another schedule."""
    crash = parse_fault("crash:process@after:notify.send#1")
    slow = replace(case.with_config(**{"cost.slow_links.second": 9_000}), faults=(crash,))
    samples: list[float] = []
    runs = 0
    for number in range(rounds):
        failing = concretised(run_case(subject, replace(slow, seed=str(number)), _judge(slow)))
        start = now()
        shrunk = shrink(subject, failing, _judge, budget=Budget(runs=300, seconds=60.0))
        samples.append(now() - start)
        assert shrunk is not None, "the run judges itself exactly-once, and is not"
        runs = max(runs, shrunk.runs)
    return Result("explore, shrinking a record counted twice", "s", tuple(samples), below(10.0), {"most_runs": runs})


def _judge(case: Case) -> Sequence[Invariant]:
    return invariants_for(EXACTLY_ONCE)
