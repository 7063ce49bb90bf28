"""Duties of keyed state over a store alone: encoding at once, caches, files."""

from __future__ import annotations

from typing import Any

import pytest

from state_backends.api import KeyedStateBackend
from state_backends.base import (
    AggregatingStateDescriptor,
    KeyGroupError,
    KeyGroupRange,
    ReducingStateDescriptor,
    StateArgumentError,
    StateSerializationError,
    StateTtlConfig,
    ValueStateDescriptor,
    key_group_for,
)
from state_backends.lsm import LsmStateBackend, LsmStore
from state_backends.rows import UploadHistory
from state_backends.snapshots import FullKeyedStateHandle, SnapshotOptions
from state_backends.store import StoreKeyedStateBackend, parts as store_parts
from tests.state_backends.differential.backends import CANONICAL, CHECKPOINT, NATIVE, Pinned, World
from tests.state_backends.store.memory_store import MemoryStore
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE, told


@pytest.fixture
def backend() -> KeyedStateBackend:
    return World().backend("memory")


def _last(before: Any, value: Any) -> Any:
    return value


LAST = ReducingStateDescriptor("last", _last)


def test_a_value_that_cannot_be_written_is_refused_at_once(backend: KeyedStateBackend) -> None:
    """Every method that stores refuses it, naming state, key and path; the state has not changed."""
    backend.set_current_key(3)
    value, lists, maps = backend.value_state(VALUE), backend.list_state(LIST), backend.map_state(MAP)
    value.update(1)
    before = backend.fingerprint()
    with pytest.raises(StateSerializationError, match=r"value of state 'value' under 3\['a'\]\[1\] cannot be"):
        value.update({"a": [0, {1, 2}]})
    with pytest.raises(StateSerializationError, match=r"value of state 'value' under 4\[0\] cannot be"):
        value.update_many([3, 4], [1, [{1}]])
    with pytest.raises(StateSerializationError, match=r"value of state 'value' under \(4, 'n'\) cannot be"):
        value.update_many([3, 4], [1, {1}], ["n", "n"])
    with pytest.raises(StateSerializationError, match=r"value of state 'list' under 3\[1\] cannot be"):
        lists.add_all([1, {2}])
    with pytest.raises(StateSerializationError, match=r"value of state 'list' under 4 cannot be"):
        lists.add_many([3, 4], [1, {2}])
    with pytest.raises(StateSerializationError, match=r"value of state 'map' under 3\[7\] cannot be"):
        maps.put_all({6: 1, 7: {1}})
    with pytest.raises(StateSerializationError, match=r"map key of state 'map' cannot be"):
        maps.put(frozenset([1]), 1)
    with pytest.raises(StateSerializationError, match=r"namespace of state 'value' cannot be"):
        value.get_many([3], [frozenset([1])])
    value.set_namespace(1 << 70)
    with pytest.raises(StateSerializationError, match=r"namespace of state 'value' cannot be"):
        value.get()

    assert backend.fingerprint() == before


@pytest.mark.parametrize("namespaces", [None, ["n"] * 7])
def test_a_result_that_cannot_be_written_fails_its_record(
    backend: KeyedStateBackend, namespaces: list[str] | None
) -> None:
    """The other keys of the batch are written; the failing record and its key are known."""
    state = backend.reducing_state(LAST)
    out: list[Any] = ["before"]
    with pytest.raises(StateSerializationError, match=r"state 'last' under .*2.* cannot be"):
        state.add_many([4, 1, 2, 2, 1, 3, 4], [5, 10, 20, {21}, 11, 30, {6}], out, namespaces)

    assert state.failed_index == 3
    assert out == ["before", 5, 10, 20]
    assert state.get_many([1, 2, 3, 4], None if namespaces is None else namespaces[:4]) == [11, None, 30, None]


def test_what_is_read_is_a_copy(backend: KeyedStateBackend) -> None:
    """Changing what was read changes nothing; only giving it back does."""
    backend.set_current_key(1)
    value = backend.value_state(VALUE)
    value.update([1])
    value.get().append(2)
    first, second = value.get_many([1, 1])
    first.append(2)

    assert second == [1]
    assert value.get() == [1]


