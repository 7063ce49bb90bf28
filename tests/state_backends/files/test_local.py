"""Cases of the real file system alone: locks between processes, directories that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from state_backends.base import StorageInUseError, StorageNotWritableError
from state_backends.files import LocalFileSystem
from state_backends.files.local import LOCK_FILE_NAME

HOLDER = """
import sys
from state_backends.files import LocalFileSystem
LocalFileSystem().lock_directory(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def holder_of(path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until its input ends."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_the_error_names_the_directory_and_the_process_that_holds_it(tmp_path: Path) -> None:
    """The error tells a second process who holds the lock; when the holder is killed, the lock is free at once."""
    with holder_of(tmp_path) as process:
        try:
            with pytest.raises(StorageInUseError, match=f"^{tmp_path}: is in use by process {process.pid}") as info:
                LocalFileSystem().lock_directory(str(tmp_path))
        finally:
            process.kill()
            process.communicate()

    assert info.value.holder == process.pid
    lock = LocalFileSystem().lock_directory(str(tmp_path))
    assert (tmp_path / LOCK_FILE_NAME).read_text() == f"{os.getpid()}\n"
    lock.release()
    assert (tmp_path / LOCK_FILE_NAME).read_text() == ""


def test_a_lock_makes_its_directory(tmp_path: Path) -> None:
    """A missing directory is created; the lock file stays for the next holder."""
    LocalFileSystem().lock_directory(f"{tmp_path}/new/deep").release()

    assert os.listdir(f"{tmp_path}/new/deep") == [LOCK_FILE_NAME]


def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    """A file in the way gives an error of ours that names path and reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageNotWritableError, match=r"file/below: cannot be written \(Not a directory\)"):
        LocalFileSystem().lock_directory(f"{tmp_path}/file/below")


def test_a_directory_in_place_of_the_lock_file_is_a_clear_error(tmp_path: Path) -> None:
    """When the lock file itself cannot be opened, the error says so."""
    (tmp_path / LOCK_FILE_NAME).mkdir()
    with pytest.raises(StorageNotWritableError, match="Is a directory"):
        LocalFileSystem().lock_directory(str(tmp_path))


def test_what_must_be_durable_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fsync, truncate, fsync_dir and make_dirs each sync the right file or directory, all writes before it."""
    synced: list[tuple[str, int]] = []
    real_fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), os.fstat(descriptor).st_size))
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    fs = LocalFileSystem()
    with fs.open_write(f"{tmp_path}/a") as file:
        file.write(b"abc")
        file.fsync()
    assert synced == [(f"{tmp_path}/a", 3)]
    synced.clear()
    fs.truncate(f"{tmp_path}/a", 1)
    assert synced == [(f"{tmp_path}/a", 1)]
    synced.clear()
    fs.fsync_dir(str(tmp_path))
    assert [path for path, _ in synced] == [str(tmp_path)]
    synced.clear()
    fs.make_dirs(f"{tmp_path}/x/y")

    assert [path for path, _ in synced] == [str(tmp_path), f"{tmp_path}/x"]


def test_relative_paths_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path without a directory is in the working directory."""
    monkeypatch.chdir(tmp_path)
    fs = LocalFileSystem()
    fs.make_dirs("a/b")
    fs.open_write("a/b/c").close()

    assert (tmp_path / "a/b/c").exists()
