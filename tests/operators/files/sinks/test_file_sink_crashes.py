"""The file sink struck at every single call to the file system: crash or error, before or after, and in recovery.

A small job writes numbered records through the sink; a coordinator in the test decides which checkpoints complete,
late, at once or never. The rules that must hold, whatever happens and whenever parts are closed:

* what is visible is part of what the newest completed checkpoint covers, each record at most once;
* after a restore it is, together with what is in open parts, exactly that;
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
from operators.files.formats import JsonLinesRowFormat
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import BulkTextFormat, DefaultRollingPolicy
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.cases import crossed
from tests.operators.harness import Checkpoint, Harness

RECORDS = 18
CHUNK = 3


def by_parity(number: int) -> str:
    return f"odd={number % 2}"


SINKS: dict[str, FileSink] = {
    "on checkpoints": FileSink("rows", bucket=by_parity),
    "open for long": FileSink("rows", bucket=by_parity, rolling_policy=DefaultRollingPolicy()),
    "by size": FileSink("rows", bucket=by_parity, rolling_policy=DefaultRollingPolicy(max_part_size_bytes=5)),
    "never resumed": FileSink("rows", bucket=by_parity, rolling_policy=DefaultRollingPolicy(), resumes=False),
    "gzip": FileSink("rows", bucket=by_parity, format=BulkTextFormat(JsonLinesRowFormat())),
}


class Job:
    """Writes ``0 .. RECORDS - 1`` through the sink, over as many attempts as it takes."""

    def __init__(self, sink: FileSink = SINKS["on checkpoints"]) -> None:
        self.sink = sink
        self.disk = MemoryFileSystem()
        self.checkpoint: Checkpoint | None = None
        self.covered = 0
        self.next_id = 1
        self.incarnation = 1
        self.attempt = 0
        self.calls = 0
        self.contents: dict[str, bytes] = {}
        self.completed: list[tuple[Checkpoint, int]] = []
        self.reached = 0
        self.went_back = False

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
            self.sink.create_operator(),
            fs=fs,
            restored=self.checkpoint,
            incarnation=self.incarnation,
            attempt=self.attempt,
        )
        assert self.visible() + self.still_open() == Counter(range(self.covered))
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
            self.completed.append((checkpoint, position))
            self.reached = max(self.reached, position)
        else:
            harness.operator.notify_checkpoint_aborted(checkpoint_id)
        return checkpoint_id

    def go_back(self, checkpoints: int) -> None:
        """The newest completed checkpoints cannot be read: the next attempt begins with an older one. What it takes
        back may come again in other files."""
        for _ in range(min(checkpoints, len(self.completed) - 1)):
            self.completed.pop()
        if self.completed:
            self.checkpoint, self.covered = self.completed[-1]
        self.went_back = True

    def visible(self) -> Counter[int]:
        rows = read_committed(self.disk, "/out/rows", self.sink.format)
        return Counter(int(row) for lines in rows.values() for row in lines)

    def still_open(self) -> Counter[int]:
        """Rows in hidden files, all of which a restore leaves as its checkpoint has them."""
        open_parts = [path for path in self.disk.walk_files("/out/rows") if ".inprogress." in path]
        return Counter(int(row) for path in open_parts for row in self.disk.read_bytes(path).decode().splitlines())

    def check_visible(self) -> None:
        assert self.visible() <= Counter(range(self.reached))
        if self.went_back:
            return
        for path in self.disk.walk_files("/out/rows"):
            if not path.rpartition("/")[2].startswith("."):
                content = self.disk.read_bytes(path)
                assert self.contents.setdefault(path, content) == content, path

    def run_to_the_end(self) -> None:
        for _ in range(3):
            if self.run(()):
                break
        assert self.visible() == Counter(range(RECORDS))


def undisturbed_calls(sink: FileSink) -> int:
    job = Job(sink)
    assert job.run(())
    return job.calls


CALLS = undisturbed_calls(SINKS["on checkpoints"])
KINDS = (FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER, FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER)


@crossed(quick=2, name=SINKS, kind=KINDS)
def test_one_fault_at_every_call(name: str, kind: FileFault) -> None:
    """Whichever call fails or is the last one before a crash, all records are committed once in the end."""
    sink = SINKS[name]
    calls = undisturbed_calls(sink)
    assert calls > 40
    for call in range(1, calls + 1):
        job = Job(sink)
        job.run([FaultRule(kind, at_call=call)])
        job.run_to_the_end()


@given(
    st.sampled_from(list(SINKS)),
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 60)), min_size=2, max_size=6),
)
@settings(max_examples=250)
def test_faults_in_attempt_after_attempt(sink: str, faults: list[tuple[FileFault, int]]) -> None:
    """Crashes and errors during recovery from crashes and errors change nothing either."""
    job = Job(SINKS[sink])
    for kind, call in faults:
        if job.run([FaultRule(kind, at_call=call)]):
            return
    job.run_to_the_end()


@given(
    st.sampled_from(list(SINKS)),
    st.lists(st.tuples(st.integers(20, 100), st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=4),
)
@settings(max_examples=120)
def test_going_back_to_older_checkpoints(sink: str, attempts: list[tuple[int, int, int]]) -> None:
    """Whatever newer checkpoints have committed, an older one can be restored, also if crashes interrupt that, and all
    records are there once in the end."""
    job = Job(SINKS[sink])
    for call, back, call_of_the_restore in attempts:
        job.run([FaultRule(FileFault.CRASH_BEFORE, at_call=call)])
        job.go_back(back)
        fs = FaultInjectingFileSystem(job.disk, [FaultRule(FileFault.CRASH_AFTER, at_call=call_of_the_restore)])
        job.incarnation += 1
        try:
            restored = Harness(job.sink.create_operator(), fs=fs, restored=job.checkpoint, incarnation=job.incarnation)
            restored.operator.abandon()
        except SimulatedCrashError:
            job.disk.crash()
            job.check_visible()
        job.incarnation, job.attempt = job.incarnation + 1, 0
    job.run_to_the_end()


@pytest.mark.parametrize("resumes", [True, False], ids=["resumed", "committed as it was"])
def test_a_visible_file_is_never_cut(resumes: bool) -> None:
    """A file that was open in the older checkpoint is taken out of sight for good before it is cut: power may fail at
    any call of the restore."""
    sink = FileSink("rows", rolling_policy=DefaultRollingPolicy(), resumes=resumes)
    struck = 0
    for call in range(1, 40):
        disk = MemoryFileSystem()
        harness = Harness(sink.create_operator(), fs=disk)
        harness.process([1, 2])
        older = harness.snapshot(1)
        harness.process([3, 4])
        harness.finish()
        harness.snapshot(2)
        harness.complete(2)
        assert read_committed(disk, "/out/rows") == {"": ["1", "2", "3", "4"]}

        fs = FaultInjectingFileSystem(disk, [FaultRule(FileFault.CRASH_AFTER, at_call=call)])
        try:
            Harness(sink.create_operator(), fs=fs, restored=older, incarnation=2).operator.abandon()
        except SimulatedCrashError:
            struck += 1
            disk.crash()
            assert read_committed(disk, "/out/rows") in ({}, {"": ["1", "2", "3", "4"]}, {"": ["1", "2"]})
            if resumes:
                assert read_committed(disk, "/out/rows") in ({}, {"": ["1", "2", "3", "4"]})
        last = Harness(sink.create_operator(), fs=disk, restored=older, incarnation=3)
        last.process([3, 4, 5])
        last.finish()
        last.snapshot(3)
        last.complete(3)
        assert read_committed(disk, "/out/rows") == {"": ["1", "2", "3", "4", "5"]}
    assert struck > 5


@pytest.mark.parametrize("sink", SINKS)
def test_a_torn_write_is_not_seen(sink: str) -> None:
    """A write of which only a prefix got through leaves nothing visible."""
    for call in range(1, 15):
        job = Job(SINKS[sink])
        job.run([FaultRule(FileFault.TORN_WRITE, "write", at_call=call, keep_bytes=1)])
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
            job.run([FaultRule(FileFault.CRASH_BEFORE, at_call=call)])
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
