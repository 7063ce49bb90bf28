"""The rows that wait in a Spark transform: ``waiting_rows`` keeps them, and ``key_column`` says whose they are."""

from __future__ import annotations

from spark_bridge.waiting.key_column import KeyColumn as KeyColumn
from spark_bridge.waiting.waiting_rows import (
    EVERYTHING as EVERYTHING,
    PeriodRows as PeriodRows,
    WaitingRows as WaitingRows,
    as_batch as as_batch,
)
