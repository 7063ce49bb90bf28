"""The bucketing sink struck at every call to the file system, with and without truncation, and in recovery; and in real
jobs whose tasks are killed.

The rules that must hold, whatever happens, for a reader who honours valid lengths:

* what is visible is part of what the newest completed checkpoint covers, each record at most once;
* after a restore it is at least what the checkpoint says was pending or in progress: exactly all of it;
* at the end it is everything, once;
* the rows of a visible part never change.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.elements.errors import StorageError
from engine.graph.job import Job
from operators.files.bucketing import BucketingNames, BucketingSink, read_bucketing_output
from operators.files.bucketing.names import FINISHED
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import Decide, SimulatedCrashError
from tests.cases import crossed
from tests.operators.harness import Checkpoint, Harness
from tests.runtime.support import every, execution

RECORDS = 18
CHUNK = 3
NAMES = BucketingNames()
MS = 1_000_000


class Untruncatable(MemoryFileSystem):
    """Cannot cut files."""

    def truncate(self, path: str, size_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no truncate", path)


def by_parity(number: int) -> str:
    return f"odd={number % 2}"


class Numbers:
    """Writes ``0 .. RECORDS - 1`` through the sink, over as many attempts as it takes."""

    def __init__(self, disk: MemoryFileSystem, batch_size_bytes: int) -> None:
        self.disk = disk
        self.sink = BucketingSink(
            "rows", bucketer=by_parity, batch_size_bytes=batch_size_bytes, inactive_check_interval_ms=7,
            inactive_threshold_ms=10,
        )  # fmt: skip
        self.completed: list[tuple[Checkpoint | None, int]] = [(None, 0)]
        """Checkpoints that could be restored, and how many records they cover."""
        self.next_id = 1
        self.incarnation, self.attempt, self.calls = 1, 0, 0
        self.now_ms = 0
        self.task: Harness | None = None
        self.seen: dict[str, list[str]] = {}
        self.went_back = False
        """And no attempt has come through its restore since."""

    @property
    def covered(self) -> int:
        return self.completed[-1][1]

    def go_back(self, checkpoints: int) -> None:
        """The newest checkpoints cannot be read; the first one always can."""
        left = max(len(self.completed) - checkpoints, min(len(self.completed), 2))
        if left < len(self.completed):
            del self.completed[left:]
            self.seen.clear()
            self.went_back = True

    def run(self, rules: Sequence[FaultRule], decide: Decide | None = None) -> bool:
        """One attempt; true when the job has ended."""
        self.attempt += 1
        fs = FaultInjectingFileSystem(self.disk, rules, decide=decide)
        try:
            self._attempt(fs)
        except SimulatedCrashError:
            self.disk.crash()
            self.incarnation, self.attempt = self.incarnation + 1, 0
            return False
        except StorageError:
            if self.task is not None:
                self.task.close()
            return False
        finally:
            self.task = None
            self.calls = len(fs.calls)
            self.check_visible()
        return True

    def _attempt(self, fs: FaultInjectingFileSystem) -> None:
        task = Harness(
            self.sink.create_operator(),
            fs=fs,
            restored=self.completed[-1][0],
            incarnation=self.incarnation,
            attempt=self.attempt,
            now_ns=self.now_ms * MS,
        )
        self.task, self.went_back = task, False
        assert self.visible() == Counter(range(self.covered))
        position, late = self.covered, None
        while position < RECORDS:
            task.process(range(position, position + CHUNK))
            position += CHUNK
            self.now_ms += 4
            task.advance_to_ns(self.now_ms * MS)
            if late is not None:
                task.complete(late)
                late = None
            checkpoint_id = self._snapshot(task, position)
            if checkpoint_id % 3 == 1:
                task.complete(checkpoint_id)
            elif checkpoint_id % 3 == 2:
                late = checkpoint_id
        task.finish()
        task.complete(self._snapshot(task, position, last=True))
        task.close()

    def _snapshot(self, task: Harness, position: int, last: bool = False) -> int:
        """Take a checkpoint, which completes unless its number is a multiple of 3."""
        checkpoint_id = self.next_id
        self.next_id += 1
        checkpoint = task.snapshot(checkpoint_id)
        if checkpoint_id % 3 or last:
            self.completed.append((checkpoint, position))
        return checkpoint_id

    def visible(self) -> Counter[int]:
        rows = read_bucketing_output(self.disk, "/out/rows")
        return Counter(int(row) for lines in rows.values() for row in lines)

    def check_visible(self) -> None:
        if self.went_back:
            return
        assert self.visible() <= Counter(range(self.covered))
        for path in self.disk.walk_files("/out/rows"):
            directory, _, name = path.rpartition("/")
            if NAMES.kind_of(name) == FINISHED:
                rows = read_part(self.disk, directory, name)
                assert self.seen.setdefault(path, rows) == rows, path

    def run_to_the_end(self) -> None:
        for _ in range(3):
            if self.run(()):
                break
        assert self.visible() == Counter(range(RECORDS))


def read_part(disk: MemoryFileSystem, directory: str, name: str) -> list[str]:
    """The valid rows of one part."""
    alone = MemoryFileSystem()
    alone.make_dirs("/part")
    for one in (name, NAMES.valid_length(name)):
        if disk.exists(f"{directory}/{one}"):
            with alone.open_write(f"/part/{one}") as file:
                file.write(disk.read_bytes(f"{directory}/{one}"))
    return read_bucketing_output(alone, "/part")[""]


DISKS = {"truncate": MemoryFileSystem, "valid length": Untruncatable}
KINDS = (FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER, FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER)


@crossed(quick=2, disk=DISKS, batch_size_bytes=[5, 1_000], kind=KINDS)
def test_one_fault_at_every_call(disk: str, batch_size_bytes: int, kind: FileFault) -> None:
    """Whichever call fails or is the last one before a power failure, all records are there once in the end."""
    undisturbed = Numbers(DISKS[disk](), batch_size_bytes)
    assert undisturbed.run(())
    assert undisturbed.calls > 40
    for call in range(1, undisturbed.calls + 1):
        job = Numbers(DISKS[disk](), batch_size_bytes)
        job.run([FaultRule(kind, at_call=call)])
        job.run_to_the_end()


@given(
    st.sampled_from(list(DISKS)),
    st.sampled_from([0, 5, 1_000]),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 60), st.integers(0, 2)), min_size=2, max_size=6),
)
@settings(max_examples=150)
def test_faults_in_attempt_after_attempt(
    disk: str, batch_size_bytes: int, faults: list[tuple[FileFault, int, int]]
) -> None:
    """Crashes and errors during recovery from crashes and errors change nothing either; nor does it that the newest
    checkpoints cannot be read."""
    job = Numbers(DISKS[disk](), batch_size_bytes)
    for kind, call, back in faults:
        if job.run([FaultRule(kind, at_call=call)]):
            return
        job.go_back(back)
    job.run_to_the_end()


@pytest.mark.parametrize("disk", DISKS)
def test_a_name_that_an_earlier_attempt_made_is_made_durable(disk: str) -> None:
    """Parts were renamed, and fsyncing the directory failed. The next attempt finds the new names, and its checkpoints
    do not tell of those parts any more: a power cut must not take the names away."""
    files = DISKS[disk]()
    strikes: list[str] = []
    failing = FaultInjectingFileSystem(
        files, decide=lambda operation, _: FaultRule(FileFault.ERROR_BEFORE) if operation in strikes else None
    )
    sink = BucketingSink("rows", bucketer=by_parity, batch_size_bytes=3)
    first = Harness(sink.create_operator(), fs=failing)
    first.process(range(10, 16))
    # No part is in progress: nothing else makes the next attempt touch the directory.
    first.finish()
    checkpoint = first.snapshot(1)
    strikes.append("fsync_dir")
    with pytest.raises(StorageError):
        first.complete(1)

    second = Harness(sink.create_operator(), fs=files, restored=checkpoint, attempt=2)
    checkpoint = second.snapshot(2)
    second.complete(2)
    files.crash()
    Harness(sink.create_operator(), fs=files, restored=checkpoint, incarnation=2)
    rows = read_bucketing_output(files, "/out/rows")
    assert sorted(row for lines in rows.values() for row in lines) == [str(number) for number in range(10, 16)]


@pytest.mark.parametrize("disk", DISKS)
def test_a_torn_write_is_not_seen(disk: str) -> None:
    """A write of which only a prefix got through leaves nothing visible, and no valid length that is half there."""
    for call in range(1, 15):
        job = Numbers(DISKS[disk](), 5)
        job.run([FaultRule(FileFault.TORN_WRITE, "write", at_call=call, keep_bytes=1)])
        job.run_to_the_end()


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("disk", DISKS)
def test_tasks_are_killed_in_a_job(disk: str, parallelism: int) -> None:
    """The same in a job with real checkpoints and restarts: every row is there once."""
    for killed_us in range(20, 400, 45):
        files = DISKS[disk]()
        job = Job("numbers", parallelism=parallelism)
        numbers = job.source(SequenceSource(0, 300), name="numbers")
        numbers.sink(BucketingSink("rows", bucketer=by_parity, batch_size_bytes=60), name="rows")
        run = execution(
            job,
            file_system=files,
            batch_size=4,
            checkpoint_interval=every(records=40),
            kills=[("rows[0]", killed_us * 1_000), ("numbers[0]", (killed_us + 90) * 1_000)],
        )
        result = run.run().raise_on_failure()
        assert result.attempts > 1 or killed_us > 300
        rows = read_bucketing_output(files, "/out/rows")
        assert Counter(int(row) for lines in rows.values() for row in lines) == Counter(range(300)), killed_us


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("batch_size_bytes", [5, 1_000])
def test_a_reader_looks_at_every_moment(disk: str, batch_size_bytes: int) -> None:
    """Before every call to the file system, of the restore too, what is visible is covered by a checkpoint."""
    for first_error in range(5, 90, 12):
        job = Numbers(DISKS[disk](), batch_size_bytes)
        left = [first_error]

        def look(_operation: str, _paths: object, job: Numbers = job, left: list[int] = left) -> FaultRule | None:
            job.check_visible()
            left[0] -= 1
            # An error, and not a power failure: what was written and never fsynced is still there.
            return None if left[0] else FaultRule(FileFault.ERROR_BEFORE)

        if not job.run((), look):
            assert job.run((), look)
