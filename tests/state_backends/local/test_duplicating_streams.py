"""Streams that are written twice: the primary decides, the secondary is a copy or nothing."""

from __future__ import annotations

import pytest

from state_backends.base import SnapshotCancelledError
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from state_backends.local.duplicating_streams import DuplicatingStreamFactory
from state_backends.snapshots import (
    ByteStreamStateHandle,
    CheckpointLocation,
    CheckpointStream,
    FileStateHandle,
    StateScope,
    StreamStateHandle,
)


class Both:
    """A factory over two file systems, either of which may have faults; nothing is inlined by the primary."""

    def __init__(self, primary: list[FaultRule] | None = None, secondary: list[FaultRule] | None = None) -> None:
        self.primary = FaultInjectingFileSystem(MemoryFileSystem(), primary or [])
        self.secondary = FaultInjectingFileSystem(MemoryFileSystem(), secondary or [])
        self.problems: list[Exception] = []
        self.remote = self.location(self.primary)
        self.local = self.location(self.secondary)
        self.factory = DuplicatingStreamFactory(
            self.remote.stream_factory("u"), self.local.stream_factory("u"), self.problems.append
        )

    @staticmethod
    def location(fs: FileSystem) -> CheckpointLocation:
        directory = "/x"
        assert isinstance(fs, FaultInjectingFileSystem)
        fs.inner.make_dirs(f"{directory}/shared")
        return CheckpointLocation(fs, 1, directory, directory, 0)

    def files(self) -> tuple[list[str], list[str]]:
        return list(self.primary.inner.walk_files("/")), list(self.secondary.inner.walk_files("/"))

    def stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
        stream = self.factory.create_stream(scope)
        stream.write(b"hello ")
        stream.write(b"world")
        return stream


def written_and_finished(stream: CheckpointStream) -> None:
    stream.write(b"hello ")
    stream.write(b"world")
    stream.close_and_get_handle()


def finished(stream: CheckpointStream) -> StreamStateHandle:
    handle = stream.close_and_get_handle()
    assert handle is not None
    return handle


@pytest.mark.parametrize("scope", [StateScope.EXCLUSIVE, StateScope.SHARED])
def test_both_have_the_bytes(scope: StateScope) -> None:
    """The handle is the primary's; the copy is known under it, and is private whatever the primary's scope."""
    both = Both()
    stream = both.stream(scope)
    assert stream.tell() == 11
    handle = finished(stream)

    copy = both.factory.copies[handle]
    assert isinstance(handle, FileStateHandle)
    assert isinstance(copy, FileStateHandle)
    assert (handle.scope, copy.scope) == (scope, StateScope.EXCLUSIVE)
    assert (handle.size_bytes, handle.checksum) == (copy.size_bytes, copy.checksum)
    assert both.remote.reader().open(handle).read() == both.local.reader().open(copy).read() == b"hello world"
    assert both.problems == []


def test_inlined_bytes_are_not_copied() -> None:
    """Inlined bytes travel in the handle: no file, no copy."""
    fs = MemoryFileSystem()
    fs.make_dirs("/x")
    inlined = CheckpointLocation(fs, 1, "/x", None, 100)
    both = Both()
    secondary = both.local.stream_factory("u")
    factory = DuplicatingStreamFactory(inlined.stream_factory("u"), secondary, both.problems.append)
    stream = factory.create_stream()
    stream.write(b"small")

    assert stream.close_and_get_handle() == ByteStreamStateHandle(b"small")
    assert factory.copies == {}
    assert both.files() == ([], [])


def test_nothing_written_is_no_handle_and_no_copy() -> None:
    """A stream without bytes gives nothing on either side."""
    both = Both()

    assert both.factory.create_stream().close_and_get_handle() is None
    assert (both.factory.copies, both.files(), both.problems) == ({}, ([], []), [])


