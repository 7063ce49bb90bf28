"""Whole jobs with local recovery: copies are preferred, damage is told and survived, and the output stays the same."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from engine.runtime.execution import ExecutionResult
from operators.basic import CollectedResults
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from state_backends.snapshots import CheckpointStorage
from tests.scenarios.live_files import check_live_files
from tests.scenarios.stateful_jobs import CHECKPOINTS, FORMS, JOB, Ran, settings

KILLS = [("everything[1]", 2_300_000), ("count[0]", 5_100_000)]
LOCAL = "*/local/*"


@cache
def undisturbed() -> Counter[Any]:
    """The rows that the job commits on the heap, without faults and without local recovery."""
    ran = Ran(settings())
    ran.run()
    return ran.committed


def local_run(form: tuple[str, str] = ("heap", "full"), **more: Any) -> tuple[Ran, ExecutionResult]:
    """A run with local recovery in which tasks die twice."""
    config = more.pop("config", {})
    ran = Ran(settings(*form, local_recovery=True, **config), **{"kills": KILLS, **more})
    return ran, ran.run()


def counts(result: ExecutionResult) -> dict[str, int]:
    """The counters of local recovery."""
    assert result.local_recovery is not None
    return dict(result.local_recovery)


def local_notes(result: ExecutionResult) -> list[str]:
    return [note for note in result.notes if note.startswith("local recovery:")]


@pytest.mark.parametrize("form", FORMS, ids=[f"{name}-{snapshot}" for name, snapshot in FORMS])
@pytest.mark.parametrize("failover", ["full", "region"])
def test_copies_are_preferred_on_every_state_backend(form: tuple[str, str], failover: str) -> None:
    """The output is that of an undisturbed run on the heap, restores use copies, and no file stays when it is over."""
    ran, result = local_run(form, config={"failover": failover})

    assert ran.committed == undisturbed()
    assert ran.oracle.held
    told = counts(result)
    assert told["secondary_failures"] == 0
    # Union lists are of several subtasks, and so never restored from copies; nor are changelogs.
    assert told["local_restores"] > told["remote_fallbacks"] > 0 or form[0].startswith("changelog")
    assert local_notes(result) == [] or form[0].startswith("changelog")
    check_live_files(ran.files, ran.storage)


def test_nothing_is_copied_and_counted_when_it_is_off() -> None:
    """No local directory is ever made."""
    files = FaultInjectingFileSystem(MemoryFileSystem())
    ran = Ran(settings(), files=files, kills=KILLS)
    result = ran.run()

    assert result.local_recovery is None
    # The directory is deleted at the beginning, in case an earlier run has left one.
    touched = {call.operation for call in files.calls if "/local" in call.path}
    assert touched <= {"delete_tree", "exists", "is_dir"}


@pytest.mark.parametrize("form", [("heap", "full"), ("lsm", "incremental")], ids=["heap", "lsm"])
@pytest.mark.parametrize(
    ("rule", "told_of"),
    [
        (FaultRule(FileFault.BIT_FLIP, "open_read", path="*/local/*/_local_state", flip_bit=100), "cannot be read"),
        (FaultRule(FileFault.BIT_FLIP, "open_read", path="*/local/*/chk-*/[0-9]*", flip_bit=300), "cannot be used"),
        (FaultRule(FileFault.MISSING, "open_read", path=LOCAL), "was never finished, or was deleted"),
        (FaultRule(FileFault.MISSING, "open_read", path="*/local/*/chk-*/[0-9]*"), "cannot be used"),
    ],
    ids=["metadata damaged", "state damaged", "metadata missing", "state missing"],
)
def test_damaged_and_missing_copies_are_told_and_fetched(form: tuple[str, str], rule: FaultRule, told_of: str) -> None:
    """State that cannot be read locally is read from checkpoint storage; the notes say so, the counters count it."""
    # State that would be inlined in the metadata of the copy is no file that could be damaged.
    files = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
    ran, result = local_run(form, files=files)
    told = counts(result)

    assert ran.committed == undisturbed()
    if files.struck:
        assert told["secondary_failures"] > 0
        assert told["remote_fallbacks"] > 0
        assert any(told_of in note for note in local_notes(result)), local_notes(result)
        assert any("from checkpoint storage" in note for note in local_notes(result))
    else:
        assert form[0] == "heap", "its state is small enough to be inlined"
        assert "[0-9]" in rule.path
    check_live_files(files.inner, ran.storage)


@pytest.mark.parametrize("operation", ["make_dirs", "write", "fsync", "rename", "link", "delete", "delete_tree"])
def test_a_local_disk_that_refuses_costs_nothing_but_copies(operation: str) -> None:
    """No checkpoint fails because of it, as many complete as otherwise, and the output is right."""
    rule = FaultRule(FileFault.ERROR_BEFORE, operation, path=LOCAL)
    files = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
    ran, result = local_run(("heap", "incremental"), files=files)
    _, otherwise = local_run(("heap", "incremental"))

    assert ran.committed == undisturbed()
    assert result.checkpoints.completed == otherwise.checkpoints.completed
    assert result.checkpoints.failed == otherwise.checkpoints.failed
    assert counts(result)["secondary_failures"] >= (len(files.struck) > 0)


def crashed(form: tuple[str, str], *, power_is_cut: bool = False) -> tuple[FileSystem, CollectedResults]:
    """Storage and output of a run whose process died in the middle; its files stay, unless power is cut."""
    memory = MemoryFileSystem()
    rule = FaultRule(FileFault.CRASH_BEFORE, "rename", path="*/_metadata*", at_call=6)
    ran = Ran(settings(*form, local_recovery=True), files=FaultInjectingFileSystem(memory, [rule]))
    with pytest.raises(SimulatedCrashError):
        ran.run()
    memory.crash(lambda path: not power_is_cut)
    CheckpointStorage(memory, CHECKPOINTS, JOB).discard_leftovers()
    return memory, ran.results


@pytest.mark.parametrize("form", [("heap", "full"), ("lsm", "incremental")], ids=["heap", "lsm"])
def test_a_later_process_restores_from_the_copies_of_the_dead_one(form: tuple[str, str]) -> None:
    """Copies are files; the next process on the same machine finds them."""
    files, results = crashed(form)
    ran = Ran(settings(*form, local_recovery=True), files=files, results=results, restore=True, incarnation=2)
    result = ran.run()

    assert ran.committed == undisturbed()
    told = counts(result)
    assert told["local_restores"] > 0
    assert told["secondary_failures"] == 0
    check_live_files(files, ran.storage)


def test_after_a_power_cut_half_lost_copies_are_noticed() -> None:
    """Copies of a store's files are not made durable: missing ones are fetched, and the job goes on."""
    files, results = crashed(("lsm", "incremental"), power_is_cut=True)
    config = settings("lsm", "incremental", local_recovery=True)
    ran = Ran(config, files=files, results=results, restore=True, incarnation=2)
    result = ran.run()

    assert ran.committed == undisturbed()
    told = counts(result)
    assert told["secondary_failures"] > 0
    assert told["remote_fallbacks"] > 0
    assert any("its local copy cannot be used" in note for note in local_notes(result))
    check_live_files(files, ran.storage)