def test_handles_with_other_functions_see_the_same_state(backend: KeyedStateBackend) -> None:
    """A second handle on a state works with its own functions on what the first has stored."""
    backend.aggregating_state(COLLECT).add_many([1, 1], None, [5, 6])
    raw = backend.aggregating_state(AggregatingStateDescriptor("collect", list, _last, lambda accumulator: accumulator))

    assert raw.get_many([1]) == [[5, 6]]
    raw.add_many([1], None, [[7]])
    assert backend.aggregating_state(COLLECT).get_many([1]) == [(7,)]


def test_the_cache_of_keys_is_bounded(monkeypatch: pytest.MonkeyPatch, backend: KeyedStateBackend) -> None:
    """However many keys come by, few are remembered, and all are found."""
    monkeypatch.setattr(store_parts, "KEY_CACHE_ENTRIES", 4)
    state = backend.value_state(VALUE)
    keys = list(range(50))
    state.update_many(keys, keys)
    assert isinstance(backend, StoreKeyedStateBackend)
    table = backend._tables.get("value")
    assert table is not None

    assert len(table.plain.prefix_of) <= 4
    assert state.get_many(keys[::-1]) == keys[::-1]


def test_a_key_of_another_subtask_is_refused() -> None:
    """By reads, writes and timers, before anything is written; a missed check would show up after a rescale only."""
    backend = World().backend("memory", groups=KeyGroupRange(0, 3))
    foreign = next(key for key in range(50) if key_group_for(key, 8) > 3)
    backend.set_current_key(foreign)
    with pytest.raises(KeyGroupError, match="but this backend owns"):
        backend.value_state(VALUE).get()
    with pytest.raises(KeyGroupError):
        backend.list_state(LIST).add_many([foreign], [1])
    with pytest.raises(KeyGroupError):
        backend.timer_service("t").event_time.delete(foreign, None, 1)
    with pytest.raises(KeyGroupError, match="exceed the max parallelism 8"):
        World().backend("memory", groups=KeyGroupRange(0, 8))

    assert backend.num_entries() == 0


def test_what_was_deleted_before_leaves_no_row(backend: KeyedStateBackend) -> None:
    """Rows are deleted with their entries: no state leaves a row when it is emptied."""
    backend.set_current_key(1)
    maps, lists, sums = backend.map_state(MAP), backend.list_state(LIST), backend.reducing_state(SUM)
    timers = backend.timer_service("t")
    maps.put_all({1: 1, 2: 2})
    maps.set_namespace("n")
    maps.put_all({1: 1, 2: 2})
    maps.clear()
    maps.clear_many([1])
    lists.add_all([1, 2])
    lists.update([])
    lists.set_namespace("m")
    lists.add(1)
    lists.merge_namespaces("m", ["m"])
    lists.clear()
    sums.add_many([1, 2], [1, 2], [])
    sums.add_many([1, 2], [None, None], [])
    backend.value_state(VALUE).update_many([1, 2], [1, 2])
    backend.value_state(VALUE).update_many([1, 2], [None, None])
    timers.event_time.register([1, 2, 1], [None] * 3, [5, 6, 5])
    timers.event_time.pop_due(5)
    timers.event_time.delete(2, None, 6)

    assert isinstance(backend, StoreKeyedStateBackend)
    store = backend._access.opened
    assert isinstance(store, MemoryStore)
    assert dict(store.rows) == {}


def test_local_files_are_made_late_and_deleted_at_the_end() -> None:
    """The first entry makes them; disposing, twice, deletes all, whatever was restored or not."""
    world = World()
    backend = world.backend("lsm, incremental")
    state = backend.value_state(VALUE)
    backend.timer_service("t")
    for number, kind in enumerate((CHECKPOINT, NATIVE, CANONICAL)):
        assert world.snapshot(backend, SnapshotOptions(kind)).handles == []
        told(backend).complete(number)
        told(backend).abort(number)
        told(backend).subsumed(number)
    assert backend.num_entries() == 0
    assert backend.keys("value") == []
    backend.restore([], world.next_location().reader())
    assert not world.file_system.exists("/local")
    state.update_many([1], [1])
    taken = world.snapshot(backend)
    other = world.backend("lsm, incremental")
    other.restore(taken.handles, taken.reader)
    assert world.local_files() != []
    for one in (backend, other, other):
        one.dispose()

    assert world.local_files() == []
    unused = world.backend("lsm")
    unused.dispose()
    with pytest.raises(AssertionError, match="after it was disposed of"):
        unused.value_state(VALUE).update_many([1], [1])


