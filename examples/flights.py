"""A year of flights, streamed, crashed, recovered, and proved right.

The job reads the 336,776 departures of 2013 from New York's three airports, one split per airport, each in the order
in which the flights left, and keeps three answers:

* ``counts``  a running count per carrier, one row per departure;
* ``days``    per carrier and local calendar day: departures, mean and maximum delay (a tumbling event-time window);
* ``routes``  per month and route: joins with airports, planes and weather, exact delay percentiles. This is Spark's
              part: a DataFrame function on the event-time months that the watermark has closed since the last
              checkpoint.

Each answer goes to files that become visible only when the checkpoint that covers them is complete.

    python -m examples.flights                        # exactly-once: kill a task in the middle, prove nothing shows
    python -m examples.flights --mode at-least-once   # the same without alignment: which records are counted twice
    python -m examples.flights --mode at-least-once --html demo.html    # a page that shows why
    python -m examples.flights --on spark             # the job on Spark: its driver dies, and another goes on
    weir run examples/flights.py --kill 'count[0]@70ms'
    weir explore examples/flights.py --time 60s       # thousands of ways to go wrong, on the first flights of the year
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from engine import AggregateFunction, CsvFormat, FileSink, FileSource, Job, TumblingEventTimeWindows, WatermarkStrategy
from engine.elements.errors import WeirError
from examples.flights_data import FLIGHT_COLUMNS, FLIGHT_TYPES, FlightFiles, FlightsDataError, first_flights, prepare
from examples.flights_spark import PERIOD_COLUMN, ROUTE_REPORT_INPUT_SCHEMA, ROUTE_REPORT_SCHEMA, RouteReport
from spark_bridge import SparkBridgeError, event_time_cut, spark_transform

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
DEFAULT_DATA = "out/flights-data"
ROUTE_COLUMNS = tuple(column.split()[0] for column in ROUTE_REPORT_INPUT_SCHEMA.split(", "))

Flight = dict[str, Any]


SCENARIO = {
    "batch_size": 5,
    "checkpoint_interval": "40rec",
    "modes": ["aligned", "unaligned", "aligned-timeout", "at-least-once"],
    "crashes": 1,
    # A search makes the job thousands of times: the first flights of the year suffice, and no Spark.
    "params": {"records": "40", "routes": "no"},
}


def job(data: str = DEFAULT_DATA, bound_hours: str = "22", records: str = "", routes: str = "yes") -> Job:
    """The job. ``data``: the directory of the flights (prepared there if needed); ``bound_hours``: how far records may
    be out of order (22 h loses nothing, see :mod:`examples.flights_data`); ``records``: only the first so many of
    each airport; ``routes``: ``no`` leaves Spark's part out."""
    files = prepare(Path(data).absolute())
    return flights_job(first_flights(files, int(records)) if records else files, int(bound_hours), routes != "no")


def flights_job(files: FlightFiles, bound_hours: int = 22, with_routes: bool = True) -> Job:
    """The same over prepared files."""
    built = Job("flights", parallelism=2)
    flights = built.source(
        FileSource(files.splits, CsvFormat(FLIGHT_COLUMNS, types=FLIGHT_TYPES, null_values=("",))),
        name="flights",
        parallelism=3,
        watermarks=WatermarkStrategy.for_bounded_out_of_orderness(
            bound_hours * HOUR_MS, lambda flight: flight["event_time_ms"]
        ),
    )
    by_carrier = flights.key_by(lambda flight: flight["carrier"])
    (
        flights.map(lambda flight: (flight["carrier"], 1), name="one", parallelism=3)
        .key_by(lambda pair: pair[0])
        .reduce(lambda total, pair: (total[0], total[1] + pair[1]), name="count")
        .map(lambda pair: {"carrier": pair[0], "count": pair[1]}, name="count-row")
        .sink(FileSink("counts", bucket=lambda row: f"carrier={row['carrier']}", suffix=".jsonl"), name="counts")
    )
    (
        by_carrier.window(TumblingEventTimeWindows.of(DAY_MS))
        .side_output_late("late")
        .aggregate(DELAYS, window_function=day_row, name="day")
        .sink(FileSink("days", bucket=lambda row: f"day={row['day']}", suffix=".jsonl"), name="days")
    )
    if not with_routes:
        return built
    (
        flights.map(lambda flight: [flight[column] for column in ROUTE_COLUMNS], name="route-columns", parallelism=3)
        .via(
            spark_transform(
                RouteReport(files.directory),
                schema=ROUTE_REPORT_INPUT_SCHEMA,
                result_schema=ROUTE_REPORT_SCHEMA,
                cut=event_time_cut("month"),
                period_column=PERIOD_COLUMN,
            ),
            name="spark-routes",
        )
        .sink(
            FileSink("routes", bucket=lambda row: f"month=2013-{row['month']:02}", suffix=".jsonl"),
            name="routes",
            parallelism=1,
        )
    )
    return built


