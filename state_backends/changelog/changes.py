"""The records of the log, and their replay into a backend.

A record is ``[operation, index of the state, keys, namespaces or None, payload]``: one per call, for any number of
keys. For a list an *append* has the elements added, for a map a *put* has the entries written. All other records have
the values stored after the call (after-images), so that a replay never calls a function of the program. Values are
encoded during the call, so later changes of the objects do not change the record.

Records have no key groups: the key group of a key never changes, so a replay into some key groups computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, cast

from state_backends.api import KeyedStateBackend, ListEntries, MapEntries, TimerQueue
from state_backends.base import StateKind, StateTtlConfig
from state_backends.changelog.segment import LoggedStateId
from state_backends.codec import StateCodec
from state_backends.snapshots import MigratingCodec, check_key

PUT = 0
"""Payload: per key the value stored now; ``None`` = none. For lists and for states of one value."""
CLEAR = 1
"""No payload: these keys have no stored value any more."""
APPEND = 2
"""Payload: per key one element, added to its list."""
EXTEND = 3
"""Payload: per key a list of elements, added to its list."""
PUT_ENTRIES = 4
"""Payload: per key a map, whose entries are stored in its map."""
REMOVE_ENTRIES = 5
"""Payload: per key a list of map keys, removed from its map."""
ADD_TIMERS = 6
"""Payload: per key and namespace a time."""
REMOVE_TIMERS = 7
"""Payload: per key and namespace a time."""

TTL_VARIANT = "ttl"
_FOR_EVER = StateTtlConfig(1 << 62)
"""Takes the place of the time-to-live that the program will declare: during a replay no entry may expire."""


class Replay:
    """Applies the records of one segment to a backend."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        states: Sequence[LoggedStateId],
        is_own: Callable[[Any], bool] | None,
        codec: StateCodec,
    ) -> None:
        """``is_own``: whether a key is to be restored, ``None`` = all are. ``codec``: the codec of the records."""
        self._migrated = codec.migrated if isinstance(codec, MigratingCodec) else frozenset()
        self._backend = backend
        self._states = states
        self._is_own = is_own
        self._made: dict[int, Any] = {}

    def apply(self, record: list[Any]) -> None:
        """Apply one record.

        :raises ValueError: when the record does not fit its state
        :raises StateMigrationError: when a namespace or map key in it is a record of another form
        """
        operation, index, keys, namespaces, payload = record
        if any(column is not None and len(column) != len(keys) for column in (namespaces, payload)):
            raise ValueError(f"a change of state {self._states[index].name!r} is not about as many values as keys")
        if self._migrated:
            self._check_keys(operation, self._states[index].name, namespaces or (), payload or ())
        if self._is_own is not None:
            own = [position for position, key in enumerate(keys) if self._is_own(key)]
            if len(own) < len(keys):
                keys, namespaces, payload = (
                    None if column is None else [column[position] for position in own]
                    for column in (keys, namespaces, payload)
                )
        if keys:
            self._apply(operation, index, keys, namespaces, payload)

    def _apply(self, operation: int, index: int, keys: list[Any], namespaces: list[Any] | None, payload: Any) -> None:
        state = self._made.get(index)
        if state is None:
            state = self._made[index] = self._make(self._states[index])
        kind = self._states[index].kind
        if kind is StateKind.TIMERS:
            _apply_to_timers(state, operation, keys, namespaces, payload)
        elif operation == CLEAR:
            state.delete_many(keys, namespaces)
        elif kind is StateKind.MAP:
            self._apply_to_maps(state, operation, keys, namespaces, payload)
        elif kind is not StateKind.LIST:
            _expect(operation, (PUT,), kind.value)
            state.put_many(keys, namespaces, payload)
        elif operation == APPEND:
            state.append_many(keys, namespaces, payload)
        else:
            self._apply_to_lists(state, operation, keys, namespaces, payload)

    def _check_keys(self, operation: int, name: str, namespaces: Iterable[Any], payload: Iterable[Any]) -> None:
        for namespace in namespaces:
            check_key(namespace, f"a namespace of state {name!r}", self._migrated)
        if operation in (PUT_ENTRIES, REMOVE_ENTRIES):
            for map_key in chain.from_iterable(payload):
                check_key(map_key, f"a map key of state {name!r}", self._migrated)

    def _apply_to_lists(
        self, lists: ListEntries, operation: int, keys: list[Any], namespaces: list[Any] | None, payload: Any
    ) -> None:
        _expect(operation, (PUT, EXTEND), "list")
        for namespace, elements in self._one_by_one(keys, namespaces, payload):
            if operation == EXTEND:
                lists.extend(namespace, elements)
            else:
                lists.put(namespace, elements or None)

    def _apply_to_maps(
        self, maps: MapEntries, operation: int, keys: list[Any], namespaces: list[Any] | None, payload: Any
    ) -> None:
        _expect(operation, (PUT_ENTRIES, REMOVE_ENTRIES), "map")
        for namespace, entries in self._one_by_one(keys, namespaces, payload):
            if operation == PUT_ENTRIES:
                maps.put_all(namespace, entries)
            else:
                for map_key in entries:
                    maps.remove(namespace, map_key)

    def _one_by_one(
        self, keys: list[Any], namespaces: list[Any] | None, payload: list[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """Namespace and payload of each key; during each iteration that key is the current one."""
        for key, namespace, one in zip(keys, namespaces or repeat(None, len(keys)), payload, strict=True):
            self._backend.set_current_key(key)
            yield namespace, one

    def _make(self, state: LoggedStateId) -> Any:
        """A table of the backend, or a queue of its timers."""
        if state.kind is StateKind.TIMERS:
            return self._backend.timer_service(state.name).queue(state.variant)
        return self._backend.stored(state.name, state.kind, _FOR_EVER if state.variant == TTL_VARIANT else None)


def _expect(operation: int, possible: tuple[int, ...], kind: str) -> None:
    if operation not in possible:
        raise ValueError(f"operation {operation} on {kind} state")


def _apply_to_timers(
    queue: TimerQueue, operation: int, keys: list[Any], namespaces: list[Any] | None, times: Any
) -> None:
    places = cast("list[Any]", namespaces)
    if operation == ADD_TIMERS:
        queue.register(keys, places, times)
        return
    _expect(operation, (REMOVE_TIMERS,), "timer")
    for key, namespace, time in zip(keys, places, times, strict=True):
        queue.delete(key, namespace, time)
