"""Sinks for what Spark and its neighbours read: ``data_frame_sink`` writes Parquet files or a Delta table, whose log is
behind the port of ``delta_log``; ``foreach_batch`` calls a function with all rows of each checkpoint. ``batch_sink`` is
the operator of the last two, ``ddl`` reads schemas without Spark.
"""

from __future__ import annotations

from spark_bridge.sinks.data_frame_sink import DataFrameSink as DataFrameSink
from spark_bridge.sinks.ddl import schema_of as schema_of
from spark_bridge.sinks.delta_log import (
    DeltaFile as DeltaFile,
    DeltaLogError as DeltaLogError,
    MemoryDeltaLog as MemoryDeltaLog,
)
from spark_bridge.sinks.foreach_batch import (
    ForeachBatchOperator as ForeachBatchOperator,
    ForeachBatchSink as ForeachBatchSink,
)
