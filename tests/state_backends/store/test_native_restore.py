"""Restore from the files of a store: the same key groups, other key groups, and files that are not what was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from state_backends.api import BackendEnvironment
from state_backends.base import STRING, CorruptStateError, KeyGroupRange, MissingStateError, StateSchemaError
from state_backends.base.key_groups import key_group_ranges
from state_backends.codec import default_codec
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.lsm import LsmOptions, LsmStore, LsmStoreKind
from state_backends.snapshots import (
    ByteStreamStateHandle,
    ChangelogKeyedStateHandle,
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    IncrementalKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    run_to_completion,
)
from state_backends.store.meta import StoreMeta
from state_backends.store.native_restore import NativeTarget, restore_native
from tests.state_backends.rows.backends import (
    ALL,
    MAX_PARALLELISM,
    SUM,
    VALUE,
    World,
    clipped,
    fill,
    heap_like,
    keys_of,
    over_each_store,
    small,
    world,
)
from tests.state_backends.rows.support import content_of, files_below, names
from tests.state_backends.support import take_snapshot, told

__all__ = ["world"]

FULL, SAVEPOINT = SnapshotType.FULL_CHECKPOINT, SnapshotType.NATIVE_SAVEPOINT
CANONICAL = SnapshotType.CANONICAL_SAVEPOINT


# --- the same key groups ----------------------------------------------------------------------------------------------


@over_each_store
def test_everything_is_there_again(world: World) -> None:
    """State of every kind, namespaces and timers come back, and are as usable as before."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 200))
    handle = world.native(backend, 1)
    heap = heap_like()
    fill(heap, keys_of(ALL, 200))
    again = world.restored([handle], 1)
    assert again.fingerprint() == heap.fingerprint() == backend.fingerprint()
    assert again.state_names() == heap.state_names()
    fill(again, keys_of(ALL, 20), "changed")
    fill(heap, keys_of(ALL, 20), "changed")
    assert again.fingerprint() == heap.fingerprint()


@over_each_store
def test_a_snapshot_does_not_see_what_comes_after(world: World) -> None:
    """S2: the files pinned at the synchronous part are written, whatever is flushed and merged meanwhile."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 50))
    before = backend.fingerprint()
    strategy = backend.snapshot_strategy(SnapshotOptions(SAVEPOINT))
    resources = strategy.sync_prepare_resources(1)
    streams = world.storage.initialize_location(1).stream_factory("subtask-1")
    task = strategy.async_snapshot(resources, streams, SnapshotOptions())
    result = None
    for step in range(1000):
        if result is None:
            fill(backend, keys_of(ALL, 30), f"later {step}")
            result = task.step()
    assert result is not None
    assert result.job_manager_state is not None
    assert world.restored([result.job_manager_state], 1).fingerprint() == before


@over_each_store
def test_identity_and_base_carry_over(world: World) -> None:
    """I8: the first checkpoint after the restore refers to every data file that is restored and still there."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 50))
    first = world.native(backend, 1)
    again = world.restored([first], 1)
    second = world.native(again, 2)
    assert second.backend_id == first.backend_id
    assert names(second, uploaded=True) == []
    assert {file.stream for file in second.shared_files} <= {file.stream for file in first.shared_files}
    assert world.restored([second], 2).fingerprint() == backend.fingerprint()


@over_each_store
def test_a_full_checkpoint_after_a_restore_stands_alone(world: World) -> None:
    """A snapshot restored without a claim must not be referred to: FULL_CHECKPOINT uploads everything."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 50))
    first = world.native(backend, 1)
    second = world.native(world.restored([first], 1), 2, FULL)
    assert names(second, uploaded=False) == []
    assert not {file.stream for file in second.shared_files} & {file.stream for file in first.shared_files}


@over_each_store
def test_files_of_a_savepoint_are_no_base(world: World) -> None:
    """They belong to their user: a backend restored from it uploads everything once."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 50))
    savepoint = world.native(backend, 1, SAVEPOINT)
    again = world.restored([savepoint], 1)
    assert again.fingerprint() == backend.fingerprint()
    assert names(world.native(again, 2), uploaded=False) == []


