"""Snapshots of every backend: isolated, canonical, readable by every other, released; damage to them is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.api import KeyedStateBackend
from state_backends.base import (
    BOOL,
    BYTES,
    INT,
    LONG,
    STRING,
    CorruptStateError,
    KeyGroupRange,
    KeyType,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateSchemaError,
    key_group_for,
    tuple_of,
)
from state_backends.base.key_groups import key_group_ranges
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    FullKeyedStateHandle,
    SnapshotOptions,
    SnapshotResult,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from tests.hash_seeds import printed
from tests.state_backends.differential.backends import (
    BACKENDS,
    CANONICAL,
    CHECKPOINT,
    NATIVE,
    Pinned,
    World,
    canonical_bytes,
)
from tests.state_backends.snapshots.test_damage import Substitute, damaged_copies
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE, map_keys, told, values

FORMS = [*((name, CHECKPOINT) for name in BACKENDS), ("lsm, incremental", CANONICAL), ("lsm", NATIVE)]
EVERY_FORM = pytest.mark.parametrize(("name", "kind"), FORMS, ids=[f"{name}: {kind.value}" for name, kind in FORMS])
EVERY_BACKEND = pytest.mark.parametrize("name", BACKENDS)


def fill(backend: KeyedStateBackend, keys: int = 40) -> KeyedStateBackend:
    """Some of every kind of state, for the keys of the own key groups."""
    own = [key for key in range(keys) if key_group_for(key, backend.max_parallelism) in backend.key_group_range]
    for key in own:
        backend.set_current_key(key)
        backend.value_state(VALUE).update({"key": [key]})
        backend.list_state(LIST).add_all([key, (key, "x")])
        backend.map_state(MAP).put_all({key: 1, -key - 1: 2})
        collect = backend.aggregating_state(COLLECT)
        collect.set_namespace((key, key + 10))
        collect.add(key)
        backend.timer_service("windows").event_time.add(key, (key, key + 10), key + 10)
        backend.timer_service("windows").processing_time.add(key, None, 5)
    backend.reducing_state(SUM).add_many(own, own, [])
    return backend


Mutation = Callable[[KeyedStateBackend], Any]


def _change_value_in_place(backend: KeyedStateBackend) -> None:
    for value in backend.value_state(VALUE).get_many(list(range(40))):
        value["key"].append("changed")


def _change_list_element_in_place(backend: KeyedStateBackend) -> None:
    backend.list_state(LIST).add_many(list(range(40)), ["added"] * 40)


def _aggregate_in_place(backend: KeyedStateBackend) -> None:
    keys = list(range(40))
    backend.aggregating_state(COLLECT).add_many(keys, [(key, key + 10) for key in keys], ["added"] * 40)


def _change_map(backend: KeyedStateBackend) -> None:
    for key in range(40):
        backend.set_current_key(key)
        backend.map_state(MAP).put("added", 1)
        backend.map_state(MAP).remove(key)


def _merge(backend: KeyedStateBackend) -> None:
    for key in range(40):
        backend.set_current_key(key)
        backend.aggregating_state(COLLECT).merge_namespaces("merged", [(key, key + 10)])


MUTATIONS: dict[str, Mutation] = {
    "value in place": _change_value_in_place,
    "list": _change_list_element_in_place,
    "accumulator in place": _aggregate_in_place,
    "map": _change_map,
    "sums": lambda backend: backend.reducing_state(SUM).add_many(list(range(40)), [7] * 40, []),
    "new keys": lambda backend: backend.reducing_state(SUM).add_many(list(range(100, 140)), [7] * 40, []),
    "clear": lambda backend: backend.value_state(VALUE).clear_many(list(range(40))),
    "update": lambda backend: backend.value_state(VALUE).update_many(list(range(40)), [0] * 40),
    "merge": _merge,
    "timers set": lambda backend: backend.timer_service("windows").event_time.register(
        list(range(40)), [None] * 40, [1] * 40
    ),
    "timers deleted": lambda backend: backend.timer_service("windows").event_time.delete(0, (0, 10), 10),
    "timers fired": lambda backend: backend.timer_service("windows").event_time.pop_due(100),
    "timer fired": lambda backend: backend.timer_service("windows").processing_time.pop_next(100),
}


@EVERY_FORM
def test_no_mutation_reaches_an_open_snapshot(name: str, kind: Any) -> None:
    """After any change to any state, two open snapshots, begun or not, restore to the state when they were taken."""
    options = SnapshotOptions(kind, entries_per_step=1)
    expected = fill(World().backend("heap"), keys=40).fingerprint()
    for mutate in MUTATIONS.values():
        world = World()
        backend = fill(world.backend(name))
        both = [Pinned(backend, world.next_location(), options) for _ in range(2)]
        for _ in range(2):
            both[0].task.step()
        mutate(backend)
        for pinned in both:
            handle = run_to_completion(pinned.task).job_manager_state
            assert handle is not None
            again = world.backend(name)
            again.restore([handle], pinned.location.reader())
            assert again.fingerprint() == expected
        backend.dispose()


KEY_TYPES: dict[KeyType, st.SearchStrategy[Any]] = {
    LONG: st.integers(-(1 << 63), (1 << 63) - 1),
    INT: st.integers(-(1 << 31), (1 << 31) - 1),
    STRING: st.text(max_size=6),
    BYTES: st.binary(max_size=40),
    BOOL: st.booleans(),
    tuple_of(LONG, STRING): st.tuples(st.integers(-5, 300), st.text(max_size=3)),
}
namespaces = st.none() | st.integers(-2, 300)


@settings(max_examples=25)
@given(st.data())
def test_canonical_bytes_are_the_same_on_every_backend(data: st.DataObject) -> None:
    """Any content of any kind of state gives the same canonical bytes and fingerprint on every backend, and restores
    from any into any other."""
    key_type = data.draw(st.sampled_from(list(KEY_TYPES)))
    operations = data.draw(
        st.lists(
            st.tuples(
                KEY_TYPES[key_type],
                st.sampled_from(["value", "list", "map", "collect", "timer"]),
                namespaces,
                st.lists(st.tuples(map_keys, values), max_size=3),
            ),
            max_size=12,
        )
    )
    world = World()
    backends = [world.backend(name, key_type=key_type) for name in BACKENDS]
    for backend in backends:
        for key, kind, namespace, content in operations:
            _write(backend, key, kind, namespace, copy.deepcopy(content))
    expected = canonical_bytes(world, backends[0])
    for name, backend in zip(BACKENDS, backends, strict=True):
        assert canonical_bytes(world, backend) == expected
        assert backend.fingerprint() == backends[0].fingerprint()
        assert backend.num_entries() == backends[0].num_entries()
        savepoint = world.snapshot(backends[0], SnapshotOptions(CANONICAL))
        again = world.restored(name, savepoint, like=backend, key_type=key_type)
        assert canonical_bytes(world, again) == expected
        assert again.num_entries("map") == backends[0].num_entries("map")
        for state in ("value", "map"):
            assert again.keys(state) == backends[0].keys(state)
            assert again.keys(state, 1) == backends[0].keys(state, 1)


def _write(backend: KeyedStateBackend, key: Any, kind: str, namespace: Any, content: list[tuple[Any, Any]]) -> None:
    backend.set_current_key(key)
    if kind == "timer":
        service = backend.timer_service("t")
        for index in range(len(content)):
            service.event_time.add(key, namespace, (index - 1) << 40)
        return
    states: dict[str, Any] = {
        "value": backend.value_state(VALUE),
        "list": backend.list_state(LIST),
        "map": backend.map_state(MAP),
        "collect": backend.aggregating_state(COLLECT),
    }
    state = states[kind]
    state.set_namespace(namespace)
    if kind == "value":
        state.update([value for _, value in content])
    elif kind == "list":
        state.add_all([value for _, value in content if value is not None])
    elif kind == "map":
        state.put_all({(type(map_key).__name__, map_key): value for map_key, value in content})
    else:
        for _, value in content:
            state.add(value)


@EVERY_FORM
def test_without_entries_there_is_no_file(name: str, kind: Any) -> None:
    """A subtask without entries, declared states or not, or whose entries have all gone, writes nothing."""
    world = World()
    backend = world.backend(name)
    backend.value_state(VALUE)
    backend.timer_service("t")
    task = Pinned(backend, world.next_location(), SnapshotOptions(kind)).task
    assert task.step() == SnapshotResult(None)
    assert world.local_files() == []
    assert list(world.file_system.walk_files("/storage")) == []
    if name.startswith("changelog") and kind is CHECKPOINT:
        # Its log would tell how they came and went.
        return
    fill(backend, keys=1)
    _empty(backend)
    pinned = Pinned(backend, world.next_location(), SnapshotOptions(kind))

    assert run_to_completion(pinned.task) == SnapshotResult(None)
    assert pinned.resources.released
    assert list(world.file_system.walk_files("/storage")) == []
    assert backend.fingerprint() == World().backend("heap").fingerprint()


def _empty(backend: KeyedStateBackend) -> None:
    for state in (backend.value_state(VALUE), backend.list_state(LIST), backend.map_state(MAP)):
        state.clear_many([0])
    backend.reducing_state(SUM).clear_many([0])
    backend.aggregating_state(COLLECT).clear_many([0], [(0, 10)])
    backend.timer_service("windows").event_time.pop_due(100)
    backend.timer_service("windows").processing_time.pop_due(100)


@EVERY_FORM
def test_cancelling_leaves_nothing_behind(name: str, kind: Any) -> None:
    """Cancelled before any step, the task releases its view, deletes what it has written, and the backend goes on."""
    options = SnapshotOptions(kind, entries_per_step=1)
    world = World()
    backend = fill(world.backend(name))
    expected = backend.fingerprint()
    local = world.local_files()
    steps = 0
    while True:
        pinned = Pinned(backend, world.next_location(), options)
        results = [pinned.task.step() for _ in range(steps)]
        if pinned.task.status is SnapshotStatus.COMPLETED:
            break
        assert results == [None] * steps
        pinned.task.cancel()
        told(backend).abort(pinned.checkpoint_id)
        assert pinned.resources.released
        assert list(world.file_system.walk_files("/storage")) == []
        steps += 1

    assert steps > 1
    assert backend.fingerprint() == expected
    assert kind is NATIVE or "incremental" in name or "universal" in name or world.local_files() == local


@pytest.mark.parametrize("name", ["heap", "memory", "lsm"])
def test_a_failing_disk_leaves_nothing_behind(name: str) -> None:
    """Whichever write of a snapshot fails, the error is raised, the view is released and no file is left."""
    at_call = 1
    while True:
        rule = FaultRule(FileFault.DISK_FULL, "write", "/storage/*", at_call=at_call)
        fs = FaultInjectingFileSystem(MemoryFileSystem(), [rule])
        world = World(fs)
        backend = fill(world.backend(name))
        location = world.next_location()
        pinned = Pinned(backend, location, SnapshotOptions(entries_per_step=1))
        try:
            run_to_completion(pinned.task)
        except OSError:
            assert pinned.resources.released
            assert list(fs.inner.walk_files("/storage")) == []
            at_call += 1
        else:
            break

    assert at_call > 8


@EVERY_FORM
def test_any_rescale_keeps_every_entry_once(name: str, kind: Any) -> None:
    """State of P subtasks restored by P' is the same, each entry in its owner, whether handles were cut or not."""
    for before, after in [(1, 3), (2, 3), (3, 2), (3, 1), (8, 5), (5, 8)]:
        world = World()
        location = world.next_location()
        handles = []
        for index, groups in enumerate(key_group_ranges(8, before)):
            part = fill(world.backend(name, groups=groups), keys=20)
            pinned = Pinned(part, location, SnapshotOptions(kind), unique=str(index))
            handle = run_to_completion(pinned.task).job_manager_state
            handles += [] if handle is None else [handle]
        for groups in key_group_ranges(8, after):
            expected = fill(world.backend("heap", groups=groups), keys=20).fingerprint()
            for given_handles in (
                handles[::-1],
                [cut for handle in handles if (cut := handle.intersect(groups)) is not None],
            ):
                found = world.backend(name, groups=groups)
                found.restore(given_handles, location.reader())
                assert found.fingerprint() == expected
                assert len(found.timer_service("windows").event_time) == len(found.keys("value"))


