"""The report on a failure: its first line, its files, and a regression test that really runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError
from engine.explore.cases import FIFO, Case
from engine.explore.failures import JSON_NAME, TEST_NAME, FailureReport, failure_report, read_failure
from engine.explore.failures.failure_report import PICTURE_NAME, REPORT_NAME
from engine.explore.failures.regression import case_source
from engine.explore.run import Subject, run_case
from engine.explore.search import parse_token
from engine.explore.story import tell
from engine.faults.fault import parse_fault
from state_backends.files import MemoryFileSystem
from tests.explore.failing_job import SPLITS, build, judges, losing_sink, subject
from tests.house.documents import transcripts
from tests.house.project import ROOT

_FAILING = Case(scheduler=FIFO, config={"batch_size": 3}, checkpoints=(5_000, 9_000))


@pytest.fixture
def sabotaged() -> Iterator[None]:
    with losing_sink():
        yield


@pytest.fixture(scope="module")
def report() -> FailureReport:
    """On the failure of the sink that loses a row, judged by the test's own invariant."""
    with losing_sink():
        found = failure_report(subject(), _FAILING, invariants_for=judges)
    assert found is not None
    return found


def test_the_first_lines_say_it_all(report: FailureReport) -> None:
    """Verdict, invariant and counts of the smallest case; the command that replays it; the invariant's title."""
    first, replay, *others = report.text.splitlines()

    assert first == report.headline
    assert re.fullmatch(r"violated T1: 2 records, 0 faults, 1 checkpoint, 0 choices, \d+ steps", first)
    assert re.fullmatch(r"replay: weir replay weir2\.\S+", replay)
    assert others[:3] == ["", "What was violated", "  every running count is committed once"]


def test_results_are_shown_in_a_line(report: FailureReport) -> None:
    """The report, its run, its difference and its output: their fields would fill screens."""
    assert report.difference is not None
    shown = [report, report.finished, report.difference, report.difference.output]

    for one in shown:
        assert repr(one).startswith(f"<{type(one).__name__} ")
        assert len(repr(one)) < 160, repr(one)
        assert "\n" not in repr(one)


def test_the_command_names_the_place_of_the_report(report: FailureReport) -> None:
    """A report that is written to a directory is replayed by it; its files also say how to do without the others."""
    placed, token = replace(report, place="failure/"), str(report.token)
    files = MemoryFileSystem()
    placed.write("/failure", files)

    assert placed.text.splitlines()[1] == "replay: weir replay failure/"
    assert token not in placed.text
    for name in (REPORT_NAME, PICTURE_NAME):
        assert f"weir replay {token}" in files.read_bytes(f"/failure/{name}").decode()


def test_the_token_is_that_of_the_smallest_case(report: FailureReport) -> None:
    """The command on the first line runs exactly the case of the report."""
    token = parse_token(str(report.token))

    assert token == report.token
    assert token.run == report.case
    token.check(subject())


def test_the_text_tells_story_difference_and_minimality(report: FailureReport) -> None:
    """After the first line: the violation, the case, the story with its mark, the passing run, how small it is."""
    headings = [heading for heading, _ in report.sections()]

    assert headings[:2] == ["What was violated", "The case"]
    assert headings[2].startswith("What happened; →")
    assert headings[3].startswith("The nearest passing run: without record")
    assert headings[4] == "How small it is"
    assert "records      2 of 20 of numbers/sequence-0-of-2" in report.text
    assert any(line.lstrip().startswith("→") for line in report.text.splitlines())
    assert "1-minimal: 3 single removals run again, none of which fails so" in report.text


def test_four_files_are_written(report: FailureReport) -> None:
    """Text, JSON, test and picture, each complete."""
    files = MemoryFileSystem()

    paths = report.write("/failure", files)

    assert [f"/failure/{name}" for name in (REPORT_NAME, JSON_NAME, TEST_NAME, PICTURE_NAME)] == paths
    contents = {path: files.read_bytes(path).decode() for path in paths}
    assert contents[paths[0]].startswith(report.text + "\n\nReplay")
    assert json.loads(contents[paths[1]]) == report.to_plain()
    assert contents[paths[2]] == report.regression_test()


@pytest.mark.usefixtures("sabotaged")
def test_the_same_failure_makes_the_same_report(report: FailureReport) -> None:
    """Reports are deterministic, but for the seconds that shrinking took."""
    again = failure_report(subject(), _FAILING, invariants_for=judges)

    assert again is not None
    assert again.to_plain() == report.to_plain()
    assert again.regression_test() == report.regression_test()
    assert again.sections()[:4] == report.sections()[:4]


