"""The flights job: right without faults, the same with a kill, and at-least-once wrong by the predicted number."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engine.explore import compare_outputs
from examples import flights, flights_proof
from examples.flights import main
from examples.flights_data import FlightFiles, FlightsDataError, first_flights
from examples.flights_lateness import Lateness, lateness_job, measure_lateness
from examples.flights_proof import ANSWERS, prove
from examples.flights_run import Run
from operators.time.watermarks import DEFAULT_INTERVAL_NS
from tests.examples.small_flights import (
    counts_of,
    days_of,
    flights_of,
    in_order,
    parsed,
    read_split,
    routes_of,
    run_small,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
US = 1_000


def final_counts(run: Run) -> dict[str, int]:
    """The last running count of each carrier."""
    return {partition: max(row["count"] for row in rows) for partition, rows in parsed(run.committed("counts")).items()}


def truth(files: FlightFiles) -> dict[str, int]:
    return {partition: len(rows) for partition, rows in counts_of(flights_of(files)).items()}


# --- the small job -----------------------------------------------------------------------------------------------


def test_the_small_part_is_worth_running(small_flights: FlightFiles) -> None:
    """It has all splits, two months, cancelled flights, several carriers, and flights that are far out of order."""
    rows = list(flights_of(small_flights))

    assert 500 < small_flights.flights == len(rows) < 800
    assert all(len(read_split(split)) > 100 for split in small_flights.splits)
    assert {row["month"] for row in rows} == {1, 2}
    assert len({row["carrier"] for row in rows}) > 8
    assert any(row["dep_delay"] is None for row in rows)


def test_the_answers_are_right(small_flights: FlightFiles, undisturbed: Run) -> None:
    """Without a fault, all three answers are those of plain Python over the same files, row by row."""
    rows = list(flights_of(small_flights))

    for answer, expected in (("counts", counts_of), ("days", days_of), ("routes", routes_of)):
        assert in_order(parsed(undisturbed.committed(answer))) == in_order(expected(rows)), answer
    assert undisturbed.oracle.held
    assert undisturbed.result.checkpoints.completed > 3


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("target", ["count[0]", "spark-routes", "flights[1]"])
def test_a_kill_does_not_show(small_flights: FlightFiles, undisturbed: Run, target: str, seed: int) -> None:
    """Exactly-once: after any kill, the committed files of all answers hold the lines of the undisturbed run."""
    killed = run_small(small_flights, seed=seed, kill=f"{target}@{60 + 23 * seed}us")

    assert killed.result.attempts == 2
    assert killed.result.restores[1].checkpoint_id is not None
    for answer in ANSWERS:
        comparison = compare_outputs(undisturbed.committed(answer), killed.committed(answer))
        assert comparison.equal, comparison.describe()
    assert killed.oracle.held
    assert killed.predicted_duplicates() == 0


def test_a_run_is_repeatable(small_flights: FlightFiles) -> None:
    """The same seed and kill give the same trace and the same files; another seed gives another trace."""
    first, second, third = (run_small(small_flights, seed=seed, kill="count[0]@90us") for seed in (1, 1, 2))

    assert first.trace_digest == second.trace_digest != third.trace_digest
    assert [first.committed(answer) for answer in ANSWERS] == [second.committed(answer) for answer in ANSWERS]


def test_at_least_once_counts_twice_what_the_cut_oracle_predicts(small_flights: FlightFiles) -> None:
    """Without alignment nothing is lost, and the counts are too high by exactly the orphans of the restored cut."""
    expected, predicted = truth(small_flights), []
    for seed in range(6):
        kill = f"count[{seed % 2}]@{110 + 15 * seed}us"
        killed = run_small(small_flights, "at-least-once", seed=seed, kill=kill, slow_us=12 + 5 * seed)

        off = {carrier: count - expected[carrier] for carrier, count in final_counts(killed).items()}
        assert killed.result.attempts == 2
        assert off.keys() == expected.keys()
        assert all(extra >= 0 for extra in off.values())
        assert sum(off.values()) == killed.predicted_duplicates()
        predicted.append(killed.predicted_duplicates())

    assert min(predicted) > 0
    assert predicted == sorted(predicted) != predicted[::-1], "the slower the link, the more is counted twice"


def test_a_slow_link_alone_counts_nothing_twice(small_flights: FlightFiles) -> None:
    """Barriers that arrive apart do harm only after a restore: without a kill, at-least-once is right."""
    slow = run_small(small_flights, "at-least-once", slow_us=30)

    assert not slow.oracle.held
    assert slow.predicted_duplicates() == 0
    assert final_counts(slow) == truth(small_flights)


def test_the_job_file_takes_texts(small_flights: FlightFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job file it takes a directory, prepared at need, and a bound in hours; 22 unless told otherwise."""
    built: list[tuple[FlightFiles, int, bool]] = []
    known = {Path(name).absolute(): small_flights for name in (flights.DEFAULT_DATA, "here")}
    monkeypatch.setattr(flights, "prepare", known.get)
    monkeypatch.setattr(flights, "flights_job", lambda *arguments: built.append(arguments))

    flights.job()
    flights.job(data="here", bound_hours="6", routes="no")

    assert built == [(small_flights, 22, True), (small_flights, 6, False)]


