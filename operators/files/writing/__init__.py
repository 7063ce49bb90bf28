"""Files that become visible all at once: ``recoverable_writer`` is the port, ``part_files`` meets it with encoded
records, ``bulk_formats`` and ``parquet_format`` write several at once. ``bucket`` and ``subtask_buckets`` keep open
and pending parts, ``bucket_assigners`` and ``rolling_policies`` say where a record goes and when a part ends. After a
restore ``directory_reconciliation`` sees to what failed attempts have left; ``partition_names`` and ``unique_names``
are about names.
"""

from __future__ import annotations

from operators.files.writing.bucket import BUCKET_STATE, Bucket, BucketsListener, BucketState, PartNames, PartSettings
from operators.files.writing.bucket_assigners import (
    BasePathBucketAssigner,
    BucketAssigner,
    BucketContext,
    DateTimeBucketAssigner,
    FunctionBucketAssigner,
)
from operators.files.writing.bulk_formats import BulkTextFormat
from operators.files.writing.directory_reconciliation import (
    COUNTER_STATE,
    PART_COUNTERS,
    RETRACTED,
    DirectoryReconciliation,
    OpenPartFence,
    Patterns,
    RestoredCounters,
    counted_names,
    counter_state,
)
from operators.files.writing.lost_files import report_lost_files
from operators.files.writing.parquet_format import (
    ParquetFormat,
    SchemaMismatchError,
    import_pyarrow,
    read_committed_parquet,
)
from operators.files.writing.part_files import (
    BulkWriter,
    Format,
    LineRows,
    PartEncoder,
    PartFile,
    RecordError,
    RowPart,
    Rows,
    is_bulk,
    line_end_of,
    split_lines,
)
from operators.files.writing.partition_names import (
    DEFAULT_PARTITION_NAME,
    PartitionPathError,
    escape_path_name,
    extract_partition_spec,
    partition_directory,
    partition_path,
    partition_values,
)
from operators.files.writing.recoverable_writer import (
    PendingFile,
    RecoverableStream,
    RecoverableWriter,
    ResumeHandle,
    hidden_inside,
    leads_out,
    name_taken,
    path_inside,
    storage_problems,
)
from operators.files.writing.rolling_policies import (
    CheckpointRollingPolicy,
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    PartFileInfo,
    RollingPolicy,
    TableRollingPolicy,
    check_rolling_policy,
    rolls_on_processing_time,
)
from operators.files.writing.subtask_buckets import Buckets
from operators.files.writing.unique_names import UNIQUE_NAME_PATTERN, UniqueNames, attempt_of

__all__ = [
    "BUCKET_STATE",
    "BasePathBucketAssigner",
    "Bucket",
    "BucketAssigner",
    "BucketContext",
    "BucketState",
    "Buckets",
    "BucketsListener",
    "BulkTextFormat",
    "BulkWriter",
    "COUNTER_STATE",
    "CheckpointRollingPolicy",
    "DEFAULT_PARTITION_NAME",
    "DateTimeBucketAssigner",
    "DefaultRollingPolicy",
    "DirectoryReconciliation",
    "Format",
    "FunctionBucketAssigner",
    "LineRows",
    "OnCheckpointRollingPolicy",
    "OpenPartFence",
    "PART_COUNTERS",
    "ParquetFormat",
    "PartEncoder",
    "PartFile",
    "PartFileInfo",
    "PartNames",
    "PartSettings",
    "PartitionPathError",
    "Patterns",
    "PendingFile",
    "RETRACTED",
    "RecordError",
    "RecoverableStream",
    "RecoverableWriter",
    "RestoredCounters",
    "ResumeHandle",
    "RollingPolicy",
    "RowPart",
    "Rows",
    "SchemaMismatchError",
    "TableRollingPolicy",
    "UNIQUE_NAME_PATTERN",
    "UniqueNames",
    "attempt_of",
    "check_rolling_policy",
    "counted_names",
    "counter_state",
    "escape_path_name",
    "extract_partition_spec",
    "hidden_inside",
    "import_pyarrow",
    "is_bulk",
    "leads_out",
    "line_end_of",
    "name_taken",
    "partition_directory",
    "partition_path",
    "partition_values",
    "path_inside",
    "read_committed_parquet",
    "report_lost_files",
    "rolls_on_processing_time",
    "split_lines",
    "storage_problems",
]
