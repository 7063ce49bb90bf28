"""The states of a store backend, by name, and the places of their rows: ids, prefixes of keys, the store itself.

The store is opened at its first use, so a subtask without state makes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from state_backends.api import KeyScope, check_same_kind
from state_backends.base import KeyCache, StateKind, StateTtlConfig
from state_backends.codec import StateCodec
from state_backends.rows import OrderedStore, part_prefix
from state_backends.snapshots import StateId
from state_backends.store.meta import next_state_id
from state_backends.ttl import TtlRowFilter

KEY_CACHE_ENTRIES = 1 << 16
"""The number of keys whose encoding and key group each state remembers; some 150 bytes each."""

_NO_ID = -1


class StatePart:
    """The entries of one state with, or without, a namespace: their name in a snapshot, the id in their rows, and the
    prefix of the rows of a key: key group, state id, encoded key."""

    __slots__ = ("_codec", "_scope", "prefix_of", "state", "state_id")

    def __init__(self, state: StateId, state_id: int, scope: KeyScope, codec: StateCodec) -> None:
        self.state = state
        self.state_id = state_id
        self.prefix_of: dict[Any, bytes] = KeyCache(self._prefix, KEY_CACHE_ENTRIES)
        self._scope = scope
        self._codec = codec

    def _prefix(self, key: Any) -> bytes:
        return part_prefix(self._scope.group_of(key), self.state_id) + self._codec.encode(key, "key")

    def renumber(self, state_id: int) -> None:
        """Give it another id. There must be no row with the old one."""
        self.state_id = state_id
        self.prefix_of.clear()


class StoreTable:
    """One named state: its parts.

    :ivar name: the state's name
    :ivar kind: the kind of state; a name keeps its kind
    :ivar registered: whether the running program has declared it (it may only have been restored)
    :ivar has_ttl: whether the running program has declared it with time-to-live
    :ivar plain: the entries without namespace; for timers, all entries, which always have one
    :ivar namespaced: the entries with namespace; not for timers
    """

    __slots__ = ("_namespaced", "has_ttl", "kind", "name", "plain", "registered")

    def __init__(self, name: str, kind: StateKind, make_part: Callable[[StateId], StatePart]) -> None:
        self.name = name
        self.kind = kind
        self.registered = False
        self.has_ttl = False
        is_timers = kind is StateKind.TIMERS
        self.plain = make_part(StateId(name, is_timers, kind.value))
        self._namespaced = None if is_timers else make_part(StateId(name, True, kind.value))

    @property
    def namespaced(self) -> StatePart:
        assert self._namespaced is not None, "timers have one part"
        return self._namespaced

    def parts(self) -> Iterator[StatePart]:
        yield self.plain
        if self._namespaced is not None:
            yield self._namespaced


class StoreAccess:
    """The common part of all states of a backend: the codec and the store, which is opened at its first use."""

    __slots__ = ("_open_store", "codec", "opened")

    def __init__(self, codec: StateCodec, open_store: Callable[[], OrderedStore]) -> None:
        self.codec = codec
        self.opened: OrderedStore | None = None
        self._open_store = open_store

    def store(self) -> OrderedStore:
        if self.opened is None:
            self.opened = self._open_store()
        return self.opened


class StoreTables:
    """All states that were declared or restored. They get their ids in the order in which they come up."""

    __slots__ = ("_by_name", "_codec", "_last_id", "_scope", "_ttl_filter")

    def __init__(self, scope: KeyScope, codec: StateCodec, ttl_filter: TtlRowFilter) -> None:
        self._by_name: dict[str, StoreTable] = {}
        self._scope = scope
        self._codec = codec
        self._ttl_filter = ttl_filter
        self._last_id = _NO_ID

    def __iter__(self) -> Iterator[StoreTable]:
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def get(self, name: str) -> StoreTable | None:
        return self._by_name.get(name)

    def states(self) -> tuple[tuple[int, StateId], ...]:
        """(state id, state), ascending by id."""
        return tuple(sorted((part.state_id, part.state) for table in self for part in table.parts()))

    def declared(self, name: str, kind: StateKind, ttl: StateTtlConfig | None) -> StoreTable:
        """A state that the running program declares."""
        table = self.registered(name, kind)
        if ttl is not None:
            table.has_ttl = True
            for part in table.parts():
                self._ttl_filter.register(part.state_id, table.kind, ttl)
        return table

    def registered(self, name: str, kind: StateKind) -> StoreTable:
        """A state that the running program uses."""
        table = self._table(name, kind)
        table.registered = True
        return table

    def restored(self, state: StateId) -> StatePart:
        """The part with that name in a snapshot."""
        table = self._table(state.name, StateKind(state.kind))
        return next(part for part in table.parts() if part.state == state)

    def adopt(self, states: tuple[tuple[int, StateId], ...]) -> None:
        """Take over the ids that are in the rows of a store. States declared before have no rows yet: they get new
        ids."""
        known = {state: state_id for state_id, state in states}
        for state in known:
            self.restored(state)
        self._last_id = max(known.values(), default=_NO_ID)
        for table in self._by_name.values():
            assert not table.has_ttl, "state with time-to-live was declared before the restore"
            for part in table.parts():
                part.renumber(known[part.state] if part.state in known else self._next_id())

    def _table(self, name: str, kind: StateKind) -> StoreTable:
        table = self._by_name.get(name)
        if table is None:
            table = self._by_name[name] = StoreTable(name, kind, self._make_part)
        check_same_kind(name, table.kind, kind, registered=table.registered)
        return table

    def _make_part(self, state: StateId) -> StatePart:
        return StatePart(state, self._next_id(), self._scope, self._codec)

    def _next_id(self) -> int:
        self._last_id = next_state_id([self._last_id])
        return self._last_id
