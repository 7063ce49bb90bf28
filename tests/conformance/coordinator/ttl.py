"""Time-to-live of state: one value, on the heap backend."""

from __future__ import annotations

from typing import Any

from state_backends.base import KeyGroupRange, StateTtlConfig, StateVisibility, UpdateType, ValueStateDescriptor
from state_backends.heap import HeapKeyedStateBackend
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_UPDATE_TYPES = {one.value: one for one in UpdateType}
_VISIBILITIES = {one.value: one for one in StateVisibility}
_FIELDS = {"update": {"op", "time", "value"}, "read": {"op", "time"}}


def _config(given: Vector) -> StateTtlConfig:
    if given["update_type"] not in _UPDATE_TYPES:
        raise MalformedVector(f"unknown update type {given['update_type']!r}")
    if given["visibility"] not in _VISIBILITIES:
        raise MalformedVector(f"unknown visibility {given['visibility']!r}")
    return StateTtlConfig(given["ttl_ms"], _UPDATE_TYPES[given["update_type"]], _VISIBILITIES[given["visibility"]])


class _Clock:
    """The processing time."""

    def __init__(self) -> None:
        self.now_ms = 0

    def read(self) -> int:
        return self.now_ms


def state_ttl(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"ttl_ms", "update_type", "visibility", "events"}, "input")
    check_fields(vector["expect"], {"read_results"}, "expect")
    clock = _Clock()
    backend = HeapKeyedStateBackend(None, 128, KeyGroupRange(0, 127), now_ms=clock.read)
    state = backend.value_state(ValueStateDescriptor("state", ttl=_config(given)))
    backend.set_current_key(1)
    results: list[Any] = []
    for event in given["events"]:
        if event["op"] not in _FIELDS:
            raise MalformedVector(f"unknown operation {event['op']!r}")
        check_fields(event, _FIELDS[event["op"]], "an event")
        clock.now_ms = event["time"]
        if event["op"] == "update":
            state.update(event["value"])
            results.append(None)
        else:
            results.append(state.get())
    comparison.field("read_results", vector["expect"]["read_results"], results)
    return comparison.finish()


KINDS = {"state_ttl": state_ttl}
"""The vectors of this file by kind."""
