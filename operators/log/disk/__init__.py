"""A log in files. ``disk_log`` names it in a job and ``disk_transaction_log`` writes it: one ``partition_log`` for each
partition, made of ``log_segments`` of ``record_batches``, and a ``transaction_journal``. ``log_reader`` reads the log
while it is written; ``consumer_groups`` store how far jobs have read.
"""

from __future__ import annotations

from operators.log.disk.consumer_groups import (
    COMMITS_FAILED as COMMITS_FAILED,
    COMMITS_SUCCEEDED as COMMITS_SUCCEEDED,
    GroupOffsets as GroupOffsets,
    consumer_lag as consumer_lag,
)
from operators.log.disk.disk_log import DiskLog as DiskLog, check_log_path as check_log_path
from operators.log.disk.disk_transaction_log import DiskTransactionLog as DiskTransactionLog
from operators.log.disk.log_reader import (
    Extent as Extent,
    PartitionReader as PartitionReader,
    StableEnd as StableEnd,
    committed_records as committed_records,
    entries_of as entries_of,
    extent_of as extent_of,
)
from operators.log.disk.log_settings import (
    FSYNC_APPEND as FSYNC_APPEND,
    FSYNC_NEVER as FSYNC_NEVER,
    LogSettings as LogSettings,
)
from operators.log.disk.topics import (
    check_name as check_name,
    partition_directory as partition_directory,
    partitions_of as partitions_of,
    topics_of as topics_of,
)
