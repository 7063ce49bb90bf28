"""Checkpoints whose metadata is whole, with valid checksums, and names foreign files: no file is read, deleted
or created there. Chains of claims go on working."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.checkpoint.coordinator import RestoreMode
from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError, StorageError
from engine.runtime.storage import SavepointRestore
from state_backends.files import FileSystem, LocalFileSystem, write_atomically
from state_backends.snapshots import (
    SHARED_DIRECTORIES_FILE_NAME,
    CheckpointLocation,
    CheckpointMetadata,
    FileStateHandle,
    StateScope,
    StreamStateHandle,
)
from state_backends.snapshots.file_places import ForbiddenPathError, note_shared_directories
from tests.scenarios.live_files import check_live_files
from tests.scenarios.state.test_state_backends import expected
from tests.scenarios.stateful_jobs import Ran, settings


def died(files: FileSystem | None = None, kill_ns: int = 3_500_000, **how: object) -> Ran:
    """A run with incremental checkpoints that ends in the middle and retains the newest."""
    config = settings("lsm", "incremental", restart=NoRestart(), retained=1)
    ran = Ran(config, files=files, kills=[("everything[0]", kill_ns)], **how)  # type: ignore[arg-type]
    with pytest.raises(JobFailedError):
        ran.run()
    return ran


def newest(ran: Ran) -> CheckpointLocation:
    return ran.storage.location(ran.storage.list_checkpoints()[-1])


Moved = Callable[[StreamStateHandle], StreamStateHandle]


def forge(files: FileSystem, location: CheckpointLocation, moved: Moved) -> None:
    """Write the metadata anew, with other streams and a checksum that fits."""
    metadata = location.read_metadata()
    operators = [
        replace(one, subtasks={index: subtask.with_streams(moved) for index, subtask in one.subtasks.items()})
        for one in metadata.operators
    ]
    write_atomically(files, location.metadata_path, replace(metadata, operators=tuple(operators)).to_bytes())


def copy(files: FileSystem, source: str, target: str) -> None:
    files.make_dirs(posixpath.dirname(target))
    with files.open_write(target) as file:
        file.write(files.read_bytes(source))


def everything_in(files: FileSystem, *directories: str) -> dict[str, bytes]:
    return {path: files.read_bytes(path) for directory in directories for path in files.walk_files(directory)}


VICTIM = "/friends/shared/letters"


@pytest.mark.parametrize(
    ("path", "scope", "mode"),
    [
        *((VICTIM, StateScope.SHARED, mode) for mode in RestoreMode),
        (VICTIM, StateScope.EXCLUSIVE, RestoreMode.CLAIM),
        ("shared/../../../friends/shared/letters", StateScope.SHARED, RestoreMode.CLAIM),
    ],
)
def test_a_checkpoint_that_names_files_of_others_is_refused(path: str, scope: StateScope, mode: RestoreMode) -> None:
    """The file has the size and the checksum that the handle says, and survives; the new run has created nothing."""
    first = died()
    location = newest(first)
    shared = [one for one in location.read_metadata().streams() if isinstance(one, FileStateHandle)]
    chosen = next(one for one in shared if one.scope is StateScope.SHARED)
    copy(first.files, location.full_path(chosen), VICTIM)
    forge(first.files, location, lambda one: replace(chosen, path=path, scope=scope) if one == chosen else one)
    before = everything_in(first.files, "/")

    start = SavepointRestore(location.directory, mode)
    second = Ran(settings("lsm", "incremental"), files=first.files, directory="/elsewhere", restore_from=start)
    with pytest.raises(ForbiddenPathError) as refused:
        second.run()

    assert location.metadata_path in str(refused.value)
    assert path in str(refused.value)
    assert everything_in(first.files, "/") == before
    assert not first.files.exists("/elsewhere")


def test_a_resumed_run_passes_over_a_checkpoint_that_names_files_of_others() -> None:
    """Like a damaged one; the sweep of shared files deletes nothing on its behalf."""
    first = died()
    location = newest(first)
    copy(first.files, next(iter(first.files.walk_files(first.storage.job_dir))), VICTIM)
    forge(first.files, location, lambda one: FileStateHandle(VICTIM, StateScope.SHARED, 1, 1))
    problems = first.storage.latest_usable().problems

    assert len(problems) == 1
    assert VICTIM in problems[0]
    assert first.storage.sweep_shared() == []
    assert first.files.exists(VICTIM)


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def on_disk(tmp_path: Path) -> tuple[Ran, Path]:
    """A run on the real disk, and a directory that does not belong to it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    return died(LocalFileSystem(), directory=str(tmp_path / "state")), outside


def claim(ran: Ran, location: CheckpointLocation, directory: Path) -> Ran:
    start = SavepointRestore(location.directory, RestoreMode.CLAIM)
    config = settings("lsm", "incremental", retained=1)
    return Ran(config, files=ran.files, results=ran.results, directory=str(directory / "next"), restore_from=start)


@pytest.mark.parametrize("what", ["shared file", "shared directory", "own file"])
def test_links_do_not_lead_out_of_the_directory(on_disk: tuple[Ran, Path], tmp_path: Path, what: str) -> None:
    """A link in place of a file, or of the whole directory, is refused; what it leads to survives."""
    ran, outside = on_disk
    location = newest(ran)
    files = [one for one in location.read_metadata().streams() if isinstance(one, FileStateHandle)]
    scope = StateScope.EXCLUSIVE if what == "own file" else StateScope.SHARED
    path = Path(location.full_path(next(one for one in files if one.scope is scope)))
    if what == "shared directory":
        path = path.parent
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)
    before = everything_in(ran.files, str(outside))

    with pytest.raises(ForbiddenPathError, match="a link leads out of"):
        claim(ran, location, tmp_path).run()

    assert everything_in(ran.files, str(outside)) == before
    assert not (tmp_path / "next").exists()


