"""The file sink struck at every single call to the file system: crash or error, before or after, and in recovery. The
rules that must hold are those of :mod:`tests.operators.files.attempts`.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

from operators.files.formats import JsonLinesRowFormat
from operators.files.sinks import FileSink, read_committed
from operators.files.writing import BulkTextFormat, DefaultRollingPolicy
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.cases import crossed
from tests.operators.files.attempts import KINDS, ROWS, Numbers, Pipeline, by_parity, undisturbed_calls
from tests.operators.harness import Harness

SINKS: dict[str, FileSink] = {
    "on checkpoints": FileSink("rows", bucket=by_parity),
    "open for long": FileSink("rows", bucket=by_parity, rolling_policy=DefaultRollingPolicy()),
    "by size": FileSink("rows", bucket=by_parity, rolling_policy=DefaultRollingPolicy(max_part_size_bytes=5)),
    "never resumed": FileSink("rows", bucket=by_parity, rolling_policy=DefaultRollingPolicy(), resumes=False),
    "gzip": FileSink("rows", bucket=by_parity, format=BulkTextFormat(JsonLinesRowFormat())),
}


class Job(Numbers):
    """After a restore, exactly what its checkpoint covers is visible, or open as the checkpoint has it."""

    def check_restored(self) -> None:
        open_parts = [path for path in self.hidden() if ".inprogress." in path]
        still_open = [row for path in open_parts for row in self.disk.read_bytes(path).decode().splitlines()]
        assert self.visible() + Counter(map(int, still_open)) == Counter(range(self.covered))


@crossed(quick=2, name=SINKS, kind=KINDS)
def test_one_fault_at_every_call(name: str, kind: FileFault) -> None:
    """Whichever call fails or is the last one before a crash, all records are committed once in the end."""
    sink = SINKS[name]
    for call in range(1, undisturbed_calls(Job(sink)) + 1):
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
            job.start(fs).harnesses[0].operator.abandon()
        except SimulatedCrashError:
            job.disk.crash()
            job.check_visible()
        job.incarnation, job.attempt = job.incarnation + 1, 0
    job.run_to_the_end()


def test_going_back_again_after_going_back() -> None:
    """The only remainder of a part may be what the restore of a newer checkpoint set aside; the part begins with it."""
    job = Job(SINKS["open for long"])
    job.run([FaultRule(FileFault.CRASH_BEFORE, at_call=20)])
    assert job.run()
    for checkpoints in (2, 1):
        job.go_back(checkpoints)
        job.incarnation += 1
        job.start(job.disk).harnesses[0].operator.abandon()
    job.incarnation += 1
    job.run_to_the_end()


OPEN = FileSink("rows", rolling_policy=DefaultRollingPolicy())
AS_IT_WAS = FileSink("rows", rolling_policy=DefaultRollingPolicy(), resumes=False)


@pytest.mark.parametrize(
    "sink", [OPEN, AS_IT_WAS, OPEN.with_committer()], ids=["resumed", "committed as it was", "with a committer"]
)
def test_a_visible_file_is_never_cut(sink: FileSink) -> None:
    """A file committed since is hidden for good before it is cut, wherever power fails."""
    everything = {"": ["1", "2", "3", "4"]}
    struck = 0
    for call in range(1, 40):
        disk = MemoryFileSystem()
        first = Pipeline(sink, disk)
        first.process([1, 2])
        older = first.snapshot(1)
        first.process([3, 4])
        first.finish()
        first.checkpoint(2)
        assert read_committed(disk, ROWS) == everything

        fs = FaultInjectingFileSystem(disk, [FaultRule(FileFault.CRASH_AFTER, at_call=call)])
        try:
            Pipeline(sink, fs, older, incarnation=2).close()
        except SimulatedCrashError:
            struck += 1
            disk.crash()
            allowed = [{}, everything] if sink.resumes else [{}, everything, {"": ["1", "2"]}]
            assert read_committed(disk, ROWS) in allowed
        last = Pipeline(sink, disk, older, incarnation=3)
        last.process([3, 4, 5])
        last.finish()
        last.checkpoint(3)
        assert read_committed(disk, ROWS) == {"": ["1", "2", "3", "4", "5"]}
    assert struck > 5


@pytest.mark.parametrize("sink", SINKS)
def test_a_torn_write_is_not_seen(sink: str) -> None:
    """A write of which only a prefix got through leaves nothing visible."""
    for call in range(1, 15):
        job = Job(SINKS[sink])
        job.run([FaultRule(FileFault.TORN_WRITE, "write", at_call=call, keep_bytes=1)])
        job.run_to_the_end()


class NoDirectorySync(MemoryFileSystem):
    """A file system that ignores directory fsyncs."""

    def fsync_dir(self, path: str) -> None:
        pass


def test_the_directory_fsync_is_needed() -> None:
    """Without it some crash loses committed or pending files: the tests above can fail."""
    losses = 0
    sink = SINKS["on checkpoints"]
    for call in range(1, undisturbed_calls(Job(sink)) + 1):
        job = Job(sink, NoDirectorySync())
        try:
            job.run([FaultRule(FileFault.CRASH_BEFORE, at_call=call)])
            job.run_to_the_end()
        except AssertionError:
            losses += 1
    assert losses


@pytest.mark.parametrize("committed", [False, True], ids=["hidden", "visible"])
def test_a_part_behind_the_checkpoint_goes_whatever_its_bucket_had_counted(committed: bool) -> None:
    """The part of a bucket with a lower number than others is taken back like any other."""
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