@over_each_store
def test_a_backend_that_is_not_incremental_reads_native_savepoints(world: World) -> None:
    """The kind of snapshots that it takes does not limit the kinds that it reads."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 50))
    savepoint = world.native(backend, 1, SAVEPOINT)
    world.incremental = False
    again = world.restored([savepoint], 1)
    assert again.fingerprint() == backend.fingerprint()
    assert isinstance(world.snapshot(again, 2), FullKeyedStateHandle)


@over_each_store
def test_a_chain_of_restores(world: World) -> None:
    """Each attempt goes on where the last checkpoint was, and refers to files of all attempts before."""
    backend, model = world.backend(), heap_like()
    paths: set[str] = set()
    for number in range(1, 6):
        for one in (backend, model):
            fill(one, keys_of(ALL, 60)[number * 5 :: 7], f"round {number}")
        handle = world.native(backend, number)
        told(backend).complete(number)
        new = {file.path for file, is_new in handle.shared() if is_new}
        assert not new & paths, "a path was used twice"
        paths |= new
        backend.dispose()
        backend = world.restored([handle], number)
        assert backend.fingerprint() == model.fingerprint()


@over_each_store
def test_recovering_twice_from_one_checkpoint_mixes_nothing_up(world: World) -> None:
    """E3: each checkpoint restores to its own state, and the late confirmation of a lost one is no base."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 40))
    first = world.native(backend, 1)
    backend.dispose()
    lost = world.restored([first], 1)
    fill(lost, keys_of(ALL, 40), "of the lost attempt")
    second = world.native(lost, 2)
    state_of_second = lost.fingerprint()
    lost.dispose()
    again = world.restored([first], 1)
    fill(again, keys_of(ALL, 40), "of the next attempt")
    told(again).complete(2)
    third = world.native(again, 3)
    new = {file.path for file, is_new in third.shared() if is_new}
    assert new
    assert not new & {file.path for file, _ in second.shared()}
    assert world.restored([third], 3).fingerprint() == again.fingerprint() != state_of_second
    assert world.restored([second], 2).fingerprint() == state_of_second


# --- other key groups -------------------------------------------------------------------------------------------------


