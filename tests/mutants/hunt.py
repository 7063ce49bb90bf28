"""The search for one mutant: a campaign over its job, with its mistake switched on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from engine.cli.cases import load_subject_and_scenario
from engine.cli.verbs.explore import _promise_beyond, _swarm
from engine.elements.errors import ConfigurationError
from engine.explore.run import Bounds
from engine.explore.search import CampaignOrder, CampaignReport, Swarm, explore
from tests.mutants.areas import AreaMutant
from tests.mutants.mutant import Mutant

MOST_RUNS = 1_000

MOST_ATTEMPTS = 50
"""Of one run: with some mistakes a job is restarted for ever."""

MOST_SECONDS = 60.0
"""For a mutant of an area. Of the processor: on a machine that does nothing else it is what the clock on the wall
says."""

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Catch:
    """What a search has found: after how many runs (from 1), in how many seconds, and what the report named."""

    runs: int
    seconds: float
    invariant: str
    text: str
    report: CampaignReport | None


@dataclass(frozen=True)
class AreaCatch:
    """What came of the hunt for a mutant of an area: how many runs were made, in how many seconds of the processor, and
    what the report named: ``None`` when it named nothing, and ``text`` is its verdict then."""

    runs: int
    seconds: float
    invariant: str | None
    text: str


def campaign_of(mutant: Mutant, runs: int = MOST_RUNS, seed: str = "mutants") -> CampaignOrder:
    swarm = Swarm(mutant.modes, mutant.config, mutant.kinds)
    return CampaignOrder(seed, runs=runs, swarm=swarm, bounds=Bounds(attempts=MOST_ATTEMPTS))


def hunt(mutant: Mutant, runs: int = MOST_RUNS, seed: str = "mutants") -> Catch | None:
    """Search for a mutant; returns ``None`` if no run noticed it."""
    if mutant.in_other_processes:
        return _hunt_in_other_processes(mutant, seed)
    subject = mutant.subject()
    # The search measures the expected output and the length of the job before the mistake is switched on.
    subject.reference()
    subject.measure()
    with mutant.patch():
        report = explore(lambda: subject, campaign_of(mutant, runs, seed))
    if not report.failures:
        return None
    failure = report.failures[0]
    return Catch(failure.number + 1, report.seconds, failure.violation.invariant, failure.violation.text, report)


def hunt_in_area(mutant: AreaMutant, seconds: float = MOST_SECONDS, seed: str = "0") -> AreaCatch:
    """Search the example of a mutant as ``weir explore EXAMPLE --time 60s`` does. The mistake is there from the start:
    what the output ought to be, too, is found out by the engine that makes it."""
    started = time.process_time()

    def catch(runs: int, invariant: str | None, text: str) -> AreaCatch:
        return AreaCatch(runs, time.process_time() - started, invariant, text)

    with mutant.patch():
        subject, scenario = load_subject_and_scenario(str(ROOT / mutant.example), dict(mutant.params))
        swarm = _swarm(scenario, (), (), {})
        promise = _promise_beyond(scenario, swarm.modes)
        order = CampaignOrder(seed, runs=None, seconds=seconds, swarm=swarm, promise=promise)
        try:
            report = explore(lambda: subject, order, clock=time.process_time)
        except ConfigurationError as refused:
            return catch(0, None, str(refused))
        if not report.failures:
            return catch(report.coverage.runs, None, report.verdict[1])
        failure = report.failures[0]
        return catch(failure.number + 1, failure.violation.invariant, failure.violation.text)


def _hunt_in_other_processes(mutant: Mutant, seed: str) -> Catch | None:
    """Make a run in processes with other hash seeds, and compare their digests."""
    started = time.monotonic()
    found = {hash_seed: _digest_elsewhere(mutant, seed, hash_seed) for hash_seed in ("1", "2", "3")}
    seconds = time.monotonic() - started
    if len(set(found.values())) == 1:
        return None
    return Catch(len(found), seconds, "V16", f"the digest depends on PYTHONHASHSEED: {found}", None)


def _digest_elsewhere(mutant: Mutant, seed: str, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.mutants.digest", mutant.name, seed]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()
