"""Makes the data sources known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_bridge.session import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``weir.state``, ``weir.checkpoints``, ``weir.trace`` and ``weir.log`` known to a session. In SQL a name with
    a dot needs backticks. Executors need Weir, as for a job.

    Raises:
        PySparkMissingError: PySpark or PyArrow is not installed, or too old.
    """
    require_pyspark()
    from spark_bridge.registered.log_table import LogTable
    from spark_bridge.registered.run_tables import CheckpointTable
    from spark_bridge.registered.state_source import StateSource
    from spark_bridge.registered.trace_table import TraceTable

    for source in (StateSource, CheckpointTable, TraceTable, LogTable):
        spark.dataSource.register(source)
