"""``weir run --mode acking`` killed with SIGKILL and resumed: every record is in the log, and only records that were
not committed are there again."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from engine.runtime.acking import OFFSETS_FILE_NAME
from operators.log.disk.log_reader import committed_records
from state_backends.files import LocalFileSystem
from tests.crash.jobs.acking_job import LOG, TOPIC
from tests.crash.processes import KilledRun

INTERVAL = 200


class KilledAckedRun(KilledRun):
    """A job without checkpoints: its committed offsets show its progress."""

    job_file = Path(__file__).with_name("jobs") / "acking_job.py"

    def __init__(self, directory: Path, records: int) -> None:
        super().__init__(directory, records, "--mode", "acking", "--checkpoint-interval", f"{INTERVAL}rec")

    def kill_behind_commits(self, commits: int) -> bool:
        """Start or resume, and kill once the offsets were replaced so often. Returns whether it has ended before."""
        offsets = self.storage / "killed" / OFFSETS_FILE_NAME
        seen = [self._version(offsets)]
        with self._process() as process:
            while process.poll() is None and len(seen) <= commits:
                version = self._version(offsets)
                if version != seen[-1]:
                    seen.append(version)
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            self.last_words, _ = process.communicate()
            return self._has_ended(process)

    @staticmethod
    def _version(path: Path) -> tuple[int, int]:
        try:
            status = path.stat()
        except FileNotFoundError:
            return (0, 0)
        return (status.st_ino, status.st_mtime_ns)

    def written(self) -> Counter[int]:
        partitions = committed_records(LocalFileSystem(), str(self.out / LOG), TOPIC)
        return Counter(record.value for records in partitions for record in records)


def check(run: KilledAckedRun, kills: int) -> None:
    """Every record is there, and no other; a record that is there twice came again with a resume."""
    written, expected = run.written(), Counter(number * 10 for number in range(run.records))
    assert not expected - written
    assert written.keys() == expected.keys()
    again = sum((written - expected).values())
    # Up to an interval of each source, and the pending records.
    assert again < run.records // 2
    assert max(written.values()) <= kills + 1


@pytest.mark.slow
def test_every_record_is_there_when_the_process_was_killed_twice(tmp_path: Path) -> None:
    """The start is killed after some commits, and the resume after some more."""
    run = KilledAckedRun(tmp_path, 5_000)
    assert not run.kill_behind_commits(4)
    before = sum(run.written().values())
    assert 0 < before < run.records
    assert not run.kill_behind_commits(4)
    assert run.go_on()
    assert (run.kills, run.resumes) == (2, 2)
    check(run, 2)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [(1, 1, 1, 1), (3, 9, 2, 5), (15, 1, 1, 10)])
def test_every_record_is_there_when_the_process_was_killed_again_and_again(
    commits: tuple[int, ...], tmp_path: Path
) -> None:
    """Four processes, each killed a little further on."""
    run = KilledAckedRun(tmp_path, 12_000)
    for number in commits:
        assert not run.kill_behind_commits(number)
    assert run.go_on()
    check(run, len(commits))
