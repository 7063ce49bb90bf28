"""The last line of a run proposes a command, but never one that must fail again."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.conftest import BRISK, Answer, Weir

RAISES = """
from engine import CollectionSource, FileSink, Job


def parse(value):
    return 1 // (value - 3)


def job():
    job = Job("bad")
    job.source(CollectionSource([1, 2, 3])).map(parse, name="parse").sink(FileSink("rows"))
    return job
"""


def following(answer: Answer) -> str:
    return answer.last_line.partition(" Next: ")[2]


def typed(weir: Weir, answer: Answer) -> Answer:
    name, *arguments = shlex.split(following(answer))
    assert name == "weir"
    return weir(*arguments)


@pytest.fixture
def raises(weir: Weir) -> Weir:
    """The command line beside a job file whose function raises at the third record."""
    (weir.directory / "bad.py").write_text(RAISES)
    return weir


@pytest.mark.parametrize("options", [(), ("--restart", "none"), ("--kill", "parse@1us")])
def test_a_job_that_must_fail_again_has_to_be_fixed_first(raises: Weir, options: tuple[str, ...]) -> None:
    """Whether a fault struck, too, or not."""
    answer = raises("run", "bad.py", *options)

    assert answer.exit_code == 12
    assert following(answer).startswith("fix the cause, then weir run ")


def test_a_storage_directory_is_resumed_once_the_cause_is_fixed(raises: Weir) -> None:
    """Also after a resume that failed again; then the proposed command comes out well."""
    first = raises("run", "bad.py", "--storage", "state")
    again = raises("resume", "state")
    (raises.directory / "bad.py").write_text(RAISES.replace("value - 3", "value - 4"))

    assert following(first) == following(again) == f"fix the cause, then weir resume {raises.directory / 'state'}"
    assert raises(*shlex.split(following(again).partition("then weir ")[2])).exit_code == 0


def test_after_a_fault_that_no_restart_survived_the_run_goes_without_it(weir: Weir) -> None:
    """The same command would be struck again."""
    answer = weir("run", "sums.py", *BRISK, "--kill", "sum@50us", "--restart", "none")

    assert answer.exit_code == 18
    assert "--kill" not in following(answer)
    assert typed(weir, answer).exit_code == 0


def test_the_kill_that_is_proposed_is_survived(weir: Weir) -> None:
    """A run that may not restart is proposed with a kill and with restarts."""
    answer = weir("run", "sums.py", "--restart", "none")
    killed = typed(weir, answer)

    assert "--restart" not in following(answer)
    assert killed.exit_code == 0
    assert "was killed" in killed.stderr


def test_the_storage_directory_that_is_proposed_is_free(weir: Weir) -> None:
    """One that exists may hold another run, and would be refused."""
    (weir.directory / "state").mkdir()
    answer = weir("run", "sums.py", "--kill", "sum@50us")

    assert following(answer).endswith("--storage state-2")
    assert typed(weir, answer).exit_code == 0


def test_a_savepoint_that_came_too_late_is_proposed_earlier(weir: Weir) -> None:
    """In the middle of the run, where it is taken."""
    answer = weir("run", "sums.py", *BRISK, "--savepoint-at", "5s")

    assert answer.exit_code == 2
    assert typed(weir, answer).exit_code == 0


def test_a_savepoint_that_failed_would_fail_again(weir: Weir) -> None:
    """The obstacle has to go first."""
    (weir.directory / "file").touch()
    answer = weir("run", "sums.py", *BRISK, "--savepoint-at", "50us", "--savepoint-dir", "file")

    assert answer.exit_code == 2
    assert following(answer).startswith("fix the cause, then weir run ")


def test_an_error_of_every_attempt_is_told_once(raises: Weir) -> None:
    """With how many attempts it ended; the report does not repeat it in its notes either."""
    answer = raises("run", "bad.py", "--json")

    assert answer.stderr.count("ZeroDivisionError") == 1
    assert "failed in attempt 4, like attempts 1 to 3 (" in answer.stderr
    assert not any("ZeroDivisionError" in note for note in answer.json()["notes"])
