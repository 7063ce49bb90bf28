"""Windows over keyed streams: ``assigners`` say which windows a record belongs to; ``window_operator`` runs tumbling
and sliding windows a batch at a time; ``triggered_windows`` runs any kind, with ``triggers``, ``evictors`` and
``merging`` sessions. ``contents`` and ``cells`` hold the data of windows, ``contexts`` show it to functions.
"""

from __future__ import annotations

from operators.windows.assigners import (
    EventTimeSessionWindows as EventTimeSessionWindows,
    GlobalWindow as GlobalWindow,
    GlobalWindows as GlobalWindows,
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
    SlidingEventTimeWindows as SlidingEventTimeWindows,
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
    TimeWindow as TimeWindow,
    TumblingEventTimeWindows as TumblingEventTimeWindows,
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
    WindowAssigner as WindowAssigner,
)
from operators.windows.continuous_triggers import (
    ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
)
from operators.windows.evictors import (
    CountEvictor as CountEvictor,
    Evictor as Evictor,
    TimeEvictor as TimeEvictor,
    TimestampedValue as TimestampedValue,
)
from operators.windows.triggered_windows import TriggeredWindowOperator as TriggeredWindowOperator
from operators.windows.triggers import (
    CountTrigger as CountTrigger,
    EventTimeTrigger as EventTimeTrigger,
    NeverTrigger as NeverTrigger,
    ProcessingTimeTrigger as ProcessingTimeTrigger,
    PurgingTrigger as PurgingTrigger,
    Trigger as Trigger,
    TriggerResult as TriggerResult,
)
from operators.windows.window_functions import (
    ProcessAllWindowFunction as ProcessAllWindowFunction,
    ProcessWindowFunction as ProcessWindowFunction,
    WindowContext as WindowContext,
)
from operators.windows.window_operator import (
    SlidingWindowOperator as SlidingWindowOperator,
    WindowOperator as WindowOperator,
    check_window_spec as check_window_spec,
)
