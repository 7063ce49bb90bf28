"""State with time-to-live, as a layer over the states of any backend.

The inner state stores pairs ``(last access ms, content)``; see :mod:`state_backends.ttl` for the rules. A backend calls
:func:`with_ttl` where it makes a state; the inner descriptor that it is asked for then has functions over pairs.

Those functions are pure. What is added brings the time with it: ``(now, value)`` adds a value, ``(now,)`` only puts
off the end. So a log of what was added to the inner state, replayed later, gives the very same state.

Whoever meets something expired removes it: a value, an accumulator, single elements of a list, entries of a map. In
Flink a list of which only some elements have expired keeps them until a clean-up; nobody can see a difference unless
expired state is returned, which is then returned once here too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from state_backends.api import ListState, MapState, Namespaces, ValueState
from state_backends.base import (
    IMMUTABLE_TYPES,
    AggregatingStateDescriptor,
    Expiring,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from state_backends.ttl.folding_states import (
    TtlAggregatingState,
    TtlReducingState,
    wrapped_aggregating,
    wrapped_reducing,
)
from state_backends.ttl.layer import NowMs, OnAccess, Places, TtlLayer, picked

DescriptorT = TypeVar("DescriptorT", bound=StateDescriptor)
StateT = TypeVar("StateT")


class TtlValueState(TtlLayer[ValueState]):
    """One value that expires."""

    __slots__ = ("_default", "_default_is_immutable")

    def __init__(
        self, inner: ValueState, config: StateTtlConfig, now_ms: NowMs, on_access: OnAccess | None, default: Any
    ) -> None:
        super().__init__(inner, config, now_ms, on_access)
        self._default = default
        self._default_is_immutable = type(default) in IMMUTABLE_TYPES

    def get(self) -> Any:
        """The value; when it is missing or has expired, a fresh copy of the default."""
        now = self._access()
        pair: Expiring | None = self._inner.get()
        if pair is None:
            return self._fresh_default()
        if pair[0] <= self._config.latest_expired_ms(now):
            self._inner.clear()
            return pair[1] if self._config.returns_expired else self._fresh_default()
        if self._config.refreshed_by_reading:
            self._inner.update((now, pair[1]))
        return pair[1]

    def update(self, value: Any) -> None:
        """Store a value; ``None`` clears."""
        now = self._access()
        self._inner.update(None if value is None else (now, value))

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[Any]:
        """:meth:`get` for each key of a batch."""
        now = self._access(len(keys))
        pairs: list[Expiring | None] = self._inner.get_many(keys, namespaces)
        found = self._visible_many(keys, namespaces, pairs, now)
        if self._config.refreshed_by_reading:
            living = self._living(pairs, now)
            values = [(now, pairs[index][1]) for index in living]  # type: ignore[index]
            self._inner.update_many(picked(keys, living), values, picked(namespaces, living))
        if self._default is None:
            return found
        return [self._fresh_default() if value is None else value for value in found]

    def update_many(self, keys: Sequence[Any], values: Sequence[Any], namespaces: Namespaces = None) -> None:
        """:meth:`update` for each key of a batch, in order."""
        now = self._access(len(keys))
        self._inner.update_many(keys, [None if value is None else (now, value) for value in values], namespaces)

    def _fresh_default(self) -> Any:
        return self._default if self._default_is_immutable else copy.deepcopy(self._default)


class TtlListState(TtlLayer[ListState]):
    """A list whose elements expire one by one."""

    __slots__ = ()

    def get(self) -> list[Any] | None:
        """A copy of the list, without what has expired; ``None`` when nothing is left."""
        now = self._access()
        pairs: list[Expiring] | None = self._inner.get()
        if pairs is None:
            return None
        living = self._surviving(pairs, now)
        if len(living) < len(pairs) or self._config.refreshed_by_reading:
            self._inner.update(living)
        return self._contents(pairs if self._config.returns_expired else living)

    def add(self, element: Any) -> None:
        """Append one element.

        :raises StateArgumentError: when it is ``None``
        """
        self._inner.add(_paired(element, self._access()))

    def add_all(self, elements: Iterable[Any]) -> None:
        """Append elements; none at all changes nothing.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        self._inner.add_all(_all_paired(elements, self._access()))

    def update(self, elements: Iterable[Any]) -> None:
        """Replace the list; with no elements it is cleared.

        :raises StateArgumentError: when the argument or an element is ``None``, before any change
        """
        self._inner.update(_all_paired(elements, self._access()))

    def add_many(self, keys: Sequence[Any], elements: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Append to each key's list the element of the same index.

        :raises StateArgumentError: when an element is ``None``, before any change
        """
        now = self._access(len(keys))
        self._inner.add_many(keys, [_paired(element, now) for element in elements], namespaces)

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> list[list[Any] | None]:
        """:meth:`get` for each key of a batch."""
        now = self._access(len(keys))
        lists: list[list[Expiring] | None] = self._inner.get_many(keys, namespaces)
        rewritten: dict[Any, list[Expiring]] = {}
        places = Places(keys, namespaces)
        found: list[list[Any] | None] = []
        for index, pairs in enumerate(lists):
            if pairs is None:
                found.append(None)
                continue
            place = places[index]
            if place in rewritten:
                # What a record before has returned although it had expired is not returned again.
                found.append(self._contents(rewritten[place]))
                continue
            living = self._surviving(pairs, now)
            if len(living) < len(pairs) or self._config.refreshed_by_reading:
                rewritten[place] = living
            found.append(self._contents(pairs if self._config.returns_expired else living))
        if rewritten:
            self._rewrite(rewritten, has_namespaces=namespaces is not None)
        return found

    def merge_namespaces(self, target: Any, sources: Iterable[Any]) -> None:
        """Append the lists of the source namespaces of the current key to that of ``target``; each element keeps its
        last access."""
        self._access()
        self._inner.merge_namespaces(target, sources)

    def _surviving(self, pairs: list[Expiring], now: int) -> list[Expiring]:
        """What stays in the state behind a read."""
        limit = self._config.latest_expired_ms(now)
        if self._config.refreshed_by_reading:
            return [(now, element) for stamp, element in pairs if stamp > limit]
        return [pair for pair in pairs if pair[0] > limit]

    @staticmethod
    def _contents(pairs: list[Expiring]) -> list[Any] | None:
        return [element for _, element in pairs] if pairs else None

    def _rewrite(self, lists: dict[Any, list[Expiring]], has_namespaces: bool) -> None:
        """Replace lists by place: a key, or (key, namespace)."""

        def split(places: list[Any]) -> tuple[list[Any], list[Any] | None]:
            return ([key for key, _ in places], [one for _, one in places]) if has_namespaces else (places, None)

        self._inner.clear_many(*split(list(lists)))
        keys, namespaces = split([place for place, pairs in lists.items() for _ in pairs])
        if keys:
            self._inner.add_many(keys, [pair for pairs in lists.values() for pair in pairs], namespaces)


class TtlMapState(TtlLayer[MapState]):
    """A map whose entries expire one by one."""

    __slots__ = ()

    def get(self, map_key: Any) -> Any:
        """The value under a map key; ``None`` when it is missing or has expired."""
        pair = self._visit(map_key)
        return None if pair is None else pair[1]

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key. It is an access, as :meth:`get` is."""
        return self._visit(map_key) is not None

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""
        self._inner.put(map_key, (self._access(), value))

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Store several entries; none at all changes nothing."""
        now = self._access()
        self._inner.put_all({map_key: (now, value) for map_key, value in entries.items()})

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there; removing the last one removes the map."""
        self._access()
        self._inner.remove(map_key)

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries that have not expired, in the order of their encoded keys."""
        now = self._access()
        limit = self._config.latest_expired_ms(now)
        pairs: list[tuple[Any, Expiring]] = self._inner.entries()
        living = [(map_key, pair[1]) for map_key, pair in pairs if pair[0] > limit]
        if len(living) < len(pairs):
            for map_key, pair in pairs:
                if pair[0] <= limit:
                    self._inner.remove(map_key)
        if self._config.refreshed_by_reading:
            self._inner.put_all({map_key: (now, value) for map_key, value in living})
        return [(map_key, pair[1]) for map_key, pair in pairs] if self._config.returns_expired else living

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""
        return [map_key for map_key, _ in self.entries()]

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""
        return [value for _, value in self.entries()]

    def is_empty(self) -> bool:
        """Whether a reader would find no entry. It is no access: nothing is refreshed or removed."""
        if self._config.returns_expired:
            return self._inner.is_empty()
        limit = self._config.latest_expired_ms(self._now_ms())
        return all(pair[0] <= limit for pair in self._inner.values())

    def _visit(self, map_key: Any) -> Expiring | None:
        now = self._access()
        pair: Expiring | None = self._inner.get(map_key)
        if pair is None:
            return None
        if pair[0] <= self._config.latest_expired_ms(now):
            self._inner.remove(map_key)
            return pair if self._config.returns_expired else None
        if self._config.refreshed_by_reading:
            self._inner.put(map_key, (now, pair[1]))
        return pair


def _paired(element: Any, now: int) -> Expiring | None:
    # ``None`` passes as it is, for the inner state to refuse.
    return None if element is None else (now, element)


def _all_paired(elements: Iterable[Any], now: int) -> Any:
    # Nothing at all passes as it is too; a caller in plain Python may well hand it over.
    given: Iterable[Any] | None = elements
    return None if given is None else _pairs(elements, now)


def _pairs(elements: Iterable[Any], now: int) -> Iterator[Expiring | None]:
    for element in elements:
        yield _paired(element, now)


def with_ttl(
    make: Callable[[DescriptorT], StateT],
    descriptor: DescriptorT,
    now_ms: NowMs,
    on_access: OnAccess | None = None,
) -> StateT:
    """A state with time-to-live over one that a backend makes.

    :param make: gives the state that stores pairs, for a descriptor that is marked ``ttl_wrapped``
    :param descriptor: of the state; has a ``ttl`` and is not wrapped yet
    :param now_ms: the processing time
    :param on_access: told at each access how many entries it was about
    """
    assert descriptor.needs_ttl
    config = descriptor.ttl
    assert config is not None
    inner: Any = make(cast("DescriptorT", wrapped_descriptor(descriptor, config)))
    layer: Any
    match descriptor:
        case ValueStateDescriptor():
            layer = TtlValueState(inner, config, now_ms, on_access, descriptor.default)
        case ListStateDescriptor():
            layer = TtlListState(inner, config, now_ms, on_access)
        case MapStateDescriptor():
            layer = TtlMapState(inner, config, now_ms, on_access)
        case ReducingStateDescriptor():
            layer = TtlReducingState(inner, config, now_ms, on_access, descriptor.reduce_fn)
        case AggregatingStateDescriptor():
            layer = TtlAggregatingState(inner, config, now_ms, on_access)
        case other:
            raise AssertionError(f"state of kind {other.kind} has no time-to-live")
    return cast("StateT", layer)


def wrapped_descriptor(descriptor: StateDescriptor, config: StateTtlConfig) -> StateDescriptor:
    """The descriptor of the state that stores pairs."""
    match descriptor:
        case ValueStateDescriptor():
            return replace(descriptor, ttl_wrapped=True, default=None)
        case ReducingStateDescriptor():
            return wrapped_reducing(descriptor, config)
        case AggregatingStateDescriptor():
            return wrapped_aggregating(descriptor, config)
        case _:
            return replace(descriptor, ttl_wrapped=True)