@EVERY_BACKEND
def test_state_of_another_shape_is_refused(name: str) -> None:
    """Other keys, another number of key groups or another kind of state cannot be restored by mistake."""
    world = World()
    taken = world.snapshot(fill(world.backend(name)))
    with pytest.raises(StateSchemaError, match="keys of type LONG, the program declares STRING"):
        world.backend(name, key_type=STRING).restore(taken.handles, taken.reader)
    with pytest.raises(StateSchemaError, match="max parallelism 8, the operator 16"):
        world.backend(name, 16).restore(taken.handles, taken.reader)
    restored = world.restored(name, taken, like=world.backend(name), key_type=None)
    assert restored.key_type == LONG
    with pytest.raises(StateSchemaError, match=r"'sum' was \w+ as reducing state and cannot be list state"):
        restored.list_state(ListStateDescriptor("sum"))
    declared = world.backend(name)
    declared.map_state(MapStateDescriptor("sum"))
    with pytest.raises(StateSchemaError, match="'sum' was declared as map state and cannot be reducing state"):
        declared.restore(taken.handles, taken.reader)


def test_files_of_another_store_are_refused() -> None:
    """Only the kind of store that wrote files can open them, and the error says how to go on."""
    world = World()
    taken = world.snapshot(fill(world.backend("memory, incremental")))
    for name in ("heap", "lsm", "lsm, incremental"):
        backend = world.backend(name)
        with pytest.raises(StateSchemaError, match="savepoint in canonical format"):
            backend.restore(taken.handles, taken.reader)
        backend.dispose()
    assert not [path for path in world.local_files() if not path.startswith("/local/1/")]
    changelog = ChangelogKeyedStateHandle(KeyGroupRange(0, 7), 1, 0, (), True, ())
    with pytest.raises(StateSchemaError, match="log of changes"):
        world.backend("lsm").restore([changelog], taken.reader)


