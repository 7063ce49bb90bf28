"""A process killed with SIGKILL at any instant and resumed leaves the output of a run without kills."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.processes import KilledRun, expected_rows, seconds

RECORDS = 120_000
SOONEST = 0.15
"""Share of an undisturbed run that passes before the first possible kill: most of it is Python starting up."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[float, dict[str, list[str]]]:
    """How long a run without a kill takes, and its committed rows."""
    run = KilledRun(tmp_path_factory.mktemp("undisturbed"), RECORDS)
    duration_s = seconds(run)
    return duration_s, run.committed()


def test_the_undisturbed_run_is_right(undisturbed: tuple[float, dict[str, list[str]]]) -> None:
    """The reference equals the result of a loop over the input, and the run takes long enough to be killed."""
    duration_s, committed = undisturbed

    assert committed == expected_rows(RECORDS)
    assert duration_s > 0.5


def test_killed_five_times_in_a_row(tmp_path: Path, undisturbed: tuple[float, dict[str, list[str]]]) -> None:
    """Start and every resume but the last are killed, each a little further on: the output is that of one run."""
    _, expected = undisturbed
    instants = random.Random("five kills")
    run = KilledRun(tmp_path, RECORDS)

    for checkpoint_id in (6, 13, 20, 27, 34):
        assert not run.kill_behind_checkpoint(checkpoint_id, later_s=instants.uniform(0, 0.03))
    assert run.go_on()

    assert run.committed() == expected
    assert run.kills == run.resumes == 5
    assert run.checkpoints_found == sorted(run.checkpoints_found)
    assert run.checkpoints_found[0] >= 6
    assert run.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_a_random_instant(seed: int, tmp_path: Path, undisturbed: tuple[float, dict[str, list[str]]]) -> None:
    """Killed somewhere in its run, and once more while it resumes, the job has the same output."""
    kill_and_resume(seed, tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_killed_at_twenty_random_instants(
    seed: int, tmp_path: Path, undisturbed: tuple[float, dict[str, list[str]]]
) -> None:
    """The same at twenty seeded instants, spread over the whole run."""
    kill_and_resume(seed, tmp_path, undisturbed)


def kill_and_resume(seed: int, directory: Path, undisturbed: tuple[float, dict[str, list[str]]]) -> None:
    """One start and, for every other seed, one resume are killed; then the job runs to its end."""
    duration_s, expected = undisturbed
    instants = random.Random(seed)
    run = KilledRun(directory, RECORDS)

    finished = run.go_on(kill_after_s=instants.uniform(SOONEST, 1.0) * duration_s)
    if not finished and seed % 2:
        finished = run.go_on(kill_after_s=instants.uniform(SOONEST, 0.8) * duration_s)
    if not finished:
        assert run.go_on()

    assert run.committed() == expected
    assert run.leftovers() == []


def test_a_finished_run_resumed_adds_nothing(tmp_path: Path, undisturbed: tuple[float, dict[str, list[str]]]) -> None:
    """A resume after the end has no work to do."""
    del undisturbed
    run = KilledRun(tmp_path, 2_000)

    assert run.go_on()
    assert run.go_on()

    assert run.resumes == 1
    assert run.committed() == expected_rows(2_000)
