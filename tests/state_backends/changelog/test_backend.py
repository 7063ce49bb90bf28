"""The changelog backend: the records it logs, its checkpoints, and its outside behaviour."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from state_backends.base import (
    LONG,
    AggregatingStateDescriptor,
    KeyGroupError,
    ReducingStateDescriptor,
    StateArgumentError,
    StateSerializationError,
)
from state_backends.base.key_groups import key_group_ranges
from state_backends.changelog import ChangelogStateBackend
from state_backends.changelog.keyed_backend import ChangelogKeyedStateBackend
from state_backends.heap import HeapStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.named import state_backend_named
from state_backends.snapshots import (
    ChangelogKeyedStateHandle,
    FullKeyedStateHandle,
    KeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from state_backends.snapshots.keyed_handles import keyed_handle_from_state
from tests.state_backends.changelog.support import ALL, FULL, MAX_PARALLELISM, World, again, filled, own_keys
from tests.state_backends.differential import backends as differential
from tests.state_backends.differential.test_machine import DifferentialMachine
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE, DeferredExecutor, told

CANONICAL = SnapshotOptions(SnapshotType.CANONICAL_SAVEPOINT)


@pytest.mark.parametrize("inner", ["heap", "lsm, incremental"])
def test_the_differential_suite_holds(monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    """All operations on all kinds of state, through all that the suite of the backends does, under a log."""
    changelog = ChangelogStateBackend(differential.BACKENDS[inner], segment_bytes=200)
    monkeypatch.setitem(differential.BACKENDS, "changelog", changelog)
    run_state_machine_as_test(
        lambda: DifferentialMachine(SnapshotType.CHECKPOINT, ("changelog",)),
        settings=settings(max_examples=15, stateful_step_count=40, deadline=None),
    )


def test_a_value_is_logged_as_it_was_when_it_was_given() -> None:
    """Later changes of the program to an object are not in the log."""
    world = World()
    backend = world.backend()
    given = [1]
    backend.set_current_key(1)
    backend.value_state(VALUE).update(given)
    backend.list_state(LIST).add(given)
    backend.map_state(MAP).put("k", given)
    given.append(2)
    restored = again(world, backend)
    restored.set_current_key(1)
    assert restored.value_state(VALUE).get() == [1]
    assert restored.list_state(LIST).get() == [[1]]
    assert restored.map_state(MAP).get("k") == [1]


def test_an_accumulator_changed_in_place_is_logged_as_it_is_then() -> None:
    """One accumulator object serves many batches; each record has what it held."""
    world = World()
    backend = world.backend()
    state = backend.aggregating_state(COLLECT)
    out: list[Any] = []
    state.add_many([1, 1], None, ["a", "b"], out)
    assert out == [("a",), ("a", "b")]
    restored = again(world, backend)
    state.add_many([1], None, ["c"])
    restored.set_current_key(1)
    assert restored.aggregating_state(COLLECT).get() == ("a", "b")


FAILING: dict[str, Callable[[ChangelogKeyedStateBackend, list[int]], None]] = {
    "update": lambda backend, keys: backend.value_state(VALUE).update_many(keys, [7, 8, 9, 10]),
    "add": lambda backend, keys: backend.list_state(LIST).add_many(keys, [7, 8, 9, 10]),
    "fold": lambda backend, keys: backend.reducing_state(SUM).add_many(keys, [7, 8, 9, 10], [], ["n"] * 4),
    "collect": lambda backend, keys: backend.aggregating_state(COLLECT).add_many(keys, None, [7, 8, 9, 10]),
    "clear": lambda backend, keys: backend.list_state(LIST).clear_many(keys),
    "clear map": lambda backend, keys: backend.map_state(MAP).clear_many(keys),
    "timers": lambda backend, keys: backend.timer_service("t").event_time.register(keys, keys, keys),
}


@pytest.mark.parametrize("operation", sorted(FAILING))
def test_the_part_of_a_failed_batch_that_was_done_is_logged(operation: str) -> None:
    """A batch stops at a key of another subtask; the records before it are in the state, and in the log."""
    world = World()
    groups, others = key_group_ranges(MAX_PARALLELISM, 2)
    a, b, c = own_keys(groups, 3)
    backend = world.backend(groups)
    backend.value_state(VALUE).update_many([a, b, c], [1, 2, 3])
    backend.list_state(LIST).add_many([a, b, c], [1, 2, 3])
    backend.set_current_key(a)
    backend.map_state(MAP).put("x", 1)
    before = backend.fingerprint()
    with pytest.raises(KeyGroupError):
        FAILING[operation](backend, [a, b, own_keys(others, 1)[0], c])
    assert backend.fingerprint() != before
    assert again(world, backend).fingerprint() == backend.fingerprint()


def test_a_program_that_fails_in_a_batch_leaves_an_exact_log() -> None:
    """The records before the failing one are folded in and logged, and the error gives its index."""
    world = World()
    backend = world.backend()

    def divide(left: int, right: int) -> int:
        return left // right

    state = backend.reducing_state(ReducingStateDescriptor("divide", divide))
    out: list[Any] = []
    with pytest.raises(ZeroDivisionError):
        state.add_many([1, 2, 1, 2, 1], [100, 9, 5, 0, 7], out)
    assert (out, state.failed_index) == ([100, 9, 20], 3)
    backend.set_current_key(2)
    with pytest.raises(ZeroDivisionError):
        state.add(0)
    state.set_namespace("w")
    state.add(0)
    with pytest.raises(ZeroDivisionError):
        state.merge_namespaces(None, ["w"])
    assert again(world, backend).fingerprint() == backend.fingerprint()


def test_what_cannot_be_written_changes_nothing() -> None:
    """The caller gets an error that names state, key and path, and neither state nor log have changed."""
    world = World()
    backend = filled(world)
    before = backend.fingerprint()
    with pytest.raises(StateSerializationError, match=r"value of state 'value' under 2\['a'\]"):
        backend.value_state(VALUE).update_many([1, 2], [0, {"a": {1}}])
    backend.set_current_key(1)
    with pytest.raises(StateSerializationError, match="state 'list' under 1"):
        backend.list_state(LIST).add({1})
    with pytest.raises(StateSerializationError, match="namespace of state 'map'"):
        backend.map_state(MAP).clear_many([1], [frozenset()])
    with pytest.raises(StateArgumentError):
        backend.list_state(LIST).add_many([1], [None])
    assert backend.fingerprint() == before
    assert again(world, backend).fingerprint() == before


def test_a_lost_change_fails_every_checkpoint_until_one_materialises() -> None:
    """A result that cannot be written is in the state and not in the log: no checkpoint pretends otherwise."""
    world = World()
    backend = filled(world, executor=DeferredExecutor())
    to_set = AggregatingStateDescriptor("set", set, lambda s, v: s | {v}, len)
    state = backend.aggregating_state(to_set)
    with pytest.raises(StateSerializationError, match="state 'set' under 3"):
        state.add_many([3], None, [1])
    for number in (1, 2):
        task = world.begin(backend, number)
        with pytest.raises(StateSerializationError, match="state 'set' under 3"):
            run_to_completion(task)
        assert task.status is SnapshotStatus.FAILED
    state.clear_many([3])
    with pytest.raises(StateSerializationError):
        run_to_completion(world.begin(backend, 3))
    work = backend.materialize()
    assert work is not None
    while work.step() is not None:
        pass
    assert again(world, backend).fingerprint() == backend.fingerprint()


def test_a_change_that_was_lost_once_is_materialised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when nothing was changed since; the previous materialisation does not hold the change."""
    world = World()
    backend = filled(world, executor=DeferredExecutor())
    before = backend.materialize()
    assert before is not None
    with monkeypatch.context() as patch:
        problem = StateSerializationError("once")
        patch.setattr(backend._log, "encode", lambda *_: (_ for _ in ()).throw(problem))
        with pytest.raises(StateSerializationError):
            backend.reducing_state(SUM).add_many([5], [5], [])
    while before.step() is not None:
        pass
    with pytest.raises(StateSerializationError, match="once"):
        run_to_completion(world.begin(backend, 1))
    work = backend.materialize()
    while work is not None and work.step() is not None:
        pass
    assert again(world, backend).fingerprint() == backend.fingerprint()


