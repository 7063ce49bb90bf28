"""Keyed states by name for user functions: declared once, then the same handle each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from state_backends.api import KeyedStateBackend, ListState, MapState, ReducingState, ValueState
from state_backends.base import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

_Handle = TypeVar("_Handle")


class KeyedStates:
    """The states of the current key. Base of the contexts that user functions get.

    ``prefix`` stands before every name in the backend, so that a user's names cannot collide with the operator's.
    """

    __slots__ = ("_backend", "_handles", "_prefix")

    def __init__(self, backend: KeyedStateBackend, prefix: str = "") -> None:
        self._backend = backend
        self._handles: dict[tuple[str, str], Any] = {}
        self._prefix = prefix

    def value_state(self, name: str, default: Any = None, *, ttl: StateTtlConfig | None = None) -> ValueState:
        """The value state ``name`` of the current key; ``default`` stands for a missing value. With ``ttl`` it
        expires."""
        return self._handle(
            "value", name, lambda of: self._backend.value_state(ValueStateDescriptor(of, default, ttl=ttl))
        )

    def list_state(self, name: str, *, ttl: StateTtlConfig | None = None) -> ListState:
        """The list state ``name`` of the current key."""
        return self._handle("list", name, lambda of: self._backend.list_state(ListStateDescriptor(of, ttl=ttl)))

    def reducing_state(
        self, name: str, reduce: Callable[[Any, Any], Any], *, ttl: StateTtlConfig | None = None
    ) -> ReducingState:
        """The reducing state ``name`` of the current key."""
        return self._handle(
            "reducing", name, lambda of: self._backend.reducing_state(ReducingStateDescriptor(of, reduce, ttl=ttl))
        )

    def map_state(self, name: str, *, ttl: StateTtlConfig | None = None) -> MapState:
        """The map state ``name`` of the current key."""
        return self._handle("map", name, lambda of: self._backend.map_state(MapStateDescriptor(of, ttl=ttl)))

    def _handle(self, kind: str, name: str, declare: Callable[[str], _Handle]) -> _Handle:
        # Declared once: a plain callable asks for its state again with every record.
        handle: _Handle | None = self._handles.get((kind, name))
        if handle is None:
            handle = self._handles[kind, name] = declare(self._prefix + name)
        return handle


class NamespacedStates(KeyedStates):
    """The states of the current key in one namespace, such as a window, which the owner sets before each call.

    A handle refers to the namespace of its last request: get it again in each call.
    """

    __slots__ = ("namespace",)

    def __init__(self, backend: KeyedStateBackend, prefix: str) -> None:
        super().__init__(backend, prefix)
        self.namespace: Any = None

    def _handle(self, kind: str, name: str, declare: Callable[[str], _Handle]) -> _Handle:
        handle: Any = super()._handle(kind, name, declare)
        handle.set_namespace(self.namespace)
        return cast(_Handle, handle)
