"""What a window with a trigger keeps, one window of the current key at a time.

As in ``window_contents``, one small class for each kind with one face; but a cell is asked for its *contents*, which
may be missing, and for the *result* of contents: a window whose result is ``None`` still has contents, and fires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from operators.basic import AggregateFunction
from operators.windows.contents import STATE_NAME, check_aggregate
from operators.windows.evictors import TimestampedValue
from state_backends.api import KeyedStateBackend
from state_backends.base import AggregatingStateDescriptor, ListStateDescriptor, ReducingStateDescriptor

Aggregate = AggregateFunction | Callable[[Any, Any], Any] | None


class WindowCell(Protocol):
    """Contents of the windows of the current key."""

    what: str
    """The user's function, for errors."""

    def add(self, namespace: Any, value: Any, timestamp_ms: int | None) -> None:
        """Add a record."""

    def get(self, namespace: Any) -> Any:
        """The contents; ``None`` when there are none."""

    def result(self, contents: Any) -> Any:
        """What the contents come to."""

    def clear(self, namespace: Any) -> None:
        """Forget the contents."""

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        """Move the contents of some namespaces to that of ``target``."""


def window_cell(backend: KeyedStateBackend, aggregate: Aggregate) -> WindowCell:
    """The cell that fits ``aggregate``: an aggregate, a reduce function, or ``None`` for all records."""
    check_aggregate(aggregate)
    if aggregate is None:
        return _AllRecords(backend)
    if isinstance(aggregate, AggregateFunction):
        return _Aggregated(backend, aggregate)
    return _Reduced(backend, aggregate)


def _itself(accumulator: Any) -> Any:
    return accumulator


class _Aggregated:
    what = "aggregate function"

    def __init__(self, backend: KeyedStateBackend, function: AggregateFunction) -> None:
        # The state gives the accumulator, so that a result of None is told from no accumulator.
        self._state = backend.aggregating_state(
            AggregatingStateDescriptor(STATE_NAME, function.create, function.add, _itself, function.merge)
        )
        self.result = function.get_result

    def add(self, namespace: Any, value: Any, timestamp_ms: int | None) -> None:
        self._state.set_namespace(namespace)
        self._state.add(value)

    def get(self, namespace: Any) -> Any:
        self._state.set_namespace(namespace)
        return self._state.get()

    def clear(self, namespace: Any) -> None:
        self._state.set_namespace(namespace)
        self._state.clear()

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        self._state.merge_namespaces(target, sources)


class _Reduced:
    what = "reduce function"

    def __init__(self, backend: KeyedStateBackend, function: Callable[[Any, Any], Any]) -> None:
        self._state = backend.reducing_state(ReducingStateDescriptor(STATE_NAME, function))

    def add(self, namespace: Any, value: Any, timestamp_ms: int | None) -> None:
        self._state.set_namespace(namespace)
        self._state.add(value)

    def get(self, namespace: Any) -> Any:
        self._state.set_namespace(namespace)
        return self._state.get()

    def result(self, contents: Any) -> Any:
        return contents

    def clear(self, namespace: Any) -> None:
        self._state.set_namespace(namespace)
        self._state.clear()

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        self._state.merge_namespaces(target, sources)


class _AllRecords:
    what = "window"

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._state = backend.list_state(ListStateDescriptor(STATE_NAME))

    def add(self, namespace: Any, value: Any, timestamp_ms: int | None) -> None:
        self._state.set_namespace(namespace)
        self._state.add(value)

    def get(self, namespace: Any) -> Any:
        self._state.set_namespace(namespace)
        return self._state.get()

    def result(self, contents: Any) -> Any:
        return contents

    def clear(self, namespace: Any) -> None:
        self._state.set_namespace(namespace)
        self._state.clear()

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        self._state.merge_namespaces(target, sources)


class EvictableCell:
    """All records with their timestamps, for an evictor to choose from; aggregated only when the window fires."""

    def __init__(self, backend: KeyedStateBackend, aggregate: Aggregate) -> None:
        check_aggregate(aggregate)
        self._state = backend.list_state(ListStateDescriptor(STATE_NAME))
        self._aggregate = aggregate
        self.is_reduction = aggregate is not None and not isinstance(aggregate, AggregateFunction)
        """Then no records have no result."""
        if aggregate is None:
            self.what = "window"
        else:
            self.what = "reduce function" if self.is_reduction else "aggregate function"

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

    def result(self, contents: Sequence[TimestampedValue]) -> Any:
        """What the records come to; ``None`` for the reduction of none."""
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

    def clear(self, namespace: Any) -> None:
        """Forget the records."""
        self._state.set_namespace(namespace)
        self._state.clear()

    def merge(self, target: Any, sources: Sequence[Any]) -> None:
        """Append the records of some namespaces to those of ``target``."""
        self._state.merge_namespaces(target, sources)
