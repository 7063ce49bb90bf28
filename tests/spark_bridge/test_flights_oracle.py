"""The flight oracle, the monthly Spark function and plain Python agree on the answers."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from examples import flights_oracle
from examples.flights_data import FLIGHT_SCHEMA, FLIGHT_TYPES, FlightFiles
from examples.flights_spark import ROUTE_REPORT_SCHEMA, RouteReport
from spark_bridge.batch_function import run_batch
from spark_bridge.crossing import collect_canonical, rows_on_spark
from spark_bridge.oracle import compare_multisets

pytestmark = pytest.mark.spark

ROUTE_KEY = ["month", "origin", "dest"]


def flights_of(files: FlightFiles) -> Iterator[dict[str, Any]]:
    """All flights as typed Python rows, missing values as None."""
    for path in files.splits:
        with open(path, encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                yield {name: None if text == "" else FLIGHT_TYPES.get(name, str)(text) for name, text in row.items()}


def by_month(flights: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    months = defaultdict(list)
    for flight in flights:
        months[flight["month"]].append(flight)
    return dict(sorted(months.items()))


@pytest.fixture(scope="module")
def all_flights(flight_files: FlightFiles) -> list[dict[str, Any]]:
    """The year as Python rows."""
    return list(flights_of(flight_files))


@pytest.fixture(scope="module")
def oracle_flights(spark: Any, flight_files: FlightFiles) -> Any:
    return flights_oracle.read_flights(spark, flight_files.splits).cache()


@pytest.fixture(scope="module")
def months(all_flights: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    return by_month(all_flights)


@pytest.fixture(scope="module")
def route_report(flight_files: FlightFiles) -> RouteReport:
    """The function of the job; it keeps its reference tables from batch to batch."""
    return RouteReport(flight_files.directory)


@pytest.fixture(scope="module")
def february(spark: Any, route_report: RouteReport, months: dict[int, Any]) -> list[dict[str, Any]]:
    return run_batch(route_report, months[2], FLIGHT_SCHEMA, result_schema=ROUTE_REPORT_SCHEMA)


@pytest.fixture(scope="module")
def expected_routes(spark: Any, flight_files: FlightFiles, oracle_flights: Any) -> Any:
    """The oracle's report of February and of November, in which an hour exists twice."""
    return oracle_report(spark, flight_files, oracle_flights.where("month in (2, 11)")).cache()


def oracle_report(spark: Any, files: FlightFiles, flights: Any) -> Any:
    tables = [flights_oracle.read_reference(spark, path) for path in (files.airports, files.planes, files.weather)]
    return flights_oracle.route_report(flights, *tables)


def test_carrier_counts_are_right(oracle_flights: Any, all_flights: list[dict[str, Any]]) -> None:
    """Departures per carrier equal a count in plain Python; 16 carriers, 336,776 flights."""
    counts: dict[str, int] = defaultdict(int)
    for flight in all_flights:
        counts[flight["carrier"]] += 1

    answer = collect_canonical(flights_oracle.carrier_counts(oracle_flights))

    assert answer == [{"carrier": carrier, "count": count} for carrier, count in sorted(counts.items())]
    assert (len(answer), sum(row["count"] for row in answer)) == (16, 336_776)


def test_carrier_days_are_right(oracle_flights: Any, all_flights: list[dict[str, Any]]) -> None:
    """Count, mean and maximum per carrier and day equal plain Python to the last bit; cancelled flights only count."""
    groups: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for flight in all_flights:
        groups[flight["carrier"], flight["day"]].append(flight["dep_delay"])
    expected = []
    for (carrier, day), delays in sorted(groups.items()):
        flown = [delay for delay in delays if delay is not None]
        expected.append(
            {
                "carrier": carrier,
                "day": day,
                "count": len(delays),
                "mean_delay": sum(flown) / len(flown) if flown else None,
                "max_delay": max(flown, default=None),
            }
        )

    answer = collect_canonical(flights_oracle.carrier_days(oracle_flights))

    assert answer == expected
    assert len(answer) == 5432
    assert any(row["mean_delay"] is None for row in answer)


