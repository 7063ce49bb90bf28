"""The answers that the flight jobs must give, computed by Spark SQL over the whole year at once.

This is the oracle: it shares no code with the engine, with the jobs or with the DataFrame function that a
job runs on each month (`flights_spark`), and it is written in another language (SQL, all months in one
query). It reads the same prepared files as the jobs do. Every answer is exact and a function of the set of
flights: counts, sums and maxima of whole numbers, one division for each mean, percentiles of
whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FLIGHTS_SCHEMA = """
    flight_id INT, event_time_ms BIGINT, departure_ms BIGINT, day STRING, month INT, hour INT,
    dep_delay INT, arr_delay INT,
    carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, distance INT
"""

_CARRIER_COUNTS = "SELECT carrier, COUNT(*) AS count FROM {flights} GROUP BY carrier"

# COUNT(*) counts every scheduled departure; SUM, COUNT(dep_delay) and MAX ignore the cancelled ones.
_CARRIER_DAYS = """
    SELECT carrier, day,
           COUNT(*) AS count,
           CASE WHEN COUNT(dep_delay) > 0 THEN SUM(dep_delay) / COUNT(dep_delay) END AS mean_delay,
           MAX(dep_delay) AS max_delay
    FROM {flights}
    GROUP BY carrier, day
"""

_ROUTE_REPORT = """
    WITH wet_hours AS (
        SELECT origin, CAST(month AS INT) AS month, CAST(day AS INT) AS day_of_month,
               CAST(hour AS INT) AS hour,
               BOOL_OR(CAST(precip AS DOUBLE) > 0) AS wet
        FROM {weather}
        GROUP BY ALL
    ),
    flights_known AS (
        SELECT f.month, f.origin, f.dest, f.dep_delay, f.tailnum, w.wet,
               CAST(p.seats AS INT) AS seats,
               CAST(SUBSTRING(f.day, 1, 4) AS INT) - CAST(p.year AS INT) AS plane_age_years
        FROM {flights} f
        LEFT JOIN {planes} p ON p.tailnum = f.tailnum
        LEFT JOIN wet_hours w
               ON w.origin = f.origin AND w.month = f.month AND w.hour = f.hour
              AND w.day_of_month = CAST(SUBSTRING(f.day, 9, 2) AS INT)
    ),
    routes AS (
        SELECT month, origin, dest,
               COUNT(1) AS departures,
               COUNT(1) - COUNT(dep_delay) AS cancelled,
               PERCENTILE_CONT(0.50) WITHIN GROUP (ORDER BY dep_delay) AS delay_p50,
               PERCENTILE_CONT(0.90) WITHIN GROUP (ORDER BY dep_delay) AS delay_p90,
               PERCENTILE_CONT(0.99) WITHIN GROUP (ORDER BY dep_delay) AS delay_p99,
               COUNT(DISTINCT tailnum) AS planes,
               SUM(seats) / NULLIF(COUNT(seats), 0) AS mean_seats,
               SUM(plane_age_years) / NULLIF(COUNT(plane_age_years), 0) AS mean_plane_age_years,
               COUNT(CASE WHEN wet THEN 1 END) / NULLIF(COUNT(wet), 0) AS share_with_precipitation
        FROM flights_known
        GROUP BY month, origin, dest
    )
    SELECT r.month, r.origin, r.dest, a.name AS dest_name, r.departures, r.cancelled,
           r.delay_p50, r.delay_p90, r.delay_p99, r.planes, r.mean_seats, r.mean_plane_age_years,
           r.share_with_precipitation
    FROM routes r
    LEFT JOIN {airports} a ON a.faa = r.dest
"""


def read_flights(spark: SparkSession, splits: Sequence[str]) -> DataFrame:
    """All flights of the prepared splits."""
    return spark.read.csv(list(splits), schema=_FLIGHTS_SCHEMA, header=True, mode="FAILFAST")


def read_reference(spark: SparkSession, path: str) -> DataFrame:
    """A reference table as published: all columns as text, `NA` as null."""
    return spark.read.csv(str(Path(path)), header=True, nullValue="NA", mode="FAILFAST")


def carrier_counts(flights: DataFrame) -> DataFrame:
    """Per carrier: `count` of its scheduled departures."""
    return flights.sparkSession.sql(_CARRIER_COUNTS, flights=flights)


def carrier_days(flights: DataFrame) -> DataFrame:
    """Per carrier and local day: `count` of scheduled departures, `mean_delay` and `max_delay` at departure.

    Mean and maximum are in minutes, over the flights that left, and null on a day without any. The
    mean is the sum divided by the number, both exact, so any program that divides the same two numbers gets
    the same double.
    """
    return flights.sparkSession.sql(_CARRIER_DAYS, flights=flights)


def route_report(flights: DataFrame, airports: DataFrame, planes: DataFrame, weather: DataFrame) -> DataFrame:
    """The monthly route report of all months: one row per month, origin and destination.

    Args:
        flights: from `read_flights`.
        airports, planes, weather: from `read_reference`.
    """
    return flights.sparkSession.sql(_ROUTE_REPORT, flights=flights, airports=airports, planes=planes, weather=weather)
