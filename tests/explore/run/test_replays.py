"""Replay: the same case does the same, a hundred times, in every process, under every hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.explore.run.footprints import case_of, footprint, standard

ROOT = Path(__file__).resolve().parents[3]
SEEDS = [f"replays/{number}" for number in range(20)]


def elsewhere(hash_seed: str, seeds: list[str]) -> list[str]:
    """The footprints that a process with another hash seed prints."""
    command = [sys.executable, "-m", "tests.explore.run.footprints", *seeds]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def check_replays(seeds: list[str], times: int) -> None:
    """Every replay of a seed leaves the very same choices, events, files and output."""
    subject = standard()
    for seed in seeds:
        case = case_of(subject, seed)
        first = footprint(subject, case)
        for _ in range(times - 1):
            assert footprint(subject, case).differences(first) == (), seed


def test_a_few_replays_of_a_few_seeds() -> None:
    """Five seeds of the standard scenario, four times each: one footprint per seed."""
    check_replays(SEEDS[:5], 4)


@pytest.mark.slow
def test_a_hundred_replays_of_twenty_seeds() -> None:
    """Twenty seeds, a hundred times each: one footprint per seed, down to the bytes of the snapshot files."""
    check_replays(SEEDS, 100)


def test_other_processes_and_hash_seeds() -> None:
    """Processes with other hash seeds print the same footprints; and a case made exact is the same run as drawn."""
    first = elsewhere("1", SEEDS[:3])
    assert elsewhere("2", SEEDS[:3]) == first
    assert all(line.endswith(" True") for line in first)


@pytest.mark.slow
def test_twenty_seeds_under_other_hash_seeds() -> None:
    """The same for all twenty seeds and five hash seeds."""
    first = elsewhere("0", SEEDS)
    for hash_seed in ("1", "7", "42", "random"):
        assert elsewhere(hash_seed, SEEDS) == first
