"""The bucketing sink struck at every call to the file system, with and without truncation, and in recovery; and in real
jobs whose tasks are killed. The rules that must hold, for a reader who honours valid lengths, are those of
:mod:`tests.operators.files.attempts`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine.elements.errors import StorageError
from engine.graph import job as graph
from operators.files.bucketing import BucketingSink, read_bucketing_output
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from tests.cases import crossed
from tests.operators.files.attempts import KINDS, Numbers, by_parity, undisturbed_calls
from tests.operators.files.bucketing.test_sink import Untruncatable
from tests.operators.harness import Harness
from tests.runtime.support import every, execution


class Job(Numbers):
    """After a restore, exactly what its checkpoint covers is visible."""

    def __init__(self, disk: MemoryFileSystem, batch_size_bytes: int) -> None:
        sink = BucketingSink(
            "rows", bucketer=by_parity, batch_size_bytes=batch_size_bytes, inactive_check_interval_ms=7,
            inactive_threshold_ms=10,
        )  # fmt: skip
        super().__init__(sink, disk)

    def check_restored(self) -> None:
        assert self.visible() == Counter(range(self.covered))


DISKS = {"truncate": MemoryFileSystem, "valid length": Untruncatable}


@crossed(quick=2, disk=DISKS, batch_size_bytes=[5, 1_000], kind=KINDS)
def test_one_fault_at_every_call(disk: str, batch_size_bytes: int, kind: FileFault) -> None:
    """Whichever call fails or is the last one before a power failure, all records are there once in the end."""
    for call in range(1, undisturbed_calls(Job(DISKS[disk](), batch_size_bytes)) + 1):
        job = Job(DISKS[disk](), batch_size_bytes)
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
    job = Job(DISKS[disk](), batch_size_bytes)
    for kind, call, back in faults:
        if job.run([FaultRule(kind, at_call=call)]):
            return
        job.go_back(back)
    job.run_to_the_end()


@pytest.mark.parametrize("disk", DISKS)
def test_a_name_that_an_earlier_attempt_made_is_made_durable(disk: str) -> None:
    """If a rename's directory was not fsynced, the next attempt finds that and fsyncs it."""
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
    checkpoint = second.checkpoint(2)
    files.crash()
    Harness(sink.create_operator(), fs=files, restored=checkpoint, incarnation=2)
    rows = read_bucketing_output(files, "/out/rows")
    assert sorted(row for lines in rows.values() for row in lines) == [str(number) for number in range(10, 16)]


@pytest.mark.parametrize(
    ("disk", "last", "survives"),
    [
        ("truncate", ("delete", "_part-0-0.in-progress"), lambda path: path.endswith(".in-progress")),
        ("valid length", ("rename", "part-0-0"), lambda path: not path.endswith(".valid-length")),
    ],
)
def test_a_power_cut_in_a_restore_keeps_the_names_in_order(disk: str, last: tuple[str, str], survives: Any) -> None:
    """The copy has its name before the part loses its own, and the valid length is there before the part is."""
    files = DISKS[disk]()
    sink = BucketingSink("rows")
    first = Harness(sink.create_operator(), fs=files)
    first.process([1])
    checkpoint = first.snapshot(1)
    first.process([2])
    first.snapshot(2)
    done: list[tuple[str, str]] = []

    def strike(operation: str, paths: Any) -> FaultRule | None:
        if last in done and operation == "fsync_dir":
            return FaultRule(FileFault.CRASH_BEFORE)
        done.extend((operation, path.rpartition("/")[2]) for path in paths)
        return None

    with pytest.raises(SimulatedCrashError):
        Harness(sink.create_operator(), fs=FaultInjectingFileSystem(files, decide=strike), restored=checkpoint)
    files.crash(survives)
    assert read_bucketing_output(files, "/out/rows") in ({}, {"": ["1"]})
    Harness(sink.create_operator(), fs=files, restored=checkpoint, incarnation=2)
    assert read_bucketing_output(files, "/out/rows") == {"": ["1"]}


@pytest.mark.parametrize("disk", DISKS)
def test_what_a_restore_has_made_visible_outlives_a_power_cut(disk: str) -> None:
    """A reader that has seen it finds it again, before the job goes on: parts in progress, and pending ones."""
    files = DISKS[disk]()
    sink = BucketingSink("rows", batch_size_bytes=0, bucketer=by_parity)
    first = Harness(sink.create_operator(), fs=files)
    first.process([1, 3, 4])
    Harness(sink.create_operator(), fs=files, restored=first.snapshot(1), attempt=2)
    files.crash()
    rows = read_bucketing_output(files, "/out/rows")
    assert sorted(row for lines in rows.values() for row in lines) == ["1", "3", "4"]


@pytest.mark.parametrize("disk", DISKS)
def test_a_torn_write_is_not_seen(disk: str) -> None:
    """A write of which only a prefix got through leaves nothing visible, and no valid length that is half there."""
    for call in range(1, 15):
        job = Job(DISKS[disk](), 5)
        job.run([FaultRule(FileFault.TORN_WRITE, "write", at_call=call, keep_bytes=1)])
        job.run_to_the_end()


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("disk", DISKS)
def test_tasks_are_killed_in_a_job(disk: str, parallelism: int) -> None:
    """The same in a job with real checkpoints and restarts: every row is there once."""
    for killed_us in range(20, 400, 45):
        files = DISKS[disk]()
        job = graph.Job("numbers", parallelism=parallelism)
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
    """Before every call to the file system, also in the restore, a checkpoint covers what is visible."""
    for first_error in range(5, 90, 12):
        job = Job(DISKS[disk](), batch_size_bytes)
        left = [first_error]

        def look(_operation: str, _paths: object, job: Job = job, left: list[int] = left) -> FaultRule | None:
            job.check_visible()
            left[0] -= 1
            # An error, and not a power failure: what was written and never fsynced is still there.
            return None if left[0] else FaultRule(FileFault.ERROR_BEFORE)

        if not job.run((), look):
            assert job.run((), look)
