"""What a keyed state backend offers, whatever keeps the state, and what engine and operators are written against: the
states, the backend of one subtask and its setting, timers, and operator state. ``state_rules`` holds what the states
of all backends have in common.
"""

from __future__ import annotations

from state_backends.api.keyed_backend import (
    AggregatingState,
    KeyedState,
    KeyedStateBackend,
    ListState,
    MapState,
    Namespaces,
    ReducingState,
    ValueState,
)
from state_backends.api.operator_state import OperatorBroadcastState, OperatorListState, OperatorStateBackend
from state_backends.api.state_backend import BackendEnvironment, StateBackend
from state_backends.api.state_rules import (
    KeyContext,
    checked_elements,
    lost_accumulator,
    no_merge_function,
    sorted_map,
)
from state_backends.api.timers import HeapTimerTable, Timer, TimerQueue, TimerService, check_time

__all__ = [
    "AggregatingState",
    "BackendEnvironment",
    "HeapTimerTable",
    "KeyContext",
    "KeyedState",
    "KeyedStateBackend",
    "ListState",
    "MapState",
    "Namespaces",
    "OperatorBroadcastState",
    "OperatorListState",
    "OperatorStateBackend",
    "ReducingState",
    "StateBackend",
    "Timer",
    "TimerQueue",
    "TimerService",
    "ValueState",
    "check_time",
    "checked_elements",
    "lost_accumulator",
    "no_merge_function",
    "sorted_map",
]
