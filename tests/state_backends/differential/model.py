"""The model of keyed state: a dict, a set of timers, and how to compare a backend with them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from state_backends.api import KeyedStateBackend
from tests.state_backends.support import COLLECT, LIST, MAP, SUM, VALUE

Entry = tuple[str, int, Any]
"""(state name, key, namespace)."""
STATE_NAMES = ("value", "list", "map", "sum", "collect")
DOMAINS = ("event", "processing")


@dataclass
class Model:
    """Values by (state, key, namespace), and timers as (domain, time, key, namespace)."""

    entries: dict[Entry, Any] = field(default_factory=dict)
    timers: set[tuple[str, int, int, Any]] = field(default_factory=set)

    def copy(self) -> Model:
        """An independent copy."""
        return Model(copy.deepcopy(self.entries), set(self.timers))

    def store(self, entry: Entry, value: Any) -> None:
        """Store a value; an empty one counts as absent."""
        if value is None or value == [] or value == {}:
            self.entries.pop(entry, None)
        else:
            self.entries[entry] = value


class States:
    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.timers = backend.timer_service("t")
        self._states: dict[str, Any] = {
            "value": backend.value_state(VALUE),
            "list": backend.list_state(LIST),
            "map": backend.map_state(MAP),
            "sum": backend.reducing_state(SUM),
            "collect": backend.aggregating_state(COLLECT),
        }

    def at(self, name: str, key: int, namespace: Any) -> Any:
        self.backend.set_current_key(key)
        self._states[name].set_namespace(namespace)
        return self._states[name]

    def __getitem__(self, name: str) -> Any:
        return self._states[name]

    def fill(self, model: Model) -> None:
        """Put the content of a model in, in an order that has nothing to do with how it came about."""
        for (name, key, namespace), value in sorted(model.entries.items(), key=repr, reverse=True):
            state = self.at(name, key, namespace)
            if name == "map":
                for map_key in sorted(value, reverse=True):
                    state.put(map_key, value[map_key])
            elif name == "sum":
                state.add(value)
            elif name == "collect":
                for element in value:
                    state.add(element)
            else:
                state.update(value)
        for domain, time, key, namespace in sorted(model.timers, key=repr, reverse=True):
            if domain == "event":
                self.timers.event_time.add(key, namespace, time)
            else:
                self.timers.processing_time.add(key, namespace, time)

    def check(self, model: Model) -> None:
        """Every entry of the model is here, and no other."""
        for (name, key, namespace), expected in model.entries.items():
            state = self.at(name, key, namespace)
            if name == "map":
                assert dict(state.entries()) == expected
                assert state.keys() == [map_key for map_key, _ in state.entries()]
                assert not state.is_empty()
            else:
                found = state.get()
                assert (list(found) if name == "collect" else found) == expected, (name, key, namespace)
        assert self.backend.num_entries() == len(model.entries)
        for name in STATE_NAMES:
            for namespace in {entry[2] for entry in model.entries}:
                expected_keys = {key for of, key, where in model.entries if (of, where) == (name, namespace)}
                found_keys = self.backend.keys(name, namespace)
                assert len(found_keys) == len(expected_keys)
                assert set(found_keys) == expected_keys
        for domain in DOMAINS:
            times = [time for of, time, _, _ in model.timers if of == domain]
            assert self.num_timers(domain) == len(times)
            assert self.next_time(domain) == min(times, default=None)

    def num_timers(self, domain: str) -> int:
        is_event = domain == "event"
        return len(self.timers.event_time) if is_event else len(self.timers.processing_time)

    def next_time(self, domain: str) -> int | None:
        return self.timers.event_time.next_time() if domain == "event" else self.timers.processing_time.next_time()
