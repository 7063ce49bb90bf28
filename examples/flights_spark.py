"""The monthly route report: the DataFrame function that a streaming job runs on the months of flights.

For every month and route (origin, destination) it joins the flights with three tables: airports (the
destination's name), planes (seats and year of build, by tail number) and weather (precipitation in the hour
of the scheduled departure). It counts, and takes exact percentiles of the departure delay.

The result depends on the set of flights, not on their order or partitions: means are ratios of whole
numbers, and `percentile` interpolates between sorted values. Twelve runs on one month each give the rows of
one run on the year. So the job may hand it several months at once, with a column that names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Columns of the flights that the report reads; a batch may have more.
ROUTE_REPORT_INPUT_SCHEMA = (
    "flight_id int, month int, day string, hour int, dep_delay int, tailnum string, origin string, dest string"
)
ROUTE_REPORT_SCHEMA = (
    "month int, origin string, dest string, dest_name string, departures bigint, cancelled bigint, "
    "delay_p50 double, delay_p90 double, delay_p99 double, planes bigint, mean_seats double, "
    "mean_plane_age_years double, share_with_precipitation double"
)
# The column that the job adds: the month as the job knows it.
PERIOD_COLUMN = "period"
_DELAY_PERCENTILES = {"delay_p50": 0.5, "delay_p90": 0.9, "delay_p99": 0.99}
_RESULT_COLUMNS = tuple(column.split()[0] for column in ROUTE_REPORT_SCHEMA.split(", "))


@dataclass(frozen=True)
class ReferenceTables:
    """The three small tables the report joins with, held in Spark's memory.

    Attributes:
        airports: `dest`, `dest_name`; one row per airport.
        planes: `tailnum`, `seats`, `plane_year` (null where unknown); one row per plane.
        weather: `origin`, `day`, `hour` (local), `precipitation`; one row per hour. The hour that is repeated when
            the clocks go back has the larger precipitation of the two.
    """

    airports: DataFrame
    planes: DataFrame
    weather: DataFrame


class RouteReport:
    """`fn(DataFrame) -> DataFrame` for one month of flights, or any number of months.

    Reads the reference tables at the first batch and keeps them for the session.

    Args:
        directory: prepared flights (`flights_data.prepare`), with the reference tables.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._tables: ReferenceTables | None = None
        self._application = ""

    def __call__(self, flights: DataFrame) -> DataFrame:
        return route_report_batch(flights, self._tables_of(flights.sparkSession))

    def _tables_of(self, spark: SparkSession) -> ReferenceTables:
        # A session that was stopped and started again does not have the tables of the one before.
        application = spark.sparkContext.applicationId
        if self._tables is None or self._application != application:
            self._tables = read_reference_tables(spark, self._directory)
            self._application = application
        return self._tables


def read_reference_tables(spark: SparkSession, directory: str) -> ReferenceTables:
    """Reads and caches airports, planes and weather, reduced to the columns of the report."""
    from pyspark.sql import functions as f

    airports = _read_table(spark, directory, "airports").select(
        f.col("faa").alias("dest"), f.col("name").alias("dest_name")
    )
    planes = _read_table(spark, directory, "planes").select(
        "tailnum", f.col("seats").cast("int").alias("seats"), f.col("year").cast("int").alias("plane_year")
    )
    weather = _read_table(spark, directory, "weather")
    day = f.make_date(*(f.col(name).cast("int") for name in ("year", "month", "day"))).cast("string")
    hourly = weather.groupBy("origin", day.alias("day"), f.col("hour").cast("int").alias("hour")).agg(
        f.max(f.col("precip").cast("double")).alias("precipitation")
    )
    return ReferenceTables(*(table.coalesce(1).cache() for table in (airports, planes, hourly)))


def route_report_batch(flights: DataFrame, tables: ReferenceTables) -> DataFrame:
    """The route report of the given flights, one row per month, origin and destination.

    Columns of the result (`ROUTE_REPORT_SCHEMA`):

    * `departures`: scheduled flights, `cancelled` ones included;
    * `delay_p50`, `delay_p90`, `delay_p99`: exact percentiles in minutes over the flights that left, null if
      none;
    * `planes`: different tail numbers; `mean_seats`, `mean_plane_age_years`: over the flights with a known plane
      (and a known year of build);
    * `share_with_precipitation`: of the flights whose weather is known.

    Flights with the column `period` give rows with it, each period by itself.
    """
    from pyspark.sql import functions as f

    joined = (
        flights.join(f.broadcast(tables.airports), "dest", "left")
        .join(f.broadcast(tables.planes), "tailnum", "left")
        .join(f.broadcast(tables.weather), ["origin", "day", "hour"], "left")
    )
    plane_age = f.year(f.col("day").cast("date")) - f.col("plane_year")
    periods = [name for name in flights.columns if name == PERIOD_COLUMN]
    # One pass for all percentiles, and no second shuffle for the different tail numbers: half the work of a batch.
    percentiles = f.percentile("dep_delay", f.array(*map(f.lit, _DELAY_PERCENTILES.values())))
    grouped = joined.groupBy(*periods, "month", "origin", "dest", "dest_name").agg(
        f.count("*").alias("departures"),
        f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
        percentiles.alias("percentiles"),
        f.size(f.collect_set("tailnum")).cast("bigint").alias("planes"),
        _exact_mean(f.col("seats")).alias("mean_seats"),
        _exact_mean(plane_age).alias("mean_plane_age_years"),
        _exact_mean((f.col("precipitation") > 0).cast("int")).alias("share_with_precipitation"),
    )
    delays = {name: f.col("percentiles")[position] for position, name in enumerate(_DELAY_PERCENTILES)}
    return grouped.withColumns(delays).select(*periods, *_RESULT_COLUMNS)


def _exact_mean(whole_numbers: Column) -> Column:
    """Mean of integers as one division of two exact sums; null when there is none.

    `avg` adds doubles, in an order that depends on partitions.
    """
    from pyspark.sql import functions as f

    return f.try_divide(f.sum(whole_numbers.cast("bigint")), f.count(whole_numbers))


def _read_table(spark: SparkSession, directory: str, name: str) -> DataFrame:
    path = str(Path(directory) / f"{name}.csv")
    return spark.read.csv(path, header=True, nullValue="NA", mode="FAILFAST")
