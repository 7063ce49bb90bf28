"""A Spark transform in a job on Spark: its function runs on executors, and its results are those of the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import CollectedResults, CollectionSource, Job, WatermarkStrategy
from spark_bridge import SparkTransformError, spark_transform
from tests.spark_bridge.pipeline.runs import config, simulated
from tests.spark_bridge.pipeline.transform_jobs import HUNDREDS

TIMES = [time % 3 * 100 + time // 3 for time in range(60)]


def all_kinds(frame: Any) -> Any:
    """A row per remainder, with a value of every kind that may cross."""
    from pyspark.sql import functions as f

    periods = [name for name in frame.columns if name == "period"]
    groups = frame.groupBy(*periods, (f.col("time") % 3).alias("rest"))
    return groups.agg(
        f.count("*").alias("rows"),
        f.sort_array(f.collect_list("time")).alias("times"),
        f.timestamp_seconds(f.max("time")).alias("moment"),
        f.max("time").cast("decimal(9,2)").alias("exact"),
        f.avg("time").alias("mean"),
        f.create_map(f.lit("b"), f.min("time"), f.lit("a"), f.max("time")).alias("ends"),
        f.struct(f.first(f.lit("x")).alias("text"), f.first(f.lit(None)).alias("nothing")).alias("pair"),
        f.make_dt_interval(secs=f.max("time").cast("decimal(18,6)")).alias("span"),
        f.to_date(f.timestamp_seconds(f.min("time"))).alias("day"),
        f.encode(f.first(f.lit("ü")), "utf-8").alias("bytes"),
    )


def timed(fn: Any, into: CollectedResults, **options: Any) -> Job:
    """Three periods of twenty rows."""
    job = Job("timed", parallelism=2)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(400, lambda time: time)
    times = job.source(CollectionSource(TIMES, splits=2), name="times", watermarks=strategy)
    rows = times.map(lambda time: [time], name="row")
    results = rows.via(spark_transform(fn, schema="time int", cut=HUNDREDS, **options), name="results")
    return results.collect(into, name="out", parallelism=1)


def on_spark(job: Job, directory: Path) -> None:
    job.run(on="spark", storage=directory / "state", output_dir=directory / "out", checkpoint_interval="40rec")


@pytest.mark.usefixtures("spark")
def test_results_are_those_of_the_simulator_to_the_type(tmp_path: Path) -> None:
    """Rows go into the function and out of it by files: no value may change on the way. One call per period gives the
    same as one call for all periods of a batch."""
    expected, results, at_once = CollectedResults(), CollectedResults(), CollectedResults()
    simulated(timed(all_kinds, expected), tmp_path / "simulated", config(40))
    on_spark(timed(all_kinds, results), tmp_path / "spark[1] {a}")
    on_spark(timed(all_kinds, at_once, period_column="period"), tmp_path / "at once")
    assert len(expected.records) == 9
    assert repr(results.records) == repr(expected.records) == repr(at_once.records)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("fn", "options", "words"),
    [
        (lambda frame: frame.select("nothing"), {}, "(?s)'results: from 0' failed in .*nothing"),
        (lambda frame: 7, {}, "(?s)'results: from 0' failed .*it returned int, not a DataFrame"),
        (
            lambda frame: frame.groupBy("time").count(),
            {"period_column": "period"},
            r"(?s)'results: from 0 to from 200' failed .*without period string: keep this column",
        ),
        (lambda frame: frame, {"result_schema": "time bigint"}, r"(?s)returned the columns \(time int\), declared are"),
        (lambda frame: frame.selectExpr("time", "time"), {}, "(?s)more than one column named time"),
        (lambda frame: frame.selectExpr("1 / (time - time) AS x"), {}, "(?s)'results: from 0' failed.*DIVIDE_BY_ZERO"),
    ],
    ids=["unknown column", "no frame", "no period", "other schema", "column twice", "fails on executors"],
)
def test_a_function_that_fails_names_its_period(fn: Any, options: Any, words: str, tmp_path: Path) -> None:
    """In the words of the simulator, and nothing is committed."""
    results = CollectedResults()
    with pytest.raises(SparkTransformError, match=words):
        on_spark(timed(fn, results, **options), tmp_path)
    assert not results.records
