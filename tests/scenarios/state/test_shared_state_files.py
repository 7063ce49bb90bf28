"""Files that checkpoints share, over several runs: their owner, their deletion, and damage to one of them."""

from __future__ import annotations

import posixpath
from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.coordinator import RestoreMode
from engine.checkpoint.restore import NoRestart
from engine.elements.errors import JobFailedError
from engine.runtime.storage import SavepointRestore
from operators.basic import CollectedResults
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from tests.cases import crossed
from tests.scenarios.live_files import check_live_files
from tests.scenarios.state.test_state_backends import expected
from tests.scenarios.stateful_jobs import FORMS, Ran, settings

INCREMENTAL = [name for name, snapshot in FORMS if snapshot == "incremental"]


def failed(name: str, **more: Any) -> Ran:
    """A run that dies in the middle and leaves two incremental checkpoints."""
    ran = Ran(settings(name, "incremental", restart=NoRestart(), **more), kills=[("everything[0]", 3_500_000)])
    with pytest.raises(JobFailedError):
        ran.run()
    return ran


def go_on(before: Ran, name: str, **how: Any) -> Ran:
    """The rest of a run, with the output of the first part."""
    return Ran(settings(name, "incremental"), files=before.files, results=before.results, **how)


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_failed_run_leaves_only_what_its_checkpoints_refer_to(name: str) -> None:
    """Uploads of the checkpoint that was under way, and local files of the stores, are gone."""
    ran = failed(name)

    shared = check_live_files(ran.files, ran.storage)

    assert len(shared) == 2
    assert any(shared.values())


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_resumed_run_builds_on_the_shared_files_that_are_there(name: str) -> None:
    """Its first checkpoint refers to files of the run before; all files left over from a crash are swept first."""
    first = failed(name)
    inherited = {path for paths in check_live_files(first.files, first.storage).values() for path in paths}
    strays = [posixpath.join(first.storage.job_dir, path) for path in ("shared/stray-0", "work/x/000001.sst")]
    for stray in strays:
        first.files.make_dirs(posixpath.dirname(stray))
        with first.files.open_write(stray) as file:
            file.write(b"left by a crash")
    seen: set[str] = set()

    def look(event: Any) -> None:
        if type(event).__name__ == "CheckpointCompleted" and not seen:
            assert not any(first.files.exists(stray) for stray in strays)
            seen.update(*check_live_files(first.files, first.storage, is_over=False).values())

    second = go_on(first, name, restore=True, incarnation=2, instruments=[look])
    second.run()

    assert seen & inherited
    assert second.committed == expected()
    check_live_files(second.files, second.storage)


@pytest.mark.parametrize("mode", RestoreMode)
@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_checkpoint_of_another_storage_directory(name: str, mode: RestoreMode) -> None:
    """CLAIM: it is deleted with its shared files once nothing uses them. NO_CLAIM: it is not touched, and nothing
    refers to it. LEGACY: it may be referred to, and is never deleted."""
    first = failed(name, retained=1)
    (checkpoint_id,) = first.storage.list_checkpoints()
    before = first.checkpoint_files()
    shared = [path for path in before if "/shared/" in path]
    assert shared
    start = SavepointRestore(first.storage.location(checkpoint_id).directory, mode)

    second = go_on(first, name, directory="/elsewhere", restore_from=start)
    second.run()
    used = {path for paths in check_live_files(second.files, second.storage).values() for path in paths}

    assert second.committed == expected()
    after = first.checkpoint_files()
    if mode is RestoreMode.CLAIM:
        assert not any("/chk-" in path for path in after)
        assert [path for path in shared if path in after] == [path for path in shared if path in used]
    else:
        assert after == before
    if mode is RestoreMode.NO_CLAIM:
        assert not any(path.startswith("/") for path in used)


@pytest.mark.parametrize("mode", [RestoreMode.CLAIM, RestoreMode.LEGACY])
def test_files_of_another_directory_are_referred_to_by_their_absolute_paths(mode: RestoreMode) -> None:
    """The first checkpoint uploads only new files, and a run that is resumed from it finds the others."""
    first = failed("lsm", retained=1)
    (checkpoint_id,) = first.storage.list_checkpoints()
    start = SavepointRestore(first.storage.location(checkpoint_id).directory, mode)
    second = Ran(
        settings("lsm", "incremental", restart=NoRestart(), retained=1),
        files=first.files,
        results=first.results,
        directory="/elsewhere",
        restore_from=start,
        kills=[("everything[0]", 900_000)],
    )
    with pytest.raises(JobFailedError):
        second.run()
    used = {path for paths in check_live_files(second.files, second.storage).values() for path in paths}
    assert any(path.startswith(first.storage.job_dir) for path in used)

    third = Ran(
        settings("lsm", "incremental"),
        files=first.files,
        results=first.results,
        directory="/elsewhere",
        restore=True,
        restore_from=start,
        incarnation=2,
    )
    third.run()

    assert third.committed == expected()


