"""How tasks and metadata name shared files, and which directory their paths refer to."""

from __future__ import annotations

import pytest

from engine.checkpoint.coordinator import (
    Acknowledge,
    CompletedCheckpoint,
    DiscardAcknowledgedState,
    DiscardSharedState,
    SharedState,
)
from engine.graph.job import Job
from engine.runtime.execution import Execution
from engine.runtime.storage import TaskSnapshot, check_forms
from engine.runtime.storage.shared_files import StateFormError, recovered_shared_state, with_files_of_another_job
from engine.runtime.tasks.async_snapshot import shared_state
from state_backends.base import KeyGroupRange
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChangelogKeyedStateHandle,
    CheckpointMetadata,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    LogSegment,
    OperatorSnapshot,
    StateScope,
    StoreFile,
    SubtaskSnapshot,
)
from tests.runtime.support import collected, execution, running_count

GROUPS = KeyGroupRange(0, 7)
META = ByteStreamStateHandle(b"meta")


def shared(name: str, size: int = 3) -> FileStateHandle:
    return FileStateHandle(f"shared/{name}", StateScope.SHARED, size, 0)


def private(name: str) -> FileStateHandle:
    return FileStateHandle(name, StateScope.EXCLUSIVE, 3, 0)


def store(*files: tuple[FileStateHandle, bool], kind: str = "lsm") -> IncrementalKeyedStateHandle:
    """Files of a store, each uploaded now or not, and a private one."""
    named = tuple(StoreFile(str(number), file, is_new) for number, (file, is_new) in enumerate(files))
    return IncrementalKeyedStateHandle(kind, "b", GROUPS, 5, named, (StoreFile("m", private("m"), True),), META)


def metadata(keyed: KeyedStateHandle | None, checkpoint_id: int = 5) -> CheckpointMetadata:
    """A checkpoint with one operator in one subtask."""
    operators = (OperatorSnapshot("count", "Count", 1, 8, {0: SubtaskSnapshot(keyed)}),)
    return CheckpointMetadata(checkpoint_id, 0, 1, {}, operators)


def test_a_task_names_uploads_with_their_handle_and_all_others_as_placeholders() -> None:
    """And its whole handle as a marker; private files are not named."""
    new, old = shared("new"), shared("old")

    marker, *files = shared_state({"count": SubtaskSnapshot(store((old, False), (new, True)))}, 1, 5)

    assert marker.is_marker
    assert files == [SharedState("shared/old"), SharedState("shared/new", new)]
    assert shared_state({"map": SubtaskSnapshot()}, 0, 5) == ()


def test_metadata_names_all_shared_files_with_their_handles() -> None:
    """Once each, whichever task uploaded them: no task is left to name them."""
    new, old = shared("new"), shared("old")
    log = LogSegment(0, 5, old, False)
    keyed = ChangelogKeyedStateHandle(GROUPS, 5, 1, (store((new, True), (old, False)),), True, (log,))

    found = recovered_shared_state(metadata(keyed))

    assert [one for one in found if not one.is_marker] == [
        SharedState("shared/new", new),
        SharedState("shared/old", old),
    ]
    assert sum(one.is_marker for one in found) == 1


def foreign(files: FileSystem, storage: CheckpointStorage, *, may: bool) -> list[tuple[str, StateScope]]:
    """Where the files of a checkpoint of another directory are, seen from ``storage``."""
    there = CheckpointStorage(files, "/there", "job").initialize_location(5)
    with files.open_write("/there/job/shared/a") as file:
        file.write(b"abc")
    moved = with_files_of_another_job(metadata(store((shared("a"), True))), there, storage, may_be_referred_to=may)
    return [(one.path, one.scope) for one in moved.streams() if isinstance(one, FileStateHandle)]


def test_files_of_another_directory_go_by_absolute_paths() -> None:
    """Shared where later checkpoints may refer to them; where they may not, or cannot, only that snapshot owns them."""
    files = MemoryFileSystem()
    here = CheckpointStorage(files, "/here", "job")
    elsewhere = CheckpointStorage(MemoryFileSystem(), "/here", "job")

    assert foreign(files, here, may=True) == [("/there/job/shared/a", StateScope.SHARED), ("m", StateScope.EXCLUSIVE)]
    for storage, may in ((here, False), (elsewhere, True)):
        found = foreign(files, storage, may=may)
        assert found == [("/there/job/shared/a", StateScope.EXCLUSIVE), ("m", StateScope.EXCLUSIVE)]


def test_files_of_the_own_directory_keep_their_paths() -> None:
    """The metadata stays unchanged."""
    here = CheckpointStorage(MemoryFileSystem(), "/here", "job")
    whole = metadata(store((shared("a"), True)))

    assert with_files_of_another_job(whole, here.location(5), here, may_be_referred_to=True) is whole


