"""Weir: a deterministic stream-processing engine you can stop, crash, rewind and audit.

The public API in one place. Names are loaded when they are first asked for (PEP 562): ``import engine``
loads neither networkx nor click, rich or Spark, and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.elements.batch import Batch
    from engine.elements.columns import ColumnBatch
    from engine.elements.errors import (
        ConfigurationError,
        JobChangedError,
        JobFailedError,
        JobFileError,
        JobGraphError,
        KeyTypeMismatchError,
        MalformedRecordError,
        MissingDependencyError,
        StateError,
        StorageError,
        UserFunctionError,
        WeirError,
    )
    from engine.elements.operator import (
        Operator,
        TwoInputOperator,
    )
    from engine.graph.connected_streams import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
    )
    from engine.graph.job import Job
    from engine.graph.keyed_stream import KeyedStream
    from engine.graph.options import StreamTransform
    from engine.graph.plan import ExecutionPlan
    from engine.graph.stream import Stream
    from engine.graph.windowed_stream import (
        AllWindowedStream,
        WindowedStream,
    )
    from engine.observe.message_counter import MessageCounter
    from engine.protocols.acking.settings import AckingSettings
    from engine.report.messages import MessageCounts, message_counts
    from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
    from engine.runtime.execution import ExecutionResult, run
    from operators.async_io import AsyncContext, AsyncFunction, AsyncResult, AsyncRetryStrategy, AsyncTimeoutError
    from operators.basic import (
        AggregateFunction,
        BroadcastProcessFunction,
        CollectedResults,
        CollectSink,
        CoProcessFunction,
        CountedRecords,
        CountingSink,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessContext,
        KeyedProcessFunction,
        PrintSink,
        ProcessContext,
        ProcessFunction,
        SinkOperator,
        aggregates,
    )
    from operators.columns import (
        ColumnAggregate,
        ColumnGeneratorSource,
        ColumnSource,
        max_of,
        min_of,
        record_count,
        sum_of,
    )
    from operators.databases import (
        DatabaseSink,
        MemoryDatabase,
        PostgresDatabase,
        PostgresSink,
        SqliteDatabase,
        SqliteSink,
        UpsertSink,
    )
    from operators.files.bucketing import BucketingNames, BucketingSink, read_bucketing_output
    from operators.files.compaction import CompactionStrategy
    from operators.files.formats import (
        CsvFormat,
        CsvRowFormat,
        JsonLinesFormat,
        JsonLinesRowFormat,
        TextFormat,
        TextRowFormat,
    )
    from operators.files.reading import FileSource, FixedLengthFormat, ParquetInputFormat
    from operators.files.sinks import FileSink, read_committed
    from operators.files.writing import (
        BasePathBucketAssigner,
        BucketAssigner,
        BucketContext,
        BulkTextFormat,
        CheckpointRollingPolicy,
        DateTimeBucketAssigner,
        DefaultRollingPolicy,
        OnCheckpointRollingPolicy,
        ParquetFormat,
        PartFileInfo,
        RollingPolicy,
        SchemaMismatchError,
        TableRollingPolicy,
        partition_path,
        read_committed_parquet,
    )
    from operators.log.consumer_groups import consumer_lag
    from operators.log.disk_log import DiskLog
    from operators.log.kafka_sink import KafkaSink
    from operators.log.kafka_source import KafkaSource
    from operators.log.log_sink import LogSink
    from operators.log.log_source import LogSource
    from operators.patterns import Pattern
    from operators.ranking import greatest, materialize
    from operators.sources import CollectionSource, GeneratorSource, Pause, SequenceSource
    from operators.table.commit_policies import MetastorePolicy, SuccessFilePolicy
    from operators.table.connector import register_connector, register_format, table_sink, table_source
    from operators.table.metastore import SqliteMetastore
    from operators.table.partition_commit import PartitionCommit
    from operators.table.partition_time import DefaultPartitionTimeExtractor
    from operators.table.partitioned_file_sink import PartitionedFileSink, TableCompaction
    from operators.table.staged_sink import StagedFileSink
    from operators.time import WatermarkStrategy
    from operators.transactions import CommitRequest, CommitRules, Committer, CommittingSink, SinkWriter, WriteError
    from operators.windows import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountEvictor,
        CountTrigger,
        EventTimeSessionWindows,
        EventTimeTrigger,
        Evictor,
        GlobalWindow,
        GlobalWindows,
        NeverTrigger,
        ProcessAllWindowFunction,
        ProcessingTimeSessionWindows,
        ProcessingTimeTrigger,
        ProcessWindowFunction,
        PurgingTrigger,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TimeEvictor,
        TimestampedValue,
        TimeWindow,
        Trigger,
        TriggerResult,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
        WindowAssigner,
    )
    from state_backends.base import (
        BOOL,
        BYTES,
        INT,
        LONG,
        STRING,
        KeyType,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
        tuple_of,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    # building a job
    "Job",
    "Stream",
    "KeyedStream",
    "WindowedStream",
    "StreamTransform",
    "ExecutionPlan",
    # running a job
    "run",
    "RunConfig",
    "CheckpointInterval",
    "CostModel",
    "AckingSettings",
    "MessageCounter",
    "MessageCounts",
    "message_counts",
    "ExecutionResult",
    # time
    "WatermarkStrategy",
    "TumblingEventTimeWindows",
    "TimeWindow",
    # functions and operators
    "aggregates",
    "AggregateFunction",
    "ProcessFunction",
    "ProcessContext",
    "AsyncContext",
    "AsyncFunction",
    "AsyncResult",
    "AsyncRetryStrategy",
    "AsyncTimeoutError",
    "Pattern",
    "greatest",
    "materialize",
    "KeyedProcessFunction",
    "KeyedProcessContext",
    "Operator",
    "Batch",
    # columns
    "ColumnAggregate",
    "ColumnBatch",
    "ColumnGeneratorSource",
    "ColumnSource",
    "max_of",
    "min_of",
    "record_count",
    "sum_of",
    # windows and two inputs
    "BroadcastConnectedStream",
    "BroadcastStream",
    "ConnectedStreams",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "Evictor",
    "TimeEvictor",
    "TimestampedValue",
    "CountTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerResult",
    "BroadcastProcessFunction",
    "CoProcessFunction",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "ProcessAllWindowFunction",
    "ProcessWindowFunction",
    "ListStateDescriptor",
    "MapStateDescriptor",
    "ReducingStateDescriptor",
    "ValueStateDescriptor",
    "TwoInputOperator",
    "AllWindowedStream",
    "EventTimeSessionWindows",
    "GlobalWindow",
    "GlobalWindows",
    "ProcessingTimeSessionWindows",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    # key types
    "INT",
    "LONG",
    "STRING",
    "BYTES",
    "BOOL",
    "KeyType",
    "tuple_of",
    # sources
    "CollectionSource",
    "Pause",
    "SequenceSource",
    "LogSource",
    "KafkaSource",
    "GeneratorSource",
    "FileSource",
    "FixedLengthFormat",
    "ParquetInputFormat",
    "register_connector",
    "register_format",
    "table_sink",
    "table_source",
    "CsvFormat",
    "JsonLinesFormat",
    "TextFormat",
    # sinks
    "CollectSink",
    "CollectedResults",
    "PrintSink",
    "CountingSink",
    "CountedRecords",
    "SinkOperator",
    "CommittingSink",
    "SinkWriter",
    "WriteError",
    "Committer",
    "CommitRequest",
    "CommitRules",
    "FileSink",
    "DiskLog",
    "LogSink",
    "consumer_lag",
    "KafkaSink",
    "CompactionStrategy",
    "partition_path",
    "BasePathBucketAssigner",
    "BucketAssigner",
    "BucketContext",
    "DateTimeBucketAssigner",
    "RollingPolicy",
    "CheckpointRollingPolicy",
    "OnCheckpointRollingPolicy",
    "DefaultRollingPolicy",
    "TableRollingPolicy",
    "PartFileInfo",
    "BulkTextFormat",
    "ParquetFormat",
    "SchemaMismatchError",
    "read_committed_parquet",
    "TextRowFormat",
    "JsonLinesRowFormat",
    "CsvRowFormat",
    "read_committed",
    "BucketingSink",
    "BucketingNames",
    "read_bucketing_output",
    # databases
    "DatabaseSink",
    "SqliteSink",
    "PostgresSink",
    "UpsertSink",
    "SqliteDatabase",
    "PostgresDatabase",
    "MemoryDatabase",
    # tables in partitions
    "PartitionedFileSink",
    "PartitionCommit",
    "SuccessFilePolicy",
    "MetastorePolicy",
    "SqliteMetastore",
    "DefaultPartitionTimeExtractor",
    "TableCompaction",
    "StagedFileSink",
    # errors
    "WeirError",
    "JobGraphError",
    "ConfigurationError",
    "UserFunctionError",
    "MalformedRecordError",
    "KeyTypeMismatchError",
    "StateError",
    "StorageError",
    "JobChangedError",
    "JobFailedError",
    "JobFileError",
    "MissingDependencyError",
]

_ROOMS: dict[str, tuple[str, ...]] = {
    "engine.elements.batch": ("Batch",),
    "engine.elements.columns": ("ColumnBatch",),
    "operators.async_io": ("AsyncContext", "AsyncFunction", "AsyncResult", "AsyncRetryStrategy", "AsyncTimeoutError"),
    "operators.patterns": ("Pattern",),
    "operators.ranking": ("greatest", "materialize"),
    "operators.columns": (
        "ColumnAggregate", "ColumnGeneratorSource", "ColumnSource", "max_of", "min_of", "record_count", "sum_of",
    ),
    "engine.elements.errors": (
        "ConfigurationError", "JobChangedError", "JobFailedError", "JobFileError", "JobGraphError",
        "KeyTypeMismatchError", "MalformedRecordError", "MissingDependencyError", "StateError", "StorageError",
        "UserFunctionError", "WeirError",
    ),
    "engine.elements.operator": ("Operator", "TwoInputOperator"),
    "operators.databases": (
        "DatabaseSink", "MemoryDatabase", "PostgresDatabase", "PostgresSink", "SqliteDatabase", "SqliteSink",
        "UpsertSink",
    ),
    "engine.graph.job": ("Job",),
    "engine.graph.keyed_stream": ("KeyedStream",),
    "engine.graph.options": ("StreamTransform",),
    "engine.graph.plan": ("ExecutionPlan",),
    "engine.graph.stream": ("Stream",),
    "engine.graph.windowed_stream": ("AllWindowedStream", "WindowedStream"),
    "engine.observe.message_counter": ("MessageCounter",),
    "engine.protocols.acking.settings": ("AckingSettings",),
    "engine.report.messages": ("MessageCounts", "message_counts"),
    "engine.runtime.config": ("CheckpointInterval", "CostModel", "RunConfig"),
    "engine.runtime.execution": ("ExecutionResult", "run"),
    "operators.files.writing": (
        "BasePathBucketAssigner", "BucketAssigner", "BucketContext", "BulkTextFormat", "CheckpointRollingPolicy",
        "DateTimeBucketAssigner", "DefaultRollingPolicy", "OnCheckpointRollingPolicy", "ParquetFormat", "PartFileInfo",
        "RollingPolicy", "SchemaMismatchError", "TableRollingPolicy", "partition_path", "read_committed_parquet",
    ),
    "operators.files.bucketing": ("BucketingNames", "BucketingSink", "read_bucketing_output"),
    "operators.table.staged_sink": ("StagedFileSink",),
    "operators.files.formats": (
        "CsvFormat", "CsvRowFormat", "JsonLinesFormat", "JsonLinesRowFormat", "TextFormat", "TextRowFormat",
    ),
    "operators.files.compaction": ("CompactionStrategy",),
    "operators.files.sinks": ("FileSink", "read_committed"),
    "operators.transactions": (
        "CommitRequest", "CommitRules", "Committer", "CommittingSink", "SinkWriter", "WriteError",
    ),
    "operators.files.reading": ("FileSource", "FixedLengthFormat", "ParquetInputFormat"),
    "operators.table.connector": ("register_connector", "register_format", "table_sink", "table_source"),
    "operators.basic": (
        "AggregateFunction", "BroadcastProcessFunction", "CoProcessFunction", "CollectSink", "CollectedResults",
        "CountedRecords", "CountingSink", "KeyedBroadcastProcessFunction", "KeyedCoProcessFunction",
        "KeyedProcessContext", "KeyedProcessFunction", "PrintSink", "ProcessContext", "ProcessFunction", "SinkOperator",
    ),
    "operators.log.consumer_groups": ("consumer_lag",),
    "operators.log.disk_log": ("DiskLog",),
    "operators.log.kafka_sink": ("KafkaSink",),
    "operators.log.kafka_source": ("KafkaSource",),
    "operators.log.log_sink": ("LogSink",),
    "operators.log.log_source": ("LogSource",),
    "operators.sources": ("CollectionSource", "GeneratorSource", "Pause", "SequenceSource"),
    "operators.time": ("WatermarkStrategy",),
    "operators.windows": (
        "ContinuousEventTimeTrigger", "ContinuousProcessingTimeTrigger", "CountEvictor", "CountTrigger",
        "EventTimeSessionWindows", "EventTimeTrigger", "Evictor", "GlobalWindow", "GlobalWindows", "NeverTrigger",
        "ProcessAllWindowFunction", "ProcessWindowFunction", "ProcessingTimeSessionWindows", "ProcessingTimeTrigger",
        "PurgingTrigger", "SlidingEventTimeWindows", "SlidingProcessingTimeWindows", "TimeEvictor", "TimeWindow",
        "TimestampedValue", "Trigger", "TriggerResult", "TumblingEventTimeWindows", "TumblingProcessingTimeWindows",
        "WindowAssigner",
    ),
    "engine.graph.connected_streams": ("BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams"),
    "operators.table.commit_policies": ("MetastorePolicy", "SuccessFilePolicy"),
    "operators.table.metastore": ("SqliteMetastore",),
    "operators.table.partition_commit": ("PartitionCommit",),
    "operators.table.partition_time": ("DefaultPartitionTimeExtractor",),
    "operators.table.partitioned_file_sink": ("PartitionedFileSink", "TableCompaction"),
    "state_backends.base": (
        "BOOL", "BYTES", "INT", "LONG", "STRING", "KeyType", "ListStateDescriptor", "MapStateDescriptor",
        "ReducingStateDescriptor", "ValueStateDescriptor", "tuple_of",
    ),
}
"""Module -> the public names that come from it."""

_MODULES = {"aggregates": "operators.basic.aggregates"}
"""Public names that are modules themselves."""

_HOMES = {name: module for module, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next access finds it without asking here
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
