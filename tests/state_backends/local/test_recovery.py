"""Local recovery of a task, from its streams to its restore."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_backends.base import LONG, KeyGroupRange, key_group_for, key_group_range_for_index
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.snapshots import (
    FileStateHandle,
    FullKeyedStateHandle,
    KeyedStateHandle,
    SnapshotResult,
    StateOffsets,
    StateScope,
)
from tests.state_backends.local.machine import GROUPS, SPLITS, Machine


def flip(fs: FileSystem, path: str) -> None:
    data = bytearray(fs.read_bytes(path))
    data[len(data) // 2] ^= 0x10
    with fs.open_write(path) as file:
        file.write(bytes(data))


def remove_primary(machine: Machine, checkpoint_id: int) -> None:
    """Take away everything that the checkpoint has in checkpoint storage."""
    machine.fs.delete_tree(machine.storage.location(checkpoint_id).directory)
    machine.fs.delete_tree("/s/job/shared")


BIG = "x" * 30_000
"""Too big to be inlined in the metadata of a local snapshot."""


@pytest.mark.parametrize("value", ["small", BIG], ids=["small", "big"])
def test_a_restore_prefers_the_local_copy(value: str) -> None:
    """Keyed and operator state come back, and nothing is fetched from checkpoint storage."""
    machine = Machine()
    task = machine.start()
    task.operator.list_state(SPLITS).update(["s0", value])
    task.run(1, 1, 2, 3, value=value)
    again = machine.start(1)

    assert again.values() == dict.fromkeys((1, 2, 3), value)
    assert again.operator.list_state(SPLITS).get() == ["s0", value]
    assert again.remote is not None
    assert again.remote.opened == []
    assert machine.told() == (2, 0, 0)
    assert machine.notes == []


def test_nothing_at_all_is_needed_of_checkpoint_storage() -> None:
    """With the primary gone the local copy still restores."""
    machine = Machine()
    machine.start().run(1, 1, 2)
    remove_primary(machine, 1)

    assert machine.start(1).values() == {1: "x", 2: "x"}


def test_a_missing_copy_is_fetched_and_told() -> None:
    """Another machine, or a lost disk: remote state, one note, counted."""
    machine = Machine()
    task = machine.start()
    task.operator.list_state(SPLITS).update(["s0"])
    task.run(1, 1)
    machine.fs.delete_tree(machine.stores.root)
    again = machine.start(1)

    assert again.values() == {1: "x"}
    assert machine.told() == (0, 2, 0)
    (note,) = machine.notes
    assert "op-0 fetches checkpoint 1 from checkpoint storage: there is no local copy" in note


def test_a_damaged_copy_is_fetched_told_and_removed() -> None:
    """The attempt with it fails and is closed; the other copy restores; no trace of the damaged one is left."""
    machine = Machine()
    machine.start().run(1, 1, value=BIG)
    (file,) = [one for one in machine.local_files() if "_local_state" not in one]
    flip(machine.fs, f"{machine.stores.root}/{file}")
    again = machine.start(1)

    assert again.values() == {1: BIG}
    assert again.disposed == 1
    assert machine.told() == (0, 1, 1)
    assert any("the local copy of the keyed state of op in checkpoint 1" in note for note in machine.notes)
    assert any("its local copy cannot be used" in note for note in machine.notes)
    again.checkpoint(2)
    assert again.recovery.store.kept == (2,)
    again.confirm(2)
    assert machine.start(2).values() == {1: BIG}
    assert machine.told() == (1, 1, 1)


def test_damaged_metadata_is_told_and_fetched() -> None:
    """The whole local snapshot is removed then."""
    machine = Machine()
    machine.start().run(1, 1)
    flip(machine.fs, f"{machine.stores.root}/op-0/chk-1/_local_state")
    again = machine.start(1)

    assert again.values() == {1: "x"}
    assert machine.told() == (0, 1, 1)
    assert machine.local_files() == []


def test_after_rescaling_state_is_fetched() -> None:
    """Other key groups, other offsets: the local copies stay unused, and go."""
    machine = Machine()
    task = machine.start()
    task.operator.list_state(SPLITS).update(["s0", "s1"])
    task.run(1, *range(20))
    halves = [machine.start(1, subtask, 2) for subtask in (0, 1)]

    assert halves[0].values().keys() | halves[1].values().keys() == set(range(20))
    assert machine.told()[0] <= 1, "operator state of subtask 0 is the same as before; keyed state is not"
    assert machine.counts.remote_fallbacks >= 3
    assert [note.partition(" checkpoint storage: ")[2] for note in machine.notes] == [
        "the local copy is of other key groups, or has not all of it",
        "there is no local copy",
    ]


def test_back_to_one_the_copies_of_two_are_not_used() -> None:
    """Two handles, one of which is at hand: for keyed state it is used, its neighbour's is fetched."""
    machine = Machine()
    for subtask in (0, 1):
        task = machine.start(None, subtask, 2)
        task.operator.list_state(SPLITS).update([f"s{subtask}"])
        task.put(*task_keys(subtask))
        task.checkpoint(1)
    again = machine.start(1)

    assert len(again.values()) == 40
    assert again.remote is not None
    assert [path for path in again.remote.opened if "op-keyed-0" in path] == []
    assert [path for path in again.remote.opened if "op-keyed-1" in path] != []
    assert again.operator.list_state(SPLITS).get() == ["s0", "s1"]
    assert machine.told()[:2] == (1, 1)


