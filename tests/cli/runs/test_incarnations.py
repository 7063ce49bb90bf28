"""A run that goes on from a snapshot of another one uses none of the names that the other one has used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import BRISK, Weir

COMMITTED_APART = '''
"""Numbers to files that are named by incarnation and attempt."""

from engine import FileSink, Job, SequenceSource


def job():
    job = Job("numbers", parallelism=2)
    return job.source(SequenceSource(0, 400, splits=2), name="numbers").sink(FileSink("rows").with_committer())
'''
EVERY = ("--batch-size", "20", "--checkpoint-interval", "100rec")


def incarnation_of(directory: Path) -> int:
    """The incarnation in ``run.json`` of an output directory."""
    number: int = json.loads((directory / "run.json").read_text())["run"]["incarnation"]
    return number


@pytest.fixture
def stopped(weir: Weir) -> str:
    """A run that was stopped half way, resumed in between; the path of its savepoint."""
    (weir.directory / "numbers.py").write_text(COMMITTED_APART)
    where = ("--storage", "first", "--out", "out")
    answer = weir("run", "numbers.py", *EVERY, *where, "--kill", "numbers@60us", "--restart", "none")
    assert answer.exit_code == 18, answer.stderr
    answer = weir("resume", "first", "--stop-with-savepoint", "40us", "--savepoint-dir", "saved")
    assert answer.exit_code == 0, answer.stderr
    (savepoint,) = (weir.directory / "saved").iterdir()
    assert incarnation_of(weir.directory / "out") == 2
    return str(savepoint)


def rows(weir: Weir) -> list[int]:
    files = sorted((weir.directory / "out/rows").glob("[!.]*"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.mark.parametrize("storage", [(), ("--storage", "second")])
def test_the_same_output_goes_on_in_another_storage_directory(
    weir: Weir, stopped: str, storage: tuple[str, ...]
) -> None:
    """Files that the first run has committed are neither replaced nor taken for leftovers."""
    before = rows(weir)
    assert 0 < len(before) < 400
    answer = weir("run", "numbers.py", *EVERY, "--from", stopped, "--out", "out", *storage)

    assert answer.exit_code == 0, answer.stderr
    assert sorted(rows(weir)) == list(range(400))
    assert incarnation_of(weir.directory / "out") == 3


def test_a_damaged_report_of_the_first_run_is_refused(weir: Weir, stopped: str) -> None:
    """The report says which names are used: with another number, or none, a run would write over files."""
    path = weir.directory / "out/run.json"
    content, before = path.read_bytes(), rows(weir)
    at = content.index(b'"incarnation": 2') + len(b'"incarnation": ')
    for damaged in (content[:at] + b"1" + content[at + 1 :], content[:at], content.replace(b"incar", b"intar")):
        path.write_bytes(damaged)
        answer = weir("run", "numbers.py", *EVERY, "--from", stopped, "--out", "out")
        assert (answer.exit_code, "run.json: is damaged" in answer.stderr) == (16, True)
        assert (path.read_bytes(), rows(weir)) == (damaged, before)

    path.write_text(json.dumps({"job": {"name": "numbers"}, "run": {"incarnation": 7}}))
    assert weir("run", "numbers.py", *EVERY, "--from", stopped, "--out", "out").exit_code == 0
    assert incarnation_of(weir.directory / "out") == 8


def test_the_snapshot_alone_tells_what_is_used_up(weir: Weir, stopped: str) -> None:
    """Into another output directory, for sinks may have absolute paths."""
    answer = weir("run", "numbers.py", *EVERY, "--from", stopped, "--out", "elsewhere", "--storage", "second")

    assert answer.exit_code == 0, answer.stderr
    assert incarnation_of(weir.directory / "elsewhere") == 3


def test_so_does_the_storage_directory_of_a_checkpoint(weir: Weir) -> None:
    """Starts after the checkpoint may have left files, though they completed no checkpoint."""
    answer = weir("run", "sums.py", *BRISK, "--storage", "first", "--kill", "sum@100us", "--restart", "none")
    assert answer.exit_code == 18, answer.stderr
    for _ in range(2):
        assert weir("resume", "first", "--kill", "sum@1us").exit_code == 18
    answer = weir("run", "sums.py", *BRISK, "--from", "first", "--out", "elsewhere")

    assert answer.exit_code == 0, answer.stderr
    assert incarnation_of(weir.directory / "elsewhere") == 4


def test_a_run_from_nothing_begins_with_the_first(weir: Weir) -> None:
    """So it is whichever other files are there."""
    assert weir("run", "sums.py", *BRISK, "--out", "one").exit_code == 0
    assert weir("run", "sums.py", *BRISK, "--out", "two").exit_code == 0

    assert incarnation_of(weir.directory / "two") == 1
