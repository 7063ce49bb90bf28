"""State with time-to-live, as tables over the tables of any backend: the inner table stores pairs ``(last access ms,
content)``. The rules are in :mod:`state_backends.base.ttl_settings`.

An access that meets expired state removes it: a value, an accumulator, single elements of a list, entries of a map. In
Flink a list keeps its expired elements until a clean-up if only some have expired. A reader sees a difference only if
expired state is returned; here each such element is returned once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar

from state_backends.api import Batch, Entries, First, Fold, KeyedTable, ListEntries, MapEntries, Namespaces
from state_backends.base import Expiring, StateDescriptor, StateKind, StateTtlConfig

NowMs = Callable[[], int]
"""The processing time."""

OnAccess = Callable[[int], None]
"""Called at each access, with the number of entries."""

TableT = TypeVar("TableT", bound=KeyedTable)

_BEFORE_ALL_TIMES_MS = -(1 << 63) - 1
"""The limit with which no entry has expired."""


def with_ttl(inner: Any, descriptor: StateDescriptor, now_ms: NowMs, on_access: OnAccess | None = None) -> Any:
    """The table of a state, without expired entries.

    :param inner: stores the pairs
    :param on_access: called at each access with the number of entries
    """
    assert descriptor.ttl is not None
    table: type[_TtlTable[Any]] = TtlEntries
    if descriptor.kind is StateKind.LIST:
        table = TtlListEntries
    elif descriptor.kind is StateKind.MAP:
        table = TtlMapEntries
    return table(inner, descriptor.ttl, now_ms, on_access)


class _TtlTable(Generic[TableT]):
    """The common part of all of them, see :class:`state_backends.api.KeyedTable`."""

    __slots__ = (
        "_inner",
        "_latest_expired_ms",
        "_now_ms",
        "_on_access",
        "_refreshed_by_reading",
        "_returns_expired",
        "codec",
        "name",
        "scope",
    )

    def __init__(self, inner: TableT, config: StateTtlConfig, now_ms: NowMs, on_access: OnAccess | None) -> None:
        self._inner = inner
        self._latest_expired_ms = config.latest_expired_ms
        self._refreshed_by_reading = config.refreshed_by_reading
        self._returns_expired = config.returns_expired
        self._now_ms = now_ms
        self._on_access = on_access
        self.scope = inner.scope
        self.name = inner.name
        self.codec = inner.codec

    def delete(self, namespace: Any) -> None:
        self._access()
        self._inner.delete(namespace)

    def delete_many(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        self._access(len(keys))
        self._inner.delete_many(keys, namespaces)

    def _access(self, entries: int = 1) -> int:
        """Note an access; the time of it."""
        if self._on_access is not None:
            self._on_access(entries)
        return self._now_ms()


class TtlEntries(_TtlTable[Entries]):
    """One value, or accumulator, that expires."""

    __slots__ = ()

    def get(self, namespace: Any) -> Any:
        now = self._access()
        pair: Expiring | None = self._inner.get(namespace)
        if pair is None:
            return None
        if pair[0] <= self._latest_expired_ms(now):
            self._inner.delete(namespace)
            return pair[1] if self._returns_expired else None
        if self._refreshed_by_reading:
            self._inner.put(namespace, (now, pair[1]))
        return pair[1]

    def put(self, namespace: Any, value: Any) -> None:
        now = self._access()
        self._inner.put(namespace, None if value is None else (now, value))

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces, default: Any = None) -> list[Any]:
        now = self._access(len(keys))
        limit = self._latest_expired_ms(now)
        pairs: list[Expiring | None] = self._inner.get_many(keys, namespaces)
        found = [default if pair is None else pair[1] for pair in pairs]
        expired = [index for index, pair in enumerate(pairs) if pair is not None and pair[0] <= limit]
        if expired:
            places = keys if namespaces is None else list(zip(keys, namespaces, strict=True))
            returned = set()
            for index in expired:
                if not self._returns_expired or places[index] in returned:
                    found[index] = default
                returned.add(places[index])
            self._inner.delete_many(_picked(keys, expired), _picked(namespaces, expired))
        if self._refreshed_by_reading:
            living = [index for index, pair in enumerate(pairs) if pair is not None and pair[0] > limit]
            values = [(now, found[index]) for index in living]
            self._inner.put_many(_picked(keys, living), _picked(namespaces, living), values)
        return found

    def put_many(self, keys: Sequence[Any], namespaces: Namespaces, values: Sequence[Any]) -> None:
        now = self._access(len(keys))
        self._inner.put_many(keys, namespaces, [None if value is None else (now, value) for value in values])

    def fold(self, namespace: Any, value: Any, first: First | None, fold: Fold) -> None:
        now = self._access()
        limit = _BEFORE_ALL_TIMES_MS if self._returns_expired else self._latest_expired_ms(now)

        def folded(pair: Expiring, _added: Expiring) -> Expiring:
            if pair[0] > limit:
                return now, fold(pair[1], value)
            return now, value if first is None else first(value)

        begun = None if first is None else lambda _added: (now, first(value))
        self._inner.fold(namespace, (now, value), begun, folded)

    def begin(self, keys: Sequence[Any], namespaces: Namespaces) -> Batch:
        now = self._access(len(keys))
        limit = _BEFORE_ALL_TIMES_MS if self._returns_expired else self._latest_expired_ms(now)
        stored_keys, shards, finish = self._inner.begin(keys, namespaces)

        def finish_pairs(failed: bool, after: Iterable[Any] | None) -> tuple[int, Exception] | None:
            assert finish is not None
            pairs = None if after is None else (None if value is None else (now, value) for value in after)
            return finish(failed, pairs)

        places = zip(shards, stored_keys, strict=True)
        return places, repeat(_Contents(now, limit), len(keys)), finish_pairs if finish is not None else None

    def merge(self, target: Any, sources: Iterable[Any], merge: Fold) -> None:
        """Merge the unexpired entries of some namespaces of the current key into ``target``. If there was one, the
        result counts as accessed now."""
        now = self._access()
        limit = self._latest_expired_ms(now)
        sources = list(sources)
        for namespace in () if self._returns_expired else (target, *sources):
            pair = self._inner.get(namespace)
            if pair is not None and pair[0] <= limit:
                self._inner.delete(namespace)
        self._inner.merge(target, sources, lambda left, right: (now, merge(left[1], right[1])))


class _Contents:
    """The contents of pairs that are found in their shards, each by shard and stored key."""

    __slots__ = ("_limit_ms", "_now")

    def __init__(self, now: int, limit_ms: int) -> None:
        """Contents that are accessed at a time. ``limit_ms``: contents last accessed then or before have expired."""
        self._now = now
        self._limit_ms = limit_ms

    def __getitem__(self, place: tuple[Any, Any]) -> Any:
        shard, stored_key = place
        pair: Expiring = shard[stored_key]
        if pair[0] <= self._limit_ms:
            del shard[stored_key]
            raise KeyError(stored_key)
        return pair[1]

    def __setitem__(self, place: tuple[Any, Any], content: Any) -> None:
        place[0][place[1]] = (self._now, content)

    def __delitem__(self, place: tuple[Any, Any]) -> None:
        del place[0][place[1]]


class TtlListEntries(_TtlTable[ListEntries]):
    """Lists whose elements expire one by one."""

    __slots__ = ()

    def get(self, namespace: Any) -> list[Any] | None:
        now = self._access()
        pairs: list[Expiring] | None = self._inner.get(namespace)
        if pairs is None:
            return None
        living = self._surviving(pairs, now)
        if len(living) < len(pairs) or self._refreshed_by_reading:
            self._inner.put(namespace, living or None)
        return _contents(pairs if self._returns_expired else living)

    def put(self, namespace: Any, value: list[Any] | None) -> None:
        now = self._access()
        self._inner.put(namespace, None if value is None else [(now, element) for element in value])

    def append(self, namespace: Any, element: Any) -> None:
        self._inner.append(namespace, (self._access(), element))

    def extend(self, namespace: Any, elements: list[Any]) -> None:
        now = self._access()
        self._inner.extend(namespace, [(now, element) for element in elements])

    def append_many(self, keys: Sequence[Any], namespaces: Namespaces, elements: list[Any]) -> None:
        now = self._access(len(keys))
        self._inner.append_many(keys, namespaces, [(now, element) for element in elements])

    def get_many(self, keys: Sequence[Any], namespaces: Namespaces, default: Any = None) -> list[Any]:
        now = self._access(len(keys))
        lists: list[list[Expiring] | None] = self._inner.get_many(keys, namespaces)
        rewritten: dict[Any, list[Expiring]] = {}
        places = keys if namespaces is None else zip(keys, namespaces, strict=True)
        found: list[list[Any] | None] = []
        for place, pairs in zip(places, lists, strict=True):
            if pairs is None:
                found.append(default)
                continue
            if place in rewritten:
                # What a record before has returned although it had expired is not returned again.
                found.append(_contents(rewritten[place]))
                continue
            living = self._surviving(pairs, now)
            if len(living) < len(pairs) or self._refreshed_by_reading:
                rewritten[place] = living
            found.append(_contents(pairs if self._returns_expired else living))
        if rewritten:
            self._rewrite(rewritten, has_namespaces=namespaces is not None)
        return found

    def merge(self, target: Any, sources: Iterable[Any], merge: Fold) -> None:
        """Append the lists of some namespaces of the current key to that of ``target``; each element keeps its last
        access."""
        self._access()
        self._inner.merge(target, sources, merge)

    def _surviving(self, pairs: list[Expiring], now: int) -> list[Expiring]:
        """The part that stays in the state after a read."""
        limit = self._latest_expired_ms(now)
        if self._refreshed_by_reading:
            return [(now, element) for stamp, element in pairs if stamp > limit]
        return [pair for pair in pairs if pair[0] > limit]

    def _rewrite(self, lists: dict[Any, list[Expiring]], has_namespaces: bool) -> None:
        """Replace lists by place: a key, or (key, namespace)."""

        def split(places: list[Any]) -> tuple[list[Any], list[Any] | None]:
            return ([key for key, _ in places], [one for _, one in places]) if has_namespaces else (places, None)

        self._inner.delete_many(*split(list(lists)))
        places = [place for place, pairs in lists.items() for _ in pairs]
        if places:
            self._inner.append_many(*split(places), [pair for pairs in lists.values() for pair in pairs])


class TtlMapEntries(_TtlTable[MapEntries]):
    """Maps whose entries expire one by one."""

    __slots__ = ()

    def get(self, namespace: Any, map_key: Any) -> Any:
        pair = self._visit(namespace, map_key)
        return None if pair is None else pair[1]

    def contains(self, namespace: Any, map_key: Any) -> bool:
        """Whether the map has the key. It is an access, as :meth:`get` is."""
        return self._visit(namespace, map_key) is not None

    def put(self, namespace: Any, map_key: Any, value: Any) -> None:
        self._inner.put(namespace, map_key, (self._access(), value))

    def put_all(self, namespace: Any, entries: Mapping[Any, Any]) -> None:
        now = self._access()
        self._inner.put_all(namespace, {map_key: (now, value) for map_key, value in entries.items()})

    def remove(self, namespace: Any, map_key: Any) -> None:
        self._access()
        self._inner.remove(namespace, map_key)

    def items(self, namespace: Any) -> list[tuple[Any, Any]]:
        now = self._access()
        limit = self._latest_expired_ms(now)
        pairs: list[tuple[Any, Expiring]] = self._inner.items(namespace)
        living = [(map_key, pair[1]) for map_key, pair in pairs if pair[0] > limit]
        if len(living) < len(pairs):
            for map_key, pair in pairs:
                if pair[0] <= limit:
                    self._inner.remove(namespace, map_key)
        if self._refreshed_by_reading and living:
            self._inner.put_all(namespace, {map_key: (now, value) for map_key, value in living})
        return [(map_key, pair[1]) for map_key, pair in pairs] if self._returns_expired else living

    def keys(self, namespace: Any) -> list[Any]:
        return [map_key for map_key, _ in self.items(namespace)]

    def values(self, namespace: Any) -> list[Any]:
        return [value for _, value in self.items(namespace)]

    def is_empty(self, namespace: Any) -> bool:
        """Whether a reader would find no entry. It is no access: nothing is refreshed or removed."""
        if self._returns_expired:
            return self._inner.is_empty(namespace)
        limit = self._latest_expired_ms(self._now_ms())
        return all(pair[0] <= limit for pair in self._inner.values(namespace))

    def _visit(self, namespace: Any, map_key: Any) -> Expiring | None:
        now = self._access()
        pair: Expiring | None = self._inner.get(namespace, map_key)
        if pair is None:
            return None
        if pair[0] <= self._latest_expired_ms(now):
            self._inner.remove(namespace, map_key)
            return pair if self._returns_expired else None
        if self._refreshed_by_reading:
            self._inner.put(namespace, map_key, (now, pair[1]))
        return pair


def _picked(items: Any, indexes: list[int]) -> Any:
    """The items at some indexes; ``None`` stays ``None``."""
    return None if items is None else [items[index] for index in indexes]


def _contents(pairs: list[Expiring]) -> list[Any] | None:
    return [element for _, element in pairs] if pairs else None