@EVERY_FORM
def test_states_may_be_declared_before_the_restore(name: str, kind: Any) -> None:
    """States and timers declared before the restore see the restored entries, in any order; so do new ones."""
    world = World()
    original = fill(world.backend(name))
    taken = world.snapshot(original, SnapshotOptions(kind))
    backend = world.backend(name)
    new = backend.reducing_state(ReducingStateDescriptor("new", max))
    sums = backend.reducing_state(SUM)
    early = backend.timer_service("windows")
    assert sums.get_many([7]) == [None]
    backend.restore(taken.handles, taken.reader)
    assert sums.get_many([7]) == [7]
    assert len(early.event_time) == 40
    new.add_many([7], [1], [])
    sums.add_many([7], [1], [])

    assert new.get_many([7]) == [1]
    assert sums.get_many([7, 8]) == [8, 8]
    assert backend.num_entries() == original.num_entries() + 1
    assert len(early.event_time.pop_due(19)) == 10


@EVERY_FORM
def test_state_that_nobody_declares_is_carried_on(name: str, kind: Any) -> None:
    """Restored state that the program does not declare is in its next snapshots, byte for byte."""
    world = World()
    original = fill(world.backend(name))
    again = world.restored(name, world.snapshot(original, SnapshotOptions(kind)), like=original)
    third = world.restored(name, world.snapshot(again, SnapshotOptions(kind)), like=original)

    assert canonical_bytes(world, third) == canonical_bytes(world, original)
    assert third.state_names() == original.state_names()


