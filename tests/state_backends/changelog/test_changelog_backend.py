"""The changelog backend: restore equals what was there, whatever was done, and shapes of its checkpoints."""

from __future__ import annotations

from state_backends.keyed_handles import ChangelogKeyedStateHandle

from ..support import COLLECT, LIST, MAP, SUM, VALUE
from .support import Queue, World, complete


def test_a_checkpoint_restores() -> None:
    """smoke"""
    world = World()
    queue = Queue()
    backend = world.backend(executor=queue)
    backend.value_state(VALUE).update_many([1, 2, 3], [[1], "b", {"x": 1}])
    backend.reducing_state(SUM).add_many([1, 2, 1], [10, 20, 30], [])
    backend.aggregating_state(COLLECT).add_many([1, 2, 1], ["a", "b", "a"], [1, 2, 3])
    backend.list_state(LIST).add_many([1, 2, 1], [1, 2, 3])
    backend.set_current_key(1)
    backend.map_state(MAP).put("a", 1)
    backend.timer_service("t").register_event_time_timers([1, 2], [None, None], [5, 6])
    handle = world.checkpoint(backend, 1)
    complete(world, backend, 1, handle)
    again = world.restored([handle], world.backend())
    assert again.fingerprint() == backend.fingerprint()
    again.value_state(VALUE).update_many([1], [7])
    work = again.materialize()
    second = world.checkpoint(again, 2)
    complete(world, again, 2, second)
    while work.step() is not None:
        pass
    third = world.checkpoint(again, 3)
    complete(world, again, 3, third)
    print(second, third)
    assert isinstance(third, ChangelogKeyedStateHandle)
    more = world.restored([third], world.backend())
    assert more.fingerprint() == again.fingerprint()
    print(world.shared_files())