FULL = FullKeyedStateHandle(GROUPS, (), META)


def changelog(inner: KeyedStateHandle) -> ChangelogKeyedStateHandle:
    return ChangelogKeyedStateHandle(GROUPS, 5, 1, (inner,), True, ())


@pytest.mark.parametrize(
    ("keyed", "readers"),
    [
        (FULL, {"heap", "lsm", "rocksdb", "changelog", "changelog:lsm"}),
        (store(), {"lsm", "changelog:lsm"}),
        (store(kind="heap"), {"heap", "changelog"}),
        (store(kind="rocksdb"), {"rocksdb"}),
        (changelog(FULL), {"changelog", "changelog:lsm"}),
        (changelog(store()), {"changelog:lsm"}),
        (changelog(store(kind="heap")), {"changelog"}),
    ],
)
def test_which_backend_reads_which_form(keyed: KeyedStateHandle, readers: set[str]) -> None:
    """Full snapshots all of them; files of a store that store, and a changelog over it; a log a changelog only."""
    for backend in ("heap", "lsm", "rocksdb", "changelog", "changelog:lsm"):
        if backend in readers:
            check_forms(metadata(keyed), backend)
        else:
            with pytest.raises(StateFormError, match="in a form that"):
                check_forms(metadata(keyed), backend)
    check_forms(metadata(keyed), "a backend of the user's own")


def made(files: FileSystem) -> Execution:
    return execution(running_count(Job("late"), 10, collected()), file_system=files)


def written(run: Execution, path: str) -> str:
    """A file in the job's directory; its whole path."""
    storage = run.manager.files.storage
    storage.initialize_location(5)
    whole = f"{storage.job_dir}/{path}"
    with storage.file_system.open_write(whole) as file:
        file.write(b"abc")
    return whole


@pytest.mark.parametrize("is_registered", [False, True])
def test_what_no_checkpoint_takes_is_deleted(is_registered: bool) -> None:
    """Private files, and uploads that no registry tracks; never a file that an earlier checkpoint has uploaded."""
    files = MemoryFileSystem()
    run = made(files)
    paths = [written(run, path) for path in ("chk-5/m", "shared/new", "shared/old")]
    keyed = store((shared("new"), True), (shared("old"), False))
    operators = {"count": SubtaskSnapshot(keyed)}
    told = shared_state(operators, 0, 5)
    message = Acknowledge(5, 1, (0, 0), TaskSnapshot(operators, {}, {}), shared=told, is_registered=is_registered)

    run.manager.driver.execute([DiscardAcknowledgedState(message)] * 2)

    assert [files.exists(path) for path in paths] == [False, is_registered, True]
    assert run.manager.job.notes == []


def test_shared_state_that_cannot_be_deleted_is_noted() -> None:
    """The other files are deleted all the same; a missing one is no error."""
    files = MemoryFileSystem()
    run = made(FaultInjectingFileSystem(files, [FaultRule(FileFault.ERROR_BEFORE, "delete", "*/shared/a", 1)]))
    first, second = written(run, "shared/a"), written(run, "shared/b")

    run.manager.driver.execute([DiscardSharedState((shared("a"), shared("gone"), shared("b")))])

    assert files.exists(first)
    assert not files.exists(second)
    assert len(run.manager.job.notes) == 1
    assert "could not be deleted" in run.manager.job.notes[0]


def test_a_job_manager_that_dies_while_it_deletes_keeps_no_shared_file_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the checkpoint may still exist its shared files stay; the next job manager deletes the rest."""
    files = MemoryFileSystem()
    run = made(files)
    of_the_job = run.manager.files
    first, second = written(run, "shared/a"), written(run, "shared/b")

    def dies(checkpoint_id: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(of_the_job.storage, "discard", dies)
        with pytest.raises(KeyboardInterrupt):
            of_the_job.discard(5)
    of_the_job.delete_shared([shared("a")])
    assert files.exists(first)

    of_the_job.discard_leftovers()
    written(run, "shared/b")
    of_the_job.delete_shared([shared("b")])

    assert not files.exists(second)


def test_recovered_checkpoints_bring_their_shared_state() -> None:
    """So the registry knows it before any checkpoint is subsumed."""
    files = MemoryFileSystem()
    run = made(files)
    written(run, "shared/a")
    storage = run.manager.files.storage
    storage.initialize_location(5).write_metadata(metadata(store((shared("a"), True))))

    (entry,) = run.manager.files.retained(5)

    assert isinstance(entry, CompletedCheckpoint)
    assert SharedState("shared/a", shared("a")) in entry.shared
