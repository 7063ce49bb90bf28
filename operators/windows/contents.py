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
    :ivar add_many: adds each value to its window: keys, starts, values. When a user's function raises,
        ``failed_index`` tells on which
    :ivar get_many: the result of each window
    :ivar clear_many: forgets each window
    """

    def __init__(self, state: Any, what: str, add_many: Callable[[Keys, Starts, Sequence[Any]], object]) -> None:
        self._state, self.what, self.add_many = state, what, add_many
        self.get_many: Callable[[Keys, Starts], list[Any]] = state.get_many
        self.clear_many: Callable[[Keys, Starts], None] = state.clear_many

    @property
    def failed_index(self) -> int:
        """Where ``add_many`` failed."""
        return getattr(self._state, "failed_index", None) or 0


def window_contents(
    backend: KeyedStateBackend, aggregate: AggregateFunction | Callable[[Any, Any], Any] | None
) -> WindowContents:
    """The contents that fit ``aggregate``: an aggregate, a reduce function, or ``None`` for all records."""
    check_aggregate(aggregate)
    if aggregate is None:
        records = backend.list_state(ListStateDescriptor(STATE_NAME))
        return WindowContents(records, "window", lambda keys, starts, values: records.add_many(keys, values, starts))
    if isinstance(aggregate, AggregateFunction):
        accumulators = backend.aggregating_state(
            AggregatingStateDescriptor(
                STATE_NAME, aggregate.create, aggregate.add, aggregate.get_result, aggregate.merge
            )
        )
        return WindowContents(accumulators, "aggregate function", accumulators.add_many)
    reduced = backend.reducing_state(ReducingStateDescriptor(STATE_NAME, aggregate))
    return WindowContents(
        reduced, "reduce function", lambda keys, starts, values: reduced.add_many(keys, values, [], starts)
    )


def check_aggregate(aggregate: object) -> None:
    """Refuse objects that cannot compute a window."""
    if aggregate is not None and not isinstance(aggregate, AggregateFunction) and not callable(aggregate):
        raise ConfigurationError(
            f"a window takes an AggregateFunction, a function (a, b) -> a, or None for all records, got {aggregate!r}"
        )