def test_without_a_key_nothing_is_logged() -> None:
    """The error is that of the backend below."""
    backend = World().backend()
    value, entries = backend.value_state(VALUE), backend.map_state(MAP)
    with pytest.raises(StateArgumentError, match="without a current key"):
        value.update(1)
    with pytest.raises(StateArgumentError, match="without a current key"):
        entries.put(1, 1)
    assert backend._log.next_number == 0


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_backend_without_state_gives_the_empty_result() -> None:
    """No handle and no file."""
    world = World()
    backend = world.backend()
    assert run_to_completion(world.begin(backend, 1)).job_manager_state is None
    assert run_to_completion(world.begin(backend, 2, FULL)).job_manager_state is None
    assert world.shared_files() == []


def test_a_checkpoint_contains_what_was_there_when_it_began() -> None:
    """The checkpoint does not hold changes and materialisations made during its asynchronous part."""
    world = World()
    backend = filled(world, executor=DeferredExecutor())
    expected = backend.fingerprint()
    task = world.begin(backend, 1)
    backend.value_state(VALUE).update_many([1, 9], ["new", "new"])
    work = backend.materialize()
    assert work is not None
    while work.step() is not None:
        pass
    handle = run_to_completion(task).job_manager_state
    assert handle is not None
    assert world.restored([handle], world.backend()).fingerprint() == expected