def test_a_claimed_checkpoint_that_storage_cannot_reach_is_not_built_upon() -> None:
    """It lies on the file system of the sinks; checkpoints go elsewhere, so the first one uploads everything."""
    first = failed("lsm", retained=1)
    (checkpoint_id,) = first.storage.list_checkpoints()
    start = SavepointRestore(first.storage.location(checkpoint_id).directory, RestoreMode.CLAIM)
    second = go_on(first, "lsm", restore_from=start)
    second.storage.file_system = second.execution.manager.local.file_system = MemoryFileSystem()
    second.run()

    used = check_live_files(second.storage.file_system, second.storage)
    assert not any(path.startswith("/") for paths in used.values() for path in paths)
    assert second.committed == expected()


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_bad_shared_file_makes_its_checkpoint_unusable_and_the_older_one_is_used(name: str, damage: str) -> None:
    """The run says which checkpoint it passes over and why; commits after the older one are repeated."""
    first = failed(name)
    older, newest = first.storage.list_checkpoints()
    shared = check_live_files(first.files, first.storage)
    only_newest = sorted(set(shared[newest]) - set(shared[older]))
    path = posixpath.join(first.storage.job_dir, only_newest[0])
    spoil(first.files, path, damage)

    second = go_on(first, name, restore=True, incarnation=2)
    second.results = CollectedResults()
    second.run()

    (restore, *_) = second.execution.manager.deployment.restores
    assert restore.checkpoint_id == older
    assert f"checkpoint {newest} cannot be used" in restore.problems[0]
    assert path in restore.problems[0]
    assert not second.committed - expected()
    check_live_files(second.files, second.storage)


def spoil(files: FileSystem, path: str, damage: str) -> None:
    data = files.read_bytes(path)
    files.delete(path)
    if damage == "missing":
        return
    with files.open_write(path) as file:
        file.write(data[:-1] if damage == "truncated" else data[:10] + bytes([data[10] ^ 1]) + data[11:])


@crossed(
    quick=2,
    name=INCREMENTAL,
    pattern=["*/shared*", "*/chk-*"],
    operation=["open_write", "write", "fsync", "delete", "rename", "fsync_dir"],
)
def test_a_disk_that_refuses_costs_checkpoints_and_nothing_else(name: str, pattern: str, operation: str) -> None:
    """A checkpoint fails, or a file is not deleted; completed checkpoints are whole, and the output is right."""
    rules = [FaultRule(FileFault.ERROR_BEFORE, operation, pattern, at) for at in (2, 3, 7, 11)]
    files = MemoryFileSystem()
    faulty = FaultInjectingFileSystem(files, rules)
    ran = Ran(settings(name, "incremental"), files=faulty, kills=[("count[0]", 4_000_000)])
    ran.run()

    assert ran.committed == expected()
    ran.storage.file_system = files
    check_live_files(files, ran.storage, is_over=False)


def test_shared_files_stay_while_a_subsumed_checkpoint_could_not_be_deleted() -> None:
    """Otherwise a later start would find a checkpoint without its files. The sweep at the end counts it in."""
    files = MemoryFileSystem()
    rules = [FaultRule(FileFault.ERROR_BEFORE, "delete", "*/chk-2/_metadata", 1)]
    ran = Ran(settings("lsm", "incremental", retained=1), files=FaultInjectingFileSystem(files, rules))
    result = ran.run()

    assert any("checkpoint 2 could not be deleted" in note for note in result.notes)
    ran.storage.file_system = files
    assert 2 in check_live_files(files, ran.storage)
    assert ran.committed == expected()


@pytest.mark.parametrize("name", INCREMENTAL)
def test_a_shared_file_goes_with_the_last_checkpoint_that_used_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry has it deleted while the job runs; nothing is left to the sweep at the end."""
    ran = Ran(settings(name, "incremental", retained=1))
    monkeypatch.setattr(type(ran.storage), "sweep_shared", lambda storage: [])
    result = ran.run()

    assert result.checkpoints.completed > 3
    check_live_files(ran.files, ran.storage)


def test_uploads_of_a_snapshot_that_is_given_up_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One operator's part was finished, and its files were not acknowledged, when another part failed."""
    files = MemoryFileSystem()
    rules = [FaultRule(FileFault.ERROR_BEFORE, "open_write", "*/chk-3/windows-0-operator*", 1)]
    ran = Ran(settings("lsm", "incremental"), files=FaultInjectingFileSystem(files, rules))
    monkeypatch.setattr(type(ran.storage), "sweep_shared", lambda storage: [])
    result = ran.run()

    assert any(note.startswith("checkpoint 3 failed in windows") for note in result.notes)
    ran.storage.file_system = files
    check_live_files(files, ran.storage)


def test_output_of_all_incremental_runs_is_no_fluke() -> None:
    """The expected output holds every kind of record, so that a part that is missing would show."""
    kinds = Counter(record[0] if isinstance(record[0], str) else "count" for record in expected().elements())

    assert {"seen", "timer", "session", "count", "key 0"} <= set(kinds)
