"""What a record of the log says, and how it is applied to a backend again.

A record is ``[operation, index of the state, keys, namespaces or None, payload]``: one per call, whatever the number
of keys. For a list an *append* says what was added, for a map a *put* which entries; everything else is told by what
was stored afterwards (after-images), so that a replay never calls a function of the program. Values are encoded at
the time of the call: whatever becomes of the objects later, the record stays.

Records do not say key groups: a key has the same one for ever, so a replay into some key groups computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, cast

from state_backends.api import KeyedState, KeyedStateBackend, ListState, MapState, TimerQueue
from state_backends.base import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateKind,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.changelog.segment import LoggedStateId
from state_backends.codec import StateCodec
from state_backends.snapshots import MigratingCodec, check_key

PUT = 0
"""Payload: per key what is stored there now; ``None`` = nothing. For lists and all that holds one value."""
CLEAR = 1
"""No payload: nothing is stored under these keys."""
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
"""Stands for the time-to-live that the program will declare: a replay must not let anything expire."""


def second(_before: Any, after: Any) -> Any:
    """As a reduce or add function: what is added takes the place of what is there."""
    return after


def identity(value: Any) -> Any:
    """As a result function: the accumulator itself."""
    return value


def stored_accumulators(name: str, template: AggregatingStateDescriptor | None = None) -> AggregatingStateDescriptor:
    """A descriptor under which an aggregating state gives its accumulators as they are, and takes them so.

    :param template: what the program has declared, if it has
    """
    ttl, is_wrapped = (None, False) if template is None else (template.ttl, template.ttl_wrapped)
    return AggregatingStateDescriptor(name, _nothing, second, identity, second, ttl=ttl, ttl_wrapped=is_wrapped)


def _nothing() -> None:
    return None


class Replay:
    """Applies the records of one segment to a backend."""

    def __init__(
        self,
        backend: KeyedStateBackend,
        states: Sequence[LoggedStateId],
        is_own: Callable[[Any], bool] | None,
        codec: StateCodec,
    ) -> None:
        """Nothing is applied yet.

        :param is_own: whether a key is to be restored; ``None`` = all are
        :param codec: what has read the records
        """
        self._migrated = codec.migrated if isinstance(codec, MigratingCodec) else frozenset()
        self._backend = backend
        self._states = states
        self._is_own = is_own
        self._made: dict[int, Any] = {}

    def apply(self, record: list[Any]) -> None:
        """Do again what a record says.

        :raises ValueError: when it says something that no state does
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
            state.clear_many(keys, namespaces)
        elif kind is StateKind.LIST:
            self._apply_to_list(state, operation, keys, namespaces, payload)
        elif kind is StateKind.MAP:
            self._apply_to_map(state, operation, keys, namespaces, payload)
        else:
            _expect(operation, (PUT,), kind.value)
            if kind is StateKind.VALUE:
                state.update_many(keys, payload, namespaces)
            elif kind is StateKind.REDUCING:
                state.add_many(keys, payload, [], namespaces)
            else:
                state.add_many(keys, namespaces, payload)

    def _check_keys(self, operation: int, name: str, namespaces: Iterable[Any], payload: Iterable[Any]) -> None:
        for namespace in namespaces:
            check_key(namespace, f"a namespace of state {name!r}", self._migrated)
        if operation in (PUT_ENTRIES, REMOVE_ENTRIES):
            for map_key in chain.from_iterable(payload):
                check_key(map_key, f"a map key of state {name!r}", self._migrated)

    def _apply_to_list(
        self, state: ListState, operation: int, keys: list[Any], namespaces: list[Any] | None, payload: Any
    ) -> None:
        if operation == APPEND:
            state.add_many(keys, payload, namespaces)
            return
        _expect(operation, (PUT, EXTEND), "list")
        for position, key in enumerate(keys):
            self._scope(state, key, namespaces, position)
            if operation == EXTEND:
                state.add_all(payload[position])
            else:
                state.update(payload[position] or [])

    def _apply_to_map(
        self, state: MapState, operation: int, keys: list[Any], namespaces: list[Any] | None, payload: Any
    ) -> None:
        _expect(operation, (PUT_ENTRIES, REMOVE_ENTRIES), "map")
        for position, key in enumerate(keys):
            self._scope(state, key, namespaces, position)
            if operation == PUT_ENTRIES:
                state.put_all(payload[position])
            else:
                for map_key in payload[position]:
                    state.remove(map_key)

    def _scope(self, state: KeyedState, key: Any, namespaces: list[Any] | None, position: int) -> None:
        self._backend.set_current_key(key)
        state.set_namespace(None if namespaces is None else namespaces[position])

    def _make(self, state: LoggedStateId) -> Any:
        """A handle of the backend that stores what it is given."""
        backend, name = self._backend, state.name
        ttl, is_wrapped = (_FOR_EVER, True) if state.variant == TTL_VARIANT else (None, False)
        match state.kind:
            case StateKind.TIMERS:
                service = backend.timer_service(name)
                return service.event_time if state.variant == "event" else service.processing_time
            case StateKind.VALUE:
                return backend.value_state(ValueStateDescriptor(name, ttl=ttl, ttl_wrapped=is_wrapped))
            case StateKind.LIST:
                return backend.list_state(ListStateDescriptor(name, ttl=ttl, ttl_wrapped=is_wrapped))
            case StateKind.MAP:
                return backend.map_state(MapStateDescriptor(name, ttl=ttl, ttl_wrapped=is_wrapped))
            case StateKind.REDUCING:
                return backend.reducing_state(ReducingStateDescriptor(name, second, ttl=ttl, ttl_wrapped=is_wrapped))
            case StateKind.AGGREGATING:
                template = AggregatingStateDescriptor(
                    name, _nothing, second, identity, ttl=ttl, ttl_wrapped=is_wrapped
                )
                return backend.aggregating_state(stored_accumulators(name, template))


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
