"""Timers: a set that fires in an order of its own, whatever its history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from state_backends.api import TimerService
from state_backends.base import STRING, KeyGroupError, StateArgumentError, key_group_for
from state_backends.codec import StateCodec
from tests.state_backends.differential.backends import Maker
from tests.state_backends.support import vectors

Vector = dict[str, Any]
Timer = tuple[int, Any, Any]


def service(make: Maker) -> TimerService:
    return make(None).timer_service("t")


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("vector", vectors("timer_service"))
def test_timers_are_those_of_flink(make: Maker, vector: Vector, one_by_one: bool) -> None:
    """Each operation fires what Flink's timer service tests assert, by batch and one by one."""
    timers = service(make)
    key: Any = None

    def advance(pop_due: Any, pop_next: Any, now: int) -> list[Timer]:
        if not one_by_one:
            return list(pop_due(now))
        fired = []
        while (timer := pop_next(now)) is not None:
            fired.append(timer)
        return fired

    for op, expect in zip(vector["input"]["ops"], vector["expect"]["per_op"], strict=True):
        kind, fired = op["op"], []
        if kind == "key":
            key = op["key"]
        elif kind == "register_event":
            timers.event_time.add(key, op["ns"], op["time"])
        elif kind == "delete_event":
            timers.event_time.delete(key, op["ns"], op["time"])
        elif kind == "register_processing":
            timers.processing_time.add(key, op["ns"], op["time"])
        elif kind == "advance_watermark":
            fired = advance(timers.event_time.pop_due, timers.event_time.pop_next, op["time"])
        else:
            assert kind == "set_processing_time"
            assert op["callback_registers"] is None
            advance(timers.processing_time.pop_due, timers.processing_time.pop_next, op["time"])
        if "fired" in expect:
            assert sorted(map(tuple, expect["fired"])) == sorted(fired)
        assert expect.get("event_timers", len(timers.event_time)) == len(timers.event_time)
        processing = len(timers.processing_time)
        assert expect.get("processing_timers", processing) == processing
        if "physical_timer" in expect:
            assert expect["physical_timer"] == timers.processing_time.next_time()


@pytest.mark.parametrize("vector", vectors("key_grouped_priority_queue"))
def test_the_queue_is_partitioned_by_key_group(make: Maker, vector: Vector) -> None:
    """Elements are unique, lie in the key group of their key, and come out in order (Flink's queue test)."""
    given_input, expect = vector["input"], vector["expect"]
    maximum = given_input["max_parallelism"]
    backend = make(STRING, maximum)

    def of_group(group: int) -> list[Any]:
        """The timers that a subtask with this key group alone restores."""
        taken = make.world.snapshot(backend)
        part = make(STRING, maximum, group, group)
        part.restore(taken.handles, taken.reader)
        return sorted([key, time] for time, key, _ in part.timer_service("t").event_time.pop_due(1000))

    queue = backend.timer_service("t").event_time
    heads = []
    for key, priority in given_input["elements"]:
        before = queue.next_time()
        queue.register([key], [None], [priority])
        heads.append(before != queue.next_time())
    groups = {str(group): found for group in range(maximum) if (found := of_group(group))}
    polled = queue.pop_next(1000)
    assert polled is not None
    key, priority = expect["then_peek"]

    # Theirs reports a changed head also when the same element is added again; ours compares times.
    assert [heads[0], heads[1]] == expect["add_returns_head_changed"][:2]
    assert expect["subset_for_key_group"] == groups
    assert [list(polled)[1::-1]] == expect["polls"]
    assert len(queue) == expect["remaining_size"]
    assert queue.next_time() == priority
    for removal in expect["remove"]:
        size = len(queue)
        queue.delete(removal["element"][0], None, removal["element"][1])
        assert removal["returns"] == (len(queue) < size)
    assert queue.next_time() == expect["peek_after_remove"][1]


def order_of(timer: Timer) -> tuple[int, bytes, bytes]:
    codec = StateCodec()
    return timer[0], codec.encode(timer[1]), codec.encode(timer[2])


timers_strategy = st.tuples(st.integers(-3, 6), st.integers(-3, 300), st.sampled_from([None, 1, 2]))