def test_a_search_reads_the_first_flights_only(small_flights: FlightFiles, tmp_path: Path) -> None:
    """The head of each split with its header, prepared once, and without Spark's part."""
    here = replace(small_flights, directory=str(tmp_path / "flights"))
    few = first_flights(here, 7)
    before = [(Path(split).stat().st_mtime_ns, Path(split).stat().st_ino) for split in few.splits]

    assert first_flights(here, 7) == few
    assert [(Path(split).stat().st_mtime_ns, Path(split).stat().st_ino) for split in few.splits] == before
    assert few.flights == 21
    for split, whole in zip(few.splits, small_flights.splits, strict=True):
        assert read_split(split) == read_split(whole)[:7]
    plan = flights.flights_job(few, with_routes=False).plan()
    assert not [vertex.name for vertex in plan.vertices if "routes" in vertex.name]
    with pytest.raises(FlightsDataError, match="at least 1"):
        first_flights(here, 0)


# --- lateness ----------------------------------------------------------------------------------------------------


def behind_by_hand(files: FlightFiles, bound_ms: int) -> int:
    """Number of flights more than a bound older than the newest flight before them in their split."""
    behind = 0
    for split in files.splits:
        newest_ms = 0
        for flight in read_split(split):
            behind += flight["event_time_ms"] < newest_ms - bound_ms
            newest_ms = max(newest_ms, flight["event_time_ms"])
    return behind


