"""A bucketing sink on a file system that cuts files later, as Hadoop's does: leases, waiting, and timeouts."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, StorageError
from engine.graph.job import Job
from engine.runtime.config import CheckpointInterval, RunConfig
from engine.runtime.execution import Execution
from operators.files.bucketing import BucketingSink, read_bucketing_output
from operators.files.bucketing.late_truncation import POLL_INTERVAL_MS, LateTruncations, TruncatesLater
from operators.sources import SequenceSource
from state_backends.files import MemoryFileSystem
from tests.operators.harness import Checkpoint, Harness

ROWS = "/out/rows"


class Late(MemoryFileSystem):
    """Closes a file, and cuts one, after it was asked for its state so many times; notes what it was asked."""

    def __init__(self, lease_after: int = 0, cut_after: int = 0) -> None:
        super().__init__()
        self.lease_after, self.cut_after = lease_after, cut_after
        self.asked: list[str] = []
        self.wanted: dict[str, int] = {}
        self.looks = 0

    def recover_lease(self, path: str) -> bool:
        self.asked.append("lease")
        return self.asked.count("lease") > self.lease_after

    def truncate_later(self, path: str, size_bytes: int) -> bool:
        self.asked.append("cut")
        self.wanted[path], self.looks = size_bytes, self.cut_after
        self._carry_out(path)
        return path not in self.wanted

    def size(self, path: str) -> int:
        if path in self.wanted:
            self.looks -= 1
            self._carry_out(path)
        return super().size(path)

    def _carry_out(self, path: str) -> None:
        if self.looks <= 0:
            super().truncate(path, self.wanted.pop(path))

    def truncate(self, path: str, size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not at once", path)


def start(fs: MemoryFileSystem, restored: Checkpoint | None = None, *, attempt: int = 1, **options: Any) -> Harness:
    return Harness(BucketingSink("rows", **options).create_operator(), fs=fs, restored=restored, attempt=attempt)


def is_waiting(task: Harness) -> bool:
    return task.context.holds_input


def rows(fs: MemoryFileSystem) -> list[str]:
    return sorted(row for lines in read_bucketing_output(fs, ROWS).values() for row in lines)


def names(fs: MemoryFileSystem) -> list[str]:
    return [name for name in fs.list_dir(ROWS) if not name.startswith(".")]


def interrupted(fs: MemoryFileSystem) -> Checkpoint:
    """A checkpoint that has one row of a part with two."""
    task = start(fs)
    task.process(["in"])
    checkpoint = task.snapshot(1)
    task.process(["out"])
    task.operator.abandon()
    return checkpoint


def test_the_memory_file_system_is_another_kind() -> None:
    """It cuts files at once, so no sink waits for it."""
    assert isinstance(Late(), TruncatesLater)
    assert not isinstance(MemoryFileSystem(), TruncatesLater)


def test_a_cut_that_is_made_at_once_is_not_waited_for() -> None:
    """The part is finished by the restore itself; the lease was recovered first."""
    fs = Late()
    task = start(fs, interrupted(fs), attempt=2)

    assert fs.asked == ["lease", "cut"]
    assert not is_waiting(task)
    assert rows(fs) == ['"in"']


def test_the_sink_waits_for_lease_and_cut() -> None:
    """Meanwhile it takes no record and shows nothing of the part; it looks once each half second."""
    fs = Late(lease_after=2, cut_after=3)
    task = start(fs, interrupted(fs), attempt=2, inactive_check_interval_ms=70)
    for _ in range(4):
        assert is_waiting(task)
        assert names(fs) == ["_part-0-0.in-progress"]
        task.advance_ms(POLL_INTERVAL_MS)
    assert fs.asked == ["lease", "lease", "lease", "cut"]
    assert is_waiting(task)
    task.advance_ms(POLL_INTERVAL_MS)

    assert not is_waiting(task)
    assert rows(fs) == ['"in"']
    task.process(["more"])
    task.finish()
    task.checkpoint(2)
    assert rows(fs) == ['"in"', '"more"']


def test_a_checkpoint_meanwhile_knows_of_the_part() -> None:
    """A restore from it cuts the part, too: the part is not lost, and does not stay as it was."""
    fs = Late(cut_after=100)
    waiting = start(fs, interrupted(fs), attempt=2)
    again = waiting.checkpoint(2)
    assert rows(fs) == []
    waiting.operator.abandon()
    fs.cut_after = 0
    start(fs, again, attempt=3)

    assert rows(fs) == ['"in"']


@pytest.mark.parametrize(("timeout_ms", "fails_at_ms"), [(60_000, 60_500), (1_000, 1_500), (0, 500)])
def test_there_is_an_end_to_patience(timeout_ms: int, fails_at_ms: int) -> None:
    """A file that is not cut in time ends the attempt; one that is cut at the last moment does not."""
    fs = Late(cut_after=10_000)
    checkpoint = interrupted(fs)
    task = start(fs, checkpoint, attempt=2, async_timeout_ms=timeout_ms)
    task.advance_ms(fails_at_ms - POLL_INTERVAL_MS)
    with pytest.raises(StorageError, match=r"be cut to 5 bytes, but still has 11 after \d+ ms\n.*async_timeout_ms"):
        task.advance_ms(POLL_INTERVAL_MS)
    assert rows(fs) == []


def test_a_lease_that_nobody_gives_back_is_not_waited_for_for_ever() -> None:
    """The file is cut all the same when the time is up: the file system decides."""
    fs = Late(lease_after=10_000)
    interrupted(fs)
    late, path = LateTruncations(fs, 1_000), f"{ROWS}/_part-0-0.in-progress"
    assert not late.begin(path, 5, 0)
    assert not late.is_done(path, 1_000)
    assert fs.asked == ["lease", "lease"]

    assert late.is_done(path, 1_001)
    assert fs.asked[-1] == "cut"
    assert fs.size(path) == 5
    assert late.fingerprint() == ()


def test_lease_and_cut_have_their_time_each() -> None:
    """The time that the lease has taken does not shorten the wait for the cut."""
    fs = Late(lease_after=1, cut_after=2)
    interrupted(fs)
    late, path = LateTruncations(fs, 1_000), f"{ROWS}/_part-0-0.in-progress"
    assert not late.begin(path, 5, 0)
    assert not late.is_done(path, 900)
    assert not late.is_done(path, 1_500)

    assert late.is_done(path, 1_900)


def test_patience_is_a_number() -> None:
    """Anything else is refused."""
    with pytest.raises(ConfigurationError, match="async_timeout_ms is -1"):
        BucketingSink("rows", async_timeout_ms=-1)


def test_a_job_waits_without_losing_its_end() -> None:
    """Source and sink in one task: the job neither ends nor writes before the part is cut, and has every row once."""
    fs = Late(cut_after=4)
    job = Job("late")
    job.source(SequenceSource(0, 40), name="numbers").sink(BucketingSink("rows"), name="rows")
    config = RunConfig(batch_size=2, checkpoint_interval=CheckpointInterval(records=10))
    execution = Execution(job.plan(), config, file_system=fs, output_dir="/out")
    execution.kill("rows[0]", 25_000)
    result = execution.run()

    result.raise_on_failure()
    assert result.attempts == 2
    assert fs.asked == ["lease", "cut"]
    assert fs.wanted == {}
    assert rows(fs) == sorted(map(str, range(40)))