@given(st.lists(timers_strategy, max_size=60), st.lists(timers_strategy, max_size=10), st.integers(-4, 7))
def test_due_timers_fire_in_order_of_the_set(
    make: Maker, registered: list[Timer], deleted: list[Timer], now: int
) -> None:
    """What fires is the due part of the set, ordered by (time, encoded key, encoded namespace); both ways of
    asking agree, and so does a restored backend."""
    backend = make(max_parallelism=4)
    queue = backend.timer_service("t").event_time
    for time, key, namespace in registered:
        queue.register([key], [namespace], [time])
    for time, key, namespace in deleted:
        queue.delete(key, namespace, time)
    left = sorted(set(registered) - set(deleted), key=order_of)
    due = [timer for timer in left if timer[0] <= now]
    again = make.restarted(backend).timer_service("t").event_time
    one_by_one = []
    while (timer := again.pop_next(now)) is not None:
        one_by_one.append(timer)

    assert queue.next_time() == (left[0][0] if left else None)
    assert queue.last_time() is None or not left or queue.last_time() >= left[-1][0]
    assert queue.in_firing_order(left[::-1]) == left
    assert due == queue.pop_due(now)
    assert due == one_by_one
    assert len(queue) == len(again) == len(left) - len(due)
    assert queue.next_time() == again.next_time() == (left[len(due)][0] if len(due) < len(left) else None)


@given(st.data())
def test_callbacks_may_register_and_delete_while_timers_fire(make: Maker, data: st.DataObject) -> None:
    """Fired one by one, the next timer is at each moment the first due one of the set, whatever the last
    callback registered or deleted."""
    queue = service(make).event_time
    model: set[Timer] = set()
    # Few times and keys, so that most changes concern the very time that is being fired.
    few_timers = st.tuples(st.integers(0, 1), st.integers(0, 4), st.none())

    def change(how_many: int) -> None:
        for _ in range(how_many):
            timer = data.draw(few_timers)
            if data.draw(st.booleans()):
                queue.register([timer[1]], [timer[2]], [timer[0]])
                model.add(timer)
            else:
                queue.delete(timer[1], timer[2], timer[0])
                model.discard(timer)

    change(12)
    for _ in range(data.draw(st.integers(1, 15))):
        now = data.draw(st.integers(0, 1))
        expected = min((timer for timer in model if timer[0] <= now), key=order_of, default=None)
        assert expected == queue.pop_next(now)
        if expected is not None:
            model.remove(expected)
        assert queue.next_time() == min((timer[0] for timer in model), default=None)
        change(data.draw(st.integers(0, 3)))
    remaining = sorted((timer for timer in model if timer[0] <= 4), key=order_of)
    assert remaining == queue.pop_due(4)


def test_many_due_times_come_out_in_order(make: Maker) -> None:
    """The bulk path for many distinct times gives the same order as the heap, and leaves a working heap."""
    queue = service(make).event_time
    times = [(i * 7919) % 1009 for i in range(1000)]
    queue.register(list(range(1000)), [None] * 1000, times)
    fired = queue.pop_due(500)
    queue.register([1, 2], [None, None], [3, 700])
    rest = queue.pop_due(2000)

    assert [timer[0] for timer in fired] == sorted(time for time in times if time <= 500)
    assert [timer[0] for timer in rest] == sorted([time for time in times if time > 500] + [3, 700])


def test_event_and_processing_time_do_not_mix(make: Maker) -> None:
    """The two domains of a service, and two services, are separate sets."""
    backend = make()
    one, other = backend.timer_service("one"), backend.timer_service("other")
    one.event_time.add(1, None, 5)
    one.processing_time.add(1, None, 6)
    other.processing_time.register([1], [None], [7])
    other.event_time.delete(1, None, 5)
    one.processing_time.delete(1, None, 7)

    assert backend.timer_service("one") is one
    assert (one.event_time.next_time(), one.processing_time.next_time(), other.processing_time.next_time()) == (5, 6, 7)
    assert other.event_time.next_time() is None
    assert one.processing_time.pop_next(6) == (6, 1, None)
    assert other.processing_time.pop_due(7) == [(7, 1, None)]
    assert one.event_time.pop_next(4) is None


def test_services_made_before_a_restore_see_the_restored_timers(make: Maker) -> None:
    """An operator may ask for its timers before its state is restored."""
    backend = make()
    backend.timer_service("t").event_time.add(1, "w", 5)
    taken = make.world.snapshot(backend)
    fresh = make()
    early = fresh.timer_service("t")
    fresh.restore(taken.handles, taken.reader)

    assert early.event_time.pop_due(5) == [(5, 1, "w")]


@pytest.mark.parametrize("time", [1.0, True, None, 1 << 63, -(1 << 63) - 1])
def test_a_time_must_be_an_int(make: Maker, time: Any) -> None:
    """A float or oversized time is refused before anything changes."""
    timers = service(make)
    with pytest.raises(StateArgumentError, match="int of 64 bits"):
        timers.event_time.add(7, None, time)

    assert len(timers.event_time) == 0
    assert timers.event_time.next_time() is None


def test_a_timer_of_a_foreign_key_is_refused(make: Maker) -> None:
    """Timers belong to key groups as all keyed state does."""
    backend = make(max_parallelism=8, first=0, last=3)
    foreign = next(key for key in range(50) if key_group_for(key, 8) >= 4)
    with pytest.raises(KeyGroupError):
        backend.timer_service("t").event_time.add(foreign, None, 1)
