"""Expired entries are removed without being read: by other accesses, in compaction, and from full snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.api import KeyedStateBackend
from state_backends.base import (
    MAX_TIME_MS,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateKind,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.codec import default_codec
from state_backends.rows import encode_list, part_prefix
from state_backends.snapshots import (
    FullKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateReader,
    run_to_completion,
)
from state_backends.ttl import TtlRowFilter
from state_backends.ttl.row_filter import last_access_ms
from tests.state_backends.support import location
from tests.state_backends.ttl.support import BACKENDS, Clock, backend

TTL_MS = 100


def snapshot(keyed: KeyedStateBackend) -> tuple[KeyedStateHandle | None, StateReader]:
    where = location()
    options = SnapshotOptions(SnapshotType.CANONICAL_SAVEPOINT)
    strategy = keyed.snapshot_strategy(options)
    resources = strategy.sync_prepare_resources(1)
    task = strategy.async_snapshot(resources, where.stream_factory("state"), options)
    return run_to_completion(task).job_manager_state, where.reader()


def content(handle: KeyedStateHandle | None, reader: StateReader) -> bytes:
    if handle is None:
        return b""
    assert isinstance(handle, FullKeyedStateHandle)
    with reader.open(handle.stream) as file:
        return file.read()


def _extended(accumulator: list[Any], value: Any) -> list[Any]:
    return [*accumulator, value]


def declared(keyed: KeyedStateBackend, ttl: StateTtlConfig | None) -> dict[str, Any]:
    return {
        "value": keyed.value_state(ValueStateDescriptor("value", ttl=ttl)),
        "list": keyed.list_state(ListStateDescriptor("list", ttl=ttl)),
        "map": keyed.map_state(MapStateDescriptor("map", ttl=ttl)),
        "reducing": keyed.reducing_state(ReducingStateDescriptor("reducing", max, ttl=ttl)),
        "aggregating": keyed.aggregating_state(
            AggregatingStateDescriptor("aggregating", list, _extended, tuple, ttl=ttl)
        ),
    }


def write(keyed: KeyedStateBackend, states: dict[str, Any], key: int, mark: str) -> None:
    """Something into each state, without namespace and with one."""
    keyed.set_current_key(key)
    for namespace in (None, "n"):
        for state in states.values():
            state.set_namespace(namespace)
        states["value"].update([mark])
        states["list"].add(mark)
        states["map"].put(mark, mark)
        states["reducing"].add(mark)
        states["aggregating"].add(mark)


def filled(name: str, clock: Clock, **cleanup: Any) -> tuple[KeyedStateBackend, dict[str, Any]]:
    """Keys 0 to 3 written at time 0; keys 3 to 5 at time 60, so that key 3 has lists and maps of both."""
    keyed = backend(name, clock)
    states = declared(keyed, StateTtlConfig(TTL_MS, **cleanup))
    for key in range(4):
        write(keyed, states, key, "old")
    clock.now_ms = 60
    for key in range(3, 6):
        write(keyed, states, key, "young")
    return keyed, states


def young(name: str) -> KeyedStateBackend:
    """The entries of it that are left when all old ones have gone."""
    clock = Clock(60)
    keyed = backend(name, clock)
    states = declared(keyed, StateTtlConfig(TTL_MS))
    for key in range(3, 6):
        write(keyed, states, key, "young")
    return keyed


def without_late_folds(keyed: KeyedStateBackend, states: dict[str, Any]) -> None:
    """Folds of old and young values are told apart from young ones alone: leave them out of a comparison."""
    keyed.set_current_key(3)
    for state in (states["reducing"], states["aggregating"]):
        for namespace in (None, "n"):
            state.set_namespace(namespace)
            state.clear()


# --- full snapshots ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_full_snapshot_leaves_out_what_had_expired_when_it_began(name: str, is_frozen: bool) -> None:
    """Its bytes are those of state that never had it; elements and entries go one by one, the live state keeps all."""
    clock = Clock()
    keyed, states = filled(name, clock, cleanup_full_snapshot=True)
    expected = young(name)
    without_late_folds(keyed, states)
    without_late_folds(expected, declared(expected, StateTtlConfig(TTL_MS)))
    clock.now_ms = 100
    entries = keyed.num_entries()

    where, options = location(), SnapshotOptions(SnapshotType.CANONICAL_SAVEPOINT)
    strategy = keyed.snapshot_strategy(options)
    resources = strategy.sync_prepare_resources(1)
    if is_frozen:  # the heap freezes what is written to while it is pinned
        for key in range(6):
            write(keyed, states, key, "later")
    clock.now_ms += 10_000
    task = strategy.async_snapshot(resources, where.stream_factory("state"), options)
    handle = run_to_completion(task).job_manager_state

    assert content(handle, where.reader()) == content(*snapshot(expected))
    assert is_frozen or keyed.num_entries() == entries


@pytest.mark.parametrize("name", BACKENDS)
def test_a_full_snapshot_of_what_has_all_expired_is_empty(name: str) -> None:
    """No file is written for it."""
    clock = Clock()
    keyed, _ = filled(name, clock, cleanup_full_snapshot=True)
    clock.now_ms = 160

    assert snapshot(keyed)[0] is None


@pytest.mark.parametrize("name", BACKENDS)
def test_without_the_option_a_full_snapshot_holds_everything(name: str) -> None:
    """Expired entries are still there after a restore."""
    clock = Clock()
    keyed, _ = filled(name, clock)
    clock.now_ms = 160
    handle, reader = snapshot(keyed)
    assert handle is not None

    other = backend(name, clock)
    other.restore([handle], reader)
    assert other.num_entries() == keyed.num_entries()
    assert other.fingerprint() == keyed.fingerprint()


# --- clean-up with each access, on the heap ---------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [1, 3, 100])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_accesses_clean_up_other_entries(entries: int, is_pinned: bool) -> None:
    """Enough accesses to one key remove what has expired under all others, and only that; snapshots keep theirs."""
    clock = Clock()
    keyed, states = filled("heap", clock, cleanup_incrementally=entries)
    before = content(*snapshot(keyed))
    clock.now_ms = 100
    options = SnapshotOptions()
    strategy = keyed.snapshot_strategy(options)
    resources = strategy.sync_prepare_resources(1) if is_pinned else None
    for _ in range(60):
        for state in states.values():
            state.clear_many([7])

    left = {name: keyed.num_entries(name) for name in states}
    assert left == dict.fromkeys(states, 2 * 3)
    keyed.set_current_key(3)
    states["list"].set_namespace(None)
    states["map"].set_namespace(None)
    clock.now_ms = 0  # nothing has expired any more, as far as it is still there
    assert states["list"].get() == ["young"]
    assert states["map"].entries() == [("young", "young")]
    if resources is not None:
        where = location()
        task = strategy.async_snapshot(resources, where.stream_factory("state"), options)
        assert content(run_to_completion(task).job_manager_state, where.reader()) == before


def test_one_access_looks_at_no_more_entries_than_told() -> None:
    """A batch of n records looks at n times as many."""
    clock = Clock()
    keyed = backend("heap", clock)
    state = keyed.value_state(ValueStateDescriptor("v", ttl=StateTtlConfig(10, cleanup_incrementally=3)))
    state.update_many(list(range(100)), list(range(100)))
    clock.now_ms = 10

    state.clear_many([1000])
    assert keyed.num_entries() == 97
    state.clear_many([1000, 1001])
    assert keyed.num_entries() == 91


def test_clean_up_goes_on_in_the_next_round() -> None:
    """Entries that expire after they were looked at are found when their turn comes again."""
    clock = Clock()
    keyed = backend("heap", clock)
    state = keyed.value_state(ValueStateDescriptor("v", ttl=StateTtlConfig(10, cleanup_incrementally=1)))
    state.update_many(list(range(5)), [1] * 5)
    for now in (5, 10):
        clock.now_ms = now
        state.clear_many([1000] * 12)
    assert keyed.num_entries() == 0
    state.clear_many([1000] * 3)  # nothing left to look at


def test_without_the_option_nothing_is_cleaned_up() -> None:
    """Accesses to other keys do not remove expired entries."""
    clock = Clock()
    keyed, states = filled("heap", clock)
    clock.now_ms = 1000
    for state in states.values():
        state.clear_many([7] * 50)

    assert keyed.num_entries() == len(states) * 2 * 6


# --- compaction, in a log-structured store ----------------------------------------------------------------------------


def compacted(keyed: Any) -> None:
    keyed._access.opened.flush()
    keyed._access.opened.compact_all()


def test_compaction_removes_what_has_expired() -> None:
    """After a full compaction the store holds what a store that never had it holds."""
    clock = Clock()
    keyed, states = filled("lsm", clock)
    expected = young("lsm")
    without_late_folds(keyed, states)
    without_late_folds(expected, declared(expected, StateTtlConfig(TTL_MS)))
    clock.now_ms = 100
    compacted(keyed)

    assert keyed.fingerprint() == expected.fingerprint()


def test_compaction_may_be_told_to_leave_it() -> None:
    """Without the option it keeps every row, and of states without time-to-live always."""
    clock = Clock()
    keyed, _ = filled("lsm", clock, cleanup_in_compaction=False)
    other = keyed.value_state(ValueStateDescriptor("for ever"))
    keyed.set_current_key(1)
    other.update((0, "looks like a pair"))
    before = keyed.fingerprint()
    clock.now_ms = 100_000
    compacted(keyed)

    assert keyed.fingerprint() == before


def test_an_older_value_does_not_come_back() -> None:
    """A value dropped by compaction may hide an older one in a deeper level, which must stay hidden."""
    clock = Clock()
    keyed: Any = backend("lsm", clock)
    state = keyed.value_state(ValueStateDescriptor("v", ttl=StateTtlConfig(TTL_MS)))
    keyed.set_current_key(1)
    for round_ in range(40):
        clock.now_ms = round_ * 90
        for key in range(30):
            keyed.set_current_key(key)
            state.update("x" * 20 + str(round_))
        clock.now_ms += 101
        keyed.set_current_key(1000 + round_)
        state.update("y")
        # After any compaction, an expired value is never followed by an older one that has not expired.
        clock.now_ms -= 101
        found = state.get_many(list(range(30)))
        assert set(found) <= {None, "x" * 20 + str(round_)}


# --- the filter itself ------------------------------------------------------------------------------------------------


@given(st.integers(-(1 << 63), MAX_TIME_MS), st.integers() | st.text())
def test_the_time_is_read_from_the_bytes(stamp: int, rest: Any) -> None:
    """Whatever the size of the number, its bytes tell it."""
    codec = default_codec()
    value = rest if isinstance(rest, str) else rest % 2**64
    assert last_access_ms(codec.encode((stamp, value))) == stamp


stamps = st.sampled_from([0, 50, 100, 300, 70_000, 5_000_000_000])
pairs = st.tuples(stamps, st.text(max_size=3) | st.binary(max_size=3))


@settings(max_examples=60)
@given(st.lists(pairs, min_size=1, max_size=5), st.sampled_from([99, 100, 150, 400, 5_000_000_100]))
def test_rows_keep_what_is_alive(content_: list[tuple[int, Any]], now_ms: int) -> None:
    """Single pairs stay or go, lists lose elements; rows of other states, and of later ones, pass untouched."""
    codec, clock = default_codec(), Clock(now_ms)
    one = TtlRowFilter(clock)
    one.register(1, StateKind.VALUE, StateTtlConfig(TTL_MS))
    one.register(2, StateKind.LIST, StateTtlConfig(TTL_MS, cleanup_full_snapshot=True))
    one.register(3, StateKind.VALUE, StateTtlConfig(TTL_MS, cleanup_in_compaction=False))
    keys = [part_prefix(700, state_id) + b"key" for state_id in range(5)]
    row, rows = codec.encode(content_[0]), encode_list(codec, content_)
    living = [pair for pair in content_ if pair[0] + TTL_MS > now_ms]

    assert one(keys[1], row) == (row if content_[0] in living else None)
    kept = one(keys[2], rows)
    assert kept == (encode_list(codec, living) if living else None)
    assert kept is rows or len(living) < len(content_)
    for key in (keys[0], keys[3], keys[4]):
        assert one(key, row) is row
    full = one.for_full_snapshot()
    assert full is not None
    clock.now_ms = MAX_TIME_MS  # what counts is when it was asked for
    assert full(keys[2], rows) == kept
    assert full(keys[1], row) is row
    assert TtlRowFilter(clock).for_full_snapshot() is None


def test_settings_declared_again_count() -> None:
    """A filter goes by the latest settings of a state."""
    codec = default_codec()
    one = TtlRowFilter(Clock(50))
    key, row = part_prefix(1, 7), codec.encode((0, 1))
    for config, expected in (
        (StateTtlConfig(100), row),
        (StateTtlConfig(50), None),
        (StateTtlConfig(50, cleanup_in_compaction=False), row),
    ):
        one.register(7, StateKind.VALUE, config)
        assert one(key, row) == expected