def task_keys(subtask: int) -> set[int]:
    """The keys below 40 whose key group one of two subtasks owns."""
    mine = key_group_range_for_index(GROUPS, 2, subtask)
    return {key for key in range(40) if key_group_for(key, GROUPS, LONG) in mine}


def test_what_is_kept_follows_the_checkpoints() -> None:
    """Confirmed: older ones go. Aborted: that one goes. Failed: nothing of it stays. Restored: all others go."""
    machine = Machine()
    task = machine.start()
    task.run(1, 1, value=BIG)
    task.run(2, 2)
    assert task.recovery.store.kept == (2,)
    task.checkpoint(3)
    task.recovery.abort(3)
    task.checkpoint(4)
    task.checkpoint(5, fails=True)
    assert task.recovery.store.kept == (2, 4)
    assert {path.split("/")[1] for path in machine.local_files()} == {"chk-2", "chk-4"}
    machine.start(2)

    assert {path.split("/")[1] for path in machine.local_files()} == {"chk-2"}
    machine.start()
    assert machine.local_files() == []


def test_a_later_process_finds_the_copies() -> None:
    """They are files; a new object over the same directory uses them."""
    machine = Machine()
    machine.start().run(1, 1, 2)
    machine.stores = type(machine.stores)(machine.fs, machine.stores.root, machine.counts)

    assert machine.start(1).values() == {1: "x", 2: "x"}
    assert machine.told() == (1, 0, 0)


def test_a_task_without_state_tells_nothing() -> None:
    """Its local snapshot says that there is none; nothing is fetched, counted or noted."""
    machine = Machine()
    task = machine.start()
    task.checkpoint(1)
    again = machine.start(1)

    assert again.recovery.store.kept == (1,)
    assert machine.told() == (0, 0, 0)
    assert machine.notes == []


CALLS = ["make_dirs", "open_write", "write", "fsync", "rename", "fsync_dir"]


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("at_call", [1, 2, 3])
def test_no_refusal_of_the_local_disk_fails_a_checkpoint(operation: str, at_call: int) -> None:
    """The checkpoint is whole in checkpoint storage; the failure is counted, and the next restore is right."""
    rule = FaultRule(FileFault.ERROR_BEFORE, operation, at_call=at_call)
    machine = Machine(local=FaultInjectingFileSystem(MemoryFileSystem(), [rule]))
    task = machine.start()
    task.operator.list_state(SPLITS).update([BIG])
    task.run(1, 1, value=BIG)
    again = machine.start(1)

    assert again.values() == {1: BIG}
    assert again.operator.list_state(SPLITS).get() == [BIG]
    struck = len(machine.local.struck)  # type: ignore[attr-defined]
    assert machine.counts.secondary_failures == struck
    assert machine.counts.local_restores + machine.counts.remote_fallbacks == 2
    assert machine.counts.local_restores == 2 or struck


def test_state_that_was_lost_is_not_taken_for_none() -> None:
    """When no copy could be made, the local snapshot does not say that there is no state."""
    rule = FaultRule(FileFault.ERROR_BEFORE, "write", path="*op-0/chk-1/1-*")
    machine = Machine(local=FaultInjectingFileSystem(MemoryFileSystem(), [rule]))
    machine.start().run(1, 1, value=BIG)
    again = machine.start(1)

    assert again.values() == {1: BIG}
    assert machine.told() == (0, 1, 1)
    assert "has not all of it" in machine.notes[-1]