def test_restoring_where_there_is_state_is_a_bug() -> None:
    """It would mix two states."""
    world = World()
    backend = world.backend("memory")
    backend.value_state(VALUE).update_many([1], [1])
    with pytest.raises(AssertionError, match="restore into a backend that has state"):
        backend.restore([], world.next_location().reader())


@pytest.mark.parametrize("settings", [{"memtable_bytes": 0}, {"compaction": "sometimes"}, {"compression": "lz77"}])
def test_settings_are_checked_when_they_are_made(settings: dict[str, Any]) -> None:
    """A setting that makes no sense is found before the job starts."""
    with pytest.raises(StateArgumentError, match=next(iter(settings))):
        LsmStateBackend(**settings)


def test_a_snapshot_holds_its_view_until_it_is_released() -> None:
    """The pinned view of the store goes when the task ends, not before, and not twice."""
    world = World()
    backend = world.backend("memory")
    backend.value_state(VALUE).update_many([1, 2], [1, 2])
    assert isinstance(backend, StoreKeyedStateBackend)
    store = backend._access.opened
    assert isinstance(store, MemoryStore)
    pinned = [Pinned(backend, world.next_location(), SnapshotOptions(entries_per_step=1)) for _ in range(2)]
    assert store.open_snapshots == 2
    pinned[0].task.step()
    assert store.open_snapshots == 2
    pinned[0].task.cancel()
    pinned[0].task.cancel()
    assert store.open_snapshots == 1
    while pinned[1].task.step() is None:
        pass
    assert store.open_snapshots == 0
    backend.dispose()


def test_a_default_is_never_stored(backend: KeyedStateBackend) -> None:
    """A missing value reads as a fresh copy of the default, in batches too."""
    scalar = backend.value_state(ValueStateDescriptor("scalar", 5))
    mutable = backend.value_state(ValueStateDescriptor("mutable", []))
    scalar.update_many([2], [7])
    first, second = mutable.get_many([1, 2])
    first.append(1)

    assert scalar.get_many([1, 2]) == [5, 7]
    assert second == []
    assert backend.num_entries() == 1


def test_notifications_reach_what_remembers_uploads() -> None:
    """A confirmed checkpoint is the base of later ones, an aborted or subsumed one is none."""
    world = World()
    backend = world.backend("lsm, incremental")
    backend.value_state(VALUE).update_many([1, 2], [1, 2])
    history = backend.history
    assert isinstance(history, UploadHistory)
    first, second, third = (world.snapshot(backend).checkpoint_id for _ in range(3))
    told(backend).abort(second)
    assert history.tracked == (first, third)
    told(backend).complete(first)
    assert history.base_checkpoint == first
    (again,) = world.snapshot(backend).handles
    assert not any(file.is_new for file in again.shared())
    told(backend).subsumed(first)
    assert history.base_checkpoint is None


def test_expiry_is_told_to_the_store() -> None:
    """Compaction of the store drops what has expired, and a full snapshot leaves it out if that was asked for."""
    world, now = World(), [0]
    backend = world.backend("lsm", now_ms=lambda: now[0])
    ttl = StateTtlConfig(10, cleanup_full_snapshot=True)
    state = backend.value_state(ValueStateDescriptor("expiring", ttl=ttl))
    state.update_many(list(range(20)), list(range(20)))
    now[0] = 5
    state.update_many([1, 2], [10, 20])
    now[0] = 10
    (handle,) = world.snapshot(backend).handles
    assert isinstance(handle, FullKeyedStateHandle)
    assert [group for group, _ in handle.offsets] == sorted({key_group_for(1, 8), key_group_for(2, 8)})
    assert isinstance(backend, StoreKeyedStateBackend)
    store = backend._access.opened
    assert isinstance(store, LsmStore)
    assert len(list(store.scan(b"", None))) == 20
    store.compact_all()
    assert len(list(store.scan(b"", None))) == 2
    now[0] = 15
    assert world.snapshot(backend).handles == []
