"""The in-memory file system forgets in a crash exactly what was not made durable."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from state_backends.files import MemoryFileSystem, write_atomically


def memory_with(**files: bytes) -> MemoryFileSystem:
    """A file system whose files in /d are durable."""
    fs = MemoryFileSystem()
    fs.make_dirs("/d")
    for name, data in files.items():
        with fs.open_write(f"/d/{name}") as file:
            file.write(data)
            file.fsync()
    fs.fsync_dir("/d")
    return fs


def test_unsynced_bytes_are_lost() -> None:
    """Bytes after the last fsync are gone, those before it stay."""
    fs = memory_with(a=b"kept")
    with fs.open_append("/d/a") as file:
        file.write(b" lost")
        file.flush()
    fs.crash()

    assert fs.read_bytes("/d/a") == b"kept"


def test_an_unsynced_overwrite_is_undone() -> None:
    """Opening a file for writing and not syncing leaves the old content after a crash."""
    fs = memory_with(a=b"old")
    with fs.open_write("/d/a") as file:
        file.write(b"new")
    fs.crash()

    assert fs.read_bytes("/d/a") == b"old"


def test_a_synced_file_without_a_synced_name_is_lost() -> None:
    """fsync of a file does not make its name durable; fsync of the directory does."""
    fs = memory_with()
    for name in ("lost", "kept"):
        with fs.open_write(f"/d/{name}") as file:
            file.write(b"x")
            file.fsync()
        if name == "kept":
            fs.delete("/d/lost")
            fs.fsync_dir("/d")
    with fs.open_write("/d/lost") as file:
        file.fsync()
    fs.crash()

    assert fs.list_dir("/d") == ["kept"]


def test_a_synced_name_without_synced_bytes_is_an_empty_file() -> None:
    """The trap of renaming before fsync: the name survives, the content does not."""
    fs = memory_with()
    with fs.open_write("/d/a") as file:
        file.write(b"x")
    fs.fsync_dir("/d")
    fs.crash()

    assert fs.read_bytes("/d/a") == b""


@pytest.mark.parametrize("synced", [False, True])
def test_renames_links_and_deletions_need_a_directory_sync(synced: bool) -> None:
    """A rename over a file, a link and a deletion are undone by a crash unless the directory was synced."""
    fs = memory_with(a=b"a", b=b"b", c=b"c", d=b"d")
    fs.rename("/d/a", "/d/b")
    fs.delete("/d/c")
    fs.link("/d/d", "/d/e")
    if synced:
        fs.fsync_dir("/d")
    fs.crash()

    expected = {"b": b"a", "d": b"d", "e": b"d"} if synced else {"a": b"a", "b": b"b", "c": b"c", "d": b"d"}
    assert expected == {name: fs.read_bytes(f"/d/{name}") for name in fs.list_dir("/d")}


def test_a_rename_across_directories_may_be_half_durable() -> None:
    """Syncing only the target leaves the file under both names, only the source under none."""
    both, none = memory_with(a=b"x"), memory_with(a=b"x")
    for fs, synced in ((both, "/e"), (none, "/d")):
        fs.make_dirs("/e")
        fs.rename("/d/a", "/e/a")
        fs.fsync_dir(synced)
        fs.crash()

    assert (both.list_dir("/d"), both.list_dir("/e")) == (["a"], ["a"])
    assert (none.list_dir("/d"), none.list_dir("/e")) == ([], [])


@pytest.mark.parametrize("target", ["/d/new", "/e/new"], ids=["one directory", "two"])
@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("lost", [(), ("old",), ("new",), ("old", "new")], ids=" and ".join)
def test_a_rename_that_half_survives_keeps_the_file(target: str, over: bool, lost: tuple[str, ...]) -> None:
    """Whichever of its two names is lost by a power cut, the file is still there under one of them."""
    fs = memory_with(old=b"x")
    fs.make_dirs("/e")
    if over:
        with fs.open_write(target) as file:
            file.write(b"replaced")
            file.fsync()
        fs.fsync_dir(target[:2])
    fs.rename("/d/old", target)
    fs.crash(lambda path: path.rpartition("/")[2] not in lost)

    found = {path: fs.read_bytes(path) for path in ("/d/old", target) if fs.exists(path)}
    before = {"/d/old": b"x", target: b"replaced"} if over else {"/d/old": b"x"}
    after = {target: b"x"}
    both = {"/d/old": b"x", target: b"x"}
    assert found == {(): after, ("old",): both, ("new",): before, ("old", "new"): before}[lost]


def test_names_passed_on_are_gone_only_if_all_of_it_survives() -> None:
    """Through a chain of renames, and in a circle of them, the old names hang on the new ones."""
    chain, circle = memory_with(a=b"a"), memory_with(a=b"a", b=b"b")
    chain.rename("/d/a", "/d/b")
    chain.rename("/d/b", "/d/c")
    for source, target in (("a", "t"), ("b", "a"), ("t", "b")):
        circle.rename(f"/d/{source}", f"/d/{target}")
    chain.crash(lambda path: path != "/d/c")
    circle.crash(lambda path: path != "/d/b")

    assert chain.list_dir("/d") == ["a"]
    assert {name: circle.read_bytes(f"/d/{name}") for name in circle.list_dir("/d")} == {"a": b"a", "b": b"b"}


@st.composite
def changes(draw: st.DrawFn) -> tuple[MemoryFileSystem, dict[str, bytes]]:
    """A file system after renames and directory fsyncs in any order; the files that must survive any crash."""
    fs = memory_with()
    fs.make_dirs("/e")
    files = {f"/{directory}/{name}": name.encode() for directory in "de" for name in (f"{directory}1", f"{directory}2")}
    for path, data in files.items():
        with fs.open_write(path) as file:
            file.write(data)
            file.fsync()
    fs.fsync_dir("/d")
    fs.fsync_dir("/e")
    alive = dict(files)
    places = st.sampled_from([*files, "/d/x", "/e/x"])
    for _ in range(draw(st.integers(0, 6))):
        source, target = draw(places), draw(places)
        if source in alive and source != target:
            fs.rename(source, target)
            alive[target] = alive.pop(source)
        elif draw(st.booleans()):
            # Both, for a program that syncs only the old name's directory has asked for the loss.
            fs.fsync_dir("/d")
            fs.fsync_dir("/e")
    return fs, alive


@given(changes(), st.sets(st.sampled_from(["/d/d1", "/d/d2", "/e/e1", "/e/e2", "/d/x", "/e/x"])))
def test_no_rename_costs_a_file(made: tuple[MemoryFileSystem, dict[str, bytes]], lost: set[str]) -> None:
    """Whatever of some renames survives a power cut: every file that none of them replaced is found somewhere."""
    fs, alive = made
    fs.crash(lambda path: path not in lost)

    assert set(alive.values()) <= {fs.read_bytes(path) for path in fs.walk_files("/")}


def test_a_deleted_tree_comes_back_unless_synced() -> None:
    """Deleting a directory is a change of its parent's names."""
    fs = memory_with(a=b"x")
    fs.delete_tree("/d")
    fs.crash()
    assert fs.read_bytes("/d/a") == b"x"
    fs.delete_tree("/d")
    fs.fsync_dir("/")
    fs.crash()

    assert not fs.exists("/d")


