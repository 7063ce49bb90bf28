"""The interfaces of user functions with several methods: aggregates and process functions.

They are separate from the operators, so a job can define its functions without importing operators.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from state_backends.api import ListState, MapState, ReducingState, ValueState


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An incremental aggregate (Flink: ``AggregateFunction``).

    ``create()``          a fresh accumulator, a value that state can hold, not ``None``;
    ``add(acc, value)``   the accumulator with ``value`` in it; may change ``acc``, must return it;
    ``get_result(acc)``   the result so far; must leave ``acc`` as it is;
    ``merge(a, b)``       both accumulators as one; only needed where windows merge;
    ``add_all(accumulators, keys, values)``  for speed: does what ``add`` does for each record of a batch, on the
                          accumulator of its key in a ``Counter``. It must not fail.

    For a result independent of the order of arrival ``add`` must commute: sums of ints do, sums of floats do not.
    """

    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    get_result: Callable[[Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    add_all: Callable[[Counter[Any], Iterable[Any], Iterable[Any]], None] | None = None


class Clocks(Protocol):
    """The times that a user function may read."""

    @property
    def current_watermark_ms(self) -> int:
        """Event time reached by this operator."""

    def processing_time_ms(self) -> int:
        """The virtual clock. Never the wall clock."""


class NamedStates(Protocol):
    """Keyed states by name; a user's names never collide with the operator's."""

    def value_state(self, name: str, default: Any = None) -> ValueState:
        """The value state ``name``, of the key in hand (and of its window, where there is one)."""

    def list_state(self, name: str) -> ListState:
        """The list state ``name``."""

    def reducing_state(self, name: str, reduce: Callable[[Any, Any], Any]) -> ReducingState:
        """The reducing state ``name``."""

    def map_state(self, name: str) -> MapState:
        """The map state ``name``."""


class KeyTimers(Protocol):
    """Timers of the key in hand (and of its window, where there is one)."""

    def register_event_time_timer(self, time_ms: int) -> None:
        """Call ``on_timer`` or the trigger once the watermark has reached ``time_ms``."""

    def delete_event_time_timer(self, time_ms: int) -> None:
        """Forget such a timer; unknown ones are no error."""

    def register_processing_time_timer(self, time_ms: int) -> None:
        """The same once the virtual clock has reached ``time_ms`` or, for a window, has passed it."""

    def delete_processing_time_timer(self, time_ms: int) -> None:
        """Forget such a timer; unknown ones are no error."""


class ProcessContext(Clocks, Protocol):
    """The context of a process function: data about the present record."""

    @property
    def timestamp_ms(self) -> int | None:
        """Event time of the record, ``None`` when the stream carries no timestamps."""

    def side_output(self, tag: str, value: Any) -> None:
        """Send ``value`` to side output ``tag``, with the timestamp of the record in hand."""


class KeyedProcessContext(ProcessContext, NamedStates, KeyTimers, Protocol):
    """The context of a keyed process function: the same, and the state and timers of the current key."""

    @property
    def current_key(self) -> Any:
        """The key of the record or timer in hand."""

    @property
    def time_domain(self) -> str:
        """In ``on_timer``: ``"event"`` or ``"processing"``, the clock of the timer."""


class UserFunction:
    """Base of the functions that users derive. Every subtask and attempt works on its own shallow copy, so attributes
    set in ``open`` are private to it. They are not state: values that must survive a failure belong in declared state.
    """

    def close(self) -> None:
        """Called once at the end, also after a failure."""


class ProcessFunction(UserFunction):
    """A function over single records that may emit any number of records and use side outputs."""

    def open(self, ctx: ProcessContext) -> None:
        """Called once before the first record."""

    def process_element(self, value: Any, ctx: ProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value``; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element(value, ctx)")


class KeyedProcessFunction(UserFunction):
    """A function over the records of one key, with state and timers (Flink: ``KeyedProcessFunction``).

    State handles taken in ``open`` (``self.count = ctx.value_state("count", 0)``) always refer to the current key.
    """

    def open(self, ctx: KeyedProcessContext) -> None:
        """Called once before the first record; there is no current key yet."""

    def process_element(self, value: Any, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit for ``value``; ``None`` for nothing."""
        raise TypeError(f"{type(self).__name__} does not define process_element(value, ctx)")

    def on_timer(self, timestamp_ms: int, ctx: KeyedProcessContext) -> Iterable[Any] | None:
        """The records to emit when a timer of the current key is due; ``None`` for nothing."""
        return None


class _ProcessCallable(KeyedProcessFunction):
    """A plain callable wrapped as a process function; for streams without keys too."""

    def __init__(self, function: Callable[[Any, Any], Iterable[Any] | None]) -> None:
        # On the instance, so that the operator's loop calls the function itself without a detour.
        setattr(self, "process_element", function)  # noqa: B010


Function = TypeVar("Function")


def own_instance(function: Function | type[Function]) -> Function:
    """The function object one subtask works on: an instance of a class, a copy of an instance.

    Flink serialises it for each subtask for the same reason: no other subtask and no later attempt may see the
    attributes that one subtask assigns.
    """
    return function() if isinstance(function, type) else copy.copy(function)


def private_copy(function: Any) -> Any:
    """The same for a function that may be a plain callable, which is wrapped."""
    if isinstance(function, type | ProcessFunction | KeyedProcessFunction):
        return own_instance(function)
    if callable(function):
        return _ProcessCallable(function)
    raise TypeError(
        f"{function!r} is no process function: pass an instance of ProcessFunction or KeyedProcessFunction, "
        "or a callable (value, ctx) -> iterable"
    )