@pytest.mark.parametrize(("operation", "at_call"), [("open_write", 1), ("write", 1), ("write", 2), ("fsync", 1)])
def test_a_secondary_failure_is_only_reported(operation: str, at_call: int) -> None:
    """Wherever the copy fails: one report, the primary is whole, and no half copy is left."""
    both = Both(secondary=[FaultRule(FileFault.DISK_FULL, operation, at_call=at_call)])
    handle = finished(both.stream())

    assert both.remote.reader().open(handle).read() == b"hello world"
    assert len(both.problems) == 1
    assert both.factory.copies == {}
    assert both.files()[1] == []


def test_a_secondary_that_cannot_be_opened_is_only_reported() -> None:
    """The factory of copies may refuse; the primary does not mind."""
    both = Both()

    class Refusing:
        def create_stream(self, scope: StateScope = StateScope.EXCLUSIVE) -> CheckpointStream:
            raise OSError("no directory")

    factory = DuplicatingStreamFactory(both.remote.stream_factory("u"), Refusing(), both.problems.append)
    stream = factory.create_stream()
    stream.write(b"x")

    assert finished(stream)
    assert [str(problem) for problem in both.problems] == ["no directory"]


@pytest.mark.parametrize(("operation", "at_call"), [("open_write", 1), ("write", 1), ("write", 2), ("fsync", 1)])
def test_a_primary_failure_fails_the_stream_and_deletes_both(operation: str, at_call: int) -> None:
    """The error comes through; after the snapshot's task has closed the stream nothing is left on either side."""
    both = Both(primary=[FaultRule(FileFault.DISK_FULL, operation, at_call=at_call)])
    stream = both.factory.create_stream()
    with pytest.raises(OSError, match="No space left"):
        written_and_finished(stream)
    stream.close()

    assert both.files() == ([], [])
    assert (both.factory.copies, both.problems) == ({}, [])


def test_a_primary_that_cannot_be_finished_takes_the_copy_with_it() -> None:
    """The copy is deleted at once, not only when the stream is closed."""
    both = Both(primary=[FaultRule(FileFault.DISK_FULL, "fsync", at_call=1)])
    stream = both.stream()
    with pytest.raises(OSError, match="No space left"):
        stream.close_and_get_handle()

    assert both.files() == ([], [])


def test_giving_up_deletes_both() -> None:
    """Closing an unfinished stream leaves nothing; after that it cannot be used."""
    both = Both()
    stream = both.stream()
    stream.close()
    stream.close()

    assert both.files() == ([], [])
    with pytest.raises(SnapshotCancelledError):
        stream.close_and_get_handle()


def test_closing_a_finished_stream_changes_nothing() -> None:
    """Neither file goes."""
    both = Both()
    stream = both.stream()
    handle = finished(stream)
    stream.close()

    assert [len(files) for files in both.files()] == [1, 1]
    assert handle in both.factory.copies


def test_discarding_a_finished_stream_deletes_both() -> None:
    """Streams that a failed snapshot had finished are deleted on both sides, and the copy is forgotten."""
    both = Both()
    stream = both.stream()
    finished(stream)
    stream.discard()
    stream.discard()

    assert both.files() == ([], [])
    assert both.factory.copies == {}


@pytest.mark.parametrize("operation", ["close", "discard"])
def test_the_copy_goes_though_the_primary_cannot_be_deleted(operation: str) -> None:
    """The primary's error comes through, and the secondary is not forgotten over it."""
    both = Both(primary=[FaultRule(FileFault.ERROR_BEFORE, "delete", at_call=1)])
    stream = both.stream()
    with pytest.raises(OSError, match="error"):
        getattr(stream, operation)()

    assert both.files()[1] == []


def test_a_copy_that_cannot_be_deleted_is_reported() -> None:
    """It costs space, but does not hide the current error."""
    both = Both(secondary=[FaultRule(FileFault.ERROR_BEFORE, "delete", at_call=1)])
    both.stream().close()

    assert both.files()[0] == []
    assert len(both.problems) == 1


def test_the_end_of_the_process_is_no_secondary_failure() -> None:
    """A crash while the copy is written is a crash."""
    both = Both(secondary=[FaultRule(FileFault.CRASH_BEFORE, "write", at_call=1)])
    with pytest.raises(SimulatedCrashError):
        both.stream()

    assert both.problems == []
