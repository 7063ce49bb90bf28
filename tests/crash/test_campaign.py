"""The campaign of kills, as a program: real processes, SIGKILL, failing storage; no job may come to another end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.crash.processes import program


def campaign(directory: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of the campaign."""
    return program("-m", "tests.crash.campaign", "--directory", str(directory), *options)


def counts(words: str) -> dict[str, int]:
    """The last line of a campaign that says nothing but counts; what Spark warns of may come after it."""
    told = [line for line in words.splitlines() if re.fullmatch(r"([^\s=]+=\S+ ?)+", line)]
    pairs = [pair.split("=") for pair in told[-1].split()]
    return {name: int(float(value)) for name, value in pairs if name != "seed"}


def test_eight_kills(tmp_path: Path) -> None:
    """Eight kills, on intact storage."""
    code, words = campaign(tmp_path, "--kills", "8", "--seed", "handful", "--no-storage-faults")

    assert code == 0, words
    assert counts(words)["kills"] >= 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["one", "two"])
def test_two_hundred_kills(seed: str, tmp_path: Path) -> None:
    """A hundred kills for each seed, resumes among them, with storage that is full, read-only or torn now and then."""
    code, words = campaign(tmp_path, "--kills", "100", "--seed", seed)

    assert code == 0, words
    seen = counts(words)
    assert seen["kills"] >= 100
    assert seen["kills_of_resumes"] >= 20
    assert seen["restored"] >= 10
    assert seen["storage_faults"] >= 3


def test_a_wrong_end_is_told(tmp_path: Path) -> None:
    """A campaign that expects other rows fails, names them, and keeps the directory with the processes' output."""
    wrong = (
        "import sys; from tests.crash import campaign as c;"
        " c.expected_rows = c.stateful_job.expected_rows = lambda records: {'': ['another row']};"
        " sys.exit(c.main())"
    )
    code, words = program("-c", wrong, "--kills", "1", "--seed", "wrong", "--directory", str(tmp_path))

    assert code == 1
    assert "the committed rows differ: 1 lost ['another row']" in words
    assert list(tmp_path.glob("*/job-0/process-1.txt"))
