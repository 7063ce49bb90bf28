"""The connectors of logs in memory and on disk: ``log_sink`` describes a sink (``transactional_log_sink`` and
``plain_log_sink`` write), and ``log_source`` reads a log on disk.
"""

from __future__ import annotations

from operators.log.connectors.log_sink import LogSink as LogSink
from operators.log.connectors.log_source import (
    EARLIEST as EARLIEST,
    LogSource as LogSource,
    check_offsets as check_offsets,
    check_start as check_start,
)
from operators.log.connectors.transactional_log_sink import TransactionalLogSink as TransactionalLogSink