def dropped_by_hand(rows: list[dict[str, Any]], bound_ms: int) -> list[int]:
    """Ids of the flights whose day the last watermark before them has passed. A record takes 1 µs, and there is a
    watermark at each interval, of the newest flight so far."""
    per_watermark = DEFAULT_INTERVAL_NS // US
    watermark_ms, dropped = -1, []
    for position, flight in enumerate(rows):
        if position and position % per_watermark == 0:
            watermark_ms = max(one["event_time_ms"] for one in rows[:position]) - bound_ms - 1
        day_ends_ms = (flight["event_time_ms"] // DAY_MS + 1) * DAY_MS
        if day_ends_ms - 1 <= watermark_ms:
            dropped.append(flight["flight_id"])
    return dropped


def test_flights_behind_a_bound_are_counted(small_flights: FlightFiles) -> None:
    """Older than the bound: as many as plain Python finds, split by split; none at 22 hours; then none is dropped."""
    for hours in (1, 6):
        found = measure_lateness(small_flights, hours).behind_the_bound
        assert found == behind_by_hand(small_flights, hours * HOUR_MS) > 0
    assert measure_lateness(small_flights, 22) == Lateness(22, 0, 0)


@pytest.mark.parametrize("hours", [0, 1, 3])
def test_windows_drop_flights_whose_day_is_over(one_airport: FlightFiles, hours: int) -> None:
    """Flights of a day that the watermark has passed; with one airport there is one watermark."""
    dropped: list[dict[str, Any]] = []

    lateness_job(one_airport, hours, [], dropped).run()

    expected = dropped_by_hand(read_split(one_airport.splits[1]), hours * HOUR_MS)
    assert [flight["flight_id"] for flight in dropped] == expected
    assert measure_lateness(one_airport, hours).dropped_by_windows == len(expected) > 0


# --- the proof ---------------------------------------------------------------------------------------------------

FINE: dict[str, Any] = {"held": True, "equal": True}
RECORDS = {"lost": 0, "counted_twice": 0, "predicted": 0}


@pytest.mark.parametrize(
    ("cut", "same", "batch", "records", "exactly_once", "at_least_once"),
    [
        (FINE, FINE, FINE, RECORDS, True, True),
        ({"held": False}, FINE, FINE, RECORDS, False, True),
        (FINE, {"equal": False}, FINE, RECORDS, False, True),
        (FINE, FINE, {"equal": False}, RECORDS, False, True),
        (FINE, FINE, FINE, {**RECORDS, "lost": 1}, False, False),
        (FINE, FINE, FINE, {**RECORDS, "counted_twice": 1}, False, False),
        (FINE, FINE, FINE, {**RECORDS, "predicted": 1}, True, False),
        (FINE, FINE, FINE, {"lost": 0, "counted_twice": 9, "predicted": 9}, False, True),
    ],
)
def test_what_each_mode_promises(
    cut: Any, same: Any, batch: Any, records: Any, exactly_once: bool, at_least_once: bool
) -> None:
    """Exactly-once fails by any difference; at-least-once by a loss, or by a number other than the predicted."""
    for mode_is_exact, expected in ((True, exactly_once), (False, at_least_once)):
        assert flights_proof._as_promised(cut, same, batch, records, exactly_once=mode_is_exact) is expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--mode", "alined"), "there is no mode 'alined'; did you mean 'aligned'?"),
        (("--mode", "none"), "mode 'none' takes no checkpoints"),
        (("--kill", "count"), "kill 'count' is not of the form NAME@TIME"),
        (("--on", "flink"), "'flink' is no place to run a job"),
        (("--on", "spark", "--mode", "at-least-once"), "--mode belongs to the simulator"),
        (("--on", "spark", "--kill", "count@1ms"), "--kill belongs to the simulator"),
    ],
)
def test_what_can_prove_nothing_is_refused_at_once(
    arguments: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong mode or kill is one line, before any data are prepared."""
    monkeypatch.setattr(flights_proof, "prepare", lambda data: pytest.fail("must not be reached"))

    answer = CliRunner().invoke(main, list(arguments))

    assert answer.exit_code == 1
    assert answer.output.startswith(f"Error: {problem}")


def test_a_kill_after_the_end_proves_nothing(
    small_flights: FlightFiles, undisturbed: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without a fault does not prove its promise, even if its files are right."""
    monkeypatch.setattr(flights_proof, "_prove_against_batch", lambda answers, killed: {"equal": True})

    facts = flights_proof._prove_mode(small_flights, undisturbed, undisturbed, {}, exactly_once=True)

    assert (facts["attempts"], facts["as_promised"]) == (1, False)
    assert facts["d_records"] == {"lost": 0, "counted_twice": 0, "by_carrier": {}, "predicted": 0}
    assert "nothing is proved" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.spark
def test_the_proof_on_spark(
    own_spark: None,
    small_flights: FlightFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two drivers, one after the other, commit what the simulator and batch code say."""
    monkeypatch.setattr(flights_proof, "prepare", lambda data: small_flights)

    answer = prove(("aligned",), seed="7", kill="", interval="50us", data="", out=tmp_path / "out", on="spark")

    printed = capsys.readouterr().out
    assert answer == 0, printed
    facts = json.loads((tmp_path / "out" / "proof.json").read_text())["modes"]["spark"]
    assert facts["as_promised"]
    assert facts["attempts"] == 2
    assert facts["c_batch_dataframes"]["answers"]["counts"]["matched"] == small_flights.flights
    assert "attempt 2 restored checkpoint 3" in printed


@pytest.mark.slow
@pytest.mark.spark
def test_the_whole_proof(
    own_spark: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All 336,776 flights, Spark included: exactly-once hides the kill, at-least-once repeats as predicted."""
    modes = ("aligned", "at-least-once")

    answer = prove(
        modes, seed="7", kill="count[0]@70ms", interval="20ms", data=str(tmp_path / "data"), out=tmp_path / "out"
    )

    printed = capsys.readouterr().out
    assert answer == 0, printed
    proof = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert proof["flights"] == 336_776
    assert proof["lateness"] == {"6": {"bound_hours": 6, "behind_the_bound": 163, "dropped_by_windows": 1}}
    exact, twice = (proof["modes"][mode] for mode in modes)
    assert exact["as_promised"]
    assert twice["as_promised"]
    assert exact["attempts"] == twice["attempts"] == 2
    assert exact["a_cut_oracle"]["held"]
    assert not twice["a_cut_oracle"]["held"]
    assert exact["b_undisturbed_run"]["equal"]
    assert not twice["b_undisturbed_run"]["equal"]
    assert exact["c_batch_dataframes"] == {
        "equal": True,
        "answers": {
            "counts": {"matched": 336_776, "missing": 0, "unexpected": 0},
            "days": {"matched": 5_432, "missing": 0, "unexpected": 0},
            "routes": {"matched": 2_313, "missing": 0, "unexpected": 0},
        },
    }
    assert exact["d_records"] == {"lost": 0, "counted_twice": 0, "by_carrier": {}, "predicted": 0}
    assert twice["d_records"]["lost"] == 0
    assert twice["d_records"]["counted_twice"] == twice["d_records"]["predicted"] > 0
    counts = twice["c_batch_dataframes"]["answers"]["counts"]
    assert (counts["missing"], counts["unexpected"]) == (0, twice["d_records"]["predicted"])
    assert printed.splitlines()[-1].startswith("proved in ")
    steps = printed.partition("\ntook\n")[2]
    counts = {"killed run": 2, "its proof": 2, " batches on Spark": 3, "Spark's start": 1}
    assert {step: steps.count(step) for step in counts} == counts