def test_a_step_is_bounded() -> None:
    """A step ends after the key group in which it passed its entries, on the store as on the heap."""
    with pytest.raises(StateArgumentError, match="at least 1"):
        SnapshotOptions(entries_per_step=0)
    for name in ("heap", "lsm"):
        world = World()
        backend = world.backend(name, 64)
        backend.reducing_state(SUM).add_many(list(range(1000)), [1] * 1000, [])
        steps = []
        for entries_per_step in (1, 100, 10_000):
            task = Pinned(backend, world.next_location(), SnapshotOptions(entries_per_step=entries_per_step)).task
            taken = 1
            while task.step() is None:
                taken += 1
            steps.append(taken)
        assert steps[0] == len({key_group_for(key, 64) for key in range(1000)})
        assert 1 < steps[1] <= 10
        assert steps[2] == 1


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_damage_to_a_full_snapshot_is_found(compression: str) -> None:
    """No damaged full snapshot can be restored into a store, and the attempt leaves no local file."""
    world = World()
    backend = world.backend("lsm", 4)
    backend.reducing_state(SUM).add_many([1, 2, 3], [10, 20, 30], [])
    backend.list_state(LIST).add_many([1, 2], [1, 2], ["w", "w"])
    taken = world.snapshot(backend, SnapshotOptions(compression=compression))
    assert world.restored("lsm", taken, like=backend).fingerprint() == backend.fingerprint()
    backend.dispose()
    data = taken.data()
    local = world.local_files()
    for damaged in damaged_copies(data):
        found = world.backend("lsm", 4)
        with pytest.raises(CorruptStateError, match="s-1-0: "):
            found.restore(taken.handles, Substitute(damaged))
        found.dispose()
    assert world.local_files() == local


