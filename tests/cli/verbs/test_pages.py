"""``--html`` and ``weir compare``: what they write, print and refuse."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from engine.cli.cases import load_subject
from engine.explore.cases import FIFO, Case
from engine.explore.search import Token
from tests.cli.conftest import BRISK, Weir
from tests.house.project import ROOT

COUNTING = str(ROOT / "examples/teaching/counting.py")


def test_a_run_writes_its_page(weir: Weir) -> None:
    """The page is there after the run, says its verdict, and the run is the same as without it."""
    plain, paged = weir("run", "sums.py", *BRISK), weir("run", "sums.py", *BRISK, "--html", "run.html")
    text = (weir.directory / "run.html").read_text("utf-8")

    assert paged.exit_code == 0
    assert [line for line in plain.stderr.splitlines() if "digest" in line] == [
        line for line in paged.stderr.splitlines() if "digest" in line
    ]
    assert "valid: the job finished" in text
    assert "takes its snapshot of checkpoint 1" in text


@pytest.mark.parametrize("verb", ["run", "resume", "replay", "explore", "check", "diff", "compare", "view"])
@pytest.mark.parametrize("place", ["no/such/run.html", "."])
def test_a_page_without_a_place_is_refused(weir: Weir, verb: str, place: str) -> None:
    """A file that cannot be written is refused before anything runs."""
    answer = weir(verb, "sums.py", "--html", place)

    assert answer.exit_code == 11
    assert "fix: name a file in a directory that exists" in answer.stderr
    assert not (weir.directory / "out").exists()


@pytest.mark.slow
def test_a_search_shows_its_failure_made_small(weir: Weir) -> None:
    """The page is of the case that the search reports, not of the one that it found."""
    search = ("--mode", "at-least-once", "--promise", "exactly-once", "--out", "found", "--html", "found.html")
    answer = weir("explore", COUNTING, *search)
    again = weir("replay", "found", "--no-story", "--job", COUNTING, "--html", "again.html")

    assert answer.exit_code == again.exit_code == 1
    assert "page in found.html" in answer.stderr
    pages = [(weir.directory / name).read_text("utf-8") for name in ("found.html", "again.html")]
    found, made_again = (text.partition('"runs":')[2] for text in pages)
    assert found == made_again != ""


def test_the_command_of_a_step_crashes_a_replayed_run_there(weir: Weir) -> None:
    """A page of a case names the command for each step; the command makes the same run, and it dies at that step."""
    case = Case(config={"mode": "at-least-once", "batch_size": 1}, checkpoints=(0,), scheduler=FIFO)
    token = Token.of(load_subject(COUNTING, {}), case)

    def rows(*command: str) -> tuple[list[list[Any]], list[dict[str, Any]], str]:
        answer = weir(*command, "--no-story", "--html", "page.html")
        assert answer.exit_code == 0, answer.stderr
        text = (weir.directory / "page.html").read_text("utf-8")
        (run,) = json.loads(text.partition(' data-form="plain">')[2].partition("</script>")[0])["runs"]
        return run["actions"], run["steps"], run["crash"]

    actions, steps, command = rows("replay", str(token), "--job", COUNTING)
    at_points = [step for step in steps if step["x"] is not None]
    for step in (at_points[1], at_points[len(at_points) // 2], at_points[-1]):
        words = shlex.split(command.replace("@FAULT@", step["x"]))
        crashed, _, again = rows(*words[1:])

        last = step["r"][1]
        struck = next(row for row, one in enumerate(crashed) if one[2] == "fault")
        assert crashed[: step["r"][0]] == actions[: step["r"][0]]
        assert step["r"][0] <= struck <= last
        assert again != command


def test_two_protocols_side_by_side(weir: Weir) -> None:
    """The measures of both runs stand in a table and in JSON, and the page holds both."""
    crash = ("--fault", "crash:count[0]@after:ack.send#1", "--same-schedule", "--html", "two.html", "--json")
    answer = weir("compare", COUNTING, "--protocols", "aligned,at-least-once", *crash)

    runs = answer.json()["runs"]
    assert answer.exit_code == 0
    assert [run["mode"] for run in runs] == ["aligned", "at-least-once"]
    assert all(run["measures"]["records lost"] == "0" for run in runs)
    assert "records counted twice" in answer.stderr
    assert "mode at-least-once" in (weir.directory / "two.html").read_text("utf-8")


@pytest.mark.parametrize("protocols", ["aligned", "aligned,aligned", "aligned,none"])
def test_protocols_that_cannot_be_compared(weir: Weir, protocols: str) -> None:
    """Two different modes that take checkpoints are needed."""
    assert weir("compare", COUNTING, "--protocols", protocols).exit_code == 11
