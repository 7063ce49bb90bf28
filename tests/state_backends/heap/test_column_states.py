"""Reducing state in columns: the same state as in rows, in snapshots and out of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from state_backends.base import (
    INT,
    LONG,
    STRING,
    KeyGroupError,
    KeyType,
    KeyTypeError,
    ReducingStateDescriptor,
    StateSchemaError,
    ValueStateDescriptor,
    key_group_for,
    key_group_range_for_index,
)
from state_backends.codec import default_codec
from state_backends.columns import ColumnFold, KeyNumbers, LongOverflowError, MaxFold, SumFold, Workspace, group_by_key
from state_backends.heap import HeapKeyedStateBackend, column_states as heap_columns
from state_backends.heap.column_states import ColumnEntries, KeyGroupSlots
from state_backends.snapshots import SnapshotOptions
from tests.state_backends.support import heap, location, restored, snapshot_bytes, take_snapshot

SUM = ReducingStateDescriptor("sum", lambda reduced, value: reduced + value)
LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, -1, -32, -33, -128, -129, -32768, -32769]),
)
KEYS: dict[KeyType, st.SearchStrategy[Any]] = {LONG: LONGS, STRING: st.text("abé\U0001f600\x00", max_size=3)}


def add(
    backend: HeapKeyedStateBackend, keys: list[Any], values: list[Any], fold: ColumnFold | None = None
) -> list[Any]:
    longs = bool(keys) and type(keys[0]) is int
    grouping = group_by_key(np.array(keys, dtype=np.int64) if longs else keys, KeyNumbers(), Workspace())
    dtype = np.int64 if type(values[0]) is int else np.float64
    state = backend.reducing_columns(SUM)
    return state.add_groups(grouping, np.array(values, dtype=dtype), fold or SumFold()).tolist()


def add_rows(backend: HeapKeyedStateBackend, keys: list[Any], values: list[Any]) -> list[Any]:
    out: list[Any] = []
    backend.reducing_state(SUM).add_many(keys, values, out)
    return out


@dataclass
class Twins:
    """The same state in columns and in rows."""

    key_type: KeyType
    columns: HeapKeyedStateBackend = field(init=False)
    rows: HeapKeyedStateBackend = field(init=False)

    def __post_init__(self) -> None:
        self.columns, self.rows = heap(self.key_type), heap(self.key_type)

    def add(self, batch: list[tuple[Any, Any]]) -> None:
        keys, values = [key for key, _ in batch], [value for _, value in batch]
        assert add(self.columns, keys, values) == add_rows(self.rows, keys, values)

    def check(self) -> None:
        """They are equal to every reader."""
        left, right = self.columns, self.rows
        assert left.fingerprint() == right.fingerprint()
        assert left.keys("sum") == right.keys("sum")
        assert left.num_entries() == right.num_entries() == left.num_entries("sum")
        assert left.state_names() == right.state_names()
        assert snapshot_bytes(left) == snapshot_bytes(right)


@pytest.mark.parametrize("key_type", KEYS, ids=str)
@pytest.mark.parametrize("values", [st.integers(-(2**40), 2**40), st.floats(allow_nan=False)], ids=["long", "double"])
def test_columns_are_the_same_state_as_rows(key_type: KeyType, values: st.SearchStrategy[Any]) -> None:
    """After any batches: results, order of keys, digest and bytes of a snapshot, again after each batch."""
    batch = st.lists(st.tuples(KEYS[key_type], values), min_size=1, max_size=15)

    @settings(max_examples=40)
    @given(st.lists(batch, min_size=1, max_size=4))
    def check(batches: list[list[tuple[Any, Any]]]) -> None:
        twins = Twins(key_type)
        for one in batches:
            twins.add(one)
            twins.check()

    check()


@pytest.mark.parametrize("run_entries", [1, 8, 40])
def test_a_snapshot_is_the_same_however_groups_are_encoded_together(
    run_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While keys become more, key groups are encoded in other runs; remembered older runs do no harm."""
    monkeypatch.setattr(heap_columns, "_RUN_ENTRIES", run_entries)

    @settings(max_examples=30)
    @given(st.lists(st.lists(st.integers(-40, 200), min_size=1, max_size=12), min_size=2, max_size=8))
    def check(batches: list[list[int]]) -> None:
        twins = Twins(LONG)
        for keys in batches:
            twins.add([(key, key) for key in keys])
            assert snapshot_bytes(twins.columns) == snapshot_bytes(twins.rows)

    check()