@pytest.mark.parametrize("name", ["heap", "memory", "lsm"])
def test_a_backend_can_be_forked(name: str) -> None:
    """A deep copy of a backend with its files goes its own way, with its open snapshots."""
    world = World()
    backend = fill(world.backend(name))
    expected = backend.fingerprint()
    pinned = Pinned(backend, world.next_location(), SnapshotOptions(entries_per_step=1))
    pinned.task.step()
    forked_world, forked, forked_pinned = copy.deepcopy((world, backend, pinned))
    MUTATIONS["sums"](forked)
    forked.set_current_key(1000)
    forked.value_state(VALUE).update(1)
    handle = run_to_completion(forked_pinned.task).job_manager_state
    assert isinstance(handle, FullKeyedStateHandle)
    again = forked_world.backend(name)
    again.restore([handle], forked_pinned.location.reader())

    assert backend.fingerprint() == expected
    assert forked.fingerprint() != expected
    assert again.fingerprint() == expected
    assert run_to_completion(pinned.task).job_manager_state == handle


_DIGESTS = """
import hashlib
from tests.state_backends.differential.backends import World, canonical_bytes
from state_backends.base import STRING
from tests.state_backends.support import LIST, MAP, VALUE
for name in ("heap", "lsm, incremental"):
    world = World()
    backend = world.backend(name, key_type=STRING)
    for word in ("ada", "bob", "eve", "mallory", "trent", "zoe"):
        backend.set_current_key(word)
        backend.value_state(VALUE).update({word: 1, "x": {"y": word}})
        backend.map_state(MAP).put_all(dict.fromkeys(word, 1))
        backend.list_state(LIST).add_many([word], [word], [word])
        backend.timer_service("t").event_time.add(word, word, len(word))
    print(hashlib.sha256(canonical_bytes(world, backend)).hexdigest())
    world.snapshot(backend)
    for path in world.file_system.walk_files("/"):
        print(path, hashlib.sha256(world.file_system.read_bytes(path)).hexdigest())
"""


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Processes with different hash seeds write the same bytes from heap and store, and the same files of it."""
    assert printed(_DIGESTS, "0") == printed(_DIGESTS, "1")
