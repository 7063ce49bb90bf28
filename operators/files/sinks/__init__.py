"""The exactly-once file sink. Jobs use ``file_sink``. It is one operator (``file_sink_operator``) or several
(``committing_file_sink`` with ``compaction_operators``).
"""

from __future__ import annotations

from operators.files.sinks.file_sink import (
    FileSink as FileSink,
    check_directory as check_directory,
    check_part_names as check_part_names,
    checked_assigner as checked_assigner,
    checked_format as checked_format,
    read_committed as read_committed,
)
from operators.files.sinks.file_sink_operator import FileSinkOperator as FileSinkOperator
