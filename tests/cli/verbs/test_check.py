"""`weir check`: every schedule and every crash of a small job, and the report on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Weir

SMALL = '''
"""Counts per key from two sources of one or two records each."""

from __future__ import annotations

from engine import CollectedResults, Job, SequenceSource

SCENARIO = {"modes": ["aligned", "at-least-once"], "crashes": 1, "checkpoints": 1}


def job(records: str = "1") -> Job:
    job = Job("small", max_parallelism=8)
    left = job.source(SequenceSource(0, int(records)), name="left", uid="left", parallelism=1)
    right = job.source(SequenceSource(0, int(records)), name="right", uid="right", parallelism=1)
    pairs = left.union(right).key_by(lambda number: number % 2, value=lambda number: (number % 2, 1))
    counts = pairs.reduce(lambda one, two: (one[0], one[1] + two[1]), name="count", uid="count", parallelism=2)
    counts.collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
    return job
'''

LOUD = """
from engine import CollectedResults, Job, SequenceSource


def job() -> Job:
    job = Job("loud")
    numbers = job.source(SequenceSource(0, 1), name="numbers", uid="numbers", parallelism=1)
    numbers.collect(CollectedResults(transactional=False), name="out", uid="out", parallelism=1, chain=False)
    return job
"""

PRINTS = """
from engine import CollectionSource, Job


def shown(value):
    print("printed on purpose", value)
    return value


print("printed on purpose by the file")
job = Job("prints")
job.source(CollectionSource([1])).map(shown).print()
"""

ROWS = """
from engine import CollectionSource, Job

job = Job("rows")
stream = job.source(CollectionSource([1]))
for number in range(3000):
    stream = stream.rebalance().map(lambda value: value)
stream.print()
"""


@pytest.fixture
def small(weir: Weir) -> Weir:
    """The command line beside ``small.py``."""
    Path("small.py").write_text(SMALL)
    return weir


def test_a_correct_job(small: Weir) -> None:
    """Exit code 0, the number of endings, and the extent of the search; the same as JSON."""
    answer = small("check", "small.py", "--crashes", "0", "--json")
    assert answer.exit_code == 0, answer.stderr
    assert "the one ending is exactly-once" in answer.stderr
    assert re.search(r"states=\d+ transitions=\d+ kept=0\.\d+ faults_tried=0 frontier=0 endings=1", answer.stderr)
    assert answer.json()["verdict"] == "valid"
    assert answer.json()["endings"][0]["committed"] == {"out": ["(0, 1)", "(0, 2)"]}
    assert answer.json()["token"] is None


def test_a_wrong_ending_is_told_and_can_be_replayed(small: Weir) -> None:
    """Exit code 1, a story, files, and a token; weir replay takes either."""
    Path("loud.py").write_text(LOUD)
    answer = small("check", "loud.py", "--mode", "none", "--checkpoints", "0", "--out", "wrong", "--json")
    assert answer.exit_code == 1, answer.stderr
    assert "with one fault the output is not exactly-once" in answer.stderr
    assert "strikes" in answer.stderr
    assert (Path("wrong") / "failure.json").exists()
    assert (Path("wrong") / "check.json").exists()
    token = answer.json()["token"]
    assert answer.last_line.endswith("Next: weir replay wrong/")
    for name in (token, "wrong/"):
        again = small("replay", name, "--no-story")
        assert again.exit_code == 1, again.stderr


@pytest.mark.slow
def test_one_search_two_judgements(small: Weir) -> None:
    """At-least-once counts twice after a crash; the output also says that its own promise holds."""
    options = ("--mode", "at-least-once", "--param", "records=2", "--time", "3m")
    answer = small("check", "small.py", *options, "--json")
    assert answer.exit_code == 1, answer.stderr
    assert "with one fault the output is not exactly-once" in answer.stderr
    assert "what mode at-least-once promises, at-least-once, holds in all endings" in answer.stderr
    assert answer.json()["own_promise_holds"] is True


def test_the_weaker_promise_holds(small: Weir) -> None:
    """Output that keeps the promise of its mode is not a violation."""
    options = ("--mode", "at-least-once", "--promise", "at-least-once", "--crashes", "0")
    answer = small("check", "small.py", *options)
    assert answer.exit_code == 0, answer.stderr


def test_a_bound_is_named_and_raised(small: Weir) -> None:
    """A search that is given up is exit code 2; it names the bound and the whole command that raises it."""
    asked = ("--crashes", "0", "--checkpoints", "2", "--set", "parallelism=1", "--param", "records=2")
    answer = small("check", "small.py", *asked, "--promise", "at-least-once", "--max-states", "3")
    assert answer.exit_code == 2
    assert "unknown: the search stopped at its bound of 3 states (--max-states): " in answer.last_line
    assert answer.last_line.endswith(
        "small.py --mode aligned --param records=2 --promise at-least-once --checkpoints 2 --set parallelism=1"
        " --crashes 0 --time 60s --max-states 30"
    )
    answer = small("check", "small.py", "--time", "1ms", "--faults", "lose", "--no-reduction")
    assert answer.exit_code == 2
    assert "unknown: the search stopped at its bound of 0.001 s (--time)" in answer.last_line
    assert answer.last_line.endswith("small.py --mode aligned --faults lose --no-reduction --crashes 1 --time 0.01s")


def test_wrong_usage(small: Weir) -> None:
    """Unknown faults and settings are errors of the tool."""
    assert small("check", "small.py", "--faults", "meteor").exit_code == 11
    assert "there is no setting 'no_such'" in small("check", "small.py", "--set", "no_such=1").stderr


def test_what_the_job_prints_is_not_in_the_report(weir: Weir) -> None:
    """A job that prints, in a function and in a sink, can be checked and searched: standard output is JSON alone."""
    Path("prints.py").write_text(PRINTS)
    for arguments in (("check", "--crashes", "0"), ("explore", "--runs", "2", "--fault", "none")):
        verb, *options = arguments
        answer = weir(verb, "prints.py", *options, "--json")

        assert answer.exit_code in (0, 2), answer.stderr
        assert answer.json()["verdict"]
        assert "printed on purpose" not in answer.stderr


@pytest.mark.slow
def test_a_job_that_is_nested_too_deep_is_refused(weir: Weir) -> None:
    """Thousands of tasks in a row, each of which refers to the next: an error that says what to do, no traceback."""
    Path("rows.py").write_text(ROWS)
    answer = weir("check", "rows.py", "--crashes", "0", "--checkpoints", "0")

    assert answer.exit_code == 11
    assert "error: the job is too large to be checked" in answer.stderr
    assert "fix: check a job with fewer operators, or search this one with weir explore" in answer.stderr
    assert "Traceback" not in answer.stderr
