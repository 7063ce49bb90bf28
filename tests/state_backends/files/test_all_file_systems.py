"""The file-system port: the same contract on disk, in memory, and under an empty fault plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_backends.base import StorageInUseError
from state_backends.files import (
    TEMPORARY_SUFFIX,
    FaultInjectingFileSystem,
    FileSystem,
    LocalFileSystem,
    MemoryFileSystem,
    write_atomically,
)


@pytest.fixture(params=["local", "memory", "faulty"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    if request.param == "local":
        return LocalFileSystem()
    memory = MemoryFileSystem()
    return memory if request.param == "memory" else FaultInjectingFileSystem(memory)


@pytest.fixture
def root(fs: FileSystem, tmp_path: Path) -> str:
    """An existing empty directory."""
    path = str(tmp_path / "root")
    fs.make_dirs(path)
    return path


def write(fs: FileSystem, path: str, data: bytes) -> None:
    with fs.open_write(path) as file:
        file.write(data)


def test_a_written_file_can_be_read(fs: FileSystem, root: str) -> None:
    """The written bytes are read back, sizes and positions agree, and a buffered reader is returned."""
    path = f"{root}/a"
    with fs.open_write(path) as file:
        assert file.write(b"one\n") == 4
        assert file.write(b"two\nthree") == 9
        assert file.tell() == 13
        file.flush()
        assert fs.read_bytes(path) == b"one\ntwo\nthree"
        file.fsync()

    assert fs.size(path) == 13
    with fs.open_read(path) as reader:
        assert reader.readline() == b"one\n"
        assert reader.tell() == 4
        assert reader.seek(8) == 8
        assert reader.read() == b"three"


def test_writing_replaces_and_appending_continues(fs: FileSystem, root: str) -> None:
    """open_write empties a file, open_append continues at its end or creates it."""
    path = f"{root}/a"
    write(fs, path, b"long content")
    write(fs, path, b"x")
    with fs.open_append(path) as file:
        file.write(b"y")
        assert file.tell() == 2
    with fs.open_append(f"{root}/new") as file:
        file.write(b"z")

    assert fs.read_bytes(path) == b"xy"
    assert fs.read_bytes(f"{root}/new") == b"z"


def test_exclusive_creation_refuses_an_existing_file(fs: FileSystem, root: str) -> None:
    """With exclusive, an existing file is left alone."""
    write(fs, f"{root}/a", b"x")
    with pytest.raises(FileExistsError):
        fs.open_write(f"{root}/a", exclusive=True)
    fs.open_write(f"{root}/b", exclusive=True).close()

    assert fs.read_bytes(f"{root}/a") == b"x"
    assert fs.exists(f"{root}/b")


def test_closing_twice_is_harmless(fs: FileSystem, root: str) -> None:
    """A second close does nothing."""
    file = fs.open_write(f"{root}/a")
    file.close()
    file.close()

    assert fs.size(f"{root}/a") == 0


def test_truncate_cuts_and_extends(fs: FileSystem, root: str) -> None:
    """Truncation cuts at a byte and fills with zero bytes beyond the end."""
    write(fs, f"{root}/a", b"abcdef")
    fs.truncate(f"{root}/a", 2)
    assert fs.read_bytes(f"{root}/a") == b"ab"
    fs.truncate(f"{root}/a", 4)

    assert fs.read_bytes(f"{root}/a") == b"ab\0\0"


def test_rename_replaces_the_target(fs: FileSystem, root: str) -> None:
    """A rename moves a file over another one, across directories too; directories can be renamed."""
    fs.make_dirs(f"{root}/d/e")
    write(fs, f"{root}/a", b"new")
    write(fs, f"{root}/d/e/b", b"old")
    fs.rename(f"{root}/a", f"{root}/d/e/b")
    fs.rename(f"{root}/d", f"{root}/moved")

    assert fs.read_bytes(f"{root}/moved/e/b") == b"new"
    assert fs.list_dir(root) == ["moved"]


def test_links_are_two_names_of_one_file(fs: FileSystem, root: str) -> None:
    """A link survives the deletion of the first name; an existing target is refused."""
    write(fs, f"{root}/a", b"x")
    fs.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        fs.link(f"{root}/a", f"{root}/b")
    with fs.open_append(f"{root}/a") as file:
        file.write(b"y")
    fs.delete(f"{root}/a")

    assert fs.read_bytes(f"{root}/b") == b"xy"


def test_listing_is_sorted_and_walking_is_deep(fs: FileSystem, root: str) -> None:
    """Names are sorted; walking gives the files of all directories in order; a missing directory has none."""
    fs.make_dirs(f"{root}/b/inner")
    fs.make_dirs(f"{root}/empty")
    for name in ("z", "a", "b/2", "b/10", "b/inner/x"):
        write(fs, f"{root}/{name}", b"")

    assert fs.list_dir(root) == ["a", "b", "empty", "z"]
    assert [f"{root}/{name}" for name in ("a", "b/10", "b/2", "b/inner/x", "z")] == list(fs.walk_files(root))
    assert list(fs.walk_files(f"{root}/nothing")) == []


def test_existence_and_kind(fs: FileSystem, root: str) -> None:
    """Files and directories are told apart; make_dirs may be repeated."""
    fs.make_dirs(f"{root}/d")
    fs.make_dirs(f"{root}/d")
    write(fs, f"{root}/f", b"")

    assert fs.exists(f"{root}/d")
    assert fs.is_dir(f"{root}/d")
    assert fs.exists(f"{root}/f")
    assert not fs.is_dir(f"{root}/f")
    assert not fs.exists(f"{root}/missing")
    assert not fs.is_dir(f"{root}/f/below")


def test_deleting(fs: FileSystem, root: str) -> None:
    """A file is deleted alone, a tree with all in it; a missing tree is no error."""
    fs.make_dirs(f"{root}/d/e")
    write(fs, f"{root}/d/e/f", b"x")
    write(fs, f"{root}/d/g", b"x")
    fs.delete(f"{root}/d/g")
    assert fs.list_dir(f"{root}/d") == ["e"]
    fs.delete_tree(f"{root}/d")
    fs.delete_tree(f"{root}/d")

    assert fs.list_dir(root) == []


@pytest.mark.parametrize("operation", ["open_read", "read_bytes", "size", "delete", "list_dir", "fsync_dir"])
def test_a_missing_path_is_file_not_found(fs: FileSystem, root: str, operation: str) -> None:
    """Reading, sizing, deleting or listing what is not there raises FileNotFoundError with the path."""
    with pytest.raises(FileNotFoundError) as info:
        getattr(fs, operation)(f"{root}/missing")

    assert info.value.filename == f"{root}/missing"


def test_a_directory_that_has_moved_or_gone_is_not_found_where_it_was(fs: FileSystem, root: str) -> None:
    """After a rename of a directory, and after its deletion, its files are at their new paths only."""
    fs.make_dirs(f"{root}/old/inner")
    write(fs, f"{root}/old/inner/a", b"1")
    assert fs.exists(f"{root}/old/inner/a")

    fs.rename(f"{root}/old", f"{root}/new")
    assert not fs.exists(f"{root}/old/inner/a")
    assert fs.read_bytes(f"{root}/new/inner/a") == b"1"

    fs.delete_tree(f"{root}/new")
    assert not fs.exists(f"{root}/new/inner/a")
    fs.make_dirs(f"{root}/new/inner")
    assert fs.list_dir(f"{root}/new/inner") == []


def test_a_missing_directory_or_source_is_file_not_found(fs: FileSystem, root: str) -> None:
    """Files cannot be created in a missing directory, nor renamed or linked from a missing name."""
    with pytest.raises(FileNotFoundError):
        fs.open_write(f"{root}/missing/a")
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/missing", f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.link(f"{root}/missing", f"{root}/a")


def test_a_file_in_the_way_of_a_directory(fs: FileSystem, root: str) -> None:
    """A directory cannot be made where a file is, nor a directory be replaced by a file."""
    write(fs, f"{root}/f", b"")
    fs.make_dirs(f"{root}/d/x")
    with pytest.raises(NotADirectoryError):
        fs.make_dirs(f"{root}/f/below")
    with pytest.raises(IsADirectoryError):
        fs.rename(f"{root}/f", f"{root}/d")
    with pytest.raises(IsADirectoryError):
        fs.open_read(f"{root}/d")
    with pytest.raises(NotADirectoryError):
        fs.rename(f"{root}/d", f"{root}/f")


def test_write_atomically_replaces_and_leaves_no_temporary_file(fs: FileSystem, root: str) -> None:
    """The file has the new content and nothing else is left in the directory."""
    write(fs, f"{root}/a", b"old")
    write_atomically(fs, f"{root}/a", b"new")

    assert fs.read_bytes(f"{root}/a") == b"new"
    assert fs.list_dir(root) == ["a"]
    assert not fs.exists(f"{root}/a{TEMPORARY_SUFFIX}")


def test_a_directory_is_locked_by_one_holder(fs: FileSystem, root: str) -> None:
    """A second lock is refused until the first is released; releasing twice frees it once."""
    path = f"{root}/locked"
    lock = fs.lock_directory(path)
    with pytest.raises(StorageInUseError, match="is in use by") as info:
        fs.lock_directory(path)
    lock.release()
    again = fs.lock_directory(path)
    lock.release()
    with pytest.raises(StorageInUseError):
        fs.lock_directory(path)
    again.release()

    assert info.value.path == path
    assert lock.path == path
