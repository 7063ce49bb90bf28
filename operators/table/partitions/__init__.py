"""Tables in partitions. Jobs use ``partitioned_file_sink``. ``streaming_file_writer`` writes by ``partitioning``,
``partition_compaction`` merges small files with the machines of ``table_compaction``. ``partition_commit`` commits:
``partition_triggers`` and ``partition_time`` say when, ``commit_policies`` say how.
"""

from __future__ import annotations

from operators.table.partitions.commit_policies import (
    CUSTOM as CUSTOM,
    METASTORE as METASTORE,
    SUCCESS_FILE as SUCCESS_FILE,
    CommitPolicy as CommitPolicy,
    MetastorePolicy as MetastorePolicy,
    PartitionCommitContext as PartitionCommitContext,
    SuccessFilePolicy as SuccessFilePolicy,
    check_policies as check_policies,
    commit_partition as commit_partition,
    commit_policies as commit_policies,
    one_process as one_process,
    open_policies as open_policies,
    policy_kinds as policy_kinds,
)
from operators.table.partitions.metastore import MemoryMetastore as MemoryMetastore, SqliteMetastore as SqliteMetastore
from operators.table.partitions.partition_commit import (
    PartitionCommit as PartitionCommit,
    PartitionCommitterSpec as PartitionCommitterSpec,
)
from operators.table.partitions.partition_time import DefaultPartitionTimeExtractor as DefaultPartitionTimeExtractor
from operators.table.partitions.partitioned_file_sink import (
    PartitionedFileSink as PartitionedFileSink,
    TableCompaction as TableCompaction,
)
from operators.table.partitions.partitioning import (
    NoPartitionError as NoPartitionError,
    PartitionColumns as PartitionColumns,
    TextInPath as TextInPath,
    check_columns as check_columns,
    partition_key as partition_key,
)
