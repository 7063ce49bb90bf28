"""Random operations on every backend: against a dict, through snapshots, aborts, failures, restores and rescales."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from state_backends.api import KeyedStateBackend
from state_backends.base import KeyGroupRange
from state_backends.base.key_groups import key_group_ranges
from state_backends.snapshots import KeyedStateHandle, SnapshotOptions, SnapshotType, StateScope, run_to_completion
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.differential.backends import SCENARIOS, Pinned, Taken, World, canonical_bytes
from tests.state_backends.differential.model import DOMAINS, STATE_NAMES, Model, States
from tests.state_backends.support import DeferredExecutor, told

KEYS = st.integers(-1, 3)
NAMESPACES = st.sampled_from([None, 1, 2])
SMALL = st.integers(-5, 5)
MAX_PARALLELISM = 5
ALL_GROUPS = KeyGroupRange(0, MAX_PARALLELISM - 1)


class Checkpoint:
    """A checkpoint under way, with what it must contain."""

    def __init__(self, pinned: Pinned, expected: Model) -> None:
        self.pinned = pinned
        self.expected = expected
        self.taken: Taken | None = None

    def step(self) -> None:
        if self.pinned.task.status in (SnapshotStatus.CREATED, SnapshotStatus.RUNNING):
            result = self.pinned.task.step()
            if result is not None:
                handle = result.job_manager_state
                handles = [] if handle is None else [handle]
                self.taken = Taken(handles, self.pinned.location.reader(), self.pinned.checkpoint_id)
                assert self.pinned.resources.released

    def finish(self) -> Taken:
        while self.taken is None:
            self.step()
        return self.taken


class DifferentialMachine(RuleBasedStateMachine):
    """Every operation is done on a backend and on the model."""

    def __init__(self, snapshot_type: SnapshotType, cycle: tuple[str, ...]) -> None:
        super().__init__()
        self.options = SnapshotOptions(snapshot_type, entries_per_step=1)
        self.cycle = cycle
        self.position = 0
        self.world = World()
        self.model = Model()
        self.open: list[Checkpoint] = []
        self.completed: Checkpoint | None = None
        self.executor = DeferredExecutor()
        self.use(self.fresh(ALL_GROUPS))

    # --- lives of the backend -----------------------------------------------------------------------------------------

    def fresh(self, groups: KeyGroupRange) -> KeyedStateBackend:
        """A new backend of the kind whose turn it is."""
        return self.world.backend(self.cycle[self.position], MAX_PARALLELISM, groups, executor=self.executor)

    def use(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.states = States(backend)
        self.states.check(self.model)

    def end_of_life(self) -> None:
        """Cancel the snapshots under way and dispose of the backend: all its files are deleted."""
        for checkpoint in self.open:
            checkpoint.pinned.task.cancel()
            assert checkpoint.pinned.resources.released
        self.open = []
        self.executor.cancel()
        self.backend.dispose()
        assert self.world.local_files() == []

    def go_on_with(self, handles: list[KeyedStateHandle], taken: Taken) -> None:
        """Restore from handles into a backend of the next kind."""
        self.end_of_life()
        self.position = (self.position + 1) % len(self.cycle)
        backend = self.fresh(ALL_GROUPS)
        backend.restore(handles, taken.reader)
        self.use(backend)

    @initialize()
    def start(self) -> None:
        self.put_value(0, None, 1)
        self.add_to_list(1, 1, [2])

    # --- operations ---------------------------------------------------------------------------------------------------

    @rule(key=KEYS, namespace=NAMESPACES, value=SMALL)
    def put_value(self, key: int, namespace: Any, value: int) -> None:
        self.states.at("value", key, namespace).update(value)
        self.model.store(("value", key, namespace), value)

    @rule(key=KEYS, namespace=NAMESPACES, value=SMALL)
    def change_value_in_place(self, key: int, namespace: Any, value: int) -> None:
        """Get a mutable value, change it and give it back: the program's most natural mistake."""
        state = self.states.at("value", key, namespace)
        got = state.get()
        got = got if isinstance(got, dict) else {}
        got[value] = value
        state.update(got)
        stored = self.model.entries.get(("value", key, namespace))
        self.model.store(("value", key, namespace), {**(stored if isinstance(stored, dict) else {}), value: value})

    @rule(data=st.data(), namespace=NAMESPACES)
    def update_values(self, data: st.DataObject, namespace: Any) -> None:
        """Store a batch of values, None among them."""
        keys = data.draw(st.lists(KEYS, max_size=8))
        values = data.draw(st.lists(st.none() | SMALL, min_size=len(keys), max_size=len(keys)))
        namespaces = None if namespace is None else [namespace] * len(keys)
        self.states["value"].update_many(keys, values, namespaces)
        for key, value in zip(keys, values, strict=True):
            self.model.store(("value", key, namespace), value)
        found = self.states["value"].get_many(keys, namespaces)
        assert found == [self.model.entries.get(("value", key, namespace)) for key in keys]

    @rule(key=KEYS, namespace=NAMESPACES, elements=st.lists(SMALL, max_size=3))
    def add_to_list(self, key: int, namespace: Any, elements: list[int]) -> None:
        self.states.at("list", key, namespace).add_all(elements)
        entry = ("list", key, namespace)
        self.model.store(entry, self.model.entries.get(entry, []) + elements)

    @rule(key=KEYS, namespace=NAMESPACES, elements=st.lists(SMALL, max_size=3))
    def update_list(self, key: int, namespace: Any, elements: list[int]) -> None:
        self.states.at("list", key, namespace).update(elements)
        self.model.store(("list", key, namespace), list(elements))

    @rule(keys=st.lists(KEYS, max_size=8), namespace=NAMESPACES, element=SMALL)
    def add_to_lists(self, keys: list[int], namespace: Any, element: int) -> None:
        """Append to the lists of a batch of keys."""
        namespaces = None if namespace is None else [namespace] * len(keys)
        self.states["list"].add_many(keys, [element] * len(keys), namespaces)
        for key in keys:
            entry = ("list", key, namespace)
            self.model.store(entry, [*self.model.entries.get(entry, []), element])
        found = self.states["list"].get_many(keys, namespaces)
        assert found == [self.model.entries[("list", key, namespace)] for key in keys]

    @rule(key=KEYS, namespace=NAMESPACES, entries=st.dictionaries(SMALL, SMALL, max_size=3))
    def put_into_map(self, key: int, namespace: Any, entries: dict[int, int]) -> None:
        self.states.at("map", key, namespace).put_all(entries)
        entry = ("map", key, namespace)
        self.model.store(entry, {**self.model.entries.get(entry, {}), **entries})

    @rule(key=KEYS, namespace=NAMESPACES, map_key=SMALL)
    def remove_from_map(self, key: int, namespace: Any, map_key: int) -> None:
        state = self.states.at("map", key, namespace)
        entry = ("map", key, namespace)
        before = self.model.entries.get(entry, {})
        assert state.contains(map_key) == (map_key in before)
        assert state.get(map_key) == before.get(map_key)
        state.remove(map_key)
        self.model.store(entry, {k: v for k, v in before.items() if k != map_key})

    @rule(data=st.data(), namespace=NAMESPACES)
    def add_batch(self, data: st.DataObject, namespace: Any) -> None:
        """Fold a batch into the sums and the collections, None, which clears, among it."""
        keys = data.draw(st.lists(KEYS, max_size=8))
        values = data.draw(st.lists(SMALL | st.none(), min_size=len(keys), max_size=len(keys)))
        namespaces = None if namespace is None else [namespace] * len(keys)
        sums: list[Any] = []
        collections: list[Any] = []
        self.states["sum"].add_many(keys, values, sums, namespaces)
        self.states["collect"].add_many(keys, namespaces, values, collections)
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            total = None if value is None else self.model.entries.get(("sum", key, namespace), 0) + value
            self.model.store(("sum", key, namespace), total)
            collected = None if value is None else [*self.model.entries.get(("collect", key, namespace), []), value]
            self.model.store(("collect", key, namespace), collected)
            assert sums[i] == total
            assert collections[i] == (None if collected is None else tuple(collected))

    @rule(key=KEYS, namespace=NAMESPACES, value=SMALL, name=st.sampled_from(["sum", "collect"]))
    def add_one(self, key: int, namespace: Any, value: int, name: str) -> None:
        self.states.at(name, key, namespace).add(value)
        before = self.model.entries.get((name, key, namespace))
        after = (before or 0) + value if name == "sum" else [*(before or []), value]
        self.model.entries[name, key, namespace] = after

    @rule(
        key=KEYS,
        into=NAMESPACES,
        sources=st.lists(NAMESPACES, max_size=3),
        name=st.sampled_from(["list", "sum", "collect"]),
    )
    def merge(self, key: int, into: Any, sources: list[Any], name: str) -> None:
        self.states.at(name, key, None).merge_namespaces(into, sources)
        taken = [self.model.entries.pop((name, key, source), None) for source in sources]
        found = [value for value in taken if value is not None]
        if found:
            existing = self.model.entries.get((name, key, into))
            parts = found if existing is None else [existing, *found]
            merged = sum(parts) if name == "sum" else [element for part in parts for element in part]
            self.model.entries[name, key, into] = merged

    @rule(key=KEYS, namespace=NAMESPACES, name=st.sampled_from(STATE_NAMES))
    def clear(self, key: int, namespace: Any, name: str) -> None:
        self.states.at(name, key, namespace).clear()
        self.model.entries.pop((name, key, namespace), None)

    @rule(keys=st.lists(KEYS, max_size=5), namespace=NAMESPACES, name=st.sampled_from(STATE_NAMES))
    def clear_batch(self, keys: list[int], namespace: Any, name: str) -> None:
        self.states[name].clear_many(keys, None if namespace is None else [namespace] * len(keys))
        for key in keys:
            self.model.entries.pop((name, key, namespace), None)

    @rule(keys=st.lists(KEYS, max_size=4), namespace=NAMESPACES, time=SMALL, domain=st.sampled_from(DOMAINS))
    def register_timers(self, keys: list[int], namespace: Any, time: int, domain: str) -> None:
        service = self.states.timers
        register = service.event_time.register if domain == "event" else service.processing_time.register
        register(keys, [namespace] * len(keys), [time] * len(keys))
        self.model.timers |= {(domain, time, key, namespace) for key in keys}

    @rule(key=KEYS, namespace=NAMESPACES, time=SMALL, domain=st.sampled_from(DOMAINS))
    def delete_timer(self, key: int, namespace: Any, time: int, domain: str) -> None:
        service = self.states.timers
        delete = service.event_time.delete if domain == "event" else service.processing_time.delete
        delete(key, namespace, time)
        self.model.timers.discard((domain, time, key, namespace))

    @rule(now=st.integers(-5, 3), one_by_one=st.booleans())
    def fire_timers(self, now: int, one_by_one: bool) -> None:
        """Take what is due, event-time timers all at once or one by one."""
        due = {timer[1:] for timer in self.model.timers if timer[0] == "event" and timer[1] <= now}
        fired = []
        if one_by_one:
            while (timer := self.states.timers.event_time.pop_next(now)) is not None:
                fired.append(timer)
        else:
            fired = self.states.timers.event_time.pop_due(now)
        assert len(fired) == len(due)
        assert set(fired) == due
        assert [timer[0] for timer in fired] == sorted(timer[0] for timer in fired)
        self.model.timers -= {("event", *timer) for timer in due}

    @rule(steps=st.integers(1, 5))
    def background(self, steps: int) -> None:
        """Let background work get on."""
        for _ in range(steps):
            self.executor.step()

    # --- snapshots ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def begin_checkpoint(self) -> None:
        """Take the synchronous part of a snapshot."""
        self.open.append(self.begun())

    def begun(self) -> Checkpoint:
        """A new snapshot under way."""
        return Checkpoint(Pinned(self.backend, self.world.next_location(), self.options), self.model.copy())

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2), steps=st.integers(1, 3))
    def step_checkpoint(self, which: int, steps: int) -> None:
        """Do some steps of a snapshot; a finished one contains what was there at its beginning."""
        checkpoint = self.open[which % len(self.open)]
        for _ in range(steps):
            checkpoint.step()
        if checkpoint.taken is not None and checkpoint.taken.checkpoint_id % 2:
            self.check(checkpoint)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2))
    def complete_checkpoint(self, which: int) -> None:
        """A snapshot becomes the latest complete checkpoint; what only older ones need is deleted."""
        checkpoint = self.open.pop(which % len(self.open))
        checkpoint.finish()
        if self.completed is not None and self.completed.pinned.checkpoint_id > checkpoint.pinned.checkpoint_id:
            return
        before, self.completed = self.completed, checkpoint
        told(self.backend).complete(checkpoint.pinned.checkpoint_id)
        if before is not None:
            told(self.backend).subsumed(before.pinned.checkpoint_id)
            before.pinned.location.discard()
        if not self.open:
            self.delete_unused_shared_files(checkpoint)
        self.check(checkpoint)

    def delete_unused_shared_files(self, checkpoint: Checkpoint) -> None:
        """Delete the shared files that the checkpoint does not use, as the job manager would."""
        used = {file.path for handle in checkpoint.finish().handles for file, _ in handle.shared()}
        shared = f"{self.world.storage.job_dir}/{StateScope.SHARED.value}"
        for path in list(self.world.file_system.walk_files(shared)):
            if path.removeprefix(f"{self.world.storage.job_dir}/") not in used:
                self.world.file_system.delete(path)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 2))
    def abort_checkpoint(self, which: int) -> None:
        """Cancel a snapshot, wherever it stands: it holds nothing any more, and its directory is empty."""
        checkpoint = self.open.pop(which % len(self.open))
        checkpoint.pinned.task.cancel()
        told(self.backend).abort(checkpoint.pinned.checkpoint_id)
        assert checkpoint.pinned.resources.released
        if checkpoint.taken is None:
            assert list(self.world.file_system.walk_files(checkpoint.pinned.location.directory)) == []

    def check(self, checkpoint: Checkpoint) -> None:
        """A finished snapshot restores to the state at its beginning, in any backend that can read it."""
        taken = checkpoint.finish()
        name = self.cycle[(self.position + 1) % len(self.cycle)]
        backend = self.world.backend(name, MAX_PARALLELISM)
        backend.restore(taken.handles, taken.reader)
        States(backend).check(checkpoint.expected)
        backend.dispose()

    @rule()
    def restart(self) -> None:
        """Snapshot, restore into a fresh backend, go on with that one."""
        taken = self.begun().finish()
        fingerprint = self.backend.fingerprint()
        self.go_on_with(taken.handles, taken)
        assert self.backend.fingerprint() == fingerprint
        self.completed = None

    @precondition(lambda self: self.completed is not None)
    @rule()
    def fail_and_recover(self) -> None:
        """Go back to the latest complete checkpoint."""
        assert self.completed is not None
        taken = self.completed.finish()
        self.model = self.completed.expected.copy()
        self.go_on_with(taken.handles, taken)

    @rule(parallelism=st.integers(2, MAX_PARALLELISM))
    def rescale(self, parallelism: int) -> None:
        """Split over several subtasks, snapshot each, restore the union into one."""
        taken = self.begun().finish()
        location = self.world.next_location()
        handles: list[KeyedStateHandle] = []
        for index, groups in enumerate(key_group_ranges(MAX_PARALLELISM, parallelism)):
            part = self.fresh(groups)
            cut = [one for handle in taken.handles if (one := handle.intersect(groups)) is not None]
            part.restore(cut, taken.reader)
            pinned = Pinned(part, location, self.options, unique=str(index))
            handle = run_to_completion(pinned.task).job_manager_state
            handles += [] if handle is None else [handle]
            self.executor.cancel()
            part.dispose()
        self.go_on_with(handles, Taken(handles, location.reader(), location.checkpoint_id))
        self.completed = None

    @rule()
    def backend_equals_model(self) -> None:
        """Content and canonical bytes are those of the model, and of a heap with that content and another history."""
        self.states.check(self.model)
        heap = self.world.backend("heap", MAX_PARALLELISM)
        States(heap).fill(self.model)
        assert heap.fingerprint() == self.backend.fingerprint()
        assert canonical_bytes(self.world, heap) == canonical_bytes(self.world, self.backend)

    def teardown(self) -> None:
        """After any history the state is right, and so are the snapshots still under way."""
        self.backend_equals_model()
        for checkpoint in self.open:
            self.check(checkpoint)
        self.end_of_life()


NAMES = [f"{kind.value}: {' to '.join(cycle)}" for kind, cycle in SCENARIOS]


def search(scenario: tuple[SnapshotType, tuple[str, ...]], examples: int, steps: int) -> None:
    if "rocksdb" in scenario[1]:
        # Each of its backends opens a database on disk.
        examples = max(2, examples // 10)
    elif scenario[1] == ("heap",):
        # The backend with which all others are compared; its lives are short.
        examples *= 4
    run_state_machine_as_test(
        lambda: DifferentialMachine(*scenario), settings=settings(max_examples=examples, stateful_step_count=steps)
    )


@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_backends_do_what_the_model_does(scenario: tuple[SnapshotType, tuple[str, ...]]) -> None:
    """A short search: no backend, snapshot or restore differs from the model."""
    search(scenario, examples=15, steps=40)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_backends_do_what_the_model_does_for_long(scenario: tuple[SnapshotType, tuple[str, ...]]) -> None:
    """The same search, wider."""
    search(scenario, examples=60, steps=60)