def test_runs_of_equal_sizes_are_not_taken_for_each_other() -> None:
    """Two runs begin with the same key group and have as many keys in each, but one group differs."""
    entries = ColumnEntries(LONG, 8, heap().key_group_range, default_codec(), np.int64)
    entries.add(np.array([10, 20, 30], dtype=np.int64))
    start, second, another = (KeyGroupSlots(group, np.array([slot])) for slot, group in enumerate((4, 6, 5)))
    assert [entries.encoded_keys([start, group]).slots.tolist() for group in (second, another)] == [[0, 1], [0, 2]]


@dataclass
class Opened:
    """A snapshot in the making, and the bytes it must write."""

    task: Any
    where: Any
    expected: bytes

    @classmethod
    def of(cls, backend: HeapKeyedStateBackend) -> Opened:
        """A snapshot that writes one key group in each step."""
        options, where = SnapshotOptions(entries_per_step=1), location(inline_threshold_bytes=1 << 20)
        expected = snapshot_bytes(copy.deepcopy(backend))
        strategy = backend.snapshot_strategy(options)
        resources = strategy.sync_prepare_resources(1)
        return cls(strategy.async_snapshot(resources, where.stream_factory("s"), options), where, expected)

    def step(self) -> bool:
        """One step; returns whether it was the last one, after which the written bytes are compared."""
        result = self.task.step()
        if result is None:
            return False
        handle = result.job_manager_state
        assert (b"" if handle is None else self.where.reader().open(handle.stream).read()) == self.expected
        return True


@pytest.mark.parametrize("key_type", KEYS, ids=str)
def test_a_snapshot_sees_its_moment_only(key_type: KeyType) -> None:
    """Records folded in between its steps, for old or new keys, are not in it; so too while others are open."""
    batch = st.lists(st.tuples(KEYS[key_type], st.integers(-9, 9)), min_size=1, max_size=8)
    actions = st.lists(st.one_of(batch, st.sampled_from(["open", "step", "cancel", "rows"])), min_size=2, max_size=14)

    @settings(max_examples=60)
    @given(actions)
    def check(actions: list[Any]) -> None:
        backend = heap(key_type)
        opened: list[Opened] = []
        for action in actions:
            if isinstance(action, list):
                add(backend, [key for key, _ in action], [value for _, value in action])
            elif action == "open":
                opened.append(Opened.of(backend))
            elif action == "rows":
                backend.reducing_state(SUM)
            elif opened and action == "step":
                opened = opened[opened[0].step() :]
            elif opened:
                opened.pop().task.cancel()
        for one in opened:
            while not one.step():
                pass

    check()


def test_a_snapshot_costs_one_copy_of_the_values() -> None:
    """Only the first write after it copies, and without an open snapshot none does."""
    backend = heap()
    add(backend, [1, 2], [10, 20])
    table = backend.column_table("sum", LONG, np.dtype(np.int64))
    before = table.plain.values
    add(backend, [1], [1])
    assert table.plain.values is before

    one = Opened.of(backend)
    assert table.plain.values is before
    add(backend, [1], [1])
    copied = table.plain.values
    assert copied is not before
    add(backend, [2], [1])
    assert table.plain.values is copied
    while not one.step():
        pass
    add(backend, [1], [1])
    assert table.plain.values is copied
    one = Opened.of(backend)
    one.task.cancel()
    add(backend, [1], [1])
    assert table.plain.values is copied


def test_a_snapshot_that_ends_leaves_the_others_their_values() -> None:
    """Two are open over the same array; when one is over, writers still do not touch it."""
    backend = heap()
    add(backend, [1, 2], [10, 20])
    first, second = Opened.of(backend), Opened.of(backend)
    first.task.cancel()
    add(backend, [1, 2], [1, 1])
    while not second.step():
        pass


