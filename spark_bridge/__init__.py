"""Spark beside the engine: the session, rows crossing into it and back, whole-batch functions, the oracle.

Nothing here imports PySpark, PyArrow or starts a JVM until the first batch does.
"""

from __future__ import annotations

from spark_bridge.batch_function import run_batch
from spark_bridge.committed import read_committed, visible_part_files
from spark_bridge.crossing import DEFAULT_PARQUET_THRESHOLD_ROWS, collect_canonical, rows_on_spark
from spark_bridge.cuts import barrier_cut, event_time_cut, rows_cut
from spark_bridge.errors import (
    JavaMissingError,
    OracleInputError,
    OracleSchemaError,
    PySparkMissingError,
    RowMisfitError,
    SparkBridgeError,
    SparkTransformError,
)
from spark_bridge.oracle import OracleReport, RowDifference, compare_multisets
from spark_bridge.session import SessionSettings, get_session, session_is_running, session_log_tail, stop_session
from spark_bridge.transform import SparkTransform, spark_transform

__all__ = [
    "spark_transform",
    "SparkTransform",
    "event_time_cut",
    "rows_cut",
    "barrier_cut",
    "SessionSettings",
    "get_session",
    "session_is_running",
    "session_log_tail",
    "stop_session",
    "DEFAULT_PARQUET_THRESHOLD_ROWS",
    "rows_on_spark",
    "collect_canonical",
    "run_batch",
    "OracleReport",
    "RowDifference",
    "compare_multisets",
    "read_committed",
    "visible_part_files",
    "SparkBridgeError",
    "PySparkMissingError",
    "JavaMissingError",
    "RowMisfitError",
    "SparkTransformError",
    "OracleInputError",
    "OracleSchemaError",
]
