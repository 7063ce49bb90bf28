"""The interfaces of user functions over two streams: co-process functions and broadcast process functions.

A co-process function treats both streams alike. A broadcast process function gets the data, and a broadcast stream
whose elements go to every subtask. It keeps *broadcast state*, maps that are the same in every subtask.

The order of elements of different streams is not defined. A function whose result must not depend on it keeps the
earlier elements in state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from operators.basic.functions import KeyedProcessContext, ProcessContext, UserFunction

if TYPE_CHECKING:
    from state_backends.base import MapStateDescriptor, StateDescriptor


class ReadOnlyBroadcastState(Protocol):
    """Broadcast state for the data side. Do not change values from ``get`` in place, either."""

    def get(self, map_key: Any) -> Any:
        """The value under a map key, or ``None``."""

    def contains(self, map_key: Any) -> bool:
        """Whether the map has the key."""

    def entries(self) -> list[tuple[Any, Any]]:
        """All entries, in the order of their encoded keys."""

    def keys(self) -> list[Any]:
        """All map keys, in the order of their encoding."""

    def values(self) -> list[Any]:
        """All values, in the order of their encoded keys."""

    def is_empty(self) -> bool:
        """Whether the map has no entry."""


class BroadcastState(ReadOnlyBroadcastState, Protocol):
    """Broadcast state for the broadcast side, which may change it (Flink: ``BroadcastState``)."""

    def put(self, map_key: Any, value: Any) -> None:
        """Store one entry."""

    def put_all(self, entries: dict[Any, Any]) -> None:
        """Store several entries."""

    def remove(self, map_key: Any) -> None:
        """Remove an entry if it is there."""

    def clear(self) -> None:
        """Remove all entries."""


class BroadcastReadContext(ProcessContext, Protocol):
    """The context of the data side of a broadcast process function (Flink: ``ReadOnlyContext``)."""

    def broadcast_state(self, state: MapStateDescriptor | str) -> ReadOnlyBroadcastState:
        """The broadcast state of that name, to be read only."""


class KeyedBroadcastReadContext(KeyedProcessContext, Protocol):
    """The same after ``key_by``, with the state and timers of the current key."""

    def broadcast_state(self, state: MapStateDescriptor | str) -> ReadOnlyBroadcastState:
        """The broadcast state of that name, to be read only."""


class BroadcastWriteContext(ProcessContext, Protocol):
    """The context of the broadcast side of a broadcast process function (Flink: ``Context``)."""

    def broadcast_state(self, state: MapStateDescriptor | str) -> BroadcastState:
        """The broadcast state of that name."""


class KeyedBroadcastWriteContext(BroadcastWriteContext, Protocol):
    """The same with keyed data. There is no current key: keyed state can only be reached for all keys at once."""

    def apply_to_keyed_state(self, state: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call ``function(key, state)`` for every key of this subtask with a value in ``state``.

        ``state`` is the descriptor of a state that the data side declared by its name: for ``ctx.value_state("count")``
        it is ``ValueStateDescriptor("count")``. Keys come ordered by key group and encoded key. They are the keys at
        the time of the call, even if the function changes state.
        """


class CoProcessFunction(UserFunction):
    """A function over single records of two streams (Flink: ``CoProcessFunction``)."""

    def open(self, ctx: ProcessContext) -> None:
        """Called once before the first record."""

    def process_element1(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the first stream; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element1(value, ctx)")

    def process_element2(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the second stream; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element2(value, ctx)")


class KeyedCoProcessFunction(UserFunction):
    """A function over the records that two keyed streams have under one key (Flink: ``KeyedCoProcessFunction``).

    Both sides share the state and the timers of the key. State handles are as for ``KeyedProcessFunction``.
    """

    def open(self, ctx: KeyedProcessContext) -> None:
        """Called once before the first record; there is no current key yet."""

    def process_element1(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the first stream; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element1(value, ctx)")

    def process_element2(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the second stream; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element2(value, ctx)")

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit when a timer of the current key is due; ``None`` for nothing."""
        return None


class BroadcastProcessFunction(UserFunction):
    """A function over a stream without keys and a broadcast stream (Flink: ``BroadcastProcessFunction``).

    Every subtask handles all broadcast elements, in the same order when one subtask sent them. For each, all must
    change broadcast state in the same way; this is not checked.
    """

    def open(self, ctx: BroadcastReadContext) -> None:
        """Called once before the first record."""

    def process_element(self, value: Any, ctx: BroadcastReadContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the data; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element(value, ctx)")

    def process_broadcast_element(self, value: Any, ctx: BroadcastWriteContext) -> Iterable[Any] | None:
        """The records to emit for broadcast element ``value``, from each subtask; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_broadcast_element(value, ctx)")


class KeyedBroadcastProcessFunction(UserFunction):
    """A function over a keyed stream and a broadcast stream (Flink: ``KeyedBroadcastProcessFunction``)."""

    def open(self, ctx: KeyedBroadcastReadContext) -> None:
        """Called once before the first record; there is no current key yet."""

    def process_element(self, value: Any, ctx: KeyedBroadcastReadContext) -> Iterable[Any] | None:
        """The records to emit for ``value`` of the data; ``None`` for nothing. It may set timers."""
        raise TypeError(f"{type(self).__name__} does not define process_element(value, ctx)")

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastWriteContext) -> Iterable[Any] | None:
        """The records to emit for broadcast element ``value``, from each subtask; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_broadcast_element(value, ctx)")

    def on_timer(self, timestamp_ms: int, ctx: KeyedBroadcastReadContext) -> Iterable[Any] | None:
        """The records to emit when a timer of the current key is due; ``None`` for nothing."""
        return None
