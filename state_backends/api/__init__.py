"""What a keyed state backend offers, whatever keeps the state, and what engine and operators are written against: the
handles of states over the tables that a backend has (``states``, ``tables``), the keys of a backend, the backend of one
subtask and its setting, timers, and operator state.
"""

from __future__ import annotations

from state_backends.api.key_scope import KeyScope
from state_backends.api.keyed_backend import KeyedStateBackend
from state_backends.api.operator_state import OperatorBroadcastState, OperatorListState, OperatorStateBackend
from state_backends.api.state_backend import BackendEnvironment, StateBackend
from state_backends.api.states import AggregatingState, KeyedState, ListState, MapState, ReducingState, ValueState
from state_backends.api.tables import (
    BackendEntries,
    Batch,
    Entries,
    Finish,
    First,
    Fold,
    KeyedTable,
    ListEntries,
    MapEntries,
    Namespaces,
)
from state_backends.api.timers import HeapTimerTable, Timer, TimerQueue, TimerService, check_time

__all__ = [
    "AggregatingState",
    "BackendEntries",
    "BackendEnvironment",
    "Batch",
    "Entries",
    "Finish",
    "First",
    "Fold",
    "HeapTimerTable",
    "KeyScope",
    "KeyedState",
    "KeyedStateBackend",
    "KeyedTable",
    "ListEntries",
    "ListState",
    "MapEntries",
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
]
