"""The connectors of logs in memory and on disk: ``log_sink`` writes (``plain_log_sink`` without transactions), and
``log_source`` reads a log on disk.
"""

from __future__ import annotations

from operators.log.connectors.log_sink import LogSink as LogSink, TransactionalLogSink as TransactionalLogSink
from operators.log.connectors.log_source import (
    EARLIEST as EARLIEST,
    LogSource as LogSource,
    check_offsets as check_offsets,
    check_start as check_start,
)
