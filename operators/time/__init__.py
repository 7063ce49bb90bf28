"""Event time and what wakes an operator up: ``watermarks`` says where timestamps and watermarks come from,
``watermark_generators`` makes and combines them, ``periodic_watermarks`` emits them on a grid of virtual time,
``event_clock`` keeps the time reached over failures, ``wake_ups`` holds the timers of processing time.
"""

from __future__ import annotations

from operators.time.event_clock import EventClock as EventClock
from operators.time.wake_ups import WakeUps as WakeUps
from operators.time.watermark_generators import IDLENESS as IDLENESS, Idleness as Idleness
from operators.time.watermarks import (
    TimestampsAndWatermarksOperator as TimestampsAndWatermarksOperator,
    WatermarkEmitter as WatermarkEmitter,
    WatermarkStrategy as WatermarkStrategy,
    missing_timestamps as missing_timestamps,
    stamp as stamp,
)
