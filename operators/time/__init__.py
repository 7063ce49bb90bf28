"""Event time and the wake-ups of operators: ``watermarks`` defines the sources of timestamps and watermarks,
``watermark_generators`` makes them, ``periodic_watermarks`` emits them on a grid of virtual time, ``event_clock`` keeps
the reached time over failures, ``wake_ups`` serves the timers of processing time.
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
    times_for_watermarks as times_for_watermarks,
)
