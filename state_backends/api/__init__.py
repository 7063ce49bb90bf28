"""The interface of all keyed state backends, which engine and operators use: the handles of states over the tables of a
backend (``states``, ``tables``), the keys of a backend, the backend of one subtask and its setting, timers, and
operator state.
"""

from __future__ import annotations

from state_backends.api.key_scope import KeyScope as KeyScope
from state_backends.api.keyed_backend import (
    BackendEnvironment as BackendEnvironment,
    KeyedStateBackend as KeyedStateBackend,
    SnapshotHistory as SnapshotHistory,
    StateBackend as StateBackend,
    check_same_kind as check_same_kind,
    load_full as load_full,
)
from state_backends.api.operator_state import (
    OperatorBroadcastState as OperatorBroadcastState,
    OperatorListState as OperatorListState,
    OperatorStateBackend as OperatorStateBackend,
)
from state_backends.api.states import (
    AggregatingState as AggregatingState,
    ListState as ListState,
    MapState as MapState,
    ReducingState as ReducingState,
    ValueState as ValueState,
)
from state_backends.api.tables import (
    BackendEntries as BackendEntries,
    Batch as Batch,
    Entries as Entries,
    First as First,
    Fold as Fold,
    KeyedTable as KeyedTable,
    ListEntries as ListEntries,
    MapEntries as MapEntries,
    Namespaces as Namespaces,
)
from state_backends.api.timers import (
    HeapTimerTable as HeapTimerTable,
    Timer as Timer,
    TimerQueue as TimerQueue,
    TimerService as TimerService,
    check_time as check_time,
)
