"""The file sink struck at every single call to the file system: crash or error, before or after, and in recovery.

A small job writes numbered records through the sink; a coordinator in the test decides which checkpoints complete,
late, at once or never. The rules that must hold, whatever happens:

* what is visible is part of what the newest completed checkpoint covers, each record at most once;
* after a restore it is exactly that;
* at the end it is everything, once;
* the content of a visible file never changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.elements.errors import StorageError
from operators.files.file_sink import FileSink, read_committed
from state_backends.filesystem import (
    FaultInjectingFileSystem,
    FaultKind,
    FaultRule,
    MemoryFileSystem,
    SimulatedCrashError,
)
from tests.operators.harness import Checkpoint, Harness

RECORDS = 18
CHUNK = 3


class Job:
    """Writes ``0 .. RECORDS - 1`` through the sink, over as many attempts as it takes."""

    def __init__(self) -> None:
        self.disk = MemoryFileSystem()
        self.checkpoint: Checkpoint | None = None
        self.covered = 0
        self.next_id = 1
        self.incarnation = 1
        self.attempt = 0
        self.calls = 0
        self.contents: dict[str, bytes] = {}

    def run(self, rules: Sequence[FaultRule]) -> bool:
        """One attempt; true when the job has ended."""
        self.attempt += 1
        fs = FaultInjectingFileSystem(self.disk, rules)
        try:
            self._attempt(fs)
        except SimulatedCrashError:
            self.disk.crash()
            self.incarnation, self.attempt = self.incarnation + 1, 0
            return False
        except StorageError:
            return False
        finally:
            self.calls = len(fs.calls)
            self.check_visible()
        return True

    def _attempt(self, fs: FaultInjectingFileSystem) -> None:
        harness = Harness(
            FileSink("rows", bucket=lambda number: f"odd={number % 2}").create_operator(),
            fs=fs,
            restored=self.checkpoint,
            incarnation=self.incarnation,
            attempt=self.attempt,
        )
        assert self.visible() == Counter(range(self.covered))
        position = self.covered
        late = None
        while position < RECORDS:
            harness.process(range(position, position + CHUNK))
            position += CHUNK
            if late is not None:
                harness.complete(late)
                late = None
            checkpoint_id = self._snapshot(harness, position)
            if checkpoint_id % 3 == 1:
                harness.complete(checkpoint_id)
            elif checkpoint_id % 3 == 2:
                late = checkpoint_id
        harness.finish()
        checkpoint_id = self._snapshot(harness, position, last=True)
        harness.complete(checkpoint_id)
        harness.close()

    def _snapshot(self, harness: Harness, position: int, last: bool = False) -> int:
        """Take a checkpoint, which completes unless its number is a multiple of 3."""
        checkpoint_id = self.next_id
        self.next_id += 1
        checkpoint = harness.snapshot(checkpoint_id)
        if checkpoint_id % 3 or last:
            self.checkpoint, self.covered = checkpoint, position
        else:
            harness.operator.notify_checkpoint_aborted(checkpoint_id)
        return checkpoint_id

    def visible(self) -> Counter[int]:
        rows = read_committed(self.disk, "/out/rows")
        return Counter(int(row) for lines in rows.values() for row in lines)

    def check_visible(self) -> None:
        assert self.visible() <= Counter(range(self.covered))
        for path in self.disk.walk_files("/out/rows"):
            if not path.rpartition("/")[2].startswith("."):
                content = self.disk.read_bytes(path)
                assert self.contents.setdefault(path, content) == content, path

    def run_to_the_end(self) -> None:
        for _ in range(3):
            if self.run(()):
                break
        assert self.visible() == Counter(range(RECORDS))


def undisturbed_calls() -> int:
    job = Job()
    assert job.run(())
    return job.calls


CALLS = undisturbed_calls()
KINDS = (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER, FaultKind.ERROR_BEFORE, FaultKind.ERROR_AFTER)


@pytest.mark.parametrize("kind", KINDS)
def test_one_fault_at_every_call(kind: FaultKind) -> None:
    """Whichever call fails or is the last one before a crash, all records are committed once in the end."""
    assert CALLS > 100
    for call in range(1, CALLS + 1):
        job = Job()
        job.run([FaultRule(kind, at_call=call)])
        job.run_to_the_end()


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 60)), min_size=2, max_size=6))
@settings(max_examples=150)
def test_faults_in_attempt_after_attempt(faults: list[tuple[FaultKind, int]]) -> None:
    """Crashes and errors during recovery from crashes and errors change nothing either."""
    job = Job()
    for kind, call in faults:
        if job.run([FaultRule(kind, at_call=call)]):
            return
    job.run_to_the_end()


def test_a_torn_write_is_not_seen() -> None:
    """A write of which only a prefix got through leaves nothing visible."""
    for call in range(1, 15):
        job = Job()
        job.run([FaultRule(FaultKind.TORN_WRITE, "write", at_call=call, keep_bytes=1)])
        job.run_to_the_end()


class NoDirectorySync(MemoryFileSystem):
    """A file system on which directory fsyncs are forgotten: what the sink must not rely on."""

    def fsync_dir(self, path: str) -> None:
        pass


def test_the_directory_fsync_is_needed() -> None:
    """Without it some crash loses committed or pending files: the tests above can fail."""
    losses = 0
    for call in range(1, CALLS + 1):
        job = Job()
        job.disk = NoDirectorySync()
        try:
            job.run([FaultRule(FaultKind.CRASH_BEFORE, at_call=call)])
            job.run_to_the_end()
        except AssertionError:
            losses += 1
    assert losses


@pytest.mark.parametrize("committed", [False, True], ids=["hidden", "visible"])
def test_a_part_behind_the_checkpoint_goes_whatever_its_bucket_had_counted(committed: bool) -> None:
    """A bucket that had opened fewer parts than another goes on with its own, lower number: its part is taken back
    like any other."""
    disk = MemoryFileSystem()
    sink = FileSink("rows", bucket=lambda number: "often" if number < 100 else "rare")
    harness = Harness(sink.create_operator(), fs=disk, incarnation=1, attempt=1)
    harness.process([100, 1])
    harness.snapshot(1)
    harness.process([2])
    restored = harness.snapshot(2)
    harness.process([101])
    harness.snapshot(3)
    if committed:
        harness.complete(3)
    harness.operator.close()

    Harness(sink.create_operator(), fs=disk, restored=restored, incarnation=2, attempt=1)

    assert read_committed(disk, "/out/rows") == {"often": ["1", "2"], "rare": ["100"]}
    assert [path for path in disk.walk_files("/out/rows") if ".inprogress." in path] == []
