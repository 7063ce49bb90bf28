"""The published cost curves of changelogs: the cost of a checkpoint, and the total cost."""

from __future__ import annotations

from typing import Any

import pytest

from state_backends.lsm import LsmStateBackend
from state_backends.snapshots import SnapshotOptions
from tests.state_backends.changelog.support import World, complete
from tests.state_backends.support import COLLECT, VALUE, DeferredExecutor

KEYS = 2000


def loaded(world: World, **options: Any) -> Any:
    """A backend with many entries, materialised and checkpointed once."""
    backend = world.backend(executor=DeferredExecutor(), **options)
    backend.value_state(VALUE).update_many(list(range(KEYS)), ["x" * 50] * KEYS)
    materialize(backend)
    complete(world, backend, 1, world.checkpoint(backend, 1))
    return backend


def materialize(backend: Any) -> None:
    work = backend.materialize()
    while work is not None and work.step() is not None:
        pass


@pytest.mark.parametrize("inner", [None, LsmStateBackend(incremental=True)])
def test_a_checkpoint_costs_what_was_changed(inner: Any) -> None:
    """The bytes it uploads grow with the updates since the one before, not with the state."""
    world = World()
    backend = loaded(world, inner=inner)
    state_bytes = world.checkpoint(backend, 2).size_bytes
    costs = []
    for number, updates in ((3, 20), (4, 20), (5, 200)):
        backend.value_state(VALUE).update_many(list(range(updates)), ["y" * 50] * updates)
        handle = world.checkpoint(backend, number)
        complete(world, backend, number, handle)
        costs.append(handle.persisted_bytes)
    assert costs[0] == costs[1] < state_bytes / 50
    assert costs[1] * 8 < costs[2] < costs[1] * 11


def test_a_log_is_not_deduplicated() -> None:
    """A key changed over and over is in the log each time, until that is materialised."""
    world = World()
    backend = loaded(world)
    state_bytes = world.checkpoint(backend, 2).size_bytes
    for number in range(3, 13):
        for _ in range(100):
            backend.value_state(VALUE).update_many([1, 2, 3], ["z" * 50] * 3)
        handle = world.checkpoint(backend, number)
        complete(world, backend, number, handle)
    assert handle.size_bytes > 2 * state_bytes
    assert handle.persisted_bytes < state_bytes / 4
    materialize(backend)
    following = world.checkpoint(backend, 13)
    assert following.log == ()
    assert following.size_bytes == pytest.approx(state_bytes, rel=0.01)


def test_state_that_is_purged_costs_its_way_through_the_log() -> None:
    """A window that fills and is cleared leaves an empty state and a long log: the case where a changelog loses."""
    world = World()
    backend = world.backend(executor=DeferredExecutor())
    for window in range(20):
        keys = list(range(50))
        backend.aggregating_state(COLLECT).add_many(keys, [window] * 50, [1] * 50)
        backend.aggregating_state(COLLECT).clear_many(keys, [window] * 50)
    assert backend.num_entries() == 0
    handle = world.checkpoint(backend, 1)
    assert handle.size_bytes > 4000


def test_the_asynchronous_part_is_short() -> None:
    """One step for the tail of the log and one for the result, where the full snapshot takes a step per key group."""
    world = World()
    backend = loaded(world)
    backend.value_state(VALUE).update_many([1], ["y"])
    options = SnapshotOptions(entries_per_step=1)

    def steps(task: Any) -> int:
        count = 1
        while task.step() is None:
            count += 1
        return count

    assert steps(world.begin(backend, 2, options)) == 2
    assert steps(world.begin(backend._inner, 3, options)) >= 5


def test_a_batch_is_one_record() -> None:
    """Whatever its size, and with each key once where what is stored is logged."""
    world = World()
    backend = world.backend()
    sums = backend.aggregating_state(COLLECT)
    sums.add_many([1, 2] * 500, None, [0] * 1000)
    assert backend._log.next_number == 1
    backend.value_state(VALUE).update_many(list(range(1000)), [0] * 1000)
    backend.timer_service("t").event_time.register(list(range(100)), [None] * 100, [5] * 100)
    assert backend._log.next_number == 3
    assert backend.timer_service("t").event_time.pop_due(5)
    assert backend._log.next_number == 4


def test_reading_logs_nothing() -> None:
    """An empty batch is not logged either."""
    backend = World().backend()
    value, collect = backend.value_state(VALUE), backend.aggregating_state(COLLECT)
    value.get_many([1, 2])
    value.update_many([], [])
    collect.add_many([], None, [])
    collect.clear_many([])
    backend.timer_service("t").event_time.register([], [], [])
    assert backend.timer_service("t").event_time.pop_due(5) == []
    assert backend._log.next_number == 0
