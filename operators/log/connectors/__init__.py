"""What a job is given to write to a log in memory or on disk, and to read one on disk: ``log_sink`` (without
transactions ``plain_log_sink``) and ``log_source``.
"""

from __future__ import annotations

from operators.log.connectors.log_sink import LogSink as LogSink, TransactionalLogSink as TransactionalLogSink
from operators.log.connectors.log_source import (
    EARLIEST as EARLIEST,
    LogSource as LogSource,
    check_offsets as check_offsets,
    check_start as check_start,
)
