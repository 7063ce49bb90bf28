"""Runs the command line in processes of its own and kills them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from operators.files.sinks import read_committed
from state_backends.files import LocalFileSystem
from state_backends.snapshots import INCARNATION_FILE_NAME

ROOT = Path(__file__).resolve().parents[2]
JOB_FILE = Path(__file__).with_name("jobs") / "killed_job.py"
OPTIONS = ("--checkpoint-interval", "2000rec", "--batch-size", "64", "--retain", "2")
DESCRIPTOR = "weir-job.json"


class KilledRun:
    """A job in a directory of its own: started, killed and resumed until it has come to its end."""

    program = "engine.cli"
    job_file = JOB_FILE

    def __init__(self, directory: Path, records: int, *options: str, every_time: Iterable[str] = ()) -> None:
        """``options``: more of the command line, such as the state backend; ``every_time``: of that of resumes too."""
        self._options = options
        self._every_time = list(every_time)
        self.storage = directory / "state"
        self.out = directory / "out"
        self.records = records
        self.kills = 0
        self.resumes = 0
        self.checkpoints_found: list[int] = []
        self.last_words = ""

    def go_on(self, kill_after_s: float | None = None) -> bool:
        """Start or resume, and kill after so many seconds. Returns whether the job has come to its end."""
        with self._process() as process:
            try:
                self.last_words, _ = process.communicate(timeout=kill_after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                self.last_words, _ = process.communicate()
            return self._has_ended(process)

    def kill_behind_checkpoint(self, checkpoint_id: int, later_s: float) -> bool:
        """Start or resume, and kill a little later than the first sight of this checkpoint or a newer one."""
        with self._process() as process:
            while process.poll() is None and self.newest_checkpoint() < checkpoint_id:
                time.sleep(0.002)
            return self._kill(process, later_s)

    def kill_behind_start(self, later_s: float) -> bool:
        """Start or resume, and kill a little later than the process has begun an incarnation: while it recovers."""
        incarnation = self.storage / "killed" / INCARNATION_FILE_NAME
        before = incarnation.read_bytes() if incarnation.exists() else b""
        with self._process() as process:
            while process.poll() is None and (not incarnation.exists() or incarnation.read_bytes() == before):
                time.sleep(0.002)
            return self._kill(process, later_s)

    def _kill(self, process: subprocess.Popen[str], later_s: float) -> bool:
        time.sleep(later_s)
        process.send_signal(signal.SIGKILL)
        self.last_words, _ = process.communicate()
        return self._has_ended(process)

    def _process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            # At a lower priority than its killer, which must look before this process ends, on a busy machine too.
            ["nice", "-n", "5", *self._command()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _has_ended(self, process: subprocess.Popen[str]) -> bool:
        if process.returncode == -signal.SIGKILL:
            self.kills += 1
            return False
        assert process.returncode == 0, f"exit code {process.returncode}:\n{self.last_words}"
        return True

    def newest_checkpoint(self) -> int:
        """The newest checkpoint in the storage directory, 0 while there is none."""
        return max((int(one.parent.name[4:]) for one in self.storage.glob("killed/chk-*/_metadata")), default=0)

    def _command(self) -> list[str]:
        weir = [sys.executable, "-m", self.program]
        if (self.storage / DESCRIPTOR).exists():
            self.resumes += 1
            self.checkpoints_found.append(self.newest_checkpoint())
            return [*weir, "resume", str(self.storage), *self._every_time]
        # Killed before the run had left files to resume from: no row is committed either.
        start = ["run", str(self.job_file), "--storage", str(self.storage), "--out", str(self.out)]
        options = [*OPTIONS, *self._options, *self._every_time]
        return [*weir, *start, *options, "--param", f"records={self.records}"]

    def committed(self) -> dict[str, list[str]]:
        return read_committed(LocalFileSystem(), str(self.out / "counts"))

    def leftovers(self) -> list[str]:
        """Hidden files of the sink: not committed, and of no further use."""
        return sorted(path.name for path in self.out.rglob(".*") if path.is_file())


def program(*command: str) -> tuple[int, str]:
    """Exit code and output of a Python program in a process of its own: one that forks must have a single thread."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def expected_rows(records: int, keys: int = 1_000) -> dict[str, list[str]]:
    """The expected output of the job, computed without the engine."""
    seen = [0] * keys
    rows: dict[str, list[str]] = {}
    for number in range(records):
        key = number * 7919 % keys
        seen[key] += 1
        rows.setdefault(f"remainder={key % 3}", []).append(f"[{key},{seen[key]}]")
    return {partition: sorted(lines) for partition, lines in sorted(rows.items())}


def seconds(run: KilledRun) -> float:
    """How long a run without a kill takes."""
    started = time.monotonic()
    assert run.go_on()
    return time.monotonic() - started