def test_one_route_by_hand(flight_files: FlightFiles, months: dict[int, Any], february: list[dict[str, Any]]) -> None:
    """Every column of one route's report, computed again in plain Python from the published tables."""
    month, origin, dest = 2, "JFK", "LAX"
    route = [f for f in months[month] if (f["origin"], f["dest"]) == (origin, dest)]
    delays = sorted(f["dep_delay"] for f in route if f["dep_delay"] is not None)
    with open(flight_files.planes, encoding="utf-8", newline="") as lines:
        planes = {row["tailnum"]: row for row in csv.DictReader(lines)}
    known = [planes[f["tailnum"]] for f in route if f["tailnum"] in planes]
    ages = [2013 - int(plane["year"]) for plane in known if plane["year"] != "NA"]
    wet: dict[tuple[int, int], bool] = {}
    with open(flight_files.weather, encoding="utf-8", newline="") as lines:
        for hour in csv.DictReader(lines):
            if (hour["origin"], hour["month"]) == (origin, str(month)):
                wet[int(hour["day"]), int(hour["hour"])] = float(hour["precip"]) > 0
    skies = [wet[at] for f in route if (at := (int(f["day"][-2:]), f["hour"])) in wet]

    (row,) = [row for row in february if (row["origin"], row["dest"]) == (origin, dest)]

    assert row == {
        "month": month,
        "origin": origin,
        "dest": dest,
        "dest_name": "Los Angeles Intl",
        "departures": len(route),
        "cancelled": len(route) - len(delays),
        "delay_p50": interpolated(delays, 0.5),
        "delay_p90": interpolated(delays, 0.9),
        "delay_p99": interpolated(delays, 0.99),
        "planes": len({f["tailnum"] for f in route if f["tailnum"] is not None}),
        "mean_seats": sum(int(plane["seats"]) for plane in known) / len(known),
        "mean_plane_age_years": sum(ages) / len(ages),
        "share_with_precipitation": sum(skies) / len(skies),
    }
    assert 0 < row["share_with_precipitation"] < 1
    assert 0 < row["cancelled"] < row["departures"]
    assert len(known) < len(route)


def interpolated(values: list[int], share: float) -> float:
    """The exact percentile with linear interpolation, as Spark's `percentile` defines it."""
    place = (len(values) - 1) * share
    below, above = math.floor(place), math.ceil(place)
    if below == above:
        return float(values[below])
    return (above - place) * values[below] + (place - below) * values[above]


@pytest.mark.slow
def test_months_one_by_one_equal_months_together(
    route_report: RouteReport, months: dict[int, Any], february: list[dict[str, Any]], expected_routes: Any
) -> None:
    """The DataFrame function on single months gives the rows of the SQL query on all of them."""
    november = run_batch(route_report, months[11], FLIGHT_SCHEMA, result_schema=ROUTE_REPORT_SCHEMA)

    with rows_on_spark(february + november, ROUTE_REPORT_SCHEMA) as actual:
        report = compare_multisets(expected_routes, actual, ROUTE_KEY)

    assert report.equal, report.explain()
    assert report.matched == len(february) + len(november)
    assert {row["month"] for row in february} == {2}
    assert {row["month"] for row in november} == {11}


@pytest.mark.slow
def test_the_whole_year_agrees(
    spark: Any, flight_files: FlightFiles, oracle_flights: Any, route_report: RouteReport, months: dict[int, Any]
) -> None:
    """All twelve batches together are the oracle's 2,313 rows for the year."""
    rows = []
    for month, flights in months.items():
        rows += run_batch(
            route_report, flights, FLIGHT_SCHEMA, label=f"month {month}", result_schema=ROUTE_REPORT_SCHEMA
        )

    with rows_on_spark(rows, ROUTE_REPORT_SCHEMA) as actual:
        report = compare_multisets(oracle_report(spark, flight_files, oracle_flights), actual, ROUTE_KEY)

    assert report.equal, report.explain()
    assert report.matched == 2313


def test_report_does_not_depend_on_order_or_partitions(
    route_report: RouteReport, months: dict[int, Any], february: list[dict[str, Any]]
) -> None:
    """Rows in another order, in other partitions, and by the other way of crossing: the same bytes."""
    turned = run_batch(
        lambda frame: route_report(frame.repartition(5)), months[2][::-1], FLIGHT_SCHEMA, parquet_threshold_rows=10**9
    )

    assert repr(turned) == repr(february)


@pytest.mark.slow
def test_the_oracle_notices_one_changed_flight(
    route_report: RouteReport, months: dict[int, Any], expected_routes: Any
) -> None:
    """One flight processed twice in a month of 25,000 shows as one differing route."""
    doubled = months[2][100]

    rows = run_batch(route_report, [*months[2], doubled], FLIGHT_SCHEMA)
    with rows_on_spark(rows, ROUTE_REPORT_SCHEMA) as actual:
        report = compare_multisets(expected_routes.where("month = 2"), actual, ROUTE_KEY)

    assert (report.missing, report.unexpected) == (1, 1)
    assert report.examples[0].key == {name: doubled[name] for name in ROUTE_KEY}


def test_reference_tables_are_read_once_per_session(
    spark: Any, route_report: RouteReport, months: dict[int, Any], february: list[dict[str, Any]]
) -> None:
    """Later batches use the tables of the first; another session would read them again."""
    tables = route_report._tables

    run_batch(route_report, months[2][:10], FLIGHT_SCHEMA)
    assert route_report._tables is tables

    route_report._application = "an application that has ended"
    run_batch(route_report, months[2][:10], FLIGHT_SCHEMA)
    assert route_report._tables is not tables