@over_each_store
@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 3), (2, 1), (2, 3), (3, 2), (4, 3), (3, 4), (1, 12)])
def test_at_another_parallelism_each_key_group_comes_back_once(world: World, before: int, after: int) -> None:
    """Each new subtask holds its own key groups only, and goes on with an identity of its own."""
    handles, merged = [], heap_like()
    number = 0
    for groups in key_group_ranges(MAX_PARALLELISM, before):
        backend = world.backend(groups)
        keys = keys_of(groups, 60 // before)
        fill(backend, keys, reverse=number % 2 == 1)
        fill(merged, keys)
        number += 1
        handles.append(world.native(backend, 1))
        told(backend).complete(1)
    ids = {handle.backend_id for handle in handles}
    for groups in key_group_ranges(MAX_PARALLELISM, after):
        number += 1
        relevant = [one for one in handles if one.intersect(groups) is not None]
        backend = world.restored(relevant, 1, groups)
        expected = heap_like(groups)
        fill_from(merged, expected)
        assert backend.fingerprint() == expected.fingerprint()
        number += 1
        handle = world.native(backend, number)
        assert handle.backend_id not in ids
        ids.add(handle.backend_id)
        assert names(handle, uploaded=False) == []
        assert world.restored([handle], number, groups).fingerprint() == expected.fingerprint()
        assert clipped(backend, groups, world, number + 100) == expected.fingerprint()


def fill_from(source: HeapKeyedStateBackend, target: HeapKeyedStateBackend) -> None:
    """The part of a backend's state that belongs to the key groups of another."""
    handle, reader = take_snapshot(source)
    target.restore([] if handle is None else [handle], reader)


@over_each_store
def test_states_of_some_subtasks_only(world: World) -> None:
    """A state that one old subtask never declared is taken over from the others, under any id."""
    left, right = key_group_ranges(MAX_PARALLELISM, 2)
    one, two = world.backend(left), world.backend(right)
    fill(one, keys_of(left, 20))
    for key in keys_of(right, 20):
        two.set_current_key(key)
        two.reducing_state(SUM).add(5)
    merged = world.restored([world.native(one, 1), world.native(two, 1)], 1)
    for key in keys_of(right, 20):
        merged.set_current_key(key)
        assert merged.reducing_state(SUM).get() == 5
        assert merged.value_state(VALUE).get() is None
    merged.set_current_key(keys_of(left, 1)[0])
    assert merged.reducing_state(SUM).get() == 0
    assert merged.num_entries("value") == 20


@over_each_store
def test_a_small_part_of_a_store_is_copied_not_clipped(world: World) -> None:
    """Deleted rows stay in the files of a store: for a sixth of the state, not all of it is uploaded again."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 300))
    whole = world.native(backend, 1)
    part = world.native(world.restored([whole], 1, KeyGroupRange(0, 1)), 2)
    half = world.native(world.restored([whole], 1, KeyGroupRange(0, 5)), 3)
    whole_bytes, part_bytes, half_bytes = (
        sum(file.stream.size_bytes for file in one.shared_files) for one in (whole, part, half)
    )
    assert part_bytes < whole_bytes / 3
    # RocksDB compacts in the background: what was deleted may be gone from its files already.
    assert half_bytes > (part_bytes * 2 if world.store == "rocksdb" else whole_bytes / 2)


def test_the_part_taken_as_it_is_keeps_its_names() -> None:
    """Of 2 -> 1, the first of two equal parts is opened and the other inserted: no row is copied that need not be."""
    world = World("lsm")
    handles = []
    for groups in key_group_ranges(MAX_PARALLELISM, 2):
        backend = world.backend(groups)
        fill(backend, keys_of(groups, 20))
        handles.append(world.native(backend, 1))
    merged = world.native(world.restored(handles, 1), 3)
    assert {file.name for file in handles[0].shared_files} <= {file.name for file in merged.shared_files}
    assert not {file.name for file in handles[1].shared_files} & {file.name for file in merged.shared_files}
    world.dispose()


@over_each_store
def test_what_was_deleted_behind_a_split_does_not_come_back_with_a_merge(world: World) -> None:
    """A store that was taken as it is holds no row of other key groups: its left-overs would win over deletions."""
    halves = key_group_ranges(MAX_PARALLELISM, 2)
    backend = world.backend()
    fill(backend, keys_of(ALL, 60))
    whole = world.native(backend, 1)
    handles = []
    for groups in halves:
        half = world.restored([whole], 1, groups)
        if groups is halves[1]:
            for key in keys_of(groups, 10):
                half.set_current_key(key)
                half.value_state(VALUE).clear()
        handles.append(world.native(half, 2))
    merged = world.restored(handles, 2)
    assert merged.num_entries("value") == 50
    for key in keys_of(halves[1], 10):
        merged.set_current_key(key)
        assert merged.value_state(VALUE).get() is None


class WatchedKind(LsmStoreKind):
    """Knows which of its stores are open."""

    def __init__(self) -> None:
        super().__init__(LsmOptions(memtable_bytes=1 << 12))
        self.open_stores: list[LsmStore] = []

    def open(self, file_system: FileSystem, directory: str, unique: str) -> LsmStore:
        store = super().open(file_system, directory, unique)
        self.open_stores.append(store)
        close = store.close

        def closed() -> None:
            close()
            if store in self.open_stores:
                self.open_stores.remove(store)

        vars(store).update(close=closed)
        return store


def split_world() -> tuple[World, list[IncrementalKeyedStateHandle], WatchedKind, NativeTarget]:
    """Two halves of some state, and where to put them together."""
    world, kind = World("lsm"), WatchedKind()
    handles = []
    for groups in key_group_ranges(MAX_PARALLELISM, 2):
        backend = world.backend(groups)
        fill(backend, keys_of(groups, 20))
        handles.append(world.native(backend, 1))
    target = NativeTarget(kind, world.file_system, "/to/store", "/to/scratch", "unique", ALL, default_codec())
    return world, handles, kind, target


def test_only_the_store_restored_stays_open() -> None:
    """Stores that were only read are closed, and their directory is gone; the meta names the own key groups."""
    world, handles, kind, target = split_world()
    restored = restore_native(handles, world.storage.reader(1), target)
    assert kind.open_stores == [restored.store]
    assert restored.meta.key_group_range == ALL
    assert restored.base is None
    assert world.file_system.list_dir("/to") == ["store"]
    world.dispose()


def test_a_restore_that_fails_closes_all_stores() -> None:
    """An open store would keep its files, and RocksDB its lock."""
    world, handles, kind, target = split_world()
    with world.storage.reader(1).open(handles[1].meta) as file:
        meta = StoreMeta.from_bytes(file.read(), "meta", default_codec())
    stripped = replace(meta, states=meta.states[:1]).to_bytes(default_codec())
    handles[1] = replace(handles[1], meta=ByteStreamStateHandle(stripped))
    with pytest.raises(CorruptStateError, match="says nothing about state"):
        restore_native(handles, world.storage.reader(1), target)
    assert kind.open_stores == []
    assert not files_below(world.file_system, "/to")
    world.dispose()


# --- what does not fit ------------------------------------------------------------------------------------------------


def test_files_of_another_kind_of_store_are_refused() -> None:
    """The error names both kinds and the way out."""
    world = World("lsm")
    backend = world.backend()
    fill(backend, keys_of(ALL, 5))
    handle = replace(world.native(backend, 1), store="rocksdb")
    with pytest.raises(StateSchemaError, match=r"a rocksdb store.*the lsm backend cannot read.*canonical"):
        world.restored([handle], 1)
    world.dispose()


@over_each_store
def test_parts_in_different_forms_are_refused(world: World) -> None:
    """One subtask's part as files and another's in full format is no snapshot of one job."""
    left, right = key_group_ranges(MAX_PARALLELISM, 2)
    one, two = world.backend(left), world.backend(right)
    fill(one, keys_of(left, 5))
    fill(two, keys_of(right, 5))
    native = world.native(one, 1)
    full = world.snapshot(two, 1, CANONICAL)
    assert full is not None
    with pytest.raises(StateSchemaError, match="full format"):
        world.restored([native, full], 1)
    changelog = ChangelogKeyedStateHandle(right, 2, 0, (), False, ())
    with pytest.raises(StateSchemaError, match="log of changes"):
        world.restored([native, changelog], 1)


@over_each_store
def test_parts_that_overlap_are_refused(world: World) -> None:
    """A row that is in two parts would be in one of them in vain."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 5))
    handle = world.native(backend, 1)
    with pytest.raises(StateSchemaError, match="overlap"):
        world.restored([handle, handle], 1)


@over_each_store
def test_a_handle_about_other_key_groups_is_refused(world: World) -> None:
    """A handle that says more than the files do would lose state without a word."""
    backend = world.backend(KeyGroupRange(0, 5))
    fill(backend, keys_of(KeyGroupRange(0, 5), 5))
    handle = replace(world.native(backend, 1), key_group_range=ALL)
    with pytest.raises(CorruptStateError, match="key groups"):
        world.restored([handle], 1)


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", ""])
def test_names_that_leave_the_directory_are_refused(name: str) -> None:
    """A damaged handle writes nowhere else."""
    world = World("lsm")
    backend = world.backend()
    fill(backend, keys_of(ALL, 5))
    handle = world.native(backend, 1)
    first, *others = handle.shared_files
    damaged = replace(handle, shared_files=(replace(first, name=name), *others))
    with pytest.raises(CorruptStateError, match="is no name"):
        world.restored([damaged], 1)
    world.dispose()


# --- damage -----------------------------------------------------------------------------------------------------------


def paths_of(world: World, handle: IncrementalKeyedStateHandle, number: int) -> list[str]:
    location = world.storage.location(number)
    return [location.full_path(one) for one in handle.streams() if isinstance(one, FileStateHandle)]


def rewrite(world: World, path: str, data: bytes) -> None:
    with world.file_system.open_write(path) as file:
        file.write(data)


def assert_detected(world: World, handle: IncrementalKeyedStateHandle, number: int, *types: type[Exception]) -> None:
    """The restore fails with one of these errors and leaves no local file."""
    backend = world.backend()
    with pytest.raises(types):
        backend.restore([handle], world.storage.reader(number))
    environment = backend._environment
    assert not files_below(environment.file_system, environment.working_dir)
    backend.dispose()


@over_each_store
def test_every_kind_of_damage_is_detected(world: World) -> None:
    """Truncated, too long, emptied, missing, a flipped bit at any of many places: always a clear error."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 12))
    handle = world.native(backend, 1)
    paths = paths_of(world, handle, 1)
    assert len(paths) >= 4
    for path in paths:
        data = world.file_system.read_bytes(path)
        damaged: list[bytes] = [data[:-1], data[: len(data) // 2], b"", data + b"\0", data[1:] + data[:1]]
        for at in sorted({0, 1, len(data) // 3, len(data) // 2, len(data) - 1}):
            damaged.append(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        for one in damaged:
            if one != data:
                rewrite(world, path, one)
                assert_detected(world, handle, 1, CorruptStateError)
        world.file_system.delete(path)
        assert_detected(world, handle, 1, MissingStateError)
        rewrite(world, path, data)
    assert world.restored([handle], 1).fingerprint() == backend.fingerprint()


@over_each_store
def test_files_in_each_others_place_are_detected(world: World) -> None:
    """Two files swapped, a file of another checkpoint, a file of another subtask: each is whole, none belongs there."""
    backend, other = world.backend(), world.backend()
    fill(backend, keys_of(ALL, 12))
    fill(other, keys_of(ALL, 12), "y" * 40)
    first = world.native(backend, 1)
    fill(backend, keys_of(ALL, 12), "z" * 40)
    handle = world.native(backend, 2)
    foreign = [*paths_of(world, first, 1), *paths_of(world, world.native(other, 3), 3)]
    paths = paths_of(world, handle, 2)
    content = {path: world.file_system.read_bytes(path) for path in [*paths, *foreign]}
    for path in paths:
        for source in (*paths, *foreign):
            if content[source] != content[path]:
                rewrite(world, path, content[source])
                assert_detected(world, handle, 2, CorruptStateError)
        rewrite(world, path, content[path])
    assert world.restored([handle], 2).fingerprint() == backend.fingerprint()


@over_each_store
def test_damage_in_one_part_of_a_rescaled_restore_is_detected(world: World) -> None:
    """Whichever part it is in, taken or inserted; nothing is left."""
    handles = []
    for groups in key_group_ranges(MAX_PARALLELISM, 2):
        backend = world.backend(groups)
        fill(backend, keys_of(groups, 12))
        handles.append(world.native(backend, 1))
    reader = world.storage.reader(1)
    for handle in handles:
        location = world.storage.location(handle.checkpoint_id)
        for file, _ in handle.shared():
            path = location.full_path(file)
            data = world.file_system.read_bytes(path)
            rewrite(world, path, data[:-1] + bytes([data[-1] ^ 1]))
            backend = world.backend()
            with pytest.raises(CorruptStateError, match="checksum"):
                backend.restore(handles, reader)
            environment = backend._environment
            assert not files_below(environment.file_system, environment.working_dir)
            rewrite(world, path, data)


def test_a_disk_that_refuses_leaves_nothing_behind() -> None:
    """Whichever call fails, the error is the disk's own, and neither the store nor the scratch directory stays."""
    world = World("lsm")
    handles: list[KeyedStateHandle] = []
    for groups in key_group_ranges(MAX_PARALLELISM, 3):
        backend = world.backend(groups)
        fill(backend, keys_of(groups, 4))
        handles.append(world.native(backend, 1))
    wanted = KeyGroupRange(2, 9)
    failures = 0
    for at_call in range(1, 400, 3):
        faulty = FaultInjectingFileSystem(world.file_system, [FaultRule(FileFault.DISK_FULL, "*", at_call=at_call)])
        environment = BackendEnvironment(STRING, MAX_PARALLELISM, wanted, faulty, "/restore", f"r{at_call}")
        backend = small("lsm").create_keyed_backend(environment)
        try:
            backend.restore(handles, world.storage.reader(1))
        except OSError:
            failures += 1
            assert not files_below(world.file_system, "/restore")
            backend.dispose()
        else:
            backend.dispose()
            break
    assert failures > 10
    world.dispose()


def test_what_is_not_deleted_is_told() -> None:
    """A clean-up that fails does not hide why the restore did."""
    world = World("lsm")
    backend = world.backend()
    fill(backend, keys_of(ALL, 4))
    handle = world.native(backend, 1)
    path = paths_of(world, handle, 1)[-1]
    rewrite(world, path, content_of("other", world.file_system.size(path)))
    faulty = FaultInjectingFileSystem(world.file_system, [FaultRule(FileFault.READ_ONLY, "delete_tree")])
    environment = BackendEnvironment(STRING, MAX_PARALLELISM, ALL, faulty, "/restore", "r")
    with pytest.raises(CorruptStateError) as caught:
        small("lsm").create_keyed_backend(environment).restore([handle], world.storage.reader(1))
    assert "could not be deleted" in caught.value.__notes__[0]
    world.dispose()


# --- inlined state ----------------------------------------------------------------------------------------------------


@over_each_store
def test_a_savepoint_inlined_in_its_metadata(world: World) -> None:
    """Small files of a savepoint travel inside the handle, the empty ones too, and restore all the same."""
    backend = world.backend()
    fill(backend, keys_of(ALL, 5))
    options = SnapshotOptions(SAVEPOINT)
    strategy = backend.snapshot_strategy(options)
    storage = CheckpointStorage(world.file_system, "/elsewhere", "job", inline_threshold_bytes=1 << 20)
    location = storage.initialize_savepoint_location("/elsewhere/savepoint", 1)
    task = strategy.async_snapshot(strategy.sync_prepare_resources(1), location.stream_factory("subtask"), options)
    handle = run_to_completion(task).job_manager_state
    assert isinstance(handle, IncrementalKeyedStateHandle)
    assert all(isinstance(one, ByteStreamStateHandle) for one in handle.streams())
    again = world.backend()
    again.restore([handle], location.reader())
    assert again.fingerprint() == backend.fingerprint()
