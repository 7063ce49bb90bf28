"""Operators over a data stream and a broadcast stream (Flink: ``CoBroadcastWithNonKeyedOperator``, ``…KeyedOperator``).

Input 1 is the data, input 2 the broadcast stream, which arrives at every subtask. Broadcast state is operator state in
mode BROADCAST: each subtask snapshots its own copy, and after a change of parallelism each new subtask starts from the
copy of one old one. This requires equal copies at the cut, so its inputs are never unaligned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator, TwoInputOperator
from operators.basic.functions import own_instance
from operators.basic.keyed_process import KeyedContext, KeyedFunctionOperator
from operators.basic.stateless import FunctionOperator, RecordContext, process_each
from operators.basic.two_input_functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from state_backends.api import KeyedStateBackend, OperatorBroadcastState
from state_backends.base import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)


class ReadOnlyView:
    """Broadcast state for the data side. A change there would be in one subtask only, and the copies would differ."""

    __slots__ = ("_state", "contains", "entries", "get", "is_empty", "keys", "values")

    def __init__(self, state: OperatorBroadcastState) -> None:
        self._state = state
        self.get = state.get
        self.contains = state.contains
        self.entries = state.entries
        self.keys = state.keys
        self.values = state.values
        self.is_empty = state.is_empty

    def _refuse(self, *_: Any) -> None:
        raise TypeError(
            f"broadcast state {self._state.name!r} can only be read while data is processed: another subtask would not "
            "see the change. Change it in process_broadcast_element"
        )

    put = put_all = remove = clear = _refuse


class BroadcastStates:
    """The broadcast states that ``broadcast(...)`` declared, by name: writable, and read-only."""

    __slots__ = ("_read_only", "_writable")

    def __init__(self, operator: Operator, names: Sequence[str]) -> None:
        backend = operator.context.operator_backend()
        self._writable = {name: backend.broadcast_state(name) for name in names}
        self._read_only = {name: ReadOnlyView(state) for name, state in self._writable.items()}

    def writable(self, state: MapStateDescriptor | str) -> OperatorBroadcastState:
        """A writable state. Raises ``LookupError`` for one that was not declared."""
        return self._writable[self._declared(state)]

    def read_only(self, state: MapStateDescriptor | str) -> ReadOnlyView:
        """A read-only state. Raises ``LookupError`` for one that was not declared."""
        return self._read_only[self._declared(state)]

    def _declared(self, state: MapStateDescriptor | str) -> str:
        name = state if isinstance(state, str) else state.name
        if name not in self._writable:
            known = ", ".join(map(repr, self._writable))
            raise LookupError(f"there is no broadcast state {name!r}; stream.broadcast(...) declared {known}")
        return name


class _BroadcastContext(RecordContext):
    """``broadcast_state`` gives the states of one side."""

    __slots__ = ("broadcast_state",)

    def __init__(self, operator: Operator, broadcast_state: Callable[[MapStateDescriptor | str], Any]) -> None:
        super().__init__(operator)
        self.broadcast_state = broadcast_state


class BroadcastProcessOperator(FunctionOperator, TwoInputOperator):
    """A broadcast process function over data without keys. ``state_names``: its broadcast states."""

    def __init__(
        self, function: BroadcastProcessFunction | type[BroadcastProcessFunction], state_names: Sequence[str]
    ) -> None:
        super().__init__(own_instance(function))
        self._state_names = tuple(state_names)

    def initialize_state(self) -> None:
        self._states = BroadcastStates(self, self._state_names)
        self._write = _BroadcastContext(self, self._states.writable)

    def _make_context(self) -> RecordContext:
        return _BroadcastContext(self, self._states.read_only)

    def process_batch_1(self, batch: Batch) -> None:
        what = "process_element of broadcast process function"
        process_each(self, what, self.function.process_element, self._ctx, batch)

    def process_batch_2(self, batch: Batch) -> None:
        what = "process_broadcast_element of broadcast process function"
        process_each(self, what, self.function.process_broadcast_element, self._write, batch)

    def process_watermark(self, timestamp_ms: int) -> None:
        self._write.current_watermark_ms = timestamp_ms
        super().process_watermark(timestamp_ms)


class _KeyedReadContext(KeyedContext):
    __slots__ = ("broadcast_state",)

    def __init__(self, operator: KeyedFunctionOperator, backend: KeyedStateBackend, states: BroadcastStates) -> None:
        super().__init__(operator, backend)
        self.broadcast_state = states.read_only


class _KeyedWriteContext(_BroadcastContext):
    __slots__ = ("_backend",)

    def __init__(self, operator: Operator, states: BroadcastStates, backend: KeyedStateBackend) -> None:
        super().__init__(operator, states.writable)
        self._backend = backend

    def apply_to_keyed_state(self, state: StateDescriptor, function: Callable[[Any, Any], None]) -> None:
        handle = _handle(self._backend, state)
        try:
            for key in self._backend.keys(state.name):
                self._backend.set_current_key(key)
                function(key, handle)
        finally:
            self._backend.clear_current_key()


def _handle(backend: KeyedStateBackend, state: StateDescriptor) -> Any:
    """The state of the data side that a descriptor names."""
    match state:
        case ValueStateDescriptor():
            return backend.value_state(state)
        case ListStateDescriptor():
            return backend.list_state(state)
        case MapStateDescriptor():
            return backend.map_state(state)
        case ReducingStateDescriptor():
            return backend.reducing_state(state)
        case AggregatingStateDescriptor():
            return backend.aggregating_state(state)
    raise TypeError(f"apply_to_keyed_state takes a state descriptor such as ValueStateDescriptor('n'), got {state!r}")


class KeyedBroadcastProcessOperator(KeyedFunctionOperator, TwoInputOperator):
    """A broadcast process function over keyed data. ``state_names``: its broadcast states."""

    _what = "keyed broadcast process function"

    def __init__(
        self, function: KeyedBroadcastProcessFunction | type[KeyedBroadcastProcessFunction], state_names: Sequence[str]
    ) -> None:
        super().__init__(own_instance(function))
        self._state_names = tuple(state_names)

    def initialize_state(self) -> None:
        self._states = BroadcastStates(self, self._state_names)
        super().initialize_state()
        self._write = _KeyedWriteContext(self, self._states, self._backend)

    def _make_context(self) -> KeyedContext:
        return _KeyedReadContext(self, self._backend, self._states)

    def process_batch_1(self, batch: Batch) -> None:
        self._process_keyed(self.function.process_element, batch)

    def process_batch_2(self, batch: Batch) -> None:
        # The last key is arbitrary here; a broadcast element does not belong to a key.
        self._backend.clear_current_key()
        self._write.current_watermark_ms = self.clock.watermark_ms
        what = f"process_broadcast_element of {self._what}"
        process_each(self, what, self.function.process_broadcast_element, self._write, batch)
