"""The file-system port over fsspec: the contract on a disk, in memory, on an object store, and the latter's limits."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

import state_backends.files.over_fsspec as module
from state_backends.base import StateArgumentError, StateBackendError, StorageInUseError, StorageNotWritableError
from state_backends.files import TEMPORARY_SUFFIX, FileSystem, LocalFileSystem, file_system_for, write_atomically
from state_backends.files.over_fsspec import MARKER_NAME, FsspecFileSystem
from state_backends.snapshots import CheckpointMetadata, CheckpointStorage
from tests.state_backends.files.test_all_file_systems import (
    test_a_directory_is_locked_by_one_holder,
    test_a_file_in_the_way_of_a_directory,
    test_a_missing_directory_or_source_is_file_not_found,
    test_a_missing_path_is_file_not_found,
    test_a_written_file_can_be_read,
    test_closing_twice_is_harmless,
    test_deleting,
    test_exclusive_creation_refuses_an_existing_file,
    test_existence_and_kind,
    test_listing_is_sorted_and_walking_is_deep,
    test_rename_replaces_the_target,
    test_truncate_cuts_and_extends,
    test_write_atomically_replaces_and_leaves_no_temporary_file,
    test_writing_replaces_and_appending_continues,
    write,
)

CONTRACT = (
    # Links are missing: to two names of one file, an object store has no answer.
    test_a_directory_is_locked_by_one_holder,
    test_a_file_in_the_way_of_a_directory,
    test_a_missing_directory_or_source_is_file_not_found,
    test_a_missing_path_is_file_not_found,
    test_a_written_file_can_be_read,
    test_closing_twice_is_harmless,
    test_deleting,
    test_exclusive_creation_refuses_an_existing_file,
    test_existence_and_kind,
    test_listing_is_sorted_and_walking_is_deep,
    test_rename_replaces_the_target,
    test_truncate_cuts_and_extends,
    test_write_atomically_replaces_and_leaves_no_temporary_file,
    test_writing_replaces_and_appending_continues,
)


class Bucket(AbstractFileSystem):
    """A typical object store: names and bytes, no directories, no appending, objects whole when closed.

    Listings are remembered, as by the real ones, until they are told not to be believed.
    """

    protocol = "bucket"
    cachable = False
    objects: dict[str, bytes]
    broken: Exception | None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.objects = {}
        self.broken = None
        self.remembered: dict[str, list[dict[str, Any]]] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return str(super()._strip_protocol(path)).strip("/")

    def invalidate_cache(self, path: str | None = None) -> None:
        self.remembered.clear()

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        if self.broken is not None:
            raise self.broken
        path = self._strip_protocol(path)
        if path not in self.remembered:
            self.remembered[path] = self._listed(path)
        found = self.remembered[path]
        if not found:
            raise FileNotFoundError(path)
        return found if detail else [one["name"] for one in found]

    def _listed(self, path: str) -> list[dict[str, Any]]:
        if path in self.objects:
            return [{"name": path, "size": len(self.objects[path]), "type": "file"}]
        start = path and f"{path}/"
        below = [name.removeprefix(start) for name in self.objects if name.startswith(start)]
        found = {}
        for name in below:
            first, _, rest = name.partition("/")
            full = f"{path}/{first}" if path else first
            size = 0 if rest else len(self.objects[full])
            found[full] = {"name": full, "size": size, "type": "directory" if rest else "file"}
        return [found[name] for name in sorted(found)]

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """There are none."""

    def _rm(self, path: str) -> None:
        self.objects.pop(self._strip_protocol(path), None)

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        if self._strip_protocol(path1) in self.objects:
            self.objects[self._strip_protocol(path2)] = self.objects[self._strip_protocol(path1)]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        return self.objects[self._strip_protocol(path)][start:end]

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            return io.BufferedReader(io.BytesIO(self.objects[path]))  # type: ignore[arg-type]
        if mode != "wb":
            raise NotImplementedError(mode)
        return _Upload(self, path, mode)


class _Upload(AbstractBufferedFile):
    def _initiate_upload(self) -> None:
        self.parts: list[bytes] = []

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts.append(self.buffer.getvalue())
        if final:
            self.fs.objects[self.path] = b"".join(self.parts)
        return True


fsspec.register_implementation("bucket", Bucket, clobber=True)


@pytest.fixture(params=["file", "memory", "bucket"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return FsspecFileSystem(f"{request.param}:///")


@pytest.fixture
def root(fs: FileSystem, tmp_path: Path) -> Any:
    """An existing empty directory; nothing stays in the memory that all of fsspec has in common."""
    path = f"{tmp_path}/root"
    fs.make_dirs(path)
    yield path
    fs.delete_tree(path)


@pytest.fixture
def bucket() -> FsspecFileSystem:
    """An object store with one directory, ``bucket://b/d``."""
    made = FsspecFileSystem("bucket://b")
    made.make_dirs("bucket://b/d")
    return made


