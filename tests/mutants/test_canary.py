"""The whole tool against a bug planted in the source: found, shrunk, and made again by the command that is printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.elements.errors import EXIT_VALID, EXIT_VIOLATED
from tests.mutants.hunt import ROOT

ROOMS = ("engine", "operators", "state_backends", "spark_bridge")
PLACE = Path("engine/checkpoint/barriers/alignment.py")
RIGHT = "        self._marks[channel] |= _BLOCKED\n        out.append(BlockChannel(channel))\n"
WRONG = "        out += [BlockChannel(channel), ResumeChannels((channel,))]\n"

JOB = '''
from engine import CollectedResults, Job, SequenceSource


def job() -> Job:
    job = Job("counting", max_parallelism=8)
    numbers = job.source(SequenceSource(0, 24, splits=2), name="numbers", uid="numbers", parallelism=2)
    pairs = numbers.key_by(lambda number: number % 3, value=lambda number: (number % 3, 1))
    counts = pairs.reduce(lambda left, right: (left[0], left[1] + right[1]), name="count", uid="count")
    counts.collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
    return job
'''


def weir(source: Path, where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Type a command in the directory ``where``, with the Weir whose source is in ``source``."""
    command = [sys.executable, "-m", "engine.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(source), "NO_COLOR": "1", "COLUMNS": "4000"}
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_planted_bug_is_found_shrunk_and_replayed(tmp_path: Path) -> None:
    """Without alignment the search fails; its report fails there again, and passes with the source as it is."""
    broken, here = tmp_path / "source", tmp_path / "here"
    here.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, broken / room, ignore=shutil.ignore_patterns("__pycache__"))
    text = (broken / PLACE).read_text()
    assert text.count(RIGHT) == 1, "the bug cannot be planted: the source has changed"
    (broken / PLACE).write_text(text.replace(RIGHT, WRONG))
    (here / "counting.py").write_text(JOB)

    found = weir(broken, here, "explore", "counting.py", "--mode", "aligned", "--fault", "crash", "--runs", "200")
    assert found.returncode == EXIT_VIOLATED, found.stderr
    headline = next(line for line in found.stderr.splitlines() if line.startswith("violated V"))
    assert re.match(r"violated V[1-4]: ", headline), headline
    assert "1-minimal" in found.stderr, found.stderr
    (command,) = (line for line in found.stderr.splitlines() if line.startswith("replay: weir "))
    place = command.split()[3]

    again = weir(broken, here, "replay", place)
    assert again.returncode == EXIT_VIOLATED, again.stderr
    right = weir(ROOT, here, "replay", place)
    assert right.returncode == EXIT_VALID, right.stderr
