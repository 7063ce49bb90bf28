"""Timers: which fires when, the one physical wake-up, and the queue that holds them."""

from __future__ import annotations

from typing import Any, cast

from engine.elements.operator import OperatorContext
from operators.time import WakeUps
from state_backends.api import Timer, TimerQueue, TimerService
from state_backends.base import INT, KeyGroupRange
from state_backends.heap import HeapKeyedStateBackend
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields, steps_with_expectations
from tests.conformance.coordinator.states import keyed_backend

_OPERATIONS: dict[str, set[str]] = {
    "key": {"key"},
    "register_event": {"ns", "time"},
    "delete_event": {"ns", "time"},
    "register_processing": {"ns", "time"},
    "delete_processing": {"ns", "time"},
    "advance_watermark": {"time"},
    "set_processing_time": {"time", "callback_registers"},
}
_END_OF_TIME = 2**62


class _Clock:
    """The part of an operator's context that wake-ups need: it remembers those asked for and not yet due."""

    def __init__(self) -> None:
        self.now_ms = -_END_OF_TIME
        self.asked_ms: list[int] = []

    def processing_time_ms(self) -> int:
        return self.now_ms

    def register_processing_timer(self, time_ms: int) -> None:
        self.asked_ms.append(time_ms)

    def stands_at(self, time_ms: int) -> None:
        self.now_ms = time_ms
        self.asked_ms = [asked for asked in self.asked_ms if asked > time_ms]


class _Timers:
    """The timer service and the wake-ups of one vector.

    Flink has one wake-up at a time: a timer earlier than all others moves it, and deleting timers leaves it where it
    is. Ours cannot be moved: earlier requests stay, find no timer due, and have no effect. So the replay reports the
    wake-up that would be Flink's one, as long as it was requested.
    """

    def __init__(self) -> None:
        self.service: TimerService = keyed_backend().timer_service("timers")
        self._clock = _Clock()
        self._wake_ups = WakeUps(cast(OperatorContext, self._clock), self.service)
        self._key: Any = None
        self._moved_to: int | None = None

    @property
    def physical_timer(self) -> int | None:
        """The one wake-up, ``None`` when none was requested."""
        return self._moved_to if self._moved_to in self._clock.asked_ms else None

    def apply(self, op: Vector) -> list[Timer]:
        """One operation; returns the timers that fire."""
        service, fired = self.service, list[Timer]()
        match op["op"]:
            case "key":
                self._key = op["key"]
            case "register_event":
                service.event_time.add(self._key, op["ns"], op["time"])
            case "delete_event":
                service.event_time.delete(self._key, op["ns"], op["time"])
            case "register_processing":
                self._register_processing(op["ns"], op["time"])
            case "delete_processing":
                service.processing_time.delete(self._key, op["ns"], op["time"])
            case "advance_watermark":
                while (timer := service.event_time.pop_next(op["time"])) is not None:
                    fired.append(timer)
            case "set_processing_time":
                fired = self._processing_time(op["time"], op.get("callback_registers"))
        return fired

    def _register_processing(self, namespace: Any, time: int) -> None:
        earliest = self.service.processing_time.next_time()
        self.service.processing_time.add(self._key, namespace, time)
        self._wake_ups.arm()
        if earliest is None or time < earliest:
            self._moved_to = time

    def _processing_time(self, time: int, callback_registers: int | None) -> list[Timer]:
        if callback_registers is not None and callback_registers <= time:
            raise MalformedVector(f"a timer at {callback_registers} that registers itself anew fires without end")
        fired: list[Timer] = []
        if min(self._clock.asked_ms, default=_END_OF_TIME) <= time:
            while (timer := self.service.processing_time.pop_next(time)) is not None:
                fired.append(timer)
                if callback_registers is not None:
                    self.service.processing_time.add(timer[1], timer[2], callback_registers)
        self._clock.stands_at(time)
        self._wake_ups.passed(time)
        self._wake_ups.arm()
        if self._moved_to is not None and self._moved_to <= time:
            self._moved_to = self.service.processing_time.next_time()
        return fired


