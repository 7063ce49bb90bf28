"""Running values: batches fold into one dict in front of the key groups, and nothing else shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.base import KeyGroupError, ReducingStateDescriptor, sharded_table
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import KeyedStateHandle, SnapshotOptions, SnapshotResult
from tests.state_backends.support import heap, location, restored, same, snapshot_bytes

LARGE = 20
"""Records of a batch that is large enough to fold into running values."""


def reduce_all(before: Any, value: Any) -> Any:
    """Adds numbers; changes lists in place; fails on "fail", and gives ``None`` for "lose"."""
    if value == "fail":
        raise ValueError("told to fail")
    if value == "lose":
        return None
    if isinstance(before, list):
        before.append(value)
        return before
    return (before, value)[:2] if isinstance(before, (str, tuple)) or isinstance(value, (str, list)) else before + value


SUM = ReducingStateDescriptor("sum", reduce_all)


class Pair:
    """Two backends with the same state, of which one has no running values."""

    def __init__(self) -> None:
        self.fast, self.plain = heap(), heap()
        self.fast_state, self.plain_state = self.fast.reducing_state(SUM), self.plain.reducing_state(SUM)
        table_of(self.plain)._may_run = False
        self.open: list[list[OpenSnapshot]] = []

    def same(self, call: Callable[[Any, HeapKeyedStateBackend], Any]) -> None:
        """A call of both states has the same result or error."""
        outcomes = []
        for state, backend in ((self.fast_state, self.fast), (self.plain_state, self.plain)):
            try:
                outcomes.append(("result", call(state, backend)))
            except Exception as error:
                outcomes.append((type(error), state.failed_index))
        assert same(*outcomes)

    def begin_snapshot(self) -> None:
        self.open.append([OpenSnapshot(self.fast), OpenSnapshot(self.plain)])

    def step_snapshot(self) -> None:
        for snapshot in self.open[0]:
            snapshot.step()

    def end_snapshot(self) -> None:
        fast, plain = [snapshot.end() for snapshot in self.open.pop(0)]
        assert fast == plain


class OpenSnapshot:
    """A snapshot that is written in steps of two entries."""

    def __init__(self, of: HeapKeyedStateBackend) -> None:
        self._of, self._where = of, location(inline_threshold_bytes=1 << 20)
        options = SnapshotOptions(entries_per_step=2)
        self._task = of.async_snapshot(of.sync_prepare_resources(1), self._where.stream_factory("s"), options)
        self._result: SnapshotResult[KeyedStateHandle] | None = None

    def step(self) -> None:
        if self._result is None:
            self._result = self._task.step()

    def end(self) -> bytes:
        """What a backend has that was restored from it."""
        while self._result is None:
            self.step()
        return snapshot_bytes(restored(self._result.job_manager_state, self._where.reader(), self._of))


def table_of(backend: HeapKeyedStateBackend) -> Any:
    return backend._tables["sum"].plain


keys = st.integers(-1, 5)
values = st.one_of(
    st.integers(0, 9), st.none(), st.text("ab", max_size=1), st.lists(st.integers(0, 9), max_size=1),
    st.sampled_from(["lose", "fail"]),
)  # fmt: skip
records = st.tuples(keys, values)
actions = st.one_of(
    st.tuples(st.just("batch"), st.lists(records, min_size=LARGE, max_size=2 * LARGE)),
    st.tuples(st.just("numbers"), st.lists(st.tuples(keys, st.integers(0, 9)), min_size=LARGE, max_size=2 * LARGE)),
    st.tuples(st.just("numbers"), st.lists(st.tuples(keys, st.integers(0, 9)), min_size=LARGE, max_size=2 * LARGE)),
    st.tuples(st.just("batch"), st.lists(records, max_size=5)),
    st.tuples(st.sampled_from(["begin", "step", "end", "keys", "all", "entries", "bytes"]), st.none()),
    st.tuples(st.sampled_from(["begin", "step", "end"]), st.none()),
    st.tuples(st.sampled_from(["get", "clear"]), keys),
)


@given(st.lists(actions, max_size=12))
def test_running_values_do_not_show(script: list[tuple[str, Any]]) -> None:
    """Batches, reads, errors and snapshots, open ones too, give what they give without running values."""
    pair = Pair()

    def add(batch: list[tuple[int, Any]]) -> Callable[[Any, HeapKeyedStateBackend], Any]:
        def call(state: Any, _: HeapKeyedStateBackend) -> list[Any]:
            out: list[Any] = []
            # Each state gets lists of its own, since they are changed in place.
            values = [one[:] if isinstance(one, list) else one for _, one in batch]
            state.add_many([key for key, _ in batch], values, out)
            return [list(one) if isinstance(one, list) else one for one in out]

        return call

    def scoped(key: int, access: Callable[[Any], Any]) -> Callable[[Any, HeapKeyedStateBackend], Any]:
        def call(state: Any, backend: HeapKeyedStateBackend) -> Any:
            backend.set_current_key(key)
            found = access(state)
            return list(found) if isinstance(found, list) else found

        return call

    for action, argument in script:
        if action in ("batch", "numbers"):
            pair.same(add(argument))
        elif action == "begin":
            pair.begin_snapshot()
        elif action == "step" and pair.open:
            pair.step_snapshot()
        elif action == "end" and pair.open:
            pair.end_snapshot()
        elif action == "keys":
            pair.same(lambda _, backend: backend.keys("sum"))
        elif action == "all":
            pair.same(lambda state, _: [repr(one) for one in state.get_many(list(range(-1, 6)))])
        elif action == "entries":
            pair.same(lambda _, backend: backend.num_entries())
        elif action == "bytes":
            pair.same(lambda _, backend: backend.fingerprint())
        elif action == "get":
            pair.same(scoped(argument, lambda state: state.get()))
        elif action == "clear":
            pair.same(scoped(argument, lambda state: state.clear()))
    while pair.open:
        pair.end_snapshot()
    for group, shard in table_of(pair.fast).shards.items():
        assert same(list(shard.items()), list(table_of(pair.plain).shards[group].items())), "their order counts, too"
    assert table_of(pair.fast).stale == (table_of(pair.fast)._running is not None)


def filled(times: int) -> tuple[HeapKeyedStateBackend, Any]:
    """A backend in which each of ``LARGE`` keys was folded so often, and its state."""
    backend = heap()
    state = backend.reducing_state(ReducingStateDescriptor("sum", lambda before, value: before + value))
    for _ in range(times):
        state.add_many(list(range(LARGE)), [1] * LARGE, [])
    return backend, state


def test_keys_that_come_again_and_again_stay_running_over_a_snapshot() -> None:
    """After a snapshot, folds go into the same running values. The snapshot does not see them, and holds no key
    group."""
    backend, state = filled(4)
    before = table_of(backend)._running
    snapshot = OpenSnapshot(backend)
    assert table_of(backend).stale == 1

    state.add_many(list(range(LARGE)), [1] * LARGE, [])

    assert table_of(backend)._running is before is not None
    assert snapshot.end() == snapshot_bytes(filled(4)[0]) != snapshot_bytes(backend)


def test_values_that_can_change_in_place_do_not_stay_running_over_a_snapshot() -> None:
    """The snapshot has the lists as they were."""
    backend, other = heap(), heap()
    for one in (backend, other):
        one.reducing_state(SUM).add_many([1] * LARGE, [[], *range(1, LARGE)], [])
    snapshot = OpenSnapshot(backend)

    backend.reducing_state(SUM).add_many([1] * LARGE, [0] * LARGE, [])

    assert snapshot.end() == snapshot_bytes(other) != snapshot_bytes(backend)


@pytest.mark.parametrize("held", ["nothing", "a key group", "a key group, and is over"])
def test_a_read_finds_running_values_that_have_outlived_a_snapshot(held: str) -> None:
    """Whether the snapshot has copied the values, or held a key group and does so no more."""
    backend = heap(max_parallelism=1)
    state = backend.reducing_state(ReducingStateDescriptor("sum", lambda before, value: before + value))
    if held != "nothing":
        # A key without a running value.
        state.add_many([0], [1], [])
    state.add_many([1] * LARGE, [1] * LARGE, [])
    resources = backend.sync_prepare_resources(1)
    state.add_many([1] * LARGE, [1] * LARGE, [])
    state.add_many([2] * LARGE, [1] * LARGE, [])
    if held == "a key group, and is over":
        resources.release()

    assert state.get_many([1, 2]) == [2 * LARGE, LARGE]
    if held != "a key group, and is over":
        resources.release()


def test_values_that_stop_running_do_not_enter_an_open_snapshot() -> None:
    """It holds a key group until the first change, and gets a copy before the values come there."""
    backend, other = heap(max_parallelism=1), heap(max_parallelism=1)
    for one in (backend, other):
        one.reducing_state(SUM).add_many([0], [1], [])
        table_of(one)._may_run = one is backend
        one.reducing_state(SUM).add_many([1] * LARGE, [1] * LARGE, [])
    snapshot = OpenSnapshot(backend)
    backend.reducing_state(SUM).add_many([1] * LARGE, [1] * LARGE, [])
    assert table_of(backend)._running is not None

    assert backend.num_entries() == 2
    assert snapshot.end() == snapshot_bytes(other) != snapshot_bytes(backend)


def test_a_snapshot_of_running_values_has_keys_that_have_come_and_gone() -> None:
    """The remembered order of the keys of a key group is that of the keys it has now."""
    backend, state = filled(3)
    before = snapshot_bytes(backend)
    state.add_many([LARGE] * LARGE + list(range(LARGE)), [1] * 2 * LARGE, [])
    with_another = snapshot_bytes(backend)
    state.add_many([LARGE, *range(LARGE)] * 2, [None, *[1] * LARGE, None, *[0] * LARGE], [])

    assert table_of(backend)._running is not None
    assert before == snapshot_bytes(filled(3)[0])
    assert len(with_another) > len(before)
    assert snapshot_bytes(backend) == snapshot_bytes(filled(5)[0])


@pytest.mark.parametrize("has_others", [False, True], ids=["all keys run", "another key"])
def test_folds_are_counted_from_one_snapshot_to_the_next(has_others: bool) -> None:
    """Keys that came again and again stay running over a snapshot, and end at the next if each has come once since."""
    backend = heap()
    state = backend.reducing_state(SUM)
    if has_others:
        state.add_many([LARGE], [1], [])
    for _ in range(3):
        state.add_many(list(range(LARGE)), [1] * LARGE, [])
    backend.sync_prepare_resources(1).release()
    assert table_of(backend)._running is not None

    state.add_many(list(range(LARGE)), [1] * LARGE, [])
    backend.sync_prepare_resources(2).release()

    assert table_of(backend)._running is None


@pytest.mark.parametrize("end", ["seldom folded", "read", "too many"])
def test_running_values_end_where_they_are_not_worth_while(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that seldom come again, reads of single keys, and many keys each put all values into the key groups for
    good."""
    backend, state = filled(1)
    assert table_of(backend)._running is not None
    if end == "seldom folded":
        backend.sync_prepare_resources(1).release()
    elif end == "read":
        backend.set_current_key(1)
        assert state.get() == 1
    else:
        monkeypatch.setattr(sharded_table, "RUNNING_VALUES", LARGE + 3)

    state.add_many(list(range(LARGE)), [1] * LARGE, [])

    table = table_of(backend)
    assert (table._running, table._may_run, table.stale) == (None, False, 0)
    assert {value for shard in table.shards.values() for value in shard.values()} == {2}


