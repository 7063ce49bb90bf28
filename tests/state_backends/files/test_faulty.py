"""The fault-injecting file system fails exactly the planned call, in the planned way, and no other."""

from __future__ import annotations

import errno

import pytest

from state_backends.files import (
    FaultInjectingFileSystem,
    FaultRule,
    FileFault,
    FileSystem,
    MemoryFileSystem,
    write_atomically,
)
from state_backends.files.faulty import Call, SimulatedCrashError


def faulty(*rules: FaultRule) -> FaultInjectingFileSystem:
    """A fault plan before a memory file system with the durable file /d/a = "old"."""
    memory = MemoryFileSystem()
    memory.make_dirs("/d")
    write_atomically(memory, "/d/a", b"old")
    return FaultInjectingFileSystem(memory, rules)


def put(fs: FileSystem, path: str, data: bytes) -> None:
    with fs.open_write(path) as file:
        file.write(data)


def test_an_error_before_leaves_everything_as_it_was() -> None:
    """ERROR_BEFORE raises an I/O error and does nothing."""
    fs = faulty(FaultRule(FileFault.ERROR_BEFORE, "rename"))
    with pytest.raises(OSError, match="Input/output error") as info:
        fs.rename("/d/a", "/d/b")

    assert info.value.errno == errno.EIO
    assert fs.list_dir("/d") == ["a"]


def test_an_error_after_has_happened_all_the_same() -> None:
    """ERROR_AFTER carries the call out and raises."""
    fs = faulty(FaultRule(FileFault.ERROR_AFTER, "rename"))
    with pytest.raises(OSError, match="Input/output error"):
        fs.rename("/d/a", "/d/b")

    assert fs.list_dir("/d") == ["b"]


def test_only_the_counted_call_on_the_matching_path_fails() -> None:
    """at_call counts matching calls from 1; other paths and operations are not counted."""
    fs = faulty(FaultRule(FileFault.ERROR_BEFORE, "open_write", "*/x*", at_call=2))
    put(fs, "/d/x1", b"")
    put(fs, "/d/y", b"")
    with pytest.raises(OSError, match="x2"):
        put(fs, "/d/x2", b"")
    put(fs, "/d/x3", b"")

    assert fs.list_dir("/d") == ["a", "x1", "x3", "y"]
    assert [(rule.at_call, call.path) for rule, call in fs.struck] == [(2, "/d/x2")]


def test_without_a_number_every_matching_call_fails() -> None:
    """at_call=None strikes each time."""
    fs = faulty(FaultRule(FileFault.ERROR_BEFORE, "delete"))
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            fs.delete("/d/a")

    assert fs.exists("/d/a")


def test_a_torn_write_leaves_a_prefix() -> None:
    """TORN_WRITE lets some bytes through and fails."""
    fs = faulty(FaultRule(FileFault.TORN_WRITE, "write", keep_bytes=2))
    with pytest.raises(OSError, match="Input/output"):
        put(fs, "/d/b", b"abcd")

    assert fs.read_bytes("/d/b") == b"ab"


def test_a_full_disk_fails_writes_but_not_deletions() -> None:
    """DISK_FULL strikes what needs space; deleting and reading still work."""
    fs = faulty(FaultRule(FileFault.DISK_FULL))
    with pytest.raises(OSError, match="No space left") as info:
        put(fs, "/d/b", b"abcd")
    assert info.value.errno == errno.ENOSPC
    assert fs.read_bytes("/d/a") == b"old"
    fs.delete("/d/a")

    assert not fs.exists("/d/a")


@pytest.mark.parametrize("operation", ["open_write", "delete", "make_dirs", "fsync_dir", "lock_directory"])
def test_a_read_only_file_system_refuses_changes(operation: str) -> None:
    """READ_ONLY strikes every change and no reading."""
    fs = faulty(FaultRule(FileFault.READ_ONLY))
    with pytest.raises(OSError, match="Read-only file system"):
        getattr(fs, operation)("/d")

    assert fs.read_bytes("/d/a") == b"old"


def test_a_bit_flip_changes_what_is_read_and_not_what_is_stored() -> None:
    """BIT_FLIP flips one bit of what a reader gets, wrapping around the file's size."""
    fs = faulty(FaultRule(FileFault.BIT_FLIP, "open_read", at_call=1, flip_bit=8 * 3 + 9))

    assert fs.read_bytes("/d/a") == b"o" + bytes([ord("l") ^ 2]) + b"d"
    assert fs.read_bytes("/d/a") == b"old"


def test_a_missing_file_is_there_for_others() -> None:
    """MISSING hides a file from reading and sizing."""
    fs = faulty(FaultRule(FileFault.MISSING, path="/d/a"))
    with pytest.raises(FileNotFoundError):
        fs.open_read("/d/a")
    with pytest.raises(FileNotFoundError):
        fs.size("/d/a")

    assert fs.inner.exists("/d/a")


