"""The contents of a window with a trigger, one window of the current key at a time.

A cell gives its *contents*, which may be missing, and the *result* of contents. A window with the result ``None`` still
has contents, and fires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from operators.basic import AggregateFunction
from operators.windows.contents import STATE_NAME, check_aggregate
from operators.windows.evictors import TimestampedValue
from state_backends.api import KeyedStateBackend
from state_backends.base import AggregatingStateDescriptor, ListStateDescriptor, ReducingStateDescriptor

Aggregate = AggregateFunction | Callable[[Any, Any], Any] | None


class WindowCell:
    """Contents of the windows of the current key: an accumulator, a reduced value or all records, in one state.

    :ivar what: the user's function, for errors
    :ivar result: turns contents into the result
    """

    def __init__(self, state: Any, what: str, result: Callable[[Any], Any]) -> None:
        self._state, self.what, self.result = state, what, result

    def add(self, namespace: Any, value: Any, timestamp_ms: int | None) -> None:
        """Add a record."""
        self._state.set_namespace(namespace)
        self._state.add(value)

    def get(self, namespace: Any) -> Any:
        """The contents; ``None`` when there are none."""
        self._state.set_namespace(namespace)
        return self._state.get()

    def clear(self, namespace: Any) -> None:
        """Forget the contents."""
        self._state.set_namespace(namespace)
        self._state.clear()

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        """Move the contents of some namespaces to that of ``target``."""
        self._state.merge_namespaces(target, sources)


def window_cell(backend: KeyedStateBackend, aggregate: Aggregate) -> WindowCell:
    """The cell that fits ``aggregate``: an aggregate, a reduce function, or ``None`` for all records."""
    check_aggregate(aggregate)
    if aggregate is None:
        return WindowCell(backend.list_state(ListStateDescriptor(STATE_NAME)), "window", _itself)
    if isinstance(aggregate, AggregateFunction):
        # The state gives the accumulator, so that a result None differs from no accumulator.
        accumulators = AggregatingStateDescriptor(STATE_NAME, aggregate.create, aggregate.add, _itself, aggregate.merge)
        return WindowCell(backend.aggregating_state(accumulators), "aggregate function", aggregate.get_result)
    reduced = backend.reducing_state(ReducingStateDescriptor(STATE_NAME, aggregate))
    return WindowCell(reduced, "reduce function", _itself)


def _itself(contents: Any) -> Any:
    return contents


class EvictableCell(WindowCell):
    """All records with their timestamps, for an evictor to choose from; aggregated only when the window fires."""

    def __init__(self, backend: KeyedStateBackend, aggregate: Aggregate) -> None:
        check_aggregate(aggregate)
        self._aggregate = aggregate
        self.is_reduction = aggregate is not None and not isinstance(aggregate, AggregateFunction)
        """A reduction of no records has no result."""
        function = "reduce function" if self.is_reduction else "aggregate function"
        records = backend.list_state(ListStateDescriptor(STATE_NAME))
        super().__init__(records, "window" if aggregate is None else function, self._result)

    def add(self, namespace: Any, value: Any, timestamp_ms: int | None) -> None:
        """Add a record."""
        self._state.set_namespace(namespace)
        self._state.add((value, timestamp_ms))

    def get(self, namespace: Any) -> list[TimestampedValue] | None:
        """The records; ``None`` when there are none."""
        self._state.set_namespace(namespace)
        stored = self._state.get()
        return None if stored is None else [TimestampedValue(*one) for one in stored]

    def replace(self, namespace: Any, elements: Sequence[TimestampedValue]) -> None:
        """Keep these records and no others."""
        self._state.set_namespace(namespace)
        self._state.update([tuple(element) for element in elements])

    def _result(self, contents: Sequence[TimestampedValue]) -> Any:
        """The result of the records; ``None`` for the reduction of none."""
        values = [element.value for element in contents]
        aggregate = self._aggregate
        if aggregate is None:
            return values
        if isinstance(aggregate, AggregateFunction):
            accumulator = aggregate.create()
            for value in values:
                accumulator = aggregate.add(accumulator, value)
            return aggregate.get_result(accumulator)
        reduced = values[0] if values else None
        for value in values[1:]:
            reduced = aggregate(reduced, value)
        return reduced
