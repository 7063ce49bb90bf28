"""The state of a window operator per key and window: an accumulator, a reduced value, or all records.

The window is the namespace of the state, given by its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.errors import ConfigurationError
from operators.basic import AggregateFunction
from state_backends.api import KeyedStateBackend
from state_backends.base import AggregatingStateDescriptor, ListStateDescriptor, ReducingStateDescriptor

STATE_NAME = "window-contents"

Keys = Sequence[Any]
Starts = Sequence[int]


class WindowContents:
    """Contents of windows in keyed state.

    :ivar what: the user's function, for errors
    :ivar get_many: the result of each window
    :ivar clear_many: forgets each window
    """

    def __init__(self, state: Any, what: str) -> None:
        self._state, self.what = state, what
        self.get_many: Callable[[Keys, Starts], list[Any]] = state.get_many
        self.clear_many: Callable[[Keys, Starts], None] = state.clear_many

    def add_many(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> None:
        """Add each value to its window. When a user's function raises, ``failed_index`` tells on which."""
        self._state.add_many(keys, starts, values)

    @property
    def failed_index(self) -> int:
        """Where ``add_many`` failed."""
        return getattr(self._state, "failed_index", None) or 0


# Methods, not lambdas: a copy of a run, as an exhaustive check makes them, shares functions with the original.
class _ReducedContents(WindowContents):
    def add_many(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> None:
        self._state.add_many(keys, values, [], starts)


class _AllRecords(WindowContents):
    def add_many(self, keys: Keys, starts: Starts, values: Sequence[Any]) -> None:
        self._state.add_many(keys, values, starts)


def window_contents(
    backend: KeyedStateBackend, aggregate: AggregateFunction | Callable[[Any, Any], Any] | None
) -> WindowContents:
    """The contents that fit ``aggregate``: an aggregate, a reduce function, or ``None`` for all records."""
    check_aggregate(aggregate)
    if aggregate is None:
        return _AllRecords(backend.list_state(ListStateDescriptor(STATE_NAME)), "window")
    if isinstance(aggregate, AggregateFunction):
        accumulators = AggregatingStateDescriptor(
            STATE_NAME, aggregate.create, aggregate.add, aggregate.get_result, aggregate.merge
        )
        return WindowContents(backend.aggregating_state(accumulators), "aggregate function")
    reduced = backend.reducing_state(ReducingStateDescriptor(STATE_NAME, aggregate))
    return _ReducedContents(reduced, "reduce function")


def check_aggregate(aggregate: object) -> None:
    """Refuse objects that cannot compute a window."""
    if aggregate is not None and not isinstance(aggregate, AggregateFunction) and not callable(aggregate):
        raise ConfigurationError(
            f"a window takes an AggregateFunction, a function (a, b) -> a, or None for all records, got {aggregate!r}"
        )
