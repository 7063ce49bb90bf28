"""The states of a store backend and where their rows are: ids, prefixes of keys, the store itself.

The store is opened at the first use, so that a subtask without state makes no file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from state_backends.api import KeyScope
from state_backends.base import StateKind
from state_backends.codec import StateCodec
from state_backends.rows import OrderedStore, part_prefix
from state_backends.snapshots import StateId

KEY_CACHE_ENTRIES = 1 << 16
"""How many keys each state remembers the encoding and key group of; some 150 bytes each."""


class StatePart:
    """The entries of one state with, or without, a namespace.

    :ivar state: what they are called in a snapshot
    :ivar state_id: stands in their rows
    :ivar prefix_of: key to how its rows begin: key group, state id, encoded key
    """

    __slots__ = ("prefix_of", "state", "state_id")

    def __init__(self, state: StateId, state_id: int, scope: KeyScope, codec: StateCodec) -> None:
        self.state = state
        self.state_id = state_id
        self.prefix_of = PrefixCache(self, scope, codec)

    def renumber(self, state_id: int) -> None:
        """Give it another id. There must be no row with the old one."""
        self.state_id = state_id
        self.prefix_of.clear()


class PrefixCache(dict[Any, bytes]):
    """From a key to how its rows begin; a miss computes it. Emptied when it has grown to its limit."""

    __slots__ = ("_codec", "_part", "_scope")

    def __init__(self, part: StatePart, scope: KeyScope, codec: StateCodec) -> None:
        super().__init__()
        self._part = part
        self._scope = scope
        self._codec = codec

    def __missing__(self, key: Any) -> bytes:
        group = self._scope.group_of(key)
        prefix = part_prefix(group, self._part.state_id) + self._codec.encode(key, "key")
        if len(self) >= KEY_CACHE_ENTRIES:
            self.clear()
        self[key] = prefix
        return prefix


class StoreTable:
    """One named state: its parts.

    :ivar name: the state's name
    :ivar kind: what it holds; a name keeps its kind
    :ivar registered: whether the running program has declared it (it may only have been restored)
    :ivar has_ttl: whether the running program has declared it with time-to-live
    :ivar plain: the entries without namespace; of timers, which always have one, all
    :ivar namespaced: the others; ``None`` for timers
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
        """The entries with a namespace."""
        assert self._namespaced is not None, "timers have one part"
        return self._namespaced

    def parts(self) -> Iterator[StatePart]:
        """Its parts in canonical order."""
        yield self.plain
        if self._namespaced is not None:
            yield self._namespaced


class StoreAccess:
    """What all states of a backend share: the codec, and the store once it is needed.

    :ivar codec: encodes keys and values
    :ivar opened: the store, or ``None`` as long as nothing needed it
    """

    __slots__ = ("_open_store", "codec", "opened")

    def __init__(self, codec: StateCodec, open_store: Callable[[], OrderedStore]) -> None:
        self.codec = codec
        self.opened: OrderedStore | None = None
        self._open_store = open_store

    def store(self) -> OrderedStore:
        """The store, opened at the first call."""
        if self.opened is None:
            self.opened = self._open_store()
        return self.opened
