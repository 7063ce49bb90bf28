"""The search for one mutant: a campaign over its job, with its mistake switched on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from engine.explore.campaign import CampaignOrder, CampaignReport, explore
from engine.explore.runner import Bounds
from engine.explore.swarm import Swarm
from tests.mutants.mutant import Mutant

MOST_RUNS = 1_000

MOST_ATTEMPTS = 50
"""Of one run: with some mistakes a job is restarted for ever."""

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Catch:
    """What a search has found: after how many runs (from 1), in how many seconds, and what the report named."""

    runs: int
    seconds: float
    invariant: str
    text: str
    report: CampaignReport | None


def campaign_of(mutant: Mutant, runs: int = MOST_RUNS, seed: str = "mutants") -> CampaignOrder:
    """What is asked of the search."""
    swarm = Swarm(mutant.modes, mutant.config, mutant.kinds)
    return CampaignOrder(seed, runs=runs, swarm=swarm, bounds=Bounds(attempts=MOST_ATTEMPTS))


def hunt(mutant: Mutant, runs: int = MOST_RUNS, seed: str = "mutants") -> Catch | None:
    """Search for a mutant; ``None`` when no run noticed it."""
    if mutant.in_other_processes:
        return _hunt_in_other_processes(mutant, seed)
    subject = mutant.subject()
    # What its output ought to be, and how long it takes, is known before the mistake is made.
    subject.reference()
    subject.measure()
    with mutant.patch():
        report = explore(lambda: subject, campaign_of(mutant, runs, seed))
    if not report.failures:
        return None
    failure = report.failures[0]
    return Catch(failure.number + 1, report.seconds, failure.violation.invariant, failure.violation.text, report)


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
