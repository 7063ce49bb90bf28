"""Files of incremental checkpoints are damaged between two starts, in every way and one by one.

The next start says which file it is, goes back to the older checkpoint, and the output is that of an undisturbed run,
including rows committed since then. Without a checkpoint left, the start is refused, and no file is deleted.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable

import pytest

from engine.checkpoint.restore import NoRestart
from engine.cli.runs import newest_usable
from engine.elements.errors import JobFailedError, StorageError
from engine.runtime.storage import open_storage
from state_backends.files import FileSystem, MemoryFileSystem
from state_backends.snapshots import FileStateHandle
from tests.cases import crossed
from tests.scenarios.recorded_runs import (
    DIRECTORY,
    INCREMENTAL,
    JOB_DIR,
    NAME,
    OUT,
    check_files,
    committed,
    expected,
    run,
    storage_on,
)

undisturbed = functools.cache(expected)

Damage = Callable[[bytes, bytes, bytes], bytes | None]
"""The damaged content, given another file of the checkpoint and that of another job; ``None`` = the file is gone."""

DAMAGES: dict[str, Damage] = {
    "first bit": lambda data, other, foreign: bytes([data[0] ^ 1]) + data[1:],
    "middle bit": lambda data, other, foreign: _flipped(data, len(data) // 2),
    "last bit": lambda data, other, foreign: _flipped(data, len(data) - 1),
    "truncated": lambda data, other, foreign: data[:-1],
    "emptied": lambda data, other, foreign: b"",
    "longer": lambda data, other, foreign: data + b"\0",
    "zeros": lambda data, other, foreign: bytes(len(data)),
    "deleted": lambda data, other, foreign: None,
    "another file of it": lambda data, other, foreign: other,
    "of another job": lambda data, other, foreign: foreign,
}

GONE = ("deleted", "of another job")


def _flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


@functools.cache
def left_by(backend: str, first: int = 0) -> dict[str, bytes]:
    """All files of a run that failed and left two checkpoints; one over other numbers names its files alike."""
    files = MemoryFileSystem()
    with pytest.raises(JobFailedError):
        run(files, backend, first=first, kills=[("everything[0]", 1_700_000)], restart=NoRestart())
    assert len(check_files(files)) == 2
    return {path: files.read_bytes(path) for path in (*files.walk_files(DIRECTORY), *files.walk_files(OUT))}


def copied(contents: dict[str, bytes]) -> MemoryFileSystem:
    """An independent file system with these files."""
    files = MemoryFileSystem()
    for path, data in contents.items():
        put(files, path, data)
    return files


def put(files: FileSystem, path: str, data: bytes | None) -> None:
    """Write a file anew, or delete it."""
    files.make_dirs(posixpath.dirname(path))
    if files.exists(path):
        files.delete(path)
    if data is not None:
        with files.open_write(path) as file:
            file.write(data)


def files_of(files: FileSystem, checkpoint_id: int) -> list[str]:
    """All files of a checkpoint, shared files of earlier ones included."""
    location = storage_on(files).location(checkpoint_id)
    streams = [one for one in location.read_metadata().streams() if isinstance(one, FileStateHandle)]
    return sorted({location.metadata_path, *map(location.full_path, streams)})


def damaged(backend: str, path: str, damage: str, others: list[str]) -> MemoryFileSystem | None:
    """The files of the run with one of them damaged; ``None`` when that changes nothing."""
    contents = left_by(backend)
    foreign = left_by(backend, 5)
    other = next(contents[one] for one in others if contents[one] != contents[path])
    data = DAMAGES[damage](contents[path], other, foreign.get(path, b"not of this job"))
    if data == contents[path]:
        return None
    files = copied(contents)
    put(files, path, data)
    return files


@crossed(quick=2, backend=INCREMENTAL, damage=DAMAGES)
def test_the_older_checkpoint_is_used_and_the_file_is_named(backend: str, damage: str) -> None:
    """Each file of the newest checkpoint that the older one does not use: metadata, private and shared ones."""
    contents = copied(left_by(backend))
    older, newest = storage_on(contents).list_checkpoints()
    only_newest = sorted(set(files_of(contents, newest)) - set(files_of(contents, older)))
    shared = [path for path in only_newest if path.startswith(f"{JOB_DIR}/shared/")]
    assert shared
    tried = 0
    for path in (*shared, *(one for one in only_newest if one not in shared)):
        files = damaged(backend, path, damage, only_newest)
        if files is None:
            continue
        tried += 1
        result = run(files, backend, resume=True)

        restore = result.restores[0]
        assert restore.checkpoint_id == older, path
        if damage != "deleted" or not path.endswith("_metadata"):
            # Without its metadata it is not a checkpoint, so the start does not report one that it passes over.
            (problem,) = restore.problems
            assert f"checkpoint {newest} cannot be used" in problem
            # Metadata of another job is whole, but the files on the disk are not those that it names.
            assert path in problem or (damage == "of another job" and path.endswith("_metadata"))
        assert committed(files) == undisturbed(), path
        check_files(files)
    assert tried > 3


@pytest.mark.parametrize(
    ("part", "damage"),
    # Without its metadata a checkpoint does not exist, and that of a run over other numbers may name other files.
    [("/shared/", damage) for damage in DAMAGES] + [("_metadata", damage) for damage in DAMAGES if damage not in GONE],
)
@pytest.mark.parametrize("backend", INCREMENTAL)
def test_with_no_checkpoint_left_nothing_is_done(backend: str, part: str, damage: str) -> None:
    """The start is refused with both reasons, and every file stays as it is."""
    files = copied(left_by(backend))
    damaged_paths: list[str] = []
    for checkpoint_id in storage_on(files).list_checkpoints():
        paths = files_of(files, checkpoint_id)
        if set(paths) & set(damaged_paths):
            continue
        candidates = [(path, damaged(backend, path, damage, paths)) for path in paths if part in path]
        path, spoilt = next((path, spoilt) for path, spoilt in candidates if spoilt is not None)
        put(files, path, spoilt.read_bytes(path) if spoilt.exists(path) else None)
        damaged_paths.append(path)
    before = {one: files.read_bytes(one) for one in files.walk_files("/")}

    with pytest.raises(StorageError, match="none can be restored") as refused:
        newest_usable(storage_on(files), DIRECTORY)
    assert all(path in str(refused.value) for path in damaged_paths)
    with open_storage(DIRECTORY, NAME, inline_state_bytes=0, file_system=files) as opened:
        assert opened.leftovers == ()
    before[f"{JOB_DIR}/incarnation"] = files.read_bytes(f"{JOB_DIR}/incarnation")
    assert {one: files.read_bytes(one) for one in files.walk_files("/")} == before
