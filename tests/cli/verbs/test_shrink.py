"""`weir shrink` and `weir diff`: a failing run made small and explained, from its token or its file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.cases import load_subject
from engine.explore.cases import FIFO, Case
from engine.explore.search import Token, parse_token
from engine.faults.fault import parse_fault
from tests.cli.conftest import Answer, Weir
from tests.explore.failing_job import JOB_FILE
from tests.house.project import ROOT

_SETTINGS = {
    "mode": "at-least-once",
    "batch_size": 2,
    "checkpoint_interval": "2us",
    "cost.slow_links.numbers[1]": 2_500,
}
_CRASH = (parse_fault("crash:count[1]@before:ack.send#2"),)
_DRAWN = Case(seed="3", config=_SETTINGS, faults=_CRASH)
"""At-least-once output, judged by exactly-once: a record behind one barrier is counted twice."""

_SMALL = Case(
    scheduler=FIFO,
    config={"mode": "at-least-once", "batch_size": 1, "cost.slow_links.numbers[1]": 2_500},
    faults=_CRASH,
    checkpoints=(0, 1_000),
    dropped={"numbers/sequence-0-of-2": ((2, 6),), "numbers/sequence-1-of-2": ((0, 6),)},
)
"""The same, spelled out and nearly as small as it gets: there is little left to do."""

_HEALTHY = Case(scheduler=FIFO, config={**_SETTINGS, "mode": "aligned"}, faults=_CRASH)


def _token(case: Case, promise: str = "exactly-once", job: str = "counts.py") -> str:
    return str(Token.of(load_subject(job, {"records": "12"}), case, promise=promise))


def shrink(job: Weir, *arguments: str) -> Answer:
    """`weir shrink`, which on a machine with other things to do takes longer than its usual ten seconds."""
    return job("shrink", *arguments, "--time", "600s")


@pytest.fixture
def job(weir: Weir) -> Weir:
    """The command line in a directory with the job."""
    (weir.directory / "counts.py").write_text(JOB_FILE)
    return weir


def test_a_token_is_shrunk_and_reported(job: Weir) -> None:
    """A line with verdict and size, one with the command, then the story; the exit code says that it stands."""
    answer = shrink(job, _token(_DRAWN))

    assert answer.exit_code == 1
    first = answer.stdout.splitlines()[0]
    assert first.startswith("violated V1: ")
    assert "1 record, 1 fault, 1 checkpoint, 0 choices" in first
    assert "count[1]: dies" in answer.stdout
    assert "1-minimal" in answer.stdout


def test_the_token_of_the_shrunk_run_replays_it(job: Weir) -> None:
    """The command on the second line makes the same violation, and shrinks to itself."""
    answer = shrink(job, _token(_SMALL))
    token = answer.stdout.splitlines()[1].split()[-1]

    again = shrink(job, token)

    assert again.exit_code == 1
    assert again.stdout.splitlines()[1].split()[-1] == token
    assert job("replay", token).exit_code == 1


def test_the_files_are_written_and_can_be_shrunk_again(job: Weir) -> None:
    """`--out` leaves four files; the JSON one stands for the run, as does its directory."""
    answer = shrink(job, _token(_SMALL), "--out", "failure")
    names = sorted(path.name for path in (job.directory / "failure").iterdir())

    assert names == ["failure.html", "failure.json", "failure.txt", "test_regression.py"]
    assert "next: pytest failure/test_regression.py" in answer.stderr
    text = (job.directory / "failure" / "failure.txt").read_text()
    assert text.startswith(answer.stdout)
    assert "replay: weir replay failure/\n" in text
    for name in ("failure/failure.json", "failure"):
        again = shrink(job, name)
        assert again.exit_code == 1
        assert again.stdout.splitlines()[0] == text.splitlines()[0]


def test_the_regression_test_that_is_written_runs(job: Weir) -> None:
    """pytest runs it where it was made: it fails, by the invariant that was violated."""
    shrink(job, _token(_SMALL), "--out", "failure")

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "failure/test_regression.py"],
        cwd=job.directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout
    assert "V1" in ran.stdout


def test_json_is_all_that_is_printed(job: Weir) -> None:
    """With `--json` standard output is the record of the failure, with every choice."""
    recorded = shrink(job, _token(_SMALL), "--json").json()

    assert (recorded["format"], recorded["verdict"]) == ("weir-failure", "violated")
    assert recorded["size"] == {"records": 1, "faults": 1, "checkpoints": 1, "choices": 0, "savepoints": 0}
    assert recorded["choices"]
    assert parse_token(recorded["token"]).promise == "exactly-once"


def test_a_run_that_does_not_fail_is_unknown(job: Weir) -> None:
    """There is nothing to shrink and nothing to compare: exit code 2."""
    token = _token(_HEALTHY)

    assert shrink(job, token).exit_code == 2
    assert job("diff", token).exit_code == 2


def test_another_promise_can_be_asked_for(job: Weir) -> None:
    """Judged by what its mode promises, the run keeps it; judged by exactly-once, it does not."""
    token = _token(_SMALL, promise="at-least-once")

    assert shrink(job, token).exit_code == 2
    assert shrink(job, token, "--promise", "exactly-once").exit_code == 1


def test_a_small_budget_is_kept_and_said(job: Weir) -> None:
    """With three runs nothing is minimal, and the report does not say so."""
    answer = shrink(job, _token(_SMALL), "--runs", "3")

    assert answer.exit_code == 1
    assert "not shown to be 1-minimal" in answer.stdout


def test_the_nearest_passing_run_is_named(job: Weir) -> None:
    """One token: the difference, and the passing run."""
    token = shrink(job, _token(_SMALL)).stdout.splitlines()[1].split()[-1]

    answer = job("diff", token)

    assert answer.exit_code == 1
    assert "the nearest passing run: without fault crash:count[1]@" in answer.stdout
    assert "count[1]: dies" in answer.stdout
    assert "in mode aligned instead of at-least-once" in answer.stdout


def test_two_runs_are_compared(job: Weir) -> None:
    """Two tokens: where they part and what they commit; a run beside itself is the same run."""
    one, other = _token(_SMALL), _token(_HEALTHY)

    answer = job("diff", one, other)

    assert answer.exit_code == 1
    assert "the same for" in answer.stdout
    assert "first: V1" in answer.stdout
    assert "second: no violation" in answer.stdout
    assert job("diff", one, one).exit_code == 0


def test_runs_of_two_jobs_are_not_compared(job: Weir) -> None:
    """An event of one job is none of another."""
    (job.directory / "other.py").write_text(JOB_FILE.replace('"count"', '"tally"'))
    case = Case(scheduler=FIFO)

    answer = job("diff", _token(case), _token(case, job="other.py"))

    assert answer.exit_code == 11
    assert "different jobs" in answer.stderr


@pytest.mark.parametrize("name", ["nowhere.json", "weir2.torn", "nonsense"])
def test_what_stands_for_no_run_is_refused(job: Weir, name: str) -> None:
    """A missing file and a torn token are errors, not runs of something else."""
    answer = shrink(job, name)

    assert answer.exit_code == 11
    assert "error:" in answer.stderr


def test_a_failure_that_was_edited_is_refused(job: Weir) -> None:
    """The text of the file must agree with its token."""
    shrink(job, _token(_SMALL), "--out", "failure")
    path = Path(job.directory / "failure" / "failure.json")
    recorded = json.loads(path.read_text())
    path.write_text(json.dumps({**recorded, "job_fingerprint": "0123456789abcdef"}))

    answer = shrink(job, "failure/failure.json")

    assert answer.exit_code == 11
    assert "its job_fingerprint is not that of its token" in answer.stderr