@pytest.mark.parametrize(("kind", "names"), [(FileFault.CRASH_BEFORE, ["a"]), (FileFault.CRASH_AFTER, ["b"])])
def test_nothing_happens_after_a_crash(kind: FileFault, names: list[str]) -> None:
    """After a crash no call does anything, so clean-up code cannot tidy up what a dead process left."""
    fs = faulty(FaultRule(kind, "rename"))
    with pytest.raises(SimulatedCrashError):
        fs.rename("/d/a", "/d/b")
    with pytest.raises(SimulatedCrashError):
        fs.delete_tree("/d")

    assert fs.inner.list_dir("/d") == names
    assert not isinstance(SimulatedCrashError(), Exception)


def test_calls_are_recorded_in_order() -> None:
    """A test can run undisturbed, read the calls, and strike each of them in turn."""
    fs = faulty()
    write_atomically(fs, "/d/a", b"new")

    operations = ["open_write", "write", "fsync", "close", "rename", "fsync_dir"]
    assert operations == [call.operation for call in fs.calls]
    assert fs.calls[-2:] == [Call("rename", "/d/a"), Call("fsync_dir", "/d")]


def test_atomic_writing_survives_a_crash_at_every_call() -> None:
    """Struck before or after any call, write_atomically leaves the old or the new file, whole."""
    undisturbed = faulty()
    write_atomically(undisturbed, "/d/a", b"new")
    outcomes = []
    for at_call in range(1, len(undisturbed.calls) + 1):
        for kind in (FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER):
            for survives in (None, lambda path: True):
                fs = faulty(FaultRule(kind, at_call=at_call))
                with pytest.raises(SimulatedCrashError):
                    write_atomically(fs, "/d/a", b"new")
                assert isinstance(fs.inner, MemoryFileSystem)
                fs.inner.crash(survives)
                outcomes.append(fs.inner.read_bytes("/d/a"))

    assert set(outcomes) == {b"old", b"new"}


@pytest.mark.parametrize(
    ("kind", "operation"),
    [
        (FileFault.TORN_WRITE, "write"),
        *((FileFault.ERROR_BEFORE, operation) for operation in ("write", "fsync", "rename")),
        *((FileFault.DISK_FULL, operation) for operation in ("write", "fsync", "rename")),
    ],
)
def test_atomic_writing_that_fails_leaves_no_temporary_file(kind: FileFault, operation: str) -> None:
    """The old file is as it was; the job may go on, and no later start comes that deletes the other one."""
    fs = faulty(FaultRule(kind, operation, at_call=1))
    with pytest.raises(OSError, match="/d/a"):
        write_atomically(fs, "/d/a", b"new")

    assert fs.list_dir("/d") == ["a"]
    assert fs.read_bytes("/d/a") == b"old"


def test_a_truncated_file_is_read_without_its_end() -> None:
    """However it is read, once; its size is that of what is left, and the file itself is whole."""
    fs = faulty(
        FaultRule(FileFault.TRUNCATED, "open_read", at_call=1, keep_bytes=2),
        FaultRule(FileFault.TRUNCATED, "open_random", at_call=1, keep_bytes=1),
    )

    assert fs.read_bytes("/d/a") == b"ol"
    cut = fs.open_random("/d/a")
    assert (cut.size, cut.read_at(0, 9), cut.read_at(2, 9)) == (1, b"o", b"")
    assert fs.read_bytes("/d/a") == fs.open_random("/d/a").read_at(0, 9) == b"old"


def test_a_stale_listing_hides_the_names_that_were_made_last() -> None:
    """Those made through this file system, newest first; a name that was renamed away or never made here is not one."""
    fs = faulty(FaultRule(FileFault.STALE_LISTING, hide_names=2))
    for name in ("c", "b"):
        put(fs, f"/d/{name}.inprogress", b"")
        fs.rename(f"/d/{name}.inprogress", f"/d/{name}")
    fs.link("/d/a", "/d/z")

    assert fs.list_dir("/d") == ["a", "c"]
    assert fs.exists("/d/b")


def test_a_function_may_decide_call_by_call() -> None:
    """It is asked about each call that no rule strikes, with operation and paths; its answer is carried out."""
    asked: list[tuple[str, tuple[str, ...]]] = []

    def decide(operation: str, paths: tuple[str, ...]) -> FaultRule | None:
        asked.append((operation, paths))
        return FaultRule(FileFault.MISSING) if operation == "size" else None

    fs = FaultInjectingFileSystem(MemoryFileSystem(), [FaultRule(FileFault.READ_ONLY, "make_dirs")], decide=decide)
    put(fs, "/a", b"x")
    fs.rename("/a", "/b")

    with pytest.raises(FileNotFoundError):
        fs.size("/b")
    with pytest.raises(OSError, match="Read-only"):
        fs.make_dirs("/d")
    assert ("rename", ("/a", "/b")) in asked
    assert not [one for one in asked if one[0] == "make_dirs"]
    assert len(fs.struck) == 2