def _add_delay(totals: tuple[int, int, int, int | None], flight: Flight) -> tuple[int, int, int, int | None]:
    departures, left, minutes, largest = totals
    delay = flight["dep_delay"]
    if delay is None:
        return departures + 1, left, minutes, largest
    return departures + 1, left + 1, minutes + delay, delay if largest is None else max(largest, delay)


def _merge_delays(
    one: tuple[int, int, int, int | None], other: tuple[int, int, int, int | None]
) -> tuple[int, int, int, int | None]:
    largest = [minutes for minutes in (one[3], other[3]) if minutes is not None]
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], max(largest, default=None)


# Departures, departures that left, sum and maximum of their delays: whole numbers, so the order does not matter.
DELAYS = AggregateFunction(lambda: (0, 0, 0, None), _add_delay, lambda totals: totals, _merge_delays)


def day_row(carrier: str, window: Any, totals: tuple[int, int, int, int | None]) -> Flight:
    """The row of one carrier and day."""
    departures, left, minutes, largest = totals
    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=window.start)
    return {
        "carrier": carrier,
        "day": f"{day:%Y-%m-%d}",
        "count": departures,
        "mean_delay": minutes / left if left else None,
        "max_delay": largest,
    }


@click.command(context_settings={"show_default": True})
@click.option("--mode", "modes", multiple=True, default=("aligned",), help="Checkpoint mode; repeatable.")
@click.option("--seed", default="7", help="Seeds every choice of the runs.")
@click.option("--kill", "kill", default="count[0]@70ms", help="Which subtask dies, and when in virtual time.")
@click.option("--checkpoint-interval", default="20ms", help="Virtual time between barriers; on Spark, of a batch.")
@click.option("--on", "on", metavar="spark[=MASTER]", help="Where the killed run is made, instead of in the simulator.")
@click.option("--html", metavar="FILE", help="Write a page about the killed run to FILE.")
@click.option("--data", default=DEFAULT_DATA, help="Where the prepared flights are, or will be.")
@click.option("--out", default="out/flights", help="Where the runs write.")
def main(
    modes: tuple[str, ...],
    seed: str,
    kill: str,
    checkpoint_interval: str,
    on: str | None,
    html: str | None,
    data: str,
    out: str,
) -> None:
    """Run the job undisturbed and killed, and prove from the files that the answers are right."""
    from examples.flights_proof import prove

    source = click.get_current_context().get_parameter_source
    for name in ("modes", "kill") if on is not None else ():
        if source(name) is not ParameterSource.DEFAULT:
            option = name.removesuffix("s")
            raise click.ClickException(f"--{option} belongs to the simulator\n  fix: leave it out, or leave out --on")
    try:
        answer = prove(
            modes, seed=seed, kill=kill, interval=checkpoint_interval, data=data, out=Path(out), on=on, html=html
        )
    except (WeirError, SparkBridgeError, FlightsDataError) as error:
        raise click.ClickException(str(error)) from error
    sys.exit(answer)


if __name__ == "__main__":
    main()
