"""Programs with a session of Spark under SIGKILL, in the middle of a batch: each row is there once in the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from operators.log.disk import committed_records
from state_backends.files import LocalFileSystem
from tests.crash.jobs.log_query import TOPIC
from tests.crash.processes import ROOT, KilledRun, expected_rows

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class FrameRun(KilledRun):
    """The job whose source is a DataFrame."""

    job_file = Path(__file__).with_name("jobs") / "frame_job.py"

    def check(self) -> None:
        """The conditions at the end of the job."""
        assert self.committed() == expected_rows(self.records)
        assert self.leftovers() == []


def test_a_run_that_reads_a_dataframe(tmp_path: Path) -> None:
    """Killed while it reads rows, while another process computes them again, and while that goes on from the middle."""
    instants = random.Random("a frame")
    run = FrameRun(tmp_path, 120_000)

    assert not run.kill_behind_checkpoint(6, instants.uniform(0, 0.03))
    assert not run.kill_behind_start(instants.uniform(0, 4))
    assert not run.kill_behind_checkpoint(27, instants.uniform(0, 0.03))
    assert run.go_on()

    assert run.checkpoints_found[0] >= 6
    assert run.checkpoints_found[-1] >= 27
    run.check()


def test_a_run_on_spark_that_reads_a_dataframe(tmp_path: Path) -> None:
    """Its driver is killed in two batches, and each time the next one computes the rows again and goes on."""
    instants = random.Random("a frame on Spark")
    run = FrameRun(tmp_path, 40_000, every_time=("--on", "spark"))

    assert not run.kill_behind_checkpoint(2, instants.uniform(0, 1))
    assert not run.kill_behind_checkpoint(5, instants.uniform(0, 1))
    assert run.go_on()

    assert run.checkpoints_found[0] >= 2
    run.check()


class KilledQuery:
    """The query of ``log_query`` in a directory of its own: started again and again until it has come to its end."""

    def __init__(self, directory: Path, batches: int, rows: int) -> None:
        self._directory, self._rows = directory, rows
        (directory / "in").mkdir()
        for batch in range(batches):
            numbers = range(batch * rows, (batch + 1) * rows)
            path = directory / "in" / f"{batch:03}.csv"
            path.write_text("".join(f"{number}\n" for number in numbers))
            # Spark reads the oldest file first.
            os.utime(path, (batch, batch))
        self._expected = [3 * number for number in range(batches * rows)]
        self.in_a_batch = 0
        """How often a batch had begun and had not ended when the process died."""

    def process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.jobs.log_query", str(self._directory)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Its JVM is in its group.
            start_new_session=True,
        )

    def kill(self, batch: int, later_s: float, *, staged: bool, whole_group: bool) -> None:
        """Start, and kill a little later than this batch has begun, or than a task has stored its rows (``staged``):
        with its JVM, or alone."""
        with self.process() as process:
            while process.poll() is None and not (self.newest("offsets") >= batch and self.is_staged() >= staged):
                time.sleep(0.002)
            time.sleep(later_s)
            if whole_group:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.send_signal(signal.SIGKILL)
            words, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL, words
        self.in_a_batch += self.newest("offsets") > self.newest("commits")

    def newest(self, log: str) -> int:
        """The newest batch in this log of Spark, -1 without any."""
        return max((int(one.name) for one in self._directory.glob(f"query/{log}/[0-9]*")), default=-1)

    def is_staged(self) -> bool:
        """Whether a task has stored rows that the driver has not appended."""
        return any(self._directory.glob("log/staged-by-spark/*/*.arrow"))

    def to_its_end(self) -> None:
        with self.process() as process:
            words, _ = process.communicate()
        assert process.returncode == 0, words

    def records(self) -> list[int]:
        """What readers of the log see, sorted; a batch is there as a whole, or not at all."""
        log = str(self._directory / "log")
        found = committed_records(LocalFileSystem(), log, TOPIC)
        records = sorted(record.value for partition in found for record in partition)
        assert records == self._expected[: len(records)]
        assert len(records) % self._rows == 0
        return records

    def check(self) -> None:
        """The conditions at the end of the query."""
        assert self.records() == self._expected
        assert not self.is_staged()


def test_a_query_that_writes_a_log(tmp_path: Path) -> None:
    """Killed in four batches, at the start of one or with rows of its tasks in files, with its JVM and without."""
    instants = random.Random("a query")
    query = KilledQuery(tmp_path, batches=12, rows=100)

    for batch, staged, whole_group in ((1, False, True), (4, True, False), (6, True, True), (9, False, False)):
        query.kill(batch, instants.uniform(0, 0.4), staged=staged, whole_group=whole_group)
        query.records()
    query.to_its_end()

    assert query.in_a_batch >= 2
    query.check()
