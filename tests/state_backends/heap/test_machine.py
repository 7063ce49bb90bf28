"""The heap backend against a plain dict, through random operations, snapshots, releases, restores, rescales."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from state_backends.base.key_groups import key_group_ranges
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import CheckpointLocation, FullSnapshotTask, SnapshotOptions, run_to_completion
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE, heap, location

KEYS = st.integers(-3, 6)
NAMESPACES = st.sampled_from([None, 1, 2])
SMALL = st.integers(-5, 5)
MAX_PARALLELISM = 5

Entry = tuple[str, int, Any]
"""(state name, key, namespace)."""


class Pinned:
    def __init__(self, backend: HeapKeyedStateBackend, expected: dict[Entry, Any], timers: set[Any]) -> None:
        self.where: CheckpointLocation = location(inline_threshold_bytes=0)
        self.expected = expected
        self.timers = timers
        self.resources = backend.sync_prepare_resources(1)
        self.task: FullSnapshotTask = backend.async_snapshot(
            self.resources, 1, 0, self.where.stream_factory("s"), SnapshotOptions(entries_per_step=1)
        )


class HeapMachine(RuleBasedStateMachine):
    """Every operation is done on the backend and on a dict from (state, key, namespace) to value."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[Entry, Any] = {}
        self.timers: set[tuple[int, int, Any]] = set()
        self.open: list[Pinned] = []
        self.use(heap(max_parallelism=MAX_PARALLELISM, key_cache_entries=4))

    def use(self, backend: HeapKeyedStateBackend) -> None:
        self.backend = backend
        self.value = backend.value_state(VALUE)
        self.list = backend.list_state(LIST)
        self.map = backend.map_state(MAP)
        self.sum = backend.reducing_state(SUM)
        self.collect = backend.aggregating_state(COLLECT)
        self.service = backend.timer_service("t")

    def at(self, state: Any, key: int, namespace: Any) -> Any:
        self.backend.set_current_key(key)
        state.set_namespace(namespace)
        return state

    @initialize()
    def start(self) -> None:
        self.put_value(0, None, 1)
        self.add_to_list(1, 1, 2)

    @rule(key=KEYS, namespace=NAMESPACES, value=SMALL)
    def put_value(self, key: int, namespace: Any, value: int) -> None:
        self.at(self.value, key, namespace).update(value)
        self.model["value", key, namespace] = value

    @rule(key=KEYS, namespace=NAMESPACES, value=SMALL)
    def change_value_in_place(self, key: int, namespace: Any, value: int) -> None:
        """Get a mutable value, change it and give it back: the program's most natural mistake."""
        state = self.at(self.value, key, namespace)
        got = state.get()
        if not isinstance(got, dict):
            got = {}
        got[value] = value
        state.update(got)
        stored = self.model.get(("value", key, namespace))
        before = stored if isinstance(stored, dict) else {}
        self.model["value", key, namespace] = {**before, value: value}

    @rule(key=KEYS, namespace=NAMESPACES, value=SMALL)
    def add_to_list(self, key: int, namespace: Any, value: int) -> None:
        self.at(self.list, key, namespace).add(value)
        self.model["list", key, namespace] = [*self.model.get(("list", key, namespace), []), value]

    @rule(key=KEYS, namespace=NAMESPACES, map_key=SMALL, value=SMALL)
    def put_into_map(self, key: int, namespace: Any, map_key: int, value: int) -> None:
        self.at(self.map, key, namespace).put(map_key, value)
        self.model["map", key, namespace] = {**self.model.get(("map", key, namespace), {}), map_key: value}

    @rule(key=KEYS, namespace=NAMESPACES, map_key=SMALL)
    def remove_from_map(self, key: int, namespace: Any, map_key: int) -> None:
        self.at(self.map, key, namespace).remove(map_key)
        left = {k: v for k, v in self.model.get(("map", key, namespace), {}).items() if k != map_key}
        self.model.pop(("map", key, namespace), None)
        if left:
            self.model["map", key, namespace] = left

    @rule(data=st.data(), namespace=NAMESPACES)
    def add_batch(self, data: st.DataObject, namespace: Any) -> None:
        """Fold a batch into the sums and the collections."""
        keys = data.draw(st.lists(KEYS, max_size=8))
        values = data.draw(st.lists(SMALL, min_size=len(keys), max_size=len(keys)))
        namespaces = None if namespace is None else [namespace] * len(keys)
        out: list[Any] = []
        self.sum.add_many(keys, values, out, namespaces)
        self.collect.add_many(keys, namespaces, values)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            total = self.model.get(("sum", key, namespace), 0) + value
            self.model["sum", key, namespace] = total
            assert out[i] == total
            collected = self.model.get(("collect", key, namespace), [])
            self.model["collect", key, namespace] = [*collected, value]

    @rule(key=KEYS, namespace=NAMESPACES, name=st.sampled_from(["value", "list", "map", "sum", "collect"]))
    def clear(self, key: int, namespace: Any, name: str) -> None:
        self.at(getattr(self, name), key, namespace).clear()
        self.model.pop((name, key, namespace), None)

    @rule(key=KEYS, namespace=NAMESPACES, time=st.integers(0, 6))
    def register_timer(self, key: int, namespace: Any, time: int) -> None:
        self.service.event_time.add(key, namespace, time)
        self.timers.add((time, key, namespace))

    @rule(watermark=st.integers(0, 3))
    def fire_timers(self, watermark: int) -> None:
        fired = self.service.event_time.pop_due(watermark)
        assert set(fired) == {timer for timer in self.timers if timer[0] <= watermark}
        assert len(set(fired)) == len(fired)
        self.timers -= set(fired)

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def pin(self) -> None:
        """Take the synchronous part of a snapshot."""
        self.open.append(Pinned(self.backend, copy.deepcopy(self.model), set(self.timers)))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2), steps=st.integers(1, 3))
    def step(self, which: int, steps: int) -> None:
        """Do some steps of a snapshot; a finished one is read back and compared."""
        pinned = self.open[which % len(self.open)]
        for _ in range(steps):
            if pinned.task.status not in (SnapshotStatus.COMPLETED, SnapshotStatus.CANCELLED):
                result = pinned.task.step()
                if result is not None:
                    self.check(pinned, result.job_manager_state)
                    self.open.remove(pinned)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2))
    def cancel(self, which: int) -> None:
        pinned = self.open.pop(which % len(self.open))
        pinned.task.cancel()
        assert pinned.resources.released
        assert list(pinned.where._fs.walk_files("/")) == []

    def check(self, pinned: Pinned, handle: Any) -> None:
        """A finished snapshot restores to what was there at the sync point, and was released."""
        assert pinned.resources.released
        machine = HeapMachine()
        if handle is not None:
            machine.backend.restore([handle], pinned.where.reader())
        machine.model, machine.timers = pinned.expected, pinned.timers
        machine.backend_equals_model()

    @rule()
    def restart(self) -> None:
        """Snapshot, restore into a fresh backend, go on with that one."""
        pinned = Pinned(self.backend, self.model, self.timers)
        handle = run_to_completion(pinned.task).job_manager_state
        fresh = heap(max_parallelism=MAX_PARALLELISM, key_cache_entries=4)
        if handle is not None:
            fresh.restore([handle], pinned.where.reader())
        assert fresh.fingerprint() == self.backend.fingerprint() or handle is None
        self.use(fresh)

    @rule(parallelism=st.integers(2, MAX_PARALLELISM))
    def rescale(self, parallelism: int) -> None:
        """Split over several subtasks, snapshot each, restore the union into one."""
        pinned = Pinned(self.backend, self.model, self.timers)
        handle = run_to_completion(pinned.task).job_manager_state
        parts = []
        for groups in key_group_ranges(MAX_PARALLELISM, parallelism):
            cut = None if handle is None else handle.intersect(groups)
            part = heap(max_parallelism=MAX_PARALLELISM, first=groups.first, last=groups.last)
            part.restore([] if cut is None else [cut], pinned.where.reader())
            split = Pinned(part, {}, set())
            parts.append((run_to_completion(split.task).job_manager_state, split.where.reader()))
        merged = heap(max_parallelism=MAX_PARALLELISM, key_cache_entries=4)
        merged.restore([part_handle for part_handle, _ in parts if part_handle is not None], _Many(parts))
        self.use(merged)

    def teardown(self) -> None:
        """Whatever happened: the state is right, and what is still pinned is too."""
        self.backend_equals_model()
        for pinned in self.open:
            self.check(pinned, run_to_completion(pinned.task).job_manager_state)

    # A rule and not an invariant: reading touches shards, and would do the copying that writes must do.
    @rule()
    def backend_equals_model(self) -> None:
        """Every entry of the model is in the backend, and no other."""
        for (name, key, namespace), expected in self.model.items():
            found = self.at(getattr(self, name), key, namespace)
            if name == "map":
                assert dict(found.entries()) == expected
            elif name == "collect":
                assert found.get() == tuple(expected)
            else:
                assert found.get() == expected
        assert self.backend.num_entries() == len(self.model)
        assert len(self.service.event_time) == len(self.timers)
        assert self.service.event_time.next_time() == min((timer[0] for timer in self.timers), default=None)


class _Many:
    """Opens handles of several checkpoint locations."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def open(self, handle: Any) -> Any:
        for part_handle, reader in self._parts:
            if part_handle is not None and part_handle.stream is handle:
                return reader.open(handle)
        raise AssertionError("a handle from nowhere")


TestHeapMachine = HeapMachine.TestCase
TestHeapMachine.settings = settings(max_examples=80, stateful_step_count=40)
