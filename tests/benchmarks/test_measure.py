"""Measuring in turns, and showing what came of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as program
from benchmarks.measure import Paired, Result, Trial, at_least, below, interleaved, per_second
from benchmarks.table import as_json, render


def test_trials_run_in_turns_with_the_reference() -> None:
    """Each trial stands between two reference runs, and is set against their mean."""
    order: list[str] = []
    reference_seconds = iter([1.0, 3.0, 5.0, 7.0, 9.0])

    def reference() -> float:
        order.append("reference")
        return next(reference_seconds)

    def trial(name: str, seconds: float) -> Trial:
        return lambda: (order.append(name), seconds)[1]

    measured = interleaved(reference, {"a": trial("a", 4.0), "b": trial("b", 8.0)}, rounds=2)

    assert order == ["reference", *["a", "reference", "b", "reference"] * 2]
    assert measured == {"a": Paired((4.0, 4.0), (2.0, 6.0)), "b": Paired((8.0, 8.0), (4.0, 8.0))}


def test_ratios_say_how_fast_and_how_much_longer() -> None:
    """Half the time is twice the speed and 50 % less; a rate is taken from the median run."""
    pairs = Paired((1.0, 4.0, 2.0), (2.0, 2.0, 2.0))

    assert pairs.speed_ratios == (2.0, 0.5, 1.0)
    assert pairs.extra_percent == (-50.0, 100.0, 0.0)
    assert per_second(10, pairs.seconds) == 5


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [(at_least(0.25), 0.25, True), (at_least(0.25), 0.24, False), (below(5), 4.9, True), (below(5), 5, False)],
)
def test_a_goal_has_a_side(goal: object, value: float, met: bool) -> None:
    """At least includes the bound, below does not."""
    assert goal.met_by(value) is met  # type: ignore[attr-defined]


RESULTS = [
    Result("fast case", "× bare loop", (0.3, 0.1, 0.26), at_least(0.25), {"records_per_s": 1_200_000}),
    Result("no goal", "ms", (1234.5,)),
]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_shows_extremes_median_and_goal() -> None:
    """One aligned line per result; what missed its goal says so, and nothing fails."""
    header, rule, fast, other = render(RESULTS).splitlines()

    assert _cells(fast) == ["fast case", "× bare loop", "0.1", "0.26", "0.3", "≥ 0.25", "yes", "1,200,000 records/s"]
    assert _cells(other) == ["no goal", "ms", "1234", "1234", "1234", "", "", ""]
    assert len({len(line) for line in (header, rule, fast, other)}) == 1
    assert "| no " in render([Result("slow", "×", (0.2,), at_least(0.25))])


def test_json_keeps_every_sample() -> None:
    """What is written for machines has the samples, not only their median."""
    (one, other) = as_json({"w1": RESULTS}, quick=True, clock="wall")["benchmarks"]["w1"]

    assert one["samples"] == [0.3, 0.1, 0.26]
    assert (one["median"], one["goal"], one["met"]) == (0.26, "≥ 0.25", True)
    assert (other["goal"], other["met"]) == (None, None)


def test_the_command_runs_what_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Named benchmarks run once each, quick when asked, and the file holds what the table shows."""
    asked: list[tuple[str, bool]] = []

    def fake(name: str) -> object:
        return lambda quick: asked.append((name, quick)) or RESULTS

    for name in program.BENCHMARKS:
        monkeypatch.setitem(program.BENCHMARKS, name, fake(name))  # type: ignore[arg-type]
    file = tmp_path / "results.json"
    finished = CliRunner().invoke(program.main, ["heap", "w1", "heap", "--quick", "--json", str(file)])

    assert finished.exit_code == 0, finished.output
    assert asked == [("heap", True), ("w1", True)]
    assert "fast case" in finished.stdout
    written = json.loads(file.read_text("utf-8"))
    assert list(written["benchmarks"]) == ["heap", "w1"]
    assert (written["clock"], written["benchmarks"]["w1"][0]["goal"]) == ("wall", None)


def test_goals_are_shown_for_full_inputs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A goal set for a million records says nothing about a quick run; missing one never fails the command."""
    monkeypatch.setitem(program.BENCHMARKS, "w1", lambda quick: [Result("slow", "×", (0.2,), at_least(0.25))])
    full, quick = (CliRunner().invoke(program.main, ["w1", *more]) for more in ([], ["--quick"]))

    assert "≥ 0.25" in full.stdout
    assert "≥ 0.25" not in quick.stdout
    assert (full.exit_code, quick.exit_code) == (0, 0)
