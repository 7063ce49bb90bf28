"""Windows over keyed streams: ``assigners`` say which windows a record belongs to; ``operator`` runs tumbling and
sliding windows a batch at a time; ``triggered_windows`` runs any kind, with ``triggers``, ``evictors`` and
``merging`` sessions. ``contents``, ``cells`` and ``contexts`` are what a window keeps and shows.
"""

from __future__ import annotations

from operators.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from operators.windows.continuous_triggers import ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger
from operators.windows.evictors import CountEvictor, Evictor, TimeEvictor, TimestampedValue
from operators.windows.functions import ProcessAllWindowFunction, ProcessWindowFunction, WindowContext
from operators.windows.operator import SlidingWindowOperator, WindowOperator
from operators.windows.triggered_windows import TriggeredWindowOperator
from operators.windows.triggers import (
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindow",
    "GlobalWindows",
    "NeverTrigger",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SlidingWindowOperator",
    "TimeEvictor",
    "TimeWindow",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TriggeredWindowOperator",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowContext",
    "WindowOperator",
]
