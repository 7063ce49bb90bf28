"""Event time and what wakes an operator up: ``watermarks`` says where timestamps and watermarks come from,
``watermark_generators`` makes and combines them, ``periodic_watermarks`` emits them on a grid of virtual time,
``event_clock`` keeps the time reached over failures, ``wake_ups`` holds the timers of processing time.
"""

from __future__ import annotations

from operators.time.event_clock import EventClock
from operators.time.wake_ups import WakeUps
from operators.time.watermark_generators import IDLENESS, Idleness
from operators.time.watermarks import (
    TimestampsAndWatermarksOperator,
    WatermarkEmitter,
    WatermarkStrategy,
    missing_timestamps,
    stamp,
)

__all__ = [
    "EventClock",
    "IDLENESS",
    "Idleness",
    "TimestampsAndWatermarksOperator",
    "WakeUps",
    "WatermarkEmitter",
    "WatermarkStrategy",
    "missing_timestamps",
    "stamp",
]