def test_tasks_that_are_gone_leave_nothing() -> None:
    """Copies of tasks that the job no longer has are deleted; at the end of the run all are."""
    machine = Machine()
    for subtask in (0, 1):
        task = machine.start(None, subtask, 2)
        task.put(*task_keys(subtask))
        task.checkpoint(1)
    machine.stores.retain(["op-1", "op-2"])
    assert {path.split("/")[0] for path in machine.local_files()} == {"op-1"}
    machine.stores.dispose()

    assert not machine.fs.exists(machine.stores.root)
    machine.stores.retain([])
    machine.stores.dispose()
    assert machine.told() == (0, 0, 0)


@pytest.mark.parametrize("operation", ["list_dir", "delete_tree"])
def test_cleaning_up_never_fails(operation: str) -> None:
    """Calls that the disk refuses are counted."""
    rule = FaultRule(FileFault.ERROR_BEFORE, operation)
    local = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
    machine = Machine(local=local)
    local.inner.make_dirs("/s/job/local/op-9")
    machine.stores.retain([])
    machine.stores.dispose()

    assert machine.counts.secondary_failures == {"list_dir": 1, "delete_tree": 2}[operation]


def test_half_of_a_copy_is_none() -> None:
    """A snapshot that refers to a file that is nowhere here gets no local handle."""
    machine = Machine()
    recovery = machine.start().recovery
    where = machine.storage.initialize_location(1)
    local = recovery.snapshot(1, "u", where.reader())
    elsewhere = FileStateHandle("shared/elsewhere", StateScope.SHARED, 1, 1)
    handle = FullKeyedStateHandle(KeyGroupRange(0, 7), (), elsewhere)

    taken: SnapshotResult[KeyedStateHandle] = SnapshotResult(handle)
    result = local.finished("op", "keyed", taken)

    assert result.task_local_state is None
    assert result.job_manager_state is handle


def test_the_same_key_groups_of_something_else_are_no_copy() -> None:
    """The restored snapshot may be another one of that number, whose files were not copied."""
    machine = Machine()
    machine.start().run(1, 1, value=BIG)
    task = machine.start(1)
    assert task.remote is not None
    mine = machine.completed[1][0].keyed
    assert isinstance(mine, FullKeyedStateHandle)
    assert isinstance(mine.stream, FileStateHandle)
    foreign = replace(mine, stream=replace(mine.stream, checksum=mine.stream.checksum ^ 1))

    assert [one.local_handles for one in task.recovery.keyed_candidates("op", [mine], task.remote)] == [1, 0]
    assert [one.local_handles for one in task.recovery.keyed_candidates("op", [foreign], task.remote)] == [0]


def test_other_offsets_of_the_same_bytes_are_no_copy() -> None:
    """Redistributed operator state is fetched, and so is that of another file."""
    machine = Machine()
    task = machine.start()
    task.operator.list_state(SPLITS).update(["s0", "s1"])
    task.run(1, 1)
    task = machine.start(1)
    assert task.remote is not None
    mine = machine.completed[1][0].operator
    assert mine is not None
    assert isinstance(mine.stream, FileStateHandle)
    where = mine.states[SPLITS]
    cut = mine.with_states({SPLITS: StateOffsets(where.mode, where.offsets[:1])})
    foreign = replace(mine, stream=replace(mine.stream, checksum=mine.stream.checksum ^ 1))

    candidates = [task.recovery.operator_candidates("op", [one], task.remote) for one in (mine, cut, foreign)]
    assert [[one.local_handles for one in found] for found in candidates] == [[1, 0], [0], [0]]


def test_restoring_nothing_counts_nothing() -> None:
    """An operator without state in the checkpoint is no fallback."""
    machine = Machine()
    machine.start().checkpoint(1)
    task = machine.start(1)
    report = task.recovery.report("op", "keyed")
    for candidate in task.recovery.keyed_candidates("op", [], machine.storage.reader(1)):
        report(candidate, [])

    assert machine.told() == (0, 0, 0)


def test_copies_may_be_made_and_not_used() -> None:
    """With recovery off, checkpoints still leave copies, and restores fetch."""
    machine = Machine()
    machine.stores.recovery_enabled = False
    machine.start().run(1, 1)
    again = machine.start(1)

    assert again.values() == {1: "x"}
    assert again.recovery.store.kept == (1,)
    assert machine.told() == (0, 1, 0)
