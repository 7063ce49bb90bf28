"""A small job file, and a runner that calls the command line as a shell would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engine.cli import main
from operators.files.sinks import read_committed
from state_backends.files import LocalFileSystem
from tests.house.project import ROOT

SUMS = '''
"""Sums per key, to a file: the job of these tests."""

from __future__ import annotations

import os
import signal

from engine import CollectionSource, FileSink, Job


def strike(value: int) -> int:
    """Kill the whole process at one record, once: as real as a crash gets."""
    trap = os.environ.get("TRAP")
    if trap and value == 150 and os.path.exists(trap):
        os.unlink(trap)
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def job(records: str = "200", name: str = "sums", step: str = "reduce") -> Job:
    job = Job(name)
    stream = job.source(CollectionSource(list(range(int(records))), splits=2), name="numbers").map(strike)
    # A value depends on its key alone, so the rows do not depend on how the two splits interleave.
    keyed = stream.key_by(lambda value: value % 5, value=lambda value: value % 5 + 1)
    keyed.reduce(lambda left, right: left + right, name="sum", uid=step).sink(FileSink("sums"), name="out")
    return job
'''

# Small batches and frequent checkpoints: 200 records take 100 µs and about ten checkpoints.
BRISK = ("--batch-size", "4", "--checkpoint-interval", "20rec")


@dataclass(frozen=True)
class Answer:
    exit_code: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        """Standard output as JSON: it must be nothing else."""
        return json.loads(self.stdout)

    @property
    def last_line(self) -> str:
        return self.stderr.rstrip().splitlines()[-1]


class Weir:
    """Runs `weir` in this process, or in one of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *arguments: str) -> Answer:
        result = CliRunner().invoke(main, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    def process(self, *arguments: str, **environment: str) -> Answer:
        finished = subprocess.run(
            [sys.executable, "-m", "engine.cli", *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return Answer(finished.returncode, finished.stdout, finished.stderr)

    def rows(self, output_dir: str) -> dict[str, list[str]]:
        return read_committed(LocalFileSystem(), str(self.directory / output_dir / "sums"))


@pytest.fixture
def weir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Weir]:
    """The command line in an empty directory with the job file `sums.py`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "sums.py").write_text(SUMS)
    before = set(sys.modules)
    yield Weir(tmp_path)
    for name in [one for one in sys.modules if one.startswith("weir_job_") and one not in before]:
        del sys.modules[name]