def objects(fs: FsspecFileSystem) -> dict[str, bytes]:
    stored: dict[str, bytes] = fs._fs.objects
    return stored


def test_a_link_has_the_bytes_of_the_first_name(fs: FileSystem, root: str) -> None:
    """A link survives the deletion of the first name, and an existing target is refused, though it is a copy."""
    write(fs, f"{root}/a", b"x")
    fs.link(f"{root}/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        fs.link(f"{root}/a", f"{root}/b")
    fs.delete(f"{root}/a")

    assert fs.read_bytes(f"{root}/b") == b"x"


def test_readers_do_not_disturb_each_other(fs: FileSystem, root: str) -> None:
    """Two readers, and a writer at the end, have positions of their own."""
    write(fs, f"{root}/a", b"abcdef")
    with fs.open_read(f"{root}/a") as one, fs.open_read(f"{root}/a") as other:
        assert one.read(2) == b"ab"
        assert other.read(3) == b"abc"
        assert one.read() == b"cdef"


def test_random_access(fs: FileSystem, root: str) -> None:
    """Bytes are read anywhere in a file, and fewer where it ends."""
    write(fs, f"{root}/a", b"abcdef")
    file = fs.open_random(f"{root}/a")

    assert (file.size, file.read_at(4, 9), file.read_at(1, 2)) == (6, b"ef", b"bc")
    file.close()


def test_what_is_flushed_is_there_and_what_follows_is_appended(fs: FileSystem, root: str) -> None:
    """After each fsync a reader sees all that was written so far, however often that is."""
    with fs.open_write(f"{root}/a") as file:
        for number in range(4):
            file.write(b"%d" % number)
            file.fsync()
            assert fs.read_bytes(f"{root}/a") == b"0123"[: number + 1]
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write(b"x")

    assert fs.size(f"{root}/a") == 4


def test_a_checkpoint_lives_on_any_storage(fs: FileSystem, root: str) -> None:
    """Written, listed, verified, read by another storage object and discarded, with its number remembered."""
    storage = CheckpointStorage(fs, root, "a job", inline_threshold_bytes=0)
    with_lock = storage.lock()
    storage.next_incarnation()
    where = storage.initialize_location(3)
    stream = where.stream_factory("op-0").create_stream()
    stream.write(b"state" * 1000)
    assert stream.close_and_get_handle() is not None
    where.write_metadata(CheckpointMetadata(3, 0, 1))
    leftover = storage.initialize_location(4)
    write(fs, f"{storage.job_dir}/x{TEMPORARY_SUFFIX}", b"half")

    again = CheckpointStorage(fs, root, "a job")
    assert again.list_checkpoints() == [3]
    assert again.highest_checkpoint_id() == 4
    assert again.verify(3).checkpoint_id == 3
    assert again.discard_leftovers() == sorted([leftover.directory, f"{storage.job_dir}/x{TEMPORARY_SUFFIX}"])
    again.discard(3)
    with_lock.release()

    assert again.list_checkpoints() == []
    assert again.next_checkpoint_id() == 5
    assert again.incarnation() == 1


def test_urls_and_what_is_behind_them_are_the_same(bucket: FsspecFileSystem) -> None:
    """A path may be a URL, one whose slashes ``dirname`` has eaten, or the bare path."""
    write(bucket, "bucket://b/d/a", b"x")

    for path in ("bucket://b/d/a", "bucket:/b/d/a", "bucket:b/d/a", "b/d/a", "/b/d/a"):
        assert bucket.read_bytes(path) == b"x", path
    assert list(bucket.walk_files("bucket://b")) == ["bucket://b/d/a"]


def test_an_object_appears_whole_when_it_is_closed(bucket: FsspecFileSystem) -> None:
    """No reader sees half of it; an older one of that name stays until then."""
    write(bucket, "b/d/a", b"old")
    file = bucket.open_write("b/d/a")
    file.write(b"new and longer")
    assert bucket.read_bytes("b/d/a") == b"old"
    file.close()

    assert bucket.read_bytes("b/d/a") == b"new and longer"


def test_metadata_is_committed_in_one_step(bucket: FsspecFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call to the store, the name to be replaced has the whole old or the whole new content."""
    write(bucket, "b/d/_metadata", b"old")
    seen = set()

    class Watched(dict[str, bytes]):
        def __setitem__(self, name: str, value: bytes) -> None:
            super().__setitem__(name, value)
            seen.add(self["b/d/_metadata"])

        def __delitem__(self, name: str) -> None:
            assert name != "b/d/_metadata"
            super().__delitem__(name)

    monkeypatch.setattr(bucket._fs, "objects", Watched(objects(bucket)))
    write_atomically(bucket, "b/d/_metadata", b"new")

    assert seen == {b"old", b"new"}
    assert set(objects(bucket)) == {"b/d/_metadata", f"b/d/{MARKER_NAME}", f"b/{MARKER_NAME}"}


def test_an_empty_directory_exists_by_its_marker(bucket: FsspecFileSystem) -> None:
    """Made directories exist while empty and unlisted marker objects keep them; deleted trees leave nothing."""
    bucket.make_dirs("b/e/f")

    assert objects(bucket).keys() == {f"b{path}/{MARKER_NAME}" for path in ("", "/d", "/e", "/e/f")}
    assert bucket.list_dir("b/e") == ["f"]
    assert bucket.list_dir("b/e/f") == []
    assert list(bucket.walk_files("b")) == []
    bucket.delete_tree("b/e")
    assert not bucket.exists("b/e")
    assert bucket.list_dir("b") == ["d"]


def test_renaming_a_directory_moves_all_files(bucket: FsspecFileSystem) -> None:
    """One by one: everything is below the new name in the end, and a directory in use is not replaced."""
    bucket.make_dirs("b/d/inner")
    write(bucket, "b/d/inner/x", b"x")
    bucket.make_dirs("b/full/y")
    with pytest.raises(OSError, match="Directory not empty"):
        bucket.rename("b/d", "b/full")
    bucket.rename("b/d", "b/moved")

    assert list(bucket.walk_files("b")) == ["b/moved/inner/x"]
    assert not bucket.exists("b/d")


def test_files_come_in_the_order_of_their_directories(fs: FileSystem, root: str) -> None:
    """A directory's files stand together, before those of a longer name that sorts before the slash."""
    fs.make_dirs(f"{root}/b")
    for name in ("b/x", "b-x", "b.x", "a"):
        write(fs, f"{root}/{name}", b"")

    assert [path.removeprefix(f"{root}/") for path in fs.walk_files(root)] == ["a", "b/x", "b-x", "b.x"]


def test_a_directory_that_lists_itself_does_not_contain_itself(
    bucket: FsspecFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some stores list an object that stands for the directory."""
    ls = bucket._fs.ls

    def with_itself(path: str, detail: bool = True) -> list[Any]:
        return ls(path, detail) if detail else [path, f"{path}/", f"{path}/a"]

    monkeypatch.setattr(bucket._fs, "ls", with_itself)

    assert bucket.list_dir("b/d") == ["a"]


def test_on_a_disk_fsync_is_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a descriptor, it is synced."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with FsspecFileSystem("file:///").open_write(f"{tmp_path}/a") as file:
        file.write(b"x")
        file.fsync()
        assert len(synced) == 1


def test_nothing_that_was_remembered_is_believed(bucket: FsspecFileSystem) -> None:
    """Files that another process has written or deleted since are seen."""
    write(bucket, "b/d/a", b"x")
    assert bucket.list_dir("b/d") == ["a"]
    objects(bucket)["b/d/c"] = b"y"
    del objects(bucket)["b/d/a"]

    assert bucket.list_dir("b/d") == ["c"]
    assert not bucket.exists("b/d/a")
    assert bucket.size("b/d/c") == 1


@pytest.mark.parametrize(
    ("broken", "kind", "text"),
    [
        (ConnectionError("the line is dead"), OSError, "the line is dead"),
        (RuntimeError("throttled"), OSError, "RuntimeError: throttled"),
        (PermissionError("no key"), PermissionError, "no key"),
    ],
)
def test_a_broken_store_is_an_os_error_and_not_an_empty_one(
    bucket: FsspecFileSystem, broken: Exception, kind: type[OSError], text: str
) -> None:
    """No failure of the store passes for a missing file: the error has a number, the path and the reason."""
    bucket._fs.broken = broken

    for call in (bucket.exists, bucket.is_dir, bucket.size, bucket.open_read, bucket.list_dir, bucket.make_dirs):
        with pytest.raises(kind, match=text) as info:
            call("bucket://b/d/a")
        assert info.value.filename == "bucket://b/d/a"
        assert info.value.errno


def test_storage_that_cannot_be_written_is_not_locked(bucket: FsspecFileSystem) -> None:
    """A refusal of the store is told as one, with the directory."""
    bucket._fs.broken = PermissionError("no key")

    with pytest.raises(StorageNotWritableError, match="no key") as info:
        bucket.lock_directory("bucket://b/d")
    assert info.value.path == "bucket://b/d"


# --- locks --------------------------------------------------------------------------------------------------------


def held_by(fs: FileSystem, directory: str, text: str) -> None:
    """A lock that another holder has left."""
    write(fs, f"{directory}/lock", text.encode())


def ended_process() -> int:
    """The number of a process that is gone."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_a_killed_holder_on_this_host_loses_its_lock(bucket: FsspecFileSystem) -> None:
    """A lock whose process has ended here is taken over."""
    held_by(bucket, "b/d", f"{ended_process()}\n{socket.gethostname()}\n1\n")

    bucket.lock_directory("b/d").release()

    assert not bucket.exists("b/d/lock")


@pytest.mark.parametrize("holder", ["{pid}\nelsewhere\n1\n", "{init}\n{host}\n1\n", "?", ""])
def test_a_lock_that_may_be_held_is_respected(bucket: FsspecFileSystem, holder: str) -> None:
    """Of another host, of a process that lives, or unreadable: it is refused, and the error says what to delete."""
    text = holder.format(pid=ended_process(), init=os.getppid(), host=socket.gethostname())
    held_by(bucket, "b/d", text)

    with pytest.raises(StorageInUseError, match="delete b/d/lock"):
        bucket.lock_directory("b/d")
    assert bucket.read_bytes("b/d/lock") == text.encode()


def test_of_two_that_look_at_the_same_time_one_has_the_lock(
    bucket: FsspecFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that reads back another name than its own has lost."""
    read_bytes = FsspecFileSystem.read_bytes

    def overtaken(self: FsspecFileSystem, path: str) -> bytes:
        write(self, path, b"1\nelsewhere\n1\n")
        return read_bytes(self, path)

    monkeypatch.setattr(FsspecFileSystem, "read_bytes", overtaken)
    with pytest.raises(StorageInUseError, match="process 1"):
        bucket.lock_directory("b/d")


def test_a_lock_taken_over_is_not_freed_by_its_first_holder(bucket: FsspecFileSystem) -> None:
    """Releasing deletes one's own lock only."""
    lock = bucket.lock_directory("b/d")
    held_by(bucket, "b/d", "1\nelsewhere\n1\n")
    lock.release()

    assert bucket.exists("b/d/lock")


# --- which file system ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("relative/path", "relative/path"),
        ("/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a", "/a"),
        ("C:/odd but a path", "C:/odd but a path"),
    ],
)
def test_paths_of_this_machine_are_on_the_real_file_system(text: str, directory: str) -> None:
    """Only the real one knows fsync, so paths and file URLs never go through fsspec."""
    fs, found = file_system_for(text)

    assert isinstance(fs, LocalFileSystem)
    assert found == directory


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("memory://", "memory://"),
        ("memory://a/b/", "memory://a/b"),
        ("memory:///a", "memory:///a"),
        ("bucket://b/d//", "bucket://b/d"),
    ],
)
def test_other_urls_go_through_fsspec(text: str, directory: str) -> None:
    """The directory begins every path; slashes at its end are dropped, but not those after the colon."""
    fs, found = file_system_for(text)

    assert isinstance(fs, FsspecFileSystem)
    assert found == directory


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nosuch://a", "fsspec cannot open it .*s3://bucket/directory"),
        ("simplecache::memory://a", "names no kind|chains several kinds"),
        ("file://host/a", "three slashes"),
        ("file://", "three slashes"),
    ],
)
def test_urls_that_cannot_work_are_refused(text: str, reason: str) -> None:
    """The error names the URL and says what to write instead."""
    if "::" in text:
        with pytest.raises(StateArgumentError, match="chains several kinds"):
            FsspecFileSystem(text)
        return
    with pytest.raises(StateArgumentError, match=reason) as info:
        file_system_for(text)
    assert text in str(info.value)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsspec the extra is told; without the package for one kind of URL, that package."""
    fsspec.register_implementation("needy", "no_such_module.NeedyFileSystem", errtxt="Install needy", clobber=True)
    with pytest.raises(StateArgumentError, match=r"needy:// is missing\. Install needy"):
        file_system_for("needy://a")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(StateArgumentError, match=r"weirstream\[fsspec\]"):
        file_system_for("memory://a")
    assert issubclass(StateArgumentError, StateBackendError)


def test_the_module_itself_needs_no_fsspec() -> None:
    """Importing it in an environment without the extra is fine."""
    code = "import sys; sys.modules['fsspec'] = None; import state_backends.files.over_fsspec"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(module.__file__).parents[2])