@pytest.mark.parametrize(("records", "run"), [(2, False), (15, False), (16, True)])
def test_a_small_batch_begins_no_running_values(records: int, run: bool) -> None:
    """Runs that go record by record keep all values in the key groups. From 16 records on values run."""
    backend = heap()
    state = backend.reducing_state(SUM)

    state.add_many(list(range(records)), [1] * records, [])

    assert (table_of(backend)._running is not None, table_of(backend).stale) == (run, run)


def test_values_of_windows_do_not_run() -> None:
    """A batch with namespaces has a value for each key and namespace."""
    backend = heap()
    state = backend.reducing_state(SUM)
    out: list[Any] = []

    state.add_many([1] * LARGE, [1] * LARGE, out, [number % 2 for number in range(LARGE)])

    assert out == [1 + number // 2 for number in range(LARGE)]
    assert table_of(backend)._running is None


def test_a_key_of_another_subtask_is_refused_with_its_record() -> None:
    """A new running value asks for the key group of its key."""
    backend = heap(max_parallelism=8, first=0, last=3)
    own = [key for key in range(100) if key_is_own(key)][:LARGE]
    foreign = next(key for key in range(100) if not key_is_own(key))
    state = backend.reducing_state(SUM)

    with pytest.raises(KeyGroupError, match=f"key {foreign} belongs"):
        state.add_many([*own, foreign, own[0]], [1] * (LARGE + 2), [])

    assert state.failed_index == LARGE


def key_is_own(key: int) -> bool:
    return heap().scope.any_group_of(key) <= 3
