"""The file system that reports when a file of a checkpoint is written, made durable, or named."""

from __future__ import annotations

import pytest

from engine.faults.fault import parse_fault
from engine.faults.injector import FaultInjector
from engine.runtime.config import RunConfig
from engine.runtime.execution import Execution
from engine.runtime.faulted import JOB_MANAGER, StruckDown
from state_backends.files import FileSystem, MemoryFileSystem, write_atomically
from tests.faults.point_jobs import counting


def probed(*texts: str, actor: str | None = JOB_MANAGER) -> tuple[FileSystem, MemoryFileSystem, FaultInjector]:
    """A probing file system, the disk below it, and the injector; ``actor`` has just visited a point."""
    disk = MemoryFileSystem()
    disk.make_dirs("/c/job/chk-1")
    disk.make_dirs("/c/job/work")
    injector = FaultInjector([parse_fault(text) for text in texts])
    injector.install(Execution(counting().plan(), RunConfig(), interference=injector))
    if actor is not None:
        injector.at("complete.decide" if actor == JOB_MANAGER else "snapshot.async.step", "before", actor)
    return injector.wrap(disk, "checkpoints"), disk, injector


def file_points(injector: FaultInjector) -> list[tuple[str, str]]:
    """The visited points with files, without the phase in the middle of writes."""
    return [
        key
        for key in injector.points
        if not key[0].startswith(("complete", "snapshot.async.step")) and key[1] != "torn"
    ]


def test_metadata_is_told_from_state() -> None:
    """A file of state and the metadata have points of their own; local files and counters have none."""
    fs, _, injector = probed()
    with fs.open_write("/c/job/chk-1/state") as file:
        file.write(b"state")
        file.fsync()
    assert file_points(injector) == [
        (f"snapshot.async.{step}", phase) for step in ("rename", "write", "fsync") for phase in ("before", "after")
    ]

    fs, _, injector = probed()
    write_atomically(fs, "/c/job/chk-1/_metadata", b"metadata")
    points = ("manifest.write", "manifest.rename", "snapshot.async.dir-fsync")
    assert file_points(injector) == [(point, phase) for point in points for phase in ("before", "after")]

    fs, _, injector = probed()
    write_atomically(fs, "/c/job/incarnation", b"1")
    write_atomically(fs, "/c/job/work/sst", b"1")
    assert file_points(injector) == []


def test_a_torn_write_leaves_a_prefix() -> None:
    """Of the write in which its writer dies as many bytes are left as the fault says."""
    fs, disk, _ = probed("crash:job manager@torn:manifest.write=3")
    with pytest.raises(StruckDown):
        write_atomically(fs, "/c/job/chk-1/_metadata", b"metadata")

    assert disk.read_bytes("/c/job/chk-1/_metadata.inprogress") == b"met"


def test_a_dead_process_does_nothing_more() -> None:
    """Calls made while the dead process is unwound have no effect; calls of its successor do."""
    fs, disk, injector = probed("crash:job manager@after:manifest.rename")
    with pytest.raises(StruckDown) as struck:
        write_atomically(fs, "/c/job/chk-1/_metadata", b"metadata")
    with pytest.raises(StruckDown):
        fs.delete("/c/job/chk-1/_metadata")
    assert disk.exists("/c/job/chk-1/_metadata")

    struck.value.is_over = True
    fs.delete("/c/job/chk-1/_metadata")
    assert not disk.exists("/c/job/chk-1/_metadata")
    assert injector.struck == (parse_fault("crash:job manager@after:manifest.rename"),)


def test_nobody_comes_by_when_nobody_is_at_work() -> None:
    """Files that are written outside of any step, or by a zombie, are no visits."""
    fs, _, injector = probed(actor=None)
    write_atomically(fs, "/c/job/chk-1/_metadata", b"metadata")
    assert injector.points == {}

    injector.at("snapshot.async.step", "before", "zombie count[0]")
    write_atomically(fs, "/c/job/chk-1/_metadata", b"metadata")
    assert injector.points == {}