@pytest.mark.parametrize("key_type", KEYS, ids=str)
def test_state_goes_from_form_to_form_through_snapshots(key_type: KeyType) -> None:
    """Written by rows, folded on by columns, written by columns, folded on by rows: as if it had always been rows."""
    batch = st.lists(st.tuples(KEYS[key_type], st.integers(-(2**40), 2**40)), min_size=1, max_size=10)

    @settings(max_examples=40)
    @given(st.lists(st.tuples(batch, st.booleans(), st.booleans()), min_size=1, max_size=5))
    def check(moves: list[tuple[list[tuple[Any, Any]], bool, bool]]) -> None:
        rows = heap(key_type)
        changing = heap(key_type)
        for records, in_columns, is_restored in moves:
            if is_restored:
                changing = restored(*take_snapshot(changing), changing)
            keys, values = [key for key, _ in records], [value for _, value in records]
            expected = add_rows(rows, keys, values)
            assert (add if in_columns else add_rows)(changing, keys, values) == expected
        assert changing.fingerprint() == rows.fingerprint()
        assert snapshot_bytes(changing) == snapshot_bytes(rows)

    check()


@given(st.lists(LONGS, min_size=1, max_size=30, unique=True), st.integers(1, 8), st.integers(1, 8))
def test_columns_rescale(keys: list[int], before: int, after: int) -> None:
    """Columns written by some subtasks are read by others, each its own key groups, and folded on in columns."""
    old = [_part(before, index) for index in range(before)]
    written = []
    for index, backend in enumerate(old):
        mine = [key for key in keys if key_group_for(key, 8) * before // 8 == index]
        if mine:
            add(backend, mine, [7] * len(mine))
        written.append(take_snapshot(backend))
    everything: dict[int, int] = {}
    for index in range(after):
        backend = _part(after, index)
        for handle, reader in written:
            backend = backend if handle is None else _with(backend, handle, reader)
        mine = [key for key in keys if key_group_for(key, 8) * after // 8 == index]
        if mine:
            assert add(backend, mine, [1] * len(mine)) == [8] * len(mine)
        everything |= dict.fromkeys(backend.keys("sum"), index)
    assert sorted(everything) == sorted(keys)


def _part(parallelism: int, index: int) -> HeapKeyedStateBackend:
    groups = key_group_range_for_index(8, parallelism, index)
    return heap(LONG, 8, groups.first, groups.last)


def _with(backend: HeapKeyedStateBackend, handle: Any, reader: Any) -> HeapKeyedStateBackend:
    """``backend`` and the entries of one more snapshot that are its own: those of all snapshots have no common key."""
    if not backend.num_entries():
        backend.restore([handle], reader)
        return backend
    other = HeapKeyedStateBackend(backend.key_type, backend.max_parallelism, backend.key_group_range)
    other.restore([handle], reader)
    keys = other.keys("sum")
    add_rows(backend, keys, other.reducing_state(SUM).get_many(keys))
    return backend


def test_a_state_declared_as_rows_again_comes_back_into_dicts() -> None:
    """While the job runs; and its columns are made anew when they are folded into once more."""
    backend = heap()
    columns = backend.reducing_columns(SUM)
    grouping = group_by_key(np.array([5, 6]), KeyNumbers(), Workspace())
    columns.add_groups(grouping, np.array([1, 2]), SumFold())
    rows = backend.reducing_state(SUM)

    assert rows.get_many([5, 6, 7]) == [1, 2, None]
    assert columns.add_groups(grouping, np.array([10, 10]), SumFold()).tolist() == [11, 12]
    with pytest.raises(StateSchemaError, match="'sum' is held in columns now"):
        rows.get_many([5])
    with pytest.raises(StateSchemaError, match="'sum' is held in columns now"):
        rows.add_many([5] * 100, [1] * 100, [])
    assert backend.reducing_state(SUM).get_many([5, 6]) == [11, 12]


def test_entries_with_a_namespace_stay() -> None:
    """A window's state of the same name survives in rows beside the columns."""
    backend = heap()
    backend.reducing_state(SUM).add_many([1, 2], [3, 4], [], [9, 9])
    add(backend, [1], [10])
    again = restored(*take_snapshot(backend), backend)

    assert again.reducing_state(SUM).get_many([1, 2], [9, 9]) == [3, 4]
    assert again.reducing_state(SUM).get_many([1]) == [10]


def test_other_states_of_the_backend_are_untouched() -> None:
    """A backend with state in columns and in rows snapshots both."""
    backend = heap()
    backend.value_state(ValueStateDescriptor("a")).update_many([1], ["x"])
    add(backend, [1], [10])
    backend.value_state(ValueStateDescriptor("z")).update_many([2], ["y"])
    again = restored(*take_snapshot(backend), backend)

    assert again.fingerprint() == backend.fingerprint()
    assert again.state_names() == ["a", "sum", "z"]
    assert add(again, [1], [1]) == [11]


def test_a_failed_fold_changes_nothing() -> None:
    """An overflow, a key of another subtask, or values of another type leave the state as it was."""
    backend = heap(LONG, 8, 0, 3)
    mine = [key for key in range(50) if key_group_for(key, 8) <= 3]
    foreign = next(key for key in range(50) if key_group_for(key, 8) > 3)
    add(backend, mine[:1], [2**63 - 1])
    before = backend.fingerprint(), backend.num_entries()

    with pytest.raises(LongOverflowError):
        add(backend, [mine[1], mine[0]], [1, 1])
    with pytest.raises(KeyGroupError, match=f"key {foreign} belongs to key group"):
        add(backend, [mine[2], foreign], [1, 1])
    with pytest.raises(StateSchemaError, match="'sum' holds int64 values"):
        add(backend, mine[:1], [1.5])
    assert (backend.fingerprint(), backend.num_entries()) == before


@pytest.mark.parametrize(
    ("in_state", "added", "message"),
    [
        (2**63, 1, "holds 9223372036854775808 of type int for key 1.*takes an int of 64 bits"),
        (1.5, 1, "holds 1.5 of type float"),
        (1, 1.5, "takes a float"),
        ((1, 2), 1, "of type tuple"),
        (True, 1, "of type bool"),
    ],
)
def test_state_that_no_column_holds_is_refused(in_state: Any, added: Any, message: str) -> None:
    """Rows may hold anything; the error names a value that a column cannot hold, with its key; it stays in rows."""
    backend = heap()
    add_rows(backend, [1], [in_state])

    with pytest.raises(StateSchemaError, match=message):
        add(backend, [1], [added])
    assert backend.reducing_state(SUM).get_many([1]) == [in_state]


def test_the_name_of_another_kind_of_state_is_refused() -> None:
    """As for every state."""
    backend = heap()
    backend.value_state(ValueStateDescriptor("sum"))

    with pytest.raises(StateSchemaError, match="was declared as value state"):
        backend.reducing_columns(SUM)


def test_the_first_key_settles_the_type() -> None:
    """A backend that was told no key type takes that of the first batch, and holds to it."""
    backend = heap(None)
    add(backend, ["a"], [1])

    assert backend.key_type == STRING
    assert restored(*take_snapshot(backend), backend).keys("sum") == ["a"]


def test_keys_declared_int_hash_as_such() -> None:
    """INT and LONG keys belong to other key groups; what does not fit 32 bits is refused."""
    keys = list(range(-40, 40))
    backend, rows = heap(INT), heap(INT)
    add(backend, keys, keys)
    add_rows(rows, keys, keys)

    assert snapshot_bytes(backend) == snapshot_bytes(rows)
    with pytest.raises(KeyTypeError, match="does not fit the declared key type INT"):
        add(backend, [2**31], [1])


def test_extremes_are_kept_like_sums() -> None:
    """The state does not know what is folded into it."""
    backend = heap()
    assert add(backend, [1, 1, 2], [5, 3, 4], MaxFold()) == [5, 5, 4]
    assert add(backend, [1, 2], [6, 1], MaxFold()) == [6, 4]