def test_the_json_file_holds_every_choice_and_reads_back(report: FailureReport) -> None:
    """All draws of the run are in it, and the case that comes back is the case."""
    plain = report.to_plain()
    token, invariant = read_failure(json.dumps(plain))

    assert [tuple(one) for one in plain["choices"]] == [tuple(one) for one in report.finished.choices]
    assert (token, invariant) == (report.token, "T1")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[]", "no record of a failure"),
        ('{"format": "weir-failure", "version": 99}', "version 99"),
        ('{"format": "weir-failure", "version": 1}', "not whole"),
    ],
)
def test_what_is_no_failure_file_is_refused(text: str, problem: str) -> None:
    """The error says what is wrong, instead of a run of another case."""
    with pytest.raises(ConfigurationError, match=problem):
        read_failure(text)


def _made(source: str) -> Callable[..., None]:
    module: dict[str, Any] = {}
    exec(compile(source, "test_regression.py", "exec"), module)
    tests = [value for name, value in module.items() if name.startswith("test_")]
    assert len(tests) == 1
    test: Callable[..., None] = tests[0]
    return test


def test_the_regression_test_fails_while_the_mistake_is_there(report: FailureReport) -> None:
    """The generated test runs, fails with the mistake, and says what is wrong."""
    test, job = _made(report.regression_test()), subject()
    # The reference comes from a run without the mistake.
    assert job.reference(report.case.dropped).rows

    with losing_sink(), pytest.raises(AssertionError, match="V1"):
        test(job)


def test_the_regression_test_passes_once_the_mistake_is_gone() -> None:
    """The same source, with nothing to complain about."""
    with losing_sink():
        report = failure_report(subject(), _FAILING, invariants_for=judges)
    assert report is not None

    _made(report.regression_test())(subject())


def test_a_case_is_spelled_out_as_python() -> None:
    """Evaluating the generated Python gives the case back, with all its fields."""
    case = Case(
        seed="17",
        config={"mode": "unaligned", "parallelism": 3, "batch_size": 1},
        faults=(parse_fault("crash:count[1]@before:snapshot.sync#2"), parse_fault("pause:count[0]@12us~5us")),
        dropped={SPLITS[0]: ((0, 3), (5, 20)), SPLITS[1]: ((1, 20),)},
        checkpoints=(1_000, 2_000),
        scheduler=FIFO,
        schedule=dict.fromkeys(range(3, 90, 7), 1),
    )
    scope: dict[str, Any] = {"Case": Case, "parse_fault": parse_fault}

    exec("\n".join(case_source(case)), scope)

    assert scope["case"] == case
    assert all(len(line) <= 116 for line in case_source(case))


def test_the_regression_test_of_a_job_file_loads_it(report: FailureReport) -> None:
    """A job that comes from a file is loaded by the test itself; it takes no fixture."""
    job = Subject(build, label="word count", path="/jobs/count.py", params={"n": "3"})
    source = replace(report, subject=job).regression_test()

    assert "def test_word_count_keeps_t1() -> None:" in source
    assert "subject = load_subject('/jobs/count.py', {'n': '3'})" in source


class _Page(HTMLParser):
    """Counts elements, and notes what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.fetched: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_picture_is_one_page_that_fetches_nothing(report: FailureReport) -> None:
    """Well-formed, with a lane for each task, an arrow for each element, and no address to fetch from."""
    html = report.picture()
    page = _Page()
    page.feed(html)

    assert page.open == []
    assert page.fetched == []
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert html.count("class='head'") == len(report.story.actors)
    arrows = sum(len(step.sent) for step in report.story.steps)
    assert page.counts["path"] == arrows
    assert "prefers-color-scheme: dark" in html


def test_the_picture_shows_text_as_text(report: FailureReport) -> None:
    """A value that looks like markup stays a value."""
    story = tell(subject(), report.case)[0]
    story.steps[0].say("takes <script>", "")
    html = replace(report, story=story).picture()

    assert "<script>" not in html
    assert "takes &lt;script&gt;" in html


@pytest.mark.usefixtures("sabotaged")
def test_a_case_with_chance_in_it_is_reported_as_it_is() -> None:
    """A schedule that is drawn cannot be shrunk; the report says so, and replays it by its seed."""
    case = Case(seed="7", config={"batch_size": 3, "checkpoint_interval": "5us"})
    report = failure_report(subject(), case, invariants_for=judges, comparing=False)

    assert report is not None
    assert report.case == case
    assert "not shrunk" in report.text
    assert "schedule     random, seed '7'" in report.text


def test_there_is_no_report_on_a_run_that_passes() -> None:
    """Asking for one raises an error: the case does not fail."""
    assert failure_report(subject(), _FAILING, invariants_for=judges) is None
    assert failure_report(subject(), replace(_FAILING, scheduler="random"), invariants_for=judges) is None
    assert run_case(subject(), _FAILING, judges(_FAILING)).violations == []


def test_the_page_shows_what_the_program_prints(tmp_path: Path) -> None:
    """The example of the page on failure reports, run alone, prints exactly the text below it."""
    page = (ROOT / "docs" / "failure-reports.md").read_text("utf-8")
    found = list(transcripts.printing_programs(page))

    assert len(found) == 1
    program, printed = found[0]
    assert transcripts.run_program(program.text, tmp_path, ROOT) == printed