def timer_service(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"ops"}, "input")
    check_fields(vector["expect"], {"per_op"}, "expect")
    timers = _Timers()
    for position, op, wanted in steps_with_expectations(given["ops"], vector["expect"]["per_op"]):
        if op["op"] not in _OPERATIONS:
            raise MalformedVector(f"unknown operation {op['op']!r}")
        check_fields(op, {"op", *_OPERATIONS[op["op"]]}, f"operation {op['op']}")
        observed = {
            "fired": timers.apply(op),
            "event_timers": len(timers.service.event_time),
            "processing_timers": len(timers.service.processing_time),
            "physical_timer": timers.physical_timer,
        }
        check_fields(wanted, observed, f"expect of op {position}")
        for name, expected in wanted.items():
            comparison.field(f"op {position} {name}", expected, observed[name], as_set=name == "fired")
    return comparison.finish()


# --- the queue --------------------------------------------------------------------------------------------------------

Element = list[Any]


def _peek(queue: TimerQueue) -> Element | None:
    """The head as ``[key, priority]``: taken out and put back."""
    head = queue.pop_next(_END_OF_TIME)
    if head is None:
        return None
    queue.register([head[1]], [head[2]], [head[0]])
    return [head[1], head[0]]


def key_grouped_priority_queue(vector: Vector) -> list[str]:
    """``key_grouped_priority_queue``: a queue of timers without namespace; the priority is the time."""
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, {"max_parallelism", "elements", "order_by"}, "input")
    maximum = given["max_parallelism"]
    if "desc" in given.get("order_by", ""):
        raise MalformedVector(f"only priorities that ascend are known, not {given['order_by']!r}")
    are_numbers = all(type(key) is int for key, _ in given["elements"])
    backend = HeapKeyedStateBackend(INT if are_numbers else None, maximum, KeyGroupRange(0, maximum - 1))
    queue = backend.timer_service("queue").event_time
    heads = []
    for key, priority in given["elements"]:
        before = _peek(queue)
        queue.register([key], [None], [priority])
        heads.append(before != _peek(queue))
    observed: dict[str, Any] = {
        "add_returns_head_changed": heads,
        "subset_for_key_group": _by_key_group(backend),
        "polls": [],
    }
    for _ in expect.get("polls", ()):
        polled = queue.pop_next(_END_OF_TIME)
        observed["polls"].append(None if polled is None else [polled[1], polled[0]])
    observed |= {"then_peek": _peek(queue), "remaining_size": len(queue), "remove": []}
    for removal in expect.get("remove", ()):
        check_fields(removal, {"element", "returns"}, "a removal")
        before, (key, priority) = _peek(queue), removal["element"]
        queue.delete(key, None, priority)
        observed["remove"].append({"element": [key, priority], "returns": before != _peek(queue)})
    observed["peek_after_remove"] = _peek(queue)
    check_fields(expect, observed, "expect")
    for name, wanted in expect.items():
        if name == "subset_for_key_group":
            groups = wanted.keys() | observed[name].keys()
            for group in sorted(groups):
                subset = observed[name].get(group, [])
                comparison.field(f"subset of key group {group}", wanted.get(group, []), subset, as_set=True)
        else:
            comparison.field(name, wanted, observed[name])
    return comparison.finish()


def _by_key_group(backend: HeapKeyedStateBackend) -> dict[str, list[Element]]:
    """The elements of each key group, in the form that a snapshot holds."""
    found: dict[str, list[Element]] = {}
    for part in backend.sync_prepare_resources(1).parts:
        for group in part.entries.groups_with_entries():
            shard = part.entries.take(group)
            assert shard is not None
            found.setdefault(str(group), []).extend([key, time] for time, key, _ in shard.entries)
    return found


KINDS = {"timer_service": timer_service, "key_grouped_priority_queue": key_grouped_priority_queue}
