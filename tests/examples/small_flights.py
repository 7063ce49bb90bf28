"""A small part of the published flights, and the right answers about it, in plain Python."""

from __future__ import annotations

import csv
import io
import json
import shutil
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.config import CheckpointInterval, CostModel, RunConfig
from examples.flights import ROUTE_COLUMNS
from examples.flights_data import FLIGHT_TYPES, FlightFiles, published_tables
from examples.flights_page import SLOW_SPLIT
from examples.flights_run import Run, run_flights
from examples.flights_spark import PERIOD_COLUMN
from spark_bridge import transform
from state_backends.files import MemoryFileSystem

Row = dict[str, Any]


def delay_of(flight: dict[str, str]) -> int:
    """Minutes at departure as published; a cancelled flight has none."""
    return 0 if flight["dep_delay"] in ("", "NA") else int(flight["dep_delay"])


def write_part(directory: Path, wanted: Callable[[int, dict[str, str]], bool]) -> Path:
    """The published tables with those flights only for which ``wanted(number, flight)`` is true."""
    published = published_tables()
    directory.mkdir(parents=True)
    for table in ("airlines", "airports", "planes", "weather"):
        shutil.copyfile(published / f"{table}.csv", directory / f"{table}.csv")
    with (
        zipfile.ZipFile(published / "flights.csv.zip") as archive,
        archive.open("flights.csv") as raw,
        (directory / "flights.csv").open("w", encoding="utf-8", newline="") as file,
    ):
        reader = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        assert reader.fieldnames is not None
        writer = csv.DictWriter(file, reader.fieldnames, lineterminator="\n")
        writer.writeheader()
        writer.writerows(flight for number, flight in enumerate(reader) if wanted(number, flight))
    return directory


def flights_of(files: FlightFiles) -> Iterator[Row]:
    for split in files.splits:
        yield from read_split(split)


def read_split(path: str) -> list[Row]:
    """The flights of one split, missing values as None."""
    with open(path, encoding="utf-8", newline="") as lines:
        return [
            {name: FLIGHT_TYPES.get(name, str)(text) if text else None for name, text in row.items()}
            for row in csv.DictReader(lines)
        ]


def counts_of(flights: Iterable[Row]) -> dict[str, list[Row]]:
    """A running count per carrier shows each number from 1 to the carrier's departures once."""
    totals: dict[str, int] = defaultdict(int)
    for flight in flights:
        totals[flight["carrier"]] += 1
    return {
        f"carrier={carrier}": [{"carrier": carrier, "count": count} for count in range(1, total + 1)]
        for carrier, total in totals.items()
    }


def days_of(flights: Iterable[Row]) -> dict[str, list[Row]]:
    """Departures, mean and maximum delay per carrier and day; cancelled flights have no delay."""
    delays: dict[tuple[str, str], list[int | None]] = defaultdict(list)
    for flight in flights:
        delays[flight["day"], flight["carrier"]].append(flight["dep_delay"])
    answer: dict[str, list[Row]] = defaultdict(list)
    for (day, carrier), all_of_them in delays.items():
        left = [delay for delay in all_of_them if delay is not None]
        row = {"carrier": carrier, "day": day, "count": len(all_of_them)}
        row |= {"mean_delay": sum(left) / len(left) if left else None, "max_delay": max(left, default=None)}
        answer[f"day={day}"].append(row)
    return answer


def routes_in_python(rows: list[list[Any]]) -> list[Row]:
    """Stands where Spark would run: departures and cancelled flights per month and route, in canonical order."""
    routes: dict[tuple[int, str, str], list[int | None]] = defaultdict(list)
    for row in rows:
        flight = dict(zip(ROUTE_COLUMNS, row, strict=True))
        routes[flight["month"], flight["origin"], flight["dest"]].append(flight["dep_delay"])
    return [
        {"month": month, "origin": origin, "dest": dest, "departures": len(delays), "cancelled": delays.count(None)}
        for (month, origin, dest), delays in sorted(routes.items())
    ]


@contextmanager
def python_for_spark() -> Iterator[None]:
    """Inside the block, the job's Spark batches run in Python."""

    def run_in_python(fn: Any, rows: list[Any], schema: str, **options: Any) -> list[Row]:
        months = sorted({row[-1] for row in rows})
        by_month = {month: routes_in_python([row[:-1] for row in rows if row[-1] == month]) for month in months}
        return [{PERIOD_COLUMN: month, **row} for month, routes in by_month.items() for row in routes]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transform, "run_batch", run_in_python)
        yield


def run_small(
    files: FlightFiles, mode: str = "aligned", *, seed: int = 7, kill: str | None = None, slow_us: int = 0
) -> Run:
    """One run of the job in memory, a record taking 1 µs, with small batches and frequent checkpoints.

    ``slow_us`` is the latency of the links of one split.
    """
    disk = MemoryFileSystem()
    for split in files.splits:
        disk.make_dirs(str(Path(split).parent))
        with disk.open_write(split) as file:
            file.write(Path(split).read_bytes())
    config = RunConfig(
        mode=mode,
        seed=str(seed),
        batch_size=8,
        channel_capacity=1_000,
        checkpoint_interval=CheckpointInterval.parse("40us"),
        cost=CostModel(slow_links={SLOW_SPLIT: slow_us * 1_000} if slow_us else {}),
    )
    with python_for_spark():
        return run_flights(files, Path("/out"), config, kill=kill, file_system=disk)


def routes_of(flights: Iterable[Row]) -> dict[str, list[Row]]:
    answer: dict[str, list[Row]] = defaultdict(list)
    for row in routes_in_python([[flight[column] for column in ROUTE_COLUMNS] for flight in flights]):
        answer[f"month=2013-{row['month']:02}"].append(row)
    return answer


def parsed(committed: dict[str, list[str]]) -> dict[str, list[Row]]:
    return {partition: [json.loads(line) for line in lines] for partition, lines in committed.items()}


def in_order(answer: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The same with the rows of each partition in one order, so that two answers compare as multisets."""
    return {
        partition: sorted(rows, key=lambda row: json.dumps(row, sort_keys=True)) for partition, rows in answer.items()
    }
