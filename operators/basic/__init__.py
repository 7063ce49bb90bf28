"""What most jobs use: ``stateless`` transforms, process functions over one and two inputs (``keyed_process``,
``co_process``, ``broadcast_process``), running reductions (``keyed``, ``aggregates``), side outputs, the head of an
iteration, and sinks that need no files. ``functions`` and ``two_input_functions`` are the shapes of user code,
``keyed_states`` is how it reaches state.
"""

from __future__ import annotations

from operators.basic import aggregates
from operators.basic.broadcast_process import BroadcastProcessOperator, KeyedBroadcastProcessOperator
from operators.basic.co_process import CoFlatMapOperator, CoMapOperator, CoProcessOperator, KeyedCoProcessOperator
from operators.basic.functions import (
    AggregateFunction,
    KeyedProcessContext,
    KeyedProcessFunction,
    ProcessContext,
    ProcessFunction,
)
from operators.basic.iteration import IterationHeadOperator
from operators.basic.keyed import KeyedAggregateOperator, ReduceOperator, refuse_none
from operators.basic.keyed_process import KeyedProcessOperator
from operators.basic.keyed_states import KeyedStates, NamespacedStates
from operators.basic.side_output import SideOutputs
from operators.basic.simple_sinks import (
    CollectedResults,
    CollectSink,
    CountedRecords,
    CountingSink,
    PrintSink,
    SinkOperator,
)
from operators.basic.stateless import FilterOperator, FlatMapOperator, MapOperator, ProcessOperator, item_in_hand
from operators.basic.two_input_functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    own_instance,
)

__all__ = [
    "AggregateFunction",
    "BroadcastProcessFunction",
    "BroadcastProcessOperator",
    "CoFlatMapOperator",
    "CoMapOperator",
    "CoProcessFunction",
    "CoProcessOperator",
    "CollectSink",
    "CollectedResults",
    "CountedRecords",
    "CountingSink",
    "FilterOperator",
    "FlatMapOperator",
    "IterationHeadOperator",
    "aggregates",
    "KeyedAggregateOperator",
    "KeyedBroadcastProcessFunction",
    "KeyedBroadcastProcessOperator",
    "KeyedCoProcessFunction",
    "KeyedCoProcessOperator",
    "KeyedProcessContext",
    "KeyedProcessFunction",
    "KeyedProcessOperator",
    "KeyedStates",
    "MapOperator",
    "NamespacedStates",
    "PrintSink",
    "ProcessContext",
    "ProcessFunction",
    "ProcessOperator",
    "ReduceOperator",
    "SideOutputs",
    "SinkOperator",
    "item_in_hand",
    "own_instance",
    "refuse_none",
]
