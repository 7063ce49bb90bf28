"""What all states with time-to-live share: the inner state, the time, and how expired entries of a batch are met."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from state_backends.api import KeyedState, Namespaces
from state_backends.base import Expiring, StateTtlConfig

NowMs = Callable[[], int]
"""The processing time."""

OnAccess = Callable[[int], None]
"""Told about accesses: to how many entries."""

InnerT = TypeVar("InnerT", bound=KeyedState)


class TtlLayer(Generic[InnerT]):
    """A state over one that stores pairs of last access time and content."""

    __slots__ = ("_config", "_inner", "_namespace", "_now_ms", "_on_access")

    def __init__(self, inner: InnerT, config: StateTtlConfig, now_ms: NowMs, on_access: OnAccess | None) -> None:
        self._inner = inner
        self._config = config
        self._now_ms = now_ms
        self._on_access = on_access
        self._namespace: Any = None

    def set_namespace(self, namespace: Any) -> None:
        """Scope single access to a namespace; ``None`` = no namespace."""
        self._namespace = namespace
        self._inner.set_namespace(namespace)

    def clear(self) -> None:
        """Remove the entry of the current key and namespace."""
        self._access()
        self._inner.clear()

    def clear_many(self, keys: Sequence[Any], namespaces: Namespaces = None) -> None:
        """Remove the entry of each key (and namespace)."""
        self._access(len(keys))
        self._inner.clear_many(keys, namespaces)

    def _access(self, entries: int = 1) -> int:
        """Note an access; the time of it."""
        if self._on_access is not None:
            self._on_access(entries)
        return self._now_ms()

    def _living(self, pairs: Sequence[Expiring | None], now: int) -> list[int]:
        """The indexes of what is there and has not expired."""
        limit = self._config.latest_expired_ms(now)
        return [index for index, pair in enumerate(pairs) if pair is not None and pair[0] > limit]

    def _visible_many(
        self, keys: Sequence[Any], namespaces: Namespaces, pairs: Sequence[Expiring | None], now: int
    ) -> list[Any]:
        """What the readers of a batch get, ``None`` for nothing; what has expired is removed."""
        limit = self._config.latest_expired_ms(now)
        found = [None if pair is None else pair[1] for pair in pairs]
        expired = [index for index, pair in enumerate(pairs) if pair is not None and pair[0] <= limit]
        if expired:
            places = Places(keys, namespaces)
            returned = set()
            for index in expired:
                if not self._config.returns_expired or places[index] in returned:
                    found[index] = None
                returned.add(places[index])
            self._inner.clear_many(picked(keys, expired), picked(namespaces, expired))
        return found


class Places:
    """The entries that a batch is about: keys, or (key, namespace)."""

    __slots__ = ("_keys", "_namespaces")

    def __init__(self, keys: Sequence[Any], namespaces: Namespaces) -> None:
        self._keys = keys
        self._namespaces = namespaces

    def __getitem__(self, index: int) -> Any:
        return self._keys[index] if self._namespaces is None else (self._keys[index], self._namespaces[index])


def picked(items: Any, indexes: list[int]) -> Any:
    """The items at some indexes; ``None`` stays ``None``."""
    return None if items is None else [items[index] for index in indexes]
