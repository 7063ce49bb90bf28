"""Spark for the engine: the session, rows that cross into it and back, functions over whole batches, the oracle.

The first batch imports PySpark and PyArrow and starts a JVM; importing this package does not.
"""

from __future__ import annotations

from spark_bridge.batch_function import run_batch as run_batch
from spark_bridge.batch_times import BatchTime as BatchTime, batch_times as batch_times
from spark_bridge.committed import read_committed as read_committed, visible_part_files as visible_part_files
from spark_bridge.crossing import (
    DEFAULT_PARQUET_THRESHOLD_ROWS as DEFAULT_PARQUET_THRESHOLD_ROWS,
    collect_canonical as collect_canonical,
    rows_on_spark as rows_on_spark,
)
from spark_bridge.cuts import barrier_cut as barrier_cut, event_time_cut as event_time_cut, rows_cut as rows_cut
from spark_bridge.errors import (
    JavaMissingError as JavaMissingError,
    OracleInputError as OracleInputError,
    OracleSchemaError as OracleSchemaError,
    PySparkMissingError as PySparkMissingError,
    RowMisfitError as RowMisfitError,
    SparkBridgeError as SparkBridgeError,
    SparkTransformError as SparkTransformError,
)
from spark_bridge.frames import spark_source as spark_source
from spark_bridge.oracle import (
    OracleReport as OracleReport,
    RowDifference as RowDifference,
    compare_multisets as compare_multisets,
)
from spark_bridge.registered import register as register
from spark_bridge.session import (
    SessionAddress as SessionAddress,
    SessionSettings as SessionSettings,
    get_session as get_session,
    session_address as session_address,
    session_is_running as session_is_running,
    session_log_tail as session_log_tail,
    start_session as start_session,
    stop_session as stop_session,
    use_session_at as use_session_at,
)
from spark_bridge.sinks import DataFrameSink as DataFrameSink, ForeachBatchSink as ForeachBatchSink
from spark_bridge.transform import SparkTransform as SparkTransform, spark_transform as spark_transform
