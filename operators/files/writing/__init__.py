"""Files that become visible all at once. ``recoverable_writer`` is the port, and ``part_files`` writes encoded records
to it; ``bulk_formats``, ``parquet_format``, ``avro_format`` (on ``block_format``) and ``orc_format`` write several at
once. ``bucket`` and ``subtask_buckets`` keep open and pending parts. ``bucket_assigners`` and ``rolling_policies`` say
where a record goes and when a part ends. After a restore ``directory_reconciliation`` handles the files of failed
attempts. ``partition_names`` and ``unique_names`` make names.
"""

from __future__ import annotations

from operators.files.writing.avro_format import AvroFormat as AvroFormat, avro_lines as avro_lines
from operators.files.writing.block_format import BlockFormat as BlockFormat, BlockPartWriter as BlockPartWriter
from operators.files.writing.bucket import (
    BUCKET_STATE as BUCKET_STATE,
    Bucket as Bucket,
    BucketsListener as BucketsListener,
    BucketState as BucketState,
    PartNames as PartNames,
    PartSettings as PartSettings,
)
from operators.files.writing.bucket_assigners import (
    DAYS as DAYS,
    JAVA_TOKEN as JAVA_TOKEN,
    MONTHS as MONTHS,
    BasePathBucketAssigner as BasePathBucketAssigner,
    BucketAssigner as BucketAssigner,
    BucketContext as BucketContext,
    DateTimeBucketAssigner as DateTimeBucketAssigner,
    FunctionBucketAssigner as FunctionBucketAssigner,
    zone_of as zone_of,
)
from operators.files.writing.bulk_formats import BulkTextFormat as BulkTextFormat
from operators.files.writing.directory_reconciliation import (
    COUNTER_STATE as COUNTER_STATE,
    PART_COUNTERS as PART_COUNTERS,
    RETRACTED as RETRACTED,
    DirectoryReconciliation as DirectoryReconciliation,
    OpenPartFence as OpenPartFence,
    Patterns as Patterns,
    RestoredCounters as RestoredCounters,
    counted_names as counted_names,
)
from operators.files.writing.lost_files import report_lost_files as report_lost_files
from operators.files.writing.orc_format import OrcFormat as OrcFormat
from operators.files.writing.parquet_format import (
    ParquetFormat as ParquetFormat,
    SchemaMismatchError as SchemaMismatchError,
    read_committed_parquet as read_committed_parquet,
)
from operators.files.writing.part_files import (
    Format as Format,
    LineRows as LineRows,
    PartEncoder as PartEncoder,
    PartFile as PartFile,
    RecordError as RecordError,
    is_bulk as is_bulk,
    line_end_of as line_end_of,
    split_lines as split_lines,
)
from operators.files.writing.partition_names import (
    DEFAULT_PARTITION_NAME as DEFAULT_PARTITION_NAME,
    PartitionPathError as PartitionPathError,
    escape_path_name as escape_path_name,
    extract_partition_spec as extract_partition_spec,
    partition_directory as partition_directory,
    partition_path as partition_path,
    partition_values as partition_values,
)
from operators.files.writing.recoverable_writer import (
    PendingFile as PendingFile,
    RecoverableStream as RecoverableStream,
    RecoverableWriter as RecoverableWriter,
    ResumeHandle as ResumeHandle,
    hidden_inside as hidden_inside,
    leads_out as leads_out,
    path_inside as path_inside,
    storage_problems as storage_problems,
)
from operators.files.writing.rolling_policies import (
    CheckpointRollingPolicy as CheckpointRollingPolicy,
    DefaultRollingPolicy as DefaultRollingPolicy,
    OnCheckpointRollingPolicy as OnCheckpointRollingPolicy,
    PartFileInfo as PartFileInfo,
    RollingPolicy as RollingPolicy,
    TableRollingPolicy as TableRollingPolicy,
    check_rolling_policy as check_rolling_policy,
    rolls_on_processing_time as rolls_on_processing_time,
)
from operators.files.writing.subtask_buckets import Buckets as Buckets
from operators.files.writing.unique_names import (
    UNIQUE_NAME_PATTERN as UNIQUE_NAME_PATTERN,
    UniqueNames as UniqueNames,
    attempt_of as attempt_of,
)
