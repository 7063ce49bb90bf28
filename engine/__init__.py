"""Weir: a deterministic stream-processing engine you can stop, crash, rewind and audit.

The public API in one place. Names are loaded when they are first asked for (PEP 562): ``import engine``
loads neither networkx nor click, rich or Spark, and a program pays only for what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.graph.running import run_jobs_by

if TYPE_CHECKING:
    from engine.elements.batch import Batch as Batch
    from engine.elements.columns import ColumnBatch as ColumnBatch
    from engine.elements.errors import (
        ConfigurationError as ConfigurationError,
        JobChangedError as JobChangedError,
        JobFailedError as JobFailedError,
        JobFileError as JobFileError,
        JobGraphError as JobGraphError,
        KeyTypeMismatchError as KeyTypeMismatchError,
        MalformedRecordError as MalformedRecordError,
        MissingDependencyError as MissingDependencyError,
        StateError as StateError,
        StorageError as StorageError,
        UserFunctionError as UserFunctionError,
        WeirError as WeirError,
    )
    from engine.elements.operator import Operator as Operator, TwoInputOperator as TwoInputOperator
    from engine.graph.connected_streams import (
        BroadcastConnectedStream as BroadcastConnectedStream,
        BroadcastStream as BroadcastStream,
        ConnectedStreams as ConnectedStreams,
    )
    from engine.graph.job import Job as Job
    from engine.graph.keyed_stream import KeyedStream as KeyedStream
    from engine.graph.options import StreamTransform as StreamTransform
    from engine.graph.plan import ExecutionPlan as ExecutionPlan
    from engine.graph.stream import Stream as Stream
    from engine.graph.windowed_stream import AllWindowedStream as AllWindowedStream, WindowedStream as WindowedStream
    from engine.observe.metrics import MessageCounter as MessageCounter
    from engine.protocols.acking.settings import AckingSettings as AckingSettings
    from engine.report.message_counts import MessageCounts as MessageCounts, message_counts as message_counts
    from engine.report.run_result import RunResult as RunResult
    from engine.runtime.config import (
        CheckpointInterval as CheckpointInterval,
        CostModel as CostModel,
        RunConfig as RunConfig,
    )
    from engine.runtime.execution import ExecutionResult as ExecutionResult
    from operators.async_io import (
        AsyncContext as AsyncContext,
        AsyncFunction as AsyncFunction,
        AsyncResult as AsyncResult,
        AsyncRetryStrategy as AsyncRetryStrategy,
        AsyncTimeoutError as AsyncTimeoutError,
    )
    from operators.basic import (
        AckingContext as AckingContext,
        AckingFunction as AckingFunction,
        AggregateFunction as AggregateFunction,
        BroadcastProcessFunction as BroadcastProcessFunction,
        CheckpointedFunction as CheckpointedFunction,
        CollectedResults as CollectedResults,
        CollectSink as CollectSink,
        CoProcessFunction as CoProcessFunction,
        CountedRecords as CountedRecords,
        CountingSink as CountingSink,
        FunctionSink as FunctionSink,
        FunctionStateContext as FunctionStateContext,
        KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction as KeyedCoProcessFunction,
        KeyedProcessContext as KeyedProcessContext,
        KeyedProcessFunction as KeyedProcessFunction,
        ListCheckpointed as ListCheckpointed,
        PrintSink as PrintSink,
        ProcessContext as ProcessContext,
        ProcessFunction as ProcessFunction,
        SinkFunction as SinkFunction,
        SinkFunctionContext as SinkFunctionContext,
        SinkOperator as SinkOperator,
        TrackedRecord as TrackedRecord,
        aggregates as aggregates,
    )
    from operators.columns import (
        ColumnAggregate as ColumnAggregate,
        ColumnGeneratorSource as ColumnGeneratorSource,
        ColumnSource as ColumnSource,
        max_of as max_of,
        mean_of as mean_of,
        min_of as min_of,
        record_count as record_count,
        sum_of as sum_of,
    )
    from operators.databases import (
        DatabaseSink as DatabaseSink,
        MemoryDatabase as MemoryDatabase,
        PostgresDatabase as PostgresDatabase,
        PostgresSink as PostgresSink,
        SqliteDatabase as SqliteDatabase,
        SqliteSink as SqliteSink,
        UpsertSink as UpsertSink,
    )
    from operators.files.bucketing import (
        AvroWriter as AvroWriter,
        BucketingNames as BucketingNames,
        BucketingSink as BucketingSink,
        LineWriter as LineWriter,
        SequenceWriter as SequenceWriter,
        read_bucketing_output as read_bucketing_output,
    )
    from operators.files.compaction import CompactionStrategy as CompactionStrategy
    from operators.files.formats import (
        CsvFormat as CsvFormat,
        CsvRowFormat as CsvRowFormat,
        JsonLinesFormat as JsonLinesFormat,
        JsonLinesRowFormat as JsonLinesRowFormat,
        TextFormat as TextFormat,
        TextRowFormat as TextRowFormat,
    )
    from operators.files.reading import (
        AvroInputFormat as AvroInputFormat,
        FileSource as FileSource,
        FixedLengthFormat as FixedLengthFormat,
        OrcInputFormat as OrcInputFormat,
        ParquetInputFormat as ParquetInputFormat,
    )
    from operators.files.sinks import FileSink as FileSink, read_committed as read_committed
    from operators.files.writing import (
        AvroFormat as AvroFormat,
        BasePathBucketAssigner as BasePathBucketAssigner,
        BucketAssigner as BucketAssigner,
        BucketContext as BucketContext,
        BulkTextFormat as BulkTextFormat,
        CheckpointRollingPolicy as CheckpointRollingPolicy,
        DateTimeBucketAssigner as DateTimeBucketAssigner,
        DefaultRollingPolicy as DefaultRollingPolicy,
        OnCheckpointRollingPolicy as OnCheckpointRollingPolicy,
        OrcFormat as OrcFormat,
        ParquetFormat as ParquetFormat,
        PartFileInfo as PartFileInfo,
        RollingPolicy as RollingPolicy,
        SchemaMismatchError as SchemaMismatchError,
        TableRollingPolicy as TableRollingPolicy,
        partition_path as partition_path,
        read_committed_parquet as read_committed_parquet,
    )
    from operators.log.connectors import LogSink as LogSink, LogSource as LogSource
    from operators.log.disk import DiskLog as DiskLog, consumer_lag as consumer_lag
    from operators.log.kafka import KafkaSink as KafkaSink, KafkaSource as KafkaSource
    from operators.patterns import Pattern as Pattern
    from operators.ranking import greatest as greatest, materialize as materialize
    from operators.sources import (
        CollectionSource as CollectionSource,
        FunctionSource as FunctionSource,
        GeneratorSource as GeneratorSource,
        Pause as Pause,
        SequenceSource as SequenceSource,
        SourceFunction as SourceFunction,
        SourceFunctionContext as SourceFunctionContext,
        SpoutSource as SpoutSource,
    )
    from operators.table.connectors import (
        register_connector as register_connector,
        register_format as register_format,
        table_sink as table_sink,
        table_source as table_source,
    )
    from operators.table.partitions import (
        DefaultPartitionTimeExtractor as DefaultPartitionTimeExtractor,
        MetastorePolicy as MetastorePolicy,
        PartitionCommit as PartitionCommit,
        PartitionedFileSink as PartitionedFileSink,
        SqliteMetastore as SqliteMetastore,
        SuccessFilePolicy as SuccessFilePolicy,
        TableCompaction as TableCompaction,
    )
    from operators.table.staging import StagedFileSink as StagedFileSink
    from operators.time import WatermarkStrategy as WatermarkStrategy
    from operators.transactions import (
        CommitRequest as CommitRequest,
        CommitRules as CommitRules,
        Committer as Committer,
        CommittingSink as CommittingSink,
        SinkWriter as SinkWriter,
        WriteError as WriteError,
    )
    from operators.windows import (
        ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
        CountEvictor as CountEvictor,
        CountTrigger as CountTrigger,
        EventTimeSessionWindows as EventTimeSessionWindows,
        EventTimeTrigger as EventTimeTrigger,
        Evictor as Evictor,
        GlobalWindow as GlobalWindow,
        GlobalWindows as GlobalWindows,
        NeverTrigger as NeverTrigger,
        ProcessAllWindowFunction as ProcessAllWindowFunction,
        ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
        ProcessingTimeTrigger as ProcessingTimeTrigger,
        ProcessWindowFunction as ProcessWindowFunction,
        PurgingTrigger as PurgingTrigger,
        SlidingEventTimeWindows as SlidingEventTimeWindows,
        SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
        TimeEvictor as TimeEvictor,
        TimestampedValue as TimestampedValue,
        TimeWindow as TimeWindow,
        Trigger as Trigger,
        TriggerResult as TriggerResult,
        TumblingEventTimeWindows as TumblingEventTimeWindows,
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
        WindowAssigner as WindowAssigner,
    )
    from state_backends.base import (
        BOOL as BOOL,
        BYTES as BYTES,
        INT as INT,
        LONG as LONG,
        STRING as STRING,
        KeyType as KeyType,
        ListStateDescriptor as ListStateDescriptor,
        MapStateDescriptor as MapStateDescriptor,
        ReducingStateDescriptor as ReducingStateDescriptor,
        ValueStateDescriptor as ValueStateDescriptor,
        tuple_of as tuple_of,
    )

__version__ = "0.1.0"

_ROOMS: dict[str, tuple[str, ...]] = {
    "engine.elements.batch": ("Batch",),
    "engine.elements.columns": ("ColumnBatch",),
    "operators.async_io": ("AsyncContext", "AsyncFunction", "AsyncResult", "AsyncRetryStrategy", "AsyncTimeoutError"),
    "operators.patterns": ("Pattern",),
    "operators.ranking": ("greatest", "materialize"),
    "operators.columns": (
        "ColumnAggregate",
        "ColumnGeneratorSource",
        "ColumnSource",
        "max_of",
        "mean_of",
        "min_of",
        "record_count",
        "sum_of",
    ),
    "engine.elements.errors": (
        "ConfigurationError",
        "JobChangedError",
        "JobFailedError",
        "JobFileError",
        "JobGraphError",
        "KeyTypeMismatchError",
        "MalformedRecordError",
        "MissingDependencyError",
        "StateError",
        "StorageError",
        "UserFunctionError",
        "WeirError",
    ),
    "engine.elements.operator": ("Operator", "TwoInputOperator"),
    "operators.databases": (
        "DatabaseSink",
        "MemoryDatabase",
        "PostgresDatabase",
        "PostgresSink",
        "SqliteDatabase",
        "SqliteSink",
        "UpsertSink",
    ),
    "engine.graph.job": ("Job",),
    "engine.graph.keyed_stream": ("KeyedStream",),
    "engine.graph.options": ("StreamTransform",),
    "engine.graph.plan": ("ExecutionPlan",),
    "engine.graph.stream": ("Stream",),
    "engine.graph.windowed_stream": ("AllWindowedStream", "WindowedStream"),
    "engine.observe.metrics": ("MessageCounter",),
    "engine.protocols.acking.settings": ("AckingSettings",),
    "engine.report.message_counts": ("MessageCounts", "message_counts"),
    "engine.report.run_result": ("RunResult",),
    "engine.runtime.config": ("CheckpointInterval", "CostModel", "RunConfig"),
    "engine.runtime.execution": ("ExecutionResult",),
    "operators.files.writing": (
        "AvroFormat",
        "BasePathBucketAssigner",
        "BucketAssigner",
        "BucketContext",
        "BulkTextFormat",
        "CheckpointRollingPolicy",
        "DateTimeBucketAssigner",
        "DefaultRollingPolicy",
        "OnCheckpointRollingPolicy",
        "OrcFormat",
        "ParquetFormat",
        "PartFileInfo",
        "RollingPolicy",
        "SchemaMismatchError",
        "TableRollingPolicy",
        "partition_path",
        "read_committed_parquet",
    ),
    "operators.files.bucketing": (
        "AvroWriter",
        "BucketingNames",
        "BucketingSink",
        "LineWriter",
        "SequenceWriter",
        "read_bucketing_output",
    ),
    "operators.table.staging": ("StagedFileSink",),
    "operators.files.formats": (
        "CsvFormat",
        "CsvRowFormat",
        "JsonLinesFormat",
        "JsonLinesRowFormat",
        "TextFormat",
        "TextRowFormat",
    ),
    "operators.files.compaction": ("CompactionStrategy",),
    "operators.files.sinks": ("FileSink", "read_committed"),
    "operators.transactions": (
        "CommitRequest",
        "CommitRules",
        "Committer",
        "CommittingSink",
        "SinkWriter",
        "WriteError",
    ),
    "operators.files.reading": (
        "AvroInputFormat",
        "FileSource",
        "FixedLengthFormat",
        "OrcInputFormat",
        "ParquetInputFormat",
    ),
    "operators.table.connectors": ("register_connector", "register_format", "table_sink", "table_source"),
    "operators.basic": (
        "AckingContext",
        "AckingFunction",
        "AggregateFunction",
        "BroadcastProcessFunction",
        "CoProcessFunction",
        "CollectSink",
        "CollectedResults",
        "CountedRecords",
        "CountingSink",
        "KeyedBroadcastProcessFunction",
        "KeyedCoProcessFunction",
        "KeyedProcessContext",
        "KeyedProcessFunction",
        "PrintSink",
        "ProcessContext",
        "ProcessFunction",
        "CheckpointedFunction",
        "FunctionSink",
        "FunctionStateContext",
        "ListCheckpointed",
        "SinkFunction",
        "SinkFunctionContext",
        "SinkOperator",
        "TrackedRecord",
    ),
    "operators.log.disk": ("DiskLog", "consumer_lag"),
    "operators.log.kafka": ("KafkaSink", "KafkaSource"),
    "operators.log.connectors": ("LogSink", "LogSource"),
    "operators.sources": (
        "CollectionSource",
        "FunctionSource",
        "GeneratorSource",
        "Pause",
        "SequenceSource",
        "SourceFunction",
        "SourceFunctionContext",
        "SpoutSource",
    ),
    "operators.time": ("WatermarkStrategy",),
    "operators.windows": (
        "ContinuousEventTimeTrigger",
        "ContinuousProcessingTimeTrigger",
        "CountEvictor",
        "CountTrigger",
        "EventTimeSessionWindows",
        "EventTimeTrigger",
        "Evictor",
        "GlobalWindow",
        "GlobalWindows",
        "NeverTrigger",
        "ProcessAllWindowFunction",
        "ProcessWindowFunction",
        "ProcessingTimeSessionWindows",
        "ProcessingTimeTrigger",
        "PurgingTrigger",
        "SlidingEventTimeWindows",
        "SlidingProcessingTimeWindows",
        "TimeEvictor",
        "TimeWindow",
        "TimestampedValue",
        "Trigger",
        "TriggerResult",
        "TumblingEventTimeWindows",
        "TumblingProcessingTimeWindows",
        "WindowAssigner",
    ),
    "engine.graph.connected_streams": ("BroadcastConnectedStream", "BroadcastStream", "ConnectedStreams"),
    "operators.table.partitions": (
        "DefaultPartitionTimeExtractor", "MetastorePolicy", "PartitionCommit", "PartitionedFileSink", "SqliteMetastore",
        "SuccessFilePolicy", "TableCompaction",
    ),
    "state_backends.base": (
        "BOOL",
        "BYTES",
        "INT",
        "LONG",
        "STRING",
        "KeyType",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReducingStateDescriptor",
        "ValueStateDescriptor",
        "tuple_of",
    ),
}
"""Module -> the public names that come from it."""

_MODULES = {"aggregates": "operators.basic.aggregates"}
"""Public names that are modules themselves."""

_HOMES = {name: module for module, names in _ROOMS.items() for name in names}

__all__ = sorted(["__version__", *_HOMES, *_MODULES])  # noqa: PLE0605 - the tables above are the list


run_jobs_by(lambda: import_module("engine.job_runner").run)


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
    return __all__
