"""The job of ``killed_job`` on the rows of a DataFrame, which each process computes anew; its output is the same."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine import Job
from spark_bridge import spark_source
from tests.crash.jobs.killed_job import KEYS, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def _rows(records: int, spark: SparkSession) -> DataFrame:
    # Spark's own order differs from process to process.
    return spark.range(records).repartition(3).selectExpr("id", f"id * 7919 % {KEYS} AS key")


def job(records: str = "120000") -> Job:
    """The rows in four splits, and the counts of their keys."""
    job = Job("killed", parallelism=2)
    rows = job.source(spark_source(partial(_rows, int(records)), splits=4, order_by="id"), name="rows")
    return counted(rows.map(lambda row: row["key"], name="key"))
