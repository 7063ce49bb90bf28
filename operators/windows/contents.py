"""What a window operator keeps per key and window: an accumulator, a reduced value, or all records.

One small class for each, with one face. The window is the namespace of the state, given by its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from engine.elements.errors import ConfigurationError
from operators.basic import AggregateFunction
from state_backends.api import KeyedStateBackend
from state_backends.base import AggregatingStateDescriptor, ListStateDescriptor, ReducingStateDescriptor

STATE_NAME = "window-contents"


class WindowContents(Protocol):
    """Contents of windows in keyed state."""

    what: str
    """The user's function, for errors."""

    def add_many(self, keys: Sequence[Any], starts: Sequence[int], values: Sequence[Any]) -> None:
        """Add each value to its window. When a user's function raises, ``failed_index`` tells on which."""

    def get_many(self, keys: Sequence[Any], starts: Sequence[int]) -> list[Any]:
        """The result of each window."""

    def clear_many(self, keys: Sequence[Any], starts: Sequence[int]) -> None:
        """Forget each window."""

    @property
    def failed_index(self) -> int:
        """Where ``add_many`` failed."""


def window_contents(
    backend: KeyedStateBackend, aggregate: AggregateFunction | Callable[[Any, Any], Any] | None
) -> WindowContents:
    """The contents that fit ``aggregate``: an aggregate, a reduce function, or ``None`` for all records."""
    check_aggregate(aggregate)
    if aggregate is None:
        return _AllRecords(backend)
    if isinstance(aggregate, AggregateFunction):
        return _Aggregated(backend, aggregate)
    return _Reduced(backend, aggregate)


def check_aggregate(aggregate: object) -> None:
    """Refuse what no window can be computed with."""
    if aggregate is not None and not isinstance(aggregate, AggregateFunction) and not callable(aggregate):
        raise ConfigurationError(
            f"a window takes an AggregateFunction, a function (a, b) -> a, or None for all records, got {aggregate!r}"
        )


class _Aggregated:
    what = "aggregate function"

    def __init__(self, backend: KeyedStateBackend, function: AggregateFunction) -> None:
        self._state = backend.aggregating_state(
            AggregatingStateDescriptor(
                STATE_NAME, function.create, function.add, function.get_result, function.merge
            )
        )

    def add_many(self, keys: Sequence[Any], starts: Sequence[int], values: Sequence[Any]) -> None:
        self._state.add_many(keys, starts, values)

    def get_many(self, keys: Sequence[Any], starts: Sequence[int]) -> list[Any]:
        return self._state.get_many(keys, starts)

    def clear_many(self, keys: Sequence[Any], starts: Sequence[int]) -> None:
        self._state.clear_many(keys, starts)

    @property
    def failed_index(self) -> int:
        return self._state.failed_index or 0


class _Reduced:
    what = "reduce function"

    def __init__(self, backend: KeyedStateBackend, function: Callable[[Any, Any], Any]) -> None:
        self._state = backend.reducing_state(ReducingStateDescriptor(STATE_NAME, function))

    def add_many(self, keys: Sequence[Any], starts: Sequence[int], values: Sequence[Any]) -> None:
        self._state.add_many(keys, values, [], starts)

    def get_many(self, keys: Sequence[Any], starts: Sequence[int]) -> list[Any]:
        return self._state.get_many(keys, starts)

    def clear_many(self, keys: Sequence[Any], starts: Sequence[int]) -> None:
        self._state.clear_many(keys, starts)

    @property
    def failed_index(self) -> int:
        return self._state.failed_index or 0


class _AllRecords:
    what = "window"
    failed_index = 0

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._state = backend.list_state(ListStateDescriptor(STATE_NAME))

    def add_many(self, keys: Sequence[Any], starts: Sequence[int], values: Sequence[Any]) -> None:
        self._state.add_many(keys, values, starts)

    def get_many(self, keys: Sequence[Any], starts: Sequence[int]) -> list[Any]:
        return self._state.get_many(keys, starts)

    def clear_many(self, keys: Sequence[Any], starts: Sequence[int]) -> None:
        self._state.clear_many(keys, starts)
