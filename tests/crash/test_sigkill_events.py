"""Real processes with joins, requests and patterns, killed at seeded instants and resumed: no pair, answer or match is
lost or comes twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.jobs.event_job import expected_rows
from tests.crash.processes import KilledRun

RECORDS = 4_000
EVERY = 400
CHECKPOINTS = 2 * RECORDS // EVERY


class EventRun(KilledRun):
    """The job of joins, requests and patterns; in each process, a task dies as well."""

    job_file = Path(__file__).with_name("jobs") / "event_job.py"

    def __init__(self, directory: Path, mode: str, *kills: str) -> None:
        every_time = [part for kill in kills for part in ("--kill", kill)]
        options = ("--mode", mode, "--checkpoint-interval", f"{EVERY}rec")
        super().__init__(directory, RECORDS, *options, every_time=every_time)

    def check(self) -> None:
        """The conditions at the end of the job."""
        assert self.kills
        assert self.committed() == expected_rows(RECORDS)
        assert self.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_killed_between_checkpoints_and_while_it_recovers(mode: str, tmp_path: Path) -> None:
    """Three kills, one of them in the middle of a restore; each process also loses a task with requests in flight."""
    instants = random.Random(mode)
    run = EventRun(tmp_path, mode, "fees[0]@700us")

    assert not run.kill_behind_checkpoint(instants.randint(3, CHECKPOINTS // 2), instants.uniform(0, 0.03))
    assert not run.kill_behind_start(instants.uniform(0, 0.04))
    run.kill_behind_checkpoint(CHECKPOINTS * 3 // 4, instants.uniform(0, 0.03))
    assert run.go_on()

    run.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["aligned", "unaligned"])
def test_killed_at_seeded_instants(mode: str, seed: int, tmp_path: Path) -> None:
    """Up to five kills: right after a start, and after any checkpoint that was not reached before."""
    instants = random.Random(f"{mode} {seed}")
    victims = ("fees[1]@400us", "interval-join@900us") if seed % 2 else ("pattern[0]@600us",)
    run = EventRun(tmp_path, mode, *victims)
    finished = False
    for _ in range(5):
        if finished:
            break
        if instants.random() < 0.4:
            finished = run.kill_behind_start(instants.uniform(0, 0.08))
        else:
            wanted = run.newest_checkpoint() + instants.randint(1, 5)
            finished = run.kill_behind_checkpoint(wanted, instants.uniform(0, 0.05))
    if not finished:
        assert run.go_on()

    run.check()