@pytest.mark.parametrize("form", [("heap", "full"), ("lsm", "incremental")], ids=["heap", "lsm"])
def test_after_rescaling_state_comes_from_checkpoint_storage(form: tuple[str, str]) -> None:
    """Copies of other key groups are not used, and are gone by the end."""
    files, results = crashed(form)
    ran = Ran(
        settings(*form, local_recovery=True), files=files, results=results, restore=True, incarnation=2, parallelism=3
    )
    result = ran.run()

    assert ran.committed == undisturbed()
    assert counts(result)["remote_fallbacks"] > 0
    assert any("of other key groups" in note or "no local copy" in note for note in local_notes(result))
    check_live_files(files, ran.storage)


def test_a_savepoint_has_no_copies() -> None:
    """Between two checkpoints, a savepoint leaves nothing beside the tasks, and a job started from it fetches."""
    files = FaultInjectingFileSystem(MemoryFileSystem())
    ran = Ran(settings(local_recovery=True, checkpoint_interval=None), files=files, savepoints=[(3_000_000, {})])
    ran.run()

    savepoints = [call for call in files.calls if call.operation == "open_write" and "/savepoints/" in call.path]
    assert savepoints
    during = [call.path for call in files.calls if call.operation == "open_write" and "/local/" in call.path]
    # Only the last checkpoint of the job has copies; its number is above that of the savepoint.
    assert all("/chk-1/" not in path for path in during)


def test_two_runs_do_the_same_with_local_recovery() -> None:
    """The same files in checkpoint storage, with copies and without, in runs in which nothing fails."""
    files = []
    for local_recovery in (True, False, True):
        ran = Ran(settings("lsm", "incremental", local_recovery=local_recovery))
        ran.run()
        files.append(ran.checkpoint_files())

    assert files[0] == files[1] == files[2]