def test_shared_files_behind_a_link_are_not_deleted(on_disk: tuple[Ran, Path]) -> None:
    """The directory may have become a link since the metadata was checked."""
    ran, outside = on_disk
    files = (one for one in newest(ran).read_metadata().streams() if isinstance(one, FileStateHandle))
    shared = next(one for one in files if one.scope is StateScope.SHARED)
    directory = Path(ran.storage.job_dir) / "shared"
    directory.rename(outside / "shared")
    directory.symlink_to(outside / "shared")

    ran.storage.delete_shared(shared)

    assert (outside / shared.path).exists()


def test_leftovers_behind_a_link_are_not_swept(on_disk: tuple[Ran, Path]) -> None:
    """Neither unfinished files nor shared ones that no checkpoint refers to."""
    ran, outside = on_disk
    (outside / "mine.inprogress").write_text("mine")
    job = Path(ran.storage.job_dir)
    (job / "shared" / "link").symlink_to(outside)
    (job / "another").symlink_to(outside)

    ran.storage.discard_leftovers()

    assert (outside / "mine.inprogress").read_text() == "mine"


def test_a_checkpoint_behind_a_link_is_not_claimed(on_disk: tuple[Ran, Path], tmp_path: Path) -> None:
    """A claim deletes it in the end; reading it is fine."""
    ran, outside = on_disk
    location = newest(ran)
    directory = Path(location.directory)
    directory.rename(outside / directory.name)
    directory.symlink_to(outside / directory.name)

    with pytest.raises(StorageError, match="is a link to"):
        claim(ran, location, tmp_path).run()

    assert (outside / directory.name / "_metadata").exists()
    assert location.verify()


# --- chains -----------------------------------------------------------------------------------------------------------


def chain(mode: RestoreMode) -> tuple[Ran, Ran, Ran]:
    """The second was started from the first, and the third claims the second. The third has come to its end."""
    first = died()
    second = died(
        first.files,
        900_000,
        directory="/second",
        results=first.results,
        restore_from=SavepointRestore(newest(first).directory, mode),
    )
    third = Ran(
        settings("lsm", "incremental", retained=1),
        files=first.files,
        results=first.results,
        directory="/third",
        restore_from=SavepointRestore(newest(second).directory, RestoreMode.CLAIM),
    )
    return first, second, third


def foreign(metadata: CheckpointMetadata) -> set[str]:
    files = (one.path for one in metadata.streams() if isinstance(one, FileStateHandle))
    return {posixpath.dirname(posixpath.dirname(path)) for path in files if path.startswith("/")}


def test_a_chain_of_claims_deletes_what_nothing_uses_any_more() -> None:
    """The third knows from the second that files of the first were claimed."""
    first, second, third = chain(RestoreMode.CLAIM)
    assert foreign(newest(second).read_metadata()) == {first.storage.job_dir}
    files = [path for path in everything_in(first.files, first.storage.job_dir) if "/shared/" in path]

    third.run()
    used = {path for paths in check_live_files(third.files, third.storage).values() for path in paths}

    assert third.committed == expected()
    assert foreign(newest(third).read_metadata()) <= {first.storage.job_dir, second.storage.job_dir}
    assert [path for path in files if first.files.exists(path)] == [path for path in files if path in used]


def test_what_a_run_may_only_refer_to_is_not_deleted_by_who_claims_it() -> None:
    """The first has no owner (LEGACY): claiming the second gives no right to its files."""
    first, _, third = chain(RestoreMode.LEGACY)
    before = everything_in(first.files, first.storage.job_dir)

    third.run()

    assert third.committed == expected()
    assert everything_in(first.files, first.storage.job_dir) == before


def test_chains_of_older_versions_must_be_allowed() -> None:
    """Without the list nothing is read; the error says how to allow it, and then nothing of the other is deleted."""
    first, second, third = chain(RestoreMode.CLAIM)
    first.files.delete(posixpath.join(second.storage.job_dir, SHARED_DIRECTORIES_FILE_NAME))
    before = everything_in(first.files, first.storage.job_dir)

    with pytest.raises(ForbiddenPathError, match=r"from state_backends\.snapshots import allow") as refused:
        third.run()
    assert first.storage.job_dir in str(refused.value)
    assert not first.files.exists("/third")

    note_shared_directories(first.files, second.storage.job_dir, {first.storage.job_dir: False})
    again = Ran(
        settings("lsm", "incremental", retained=1),
        files=first.files,
        results=first.results,
        directory="/third",
        restore_from=SavepointRestore(newest(second).directory, RestoreMode.CLAIM),
    )
    again.run()

    assert again.committed == expected()
    assert everything_in(first.files, first.storage.job_dir) == before


def test_a_damaged_list_is_refused() -> None:
    """It is not taken for an empty one, nor for a longer one."""
    _, second, third = chain(RestoreMode.CLAIM)
    path = posixpath.join(second.storage.job_dir, SHARED_DIRECTORIES_FILE_NAME)
    data = bytearray(second.files.read_bytes(path))
    data[-1] ^= 1
    with second.files.open_write(path) as file:
        file.write(bytes(data))
    with pytest.raises(Exception, match=SHARED_DIRECTORIES_FILE_NAME):
        third.run()