@pytest.mark.parametrize("options", [SnapshotOptions(entries_per_step=1), replace(FULL, entries_per_step=1)])
def test_a_checkpoint_cancelled_at_any_step_leaves_no_file(options: SnapshotOptions) -> None:
    """Also one that has to materialise; the next one is whole."""
    for steps in range(10):
        world = World()
        backend = filled(world)
        task = world.begin(backend, 1, options)
        for _ in range(steps):
            if task.status is not SnapshotStatus.COMPLETED:
                task.step()
        if task.status is SnapshotStatus.COMPLETED:
            break
        task.cancel()
        told(backend).abort(1)
        assert world.shared_files() == []
        assert again(world, backend).fingerprint() == backend.fingerprint()
    else:
        raise AssertionError("no checkpoint came to its end")


def test_the_resources_of_a_checkpoint_that_never_ran_can_be_released() -> None:
    """As when the synchronous part of another operator fails; the next checkpoint is whole."""
    for options in (SnapshotOptions(), FULL):
        world = World()
        backend = filled(world)
        backend.snapshot_strategy(options).sync_prepare_resources(1).release()
        assert again(world, backend).fingerprint() == backend.fingerprint()
        backend.dispose()


def test_savepoints_are_those_of_the_backend_below() -> None:
    """A canonical savepoint has the bytes that the heap would write, and shares nothing."""
    world = World()
    backend = filled(world)
    task = world.begin(backend, 1, CANONICAL)
    handle = run_to_completion(task).job_manager_state
    assert isinstance(handle, FullKeyedStateHandle)
    heap = HeapStateBackend().create_keyed_backend(world.environment())
    heap.restore([handle], world.storage.location(1).reader())
    assert heap.fingerprint() == backend.fingerprint()
    assert list(handle.shared()) == []
    assert world.checkpoint(backend, 2).materialization_id == 0


def test_notifications_of_other_snapshots_change_nothing() -> None:
    """Of savepoints, of unknown ids, twice, or late."""
    world = World()
    backend = filled(world)
    for notify in (
        told(backend).complete,
        told(backend).abort,
        told(backend).subsumed,
    ):
        before = copy.deepcopy(vars(backend._history))
        notify(77)
        notify(77)
        assert vars(backend._history) == before


# --- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_checked() -> None:
    """Numbers are positive, and a changelog stands over no changelog."""
    for name in ("materialization_interval_ms", "segment_bytes", "max_materialization_failures"):
        with pytest.raises(StateArgumentError, match=f"{name} must be at least 1"):
            ChangelogStateBackend(HeapStateBackend(), **{name: 0})
    with pytest.raises(StateArgumentError, match="cannot stand over a changelog"):
        ChangelogStateBackend(ChangelogStateBackend(HeapStateBackend()))


def test_it_is_found_by_name() -> None:
    """``changelog`` is over the heap, ``changelog:lsm`` over the store; it is incremental if the one below is."""
    for name, incremental in (("changelog", False), ("changelog:lsm", True)):
        found = state_backend_named(name, incremental=incremental)
        assert isinstance(found, ChangelogStateBackend)
        assert (found.name, found.incremental) == (name, incremental)
        backend = found.create_keyed_backend(World().environment())
        assert isinstance(backend, ChangelogKeyedStateBackend)
        assert backend.key_group_range == ALL
        backend.dispose()


def test_it_looks_like_what_it_stands_over() -> None:
    """Names, keys, counts and the current key are those of the backend below."""
    backend = filled(World())
    assert backend.state_names() == [
        "_timer_state/event_t",
        "_timer_state/processing_t",
        "collect",
        "list",
        "map",
        "sum",
        "value",
    ]
    assert (backend.max_parallelism, backend.key_type) == (MAX_PARALLELISM, LONG)
    assert backend.num_entries("value") == 3
    assert backend.current_key == 1
    assert backend.timer_service("t") is backend.timer_service("t")
    backend.clear_current_key()
    with pytest.raises(StateArgumentError):
        _ = backend.current_key


def test_handles_survive_their_plain_form() -> None:
    """The metadata of a checkpoint holds the whole handle."""
    world = World()
    backend = filled(world, inner=LsmStateBackend(incremental=True))
    first: KeyedStateHandle = world.checkpoint(backend, 1, FULL)
    second = world.checkpoint(backend, 2)
    for handle in (first, second):
        assert isinstance(handle, ChangelogKeyedStateHandle)
        assert keyed_handle_from_state(handle.to_state()) == handle