def test_truncation_is_durable() -> None:
    """Bytes that truncate cut off do not come back."""
    fs = memory_with(a=b"abc")
    fs.truncate("/d/a", 1)
    fs.crash()

    assert fs.read_bytes("/d/a") == b"a"


def test_some_unsynced_changes_may_survive() -> None:
    """The chooser is asked about each unsynced name and content, in sorted order, and decides."""
    fs = memory_with(a=b"old")
    for name in ("a", "b", "c"):
        with fs.open_write(f"/d/{name}") as file:
            file.write(b"new")
    asked: list[str] = []

    def survives(path: str) -> bool:
        asked.append(path)
        return path != "/d/b"

    fs.crash(survives)

    # A surviving new file is asked about twice: does its name survive, and do its bytes?
    assert asked == ["/d/a", "/d/b", "/d/c", "/d/c"]
    assert {name: fs.read_bytes(f"/d/{name}") for name in fs.list_dir("/d")} == {"a": b"new", "c": b"new"}


def test_open_files_and_locks_do_not_outlive_a_crash() -> None:
    """A file opened before the crash cannot be written any more; the lock is free; an old lock frees nothing."""
    fs = memory_with(a=b"x")
    file = fs.open_append("/d/a")
    lock = fs.lock_directory("/d")
    fs.crash()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(b"y")
    fresh = fs.lock_directory("/d")
    lock.release()
    with pytest.raises(Exception, match="in use"):
        fs.lock_directory("/d")
    fresh.release()

    assert fs.crashes == 1


def test_two_names_stay_one_file_through_a_crash() -> None:
    """Durable hard links are still links afterwards."""
    fs = memory_with(a=b"x")
    fs.link("/d/a", "/d/b")
    fs.fsync_dir("/d")
    fs.crash()
    with fs.open_append("/d/a") as file:
        file.write(b"y")

    assert fs.read_bytes("/d/b") == b"xy"


def test_atomic_writes_are_durable_when_they_return() -> None:
    """After write_atomically returns, a crash changes nothing."""
    fs = memory_with(a=b"old")
    write_atomically(fs, "/d/a", b"new")
    fs.crash()

    assert fs.read_bytes("/d/a") == b"new"
    assert fs.list_dir("/d") == ["a"]


def test_a_fingerprint_is_what_readers_see() -> None:
    """Every name and every byte counts, and not whether they are durable."""
    fs = memory_with(a=b"1")
    found = [fs.fingerprint()]
    with fs.open_append("/d/a") as file:
        file.write(b"2")
        found.append(fs.fingerprint())
        file.fsync()
        assert fs.fingerprint() == found[-1]
    fs.make_dirs("/d/e")
    found.append(fs.fingerprint())
    fs.rename("/d/a", "/d/b")
    found.append(fs.fingerprint())
    fs.fsync_dir("/d")
    assert fs.fingerprint() == found[-1]
    assert len(set(found)) == 4
