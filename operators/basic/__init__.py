"""What most jobs use: ``stateless`` transforms, process functions over one and two inputs (``keyed_process``,
``co_process``, ``broadcast_process``), running reductions (``keyed``, ``aggregates``), side outputs, the head of an
iteration, and sinks that need no files. ``functions`` and ``two_input_functions`` are the interfaces of user code,
``keyed_states`` gives it state; an ``acking_function`` settles its records itself,
``function_state`` gives any function operator state, and a ``function_sink`` is made of one.
"""

from __future__ import annotations

from operators.basic import aggregates as aggregates
from operators.basic.acking_function import (
    AckingContext as AckingContext,
    AckingFunction as AckingFunction,
    AckingOperator as AckingOperator,
    RecordFailedError as RecordFailedError,
    TrackedRecord as TrackedRecord,
    is_acking as is_acking,
)
from operators.basic.broadcast_process import (
    BroadcastProcessOperator as BroadcastProcessOperator,
    KeyedBroadcastProcessOperator as KeyedBroadcastProcessOperator,
)
from operators.basic.co_process import (
    CoFlatMapOperator as CoFlatMapOperator,
    CoMapOperator as CoMapOperator,
    CoProcessOperator as CoProcessOperator,
    KeyedCoProcessOperator as KeyedCoProcessOperator,
)
from operators.basic.function_sink import (
    FunctionSink as FunctionSink,
    SinkFunction as SinkFunction,
    SinkFunctionContext as SinkFunctionContext,
)
from operators.basic.function_state import (
    CheckpointedFunction as CheckpointedFunction,
    FunctionState as FunctionState,
    FunctionStateContext as FunctionStateContext,
    FunctionStateOperator as FunctionStateOperator,
    ListCheckpointed as ListCheckpointed,
    has_state as has_state,
    operator_of as operator_of,
)
from operators.basic.functions import (
    AggregateFunction as AggregateFunction,
    Clocks as Clocks,
    KeyedProcessContext as KeyedProcessContext,
    KeyedProcessFunction as KeyedProcessFunction,
    KeyTimers as KeyTimers,
    NamedStates as NamedStates,
    ProcessContext as ProcessContext,
    ProcessFunction as ProcessFunction,
    UserFunction as UserFunction,
    own_instance as own_instance,
)
from operators.basic.keyed import (
    KeyedAggregateOperator as KeyedAggregateOperator,
    ReduceOperator as ReduceOperator,
    refuse_none as refuse_none,
)
from operators.basic.keyed_process import KeyedProcessOperator as KeyedProcessOperator
from operators.basic.keyed_states import KeyedStates as KeyedStates, NamespacedStates as NamespacedStates
from operators.basic.side_output import SideOutputs as SideOutputs
from operators.basic.simple_sinks import (
    CollectedResults as CollectedResults,
    CollectSink as CollectSink,
    CountedRecords as CountedRecords,
    CountingSink as CountingSink,
    DiscardSink as DiscardSink,
    PrintSink as PrintSink,
    SinkOperator as SinkOperator,
)
from operators.basic.stateless import (
    FilterOperator as FilterOperator,
    FlatMapOperator as FlatMapOperator,
    IterationHeadOperator as IterationHeadOperator,
    MapOperator as MapOperator,
    ProcessOperator as ProcessOperator,
    apply_to_all as apply_to_all,
    item_in_hand as item_in_hand,
)
from operators.basic.two_input_functions import (
    BroadcastProcessFunction as BroadcastProcessFunction,
    CoProcessFunction as CoProcessFunction,
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction as KeyedCoProcessFunction,
)
