"""How fast jobs are searched: cases per minute on one core, what a case costs beside one of a bare model, and the times
to make a failing case small and to check a small job exhaustively.

The job is the standard scenario: 80 records, three checkpoints, a transactional sink. ``undisturbed`` runs it under
one schedule after the other; ``a crash`` has chances for one death in every case, and nearly all have it;
``a campaign`` is what ``weir explore`` does, with configurations, schedules and faults of all kinds drawn, and every
twentieth run made twice. What is made once, such as the reference output, is made before. Each of these is measured in
turns with the yardstick, cases of :mod:`benchmarks.bare_model`: machines differ in cases per minute, and much less in
the ratio. ``shrinking`` is of a run in
mode at-least-once that counts a record twice; ``checking`` of each teaching scenario in the first of its modes, as
``weir check`` does it: one that is not over within a minute says so (``complete``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.bare_model import bare_case, expected_rows
from benchmarks.measure import Paired, Result, Trial, at_least, below, interleaved, now
from engine.cli.cases import load_subject_and_scenario
from engine.explore.cases import Case
from engine.explore.check import CheckOrder, check
from engine.explore.invariants import invariants_for
from engine.explore.run import Invariant, Subject, run_case
from engine.explore.search import CHUNK_RUNS, CampaignOrder, Explorer, garbage_kept
from engine.explore.shrink import Budget, concretised, shrink
from engine.faults.fault import FaultMix, parse_fault

EXACTLY_ONCE = "exactly-once"
_EXAMPLES = Path(__file__).parents[1] / "examples"
STANDARD = str(_EXAMPLES / "standard_scenario.py")
TEACHING = ("counting", "finishing", "in_flight", "rescaling", "timers", "two_phase_commit", "windows")
_UNIT, _RATIO = "cases per minute", "× time of a bare case"
_BARE_TIMES = 10
"""A case of the bare model is so short that so many are set against one of the engine's."""
_CRASH = FaultMix({"crash": 20_000}, most=1)


def measure(quick: bool) -> list[Result]:
    """The lines of the table."""
    count, rounds = (40, 3) if quick else (300, 5)
    subject, scenario = load_subject_and_scenario(STANDARD, {})
    plain = [replace(scenario.case(), seed=str(number)) for number in range(count)]
    crashing = [replace(case, mix=_CRASH) for case in plain]
    run_case(subject, plain[0], invariants_for())  # the plan and the reference are made once
    explorer = Explorer(subject, CampaignOrder(keep_going=True))
    no_invariants: Callable[[], Sequence[Invariant]] = tuple
    trials: dict[str, Trial] = {
        "undisturbed, no invariants": partial(_cases, subject, plain, no_invariants),
        "undisturbed": partial(_cases, subject, plain, invariants_for),
        "a crash in each": partial(_cases, subject, crashing, invariants_for),
        "a campaign": partial(_campaign, explorer, count),
    }
    measured = interleaved(partial(_bare_cases, count), trials, rounds)
    results = [result for name, paired in measured.items() for result in _beside_the_model(name, paired, count)]
    shrinking = _shrinking(subject, scenario.case("at-least-once"), rounds)
    return [*results, shrinking, *map(_checking, TEACHING)]


def _bare_cases(count: int) -> float:
    """Seconds for ``count`` cases of the yardstick."""
    expected = expected_rows()
    start = now()
    for seed in range(count * _BARE_TIMES):
        assert bare_case(seed) == expected, seed
    return (now() - start) / _BARE_TIMES


def _beside_the_model(name: str, paired: Paired, count: int) -> list[Result]:
    goal = at_least(6_000) if name in ("a crash in each", "a campaign") else None
    cases = tuple(60 * count / seconds for seconds in paired.seconds)
    bare = round(60 * count / median(paired.reference_seconds))
    return [
        Result(f"explore, {name}", _UNIT, cases, goal, {"bare_model_cases_per_minute": bare}),
        Result(f"explore, {name}", _RATIO, tuple(1 / speed for speed in paired.speed_ratios)),
    ]


def _cases(subject: Subject, cases: Sequence[Case], invariants: Callable[[], Sequence[Invariant]]) -> float:
    start = now()
    for first in range(0, len(cases), CHUNK_RUNS):
        with garbage_kept() as collect:
            for case in cases[first : first + CHUNK_RUNS]:
                finished = run_case(subject, case, invariants())
                assert finished.is_over, finished.outcome
                assert not finished.violations, finished.violations
                del finished
                collect()
    return now() - start


def _campaign(explorer: Explorer, count: int) -> float:
    start = now()
    for first in range(0, count, CHUNK_RUNS):
        chunk = explorer.chunk(first, CHUNK_RUNS)
        assert chunk.coverage.runs == CHUNK_RUNS, chunk.coverage.runs
        assert not chunk.failures, chunk.failures[0]
    return now() - start


def _checking(name: str) -> Result:
    """Seconds to try every schedule and every death of a teaching scenario in the first of its modes."""
    subject, scenario = load_subject_and_scenario(str(_EXAMPLES / f"teaching/{name}.py"), {})
    case = scenario.case()
    config = {**case.config, "batch_size": 1, "cost.source_record_ns": 0}
    config.pop("checkpoint_interval", None)
    begun = 1 if scenario.checkpoints is None else scenario.checkpoints
    order = CheckOrder(replace(case, config=config, checkpoints=(0,) * begun), faults=scenario.crashes)
    start = now()
    report = check(subject, order)
    seconds, found = now() - start, report.found
    assert report.verdict[0] != "violated", report.verdict
    details = {"states": found.states, "transitions": found.transitions, "complete": found.is_complete}
    return Result(f"explore, checking {name}", "s", (seconds,), below(30.0), details)


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
