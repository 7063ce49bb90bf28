"""Advice about a job: costs as they are measured, formulas against simulation, jobs that cannot be advised about."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigurationError, CountingSink, Job, SequenceSource, StorageError
from engine.elements.durations import rounded_ns
from engine.elements.errors import JobFailedError, OverloadError
from engine.study import Advice, Arrivals, Periodic, StudyTable, advise, best_period, read_study

SHORT = 20_000_000_000
"""An interval below that of the formula."""
COSTS = {"source_record": "1ms", "sync": "1ms", "deployment": "3ms"}


def numbers(count: int = 120) -> Job:
    job = Job("numbers")
    job.source(SequenceSource(0, count), name="numbers").key_by(lambda n: n % 7).reduce(max).sink(CountingSink())
    return job


def calls(rate: str = "1/ms") -> Job:
    """Records that come at times of their own."""
    job = Job("calls")
    stream = job.source(Arrivals(Periodic(rate), count=150, most_waiting=100), name="calls").key_by(lambda n: n % 7)
    stream.reduce(max, name="greatest").sink(CountingSink())
    return job


@cache
def advice_for_numbers() -> Advice:
    """120 ms of work that fails each 20 ms."""
    return advise(numbers, mtbf="20ms", seeds=2, rate="2500/s", cost=COSTS)


def made(makespans: dict[int, list[int | None]]) -> Advice:
    """Of runs that took so long, by interval and seed."""
    rows: list[dict[str, Any]] = [
        {"checkpoint_interval_ns": interval, "seed": seed, "status": "ok" if ns else "failed", "error": None}
        | ({"makespan_ns": ns} if ns else {})
        for interval, values in makespans.items()
        for seed, ns in enumerate(values)
    ]
    table = StudyTable("made", ("checkpoint_interval_ns", "seed"), rows)
    return Advice(3_600_000_000_000, "task", 10**14, 10e9, 0, False, table)


def test_costs_are_measured() -> None:
    """The source stops for 1 ms at each checkpoint; a recovery is the restart delay of 10 ms and the deployment."""
    advice = advice_for_numbers()

    assert (advice.makespan_ns, advice.checkpoint_ns, advice.recovery_ns) == (122_000_000, 1_000_000, 13_000_000)
    assert advice.measure == "makespan_ns"


def test_formulas_are_those_of_the_measured_cost() -> None:
    """Intervals are from trigger to trigger, so they contain the checkpoint."""
    rows = {row["formula"]: row for row in advice_for_numbers().formulas}

    assert list(rows) == ["Young", "Daly", "exact"]
    assert rows["Young"]["work_ns"] == pytest.approx(6_324_555)
    assert rows["exact"]["checkpoint_interval_ns"] == best_period(1e6, 20e6)
    assert all(row["checkpoint_interval_ns"] - row["work_ns"] == pytest.approx(1e6) for row in rows.values())
    assert rows["exact"]["expected_ns"] == min(row["expected_ns"] for row in rows.values())


def test_the_simulation_is_around_the_formula() -> None:
    """Seven intervals, each with the same seeds; the job fails, and takes longer than without failures."""
    advice = advice_for_numbers()

    assert advice.means["runs"] == [2] * 7
    assert advice.means["checkpoint_interval_ns"][3] == advice.formula_interval_ns == 6_680_000
    assert all(row["attempts"] > 1 for row in advice.study if row["seed"] == 0)
    assert min(advice.means["mean_ns"]) > 122_000_000
    assert str(advice).splitlines()[0].endswith("a checkpoint costs it 1ms, a recovery takes 13ms")
    assert "tasks for 2500/s, by true rates" in str(advice)
    source, greatest = advice.report()["rescaling"]
    assert (source["true_rate_per_s"], source["proposed"]) == (1000, 3), "the pauses of checkpoints are left out"
    assert greatest["true_rate_per_s"] is None


def test_the_verdict_compares_seed_by_seed() -> None:
    """Runs differ by far more than the interval does; of the same failures the difference is what counts."""
    formula = rounded_ns(best_period(10e9, 3_600e9))
    even = made({formula: [1010, 2020, 3030], SHORT: [1000, 2000, 3000], 2 * SHORT: [2000, 3000, 4000]})
    unsure = made({formula: [1010, 1990, 3010], SHORT: [1000, 2000, 3000]})

    assert (even.best_interval_ns, even.formula_interval_ns) == (SHORT, 272_000_000_000)
    assert even.difference is not None
    assert even.difference.mean == 20
    told = "best in simulation: 20s. At the 4.53m of the exact formula the makespan is 1 % longer (95 % interval -0.2"
    assert even.verdict.startswith(told)
    assert "do not tell the two apart" in unsure.verdict
    apart = made({formula: [1010, 2011, 3012], SHORT: [1000, 2000, 3000]})
    assert apart.verdict.endswith("for this job the formula is off")
    same = made({formula: [1000, 2000], SHORT: [1010, 2020]})
    assert same.verdict == "best in simulation: 4.53m, the interval of the exact formula"
    assert repr(same).endswith(": best in simulation: 4.53m, the interval of the exact formula>")
    assert same._repr_html_().startswith("<pre>without failures the job takes ")


def test_intervals_at_which_runs_fail_are_not_the_best() -> None:
    """The runs that did not fail are the lucky ones."""
    formula = rounded_ns(best_period(10e9, 3_600e9))
    few = made({formula: [1000, 2000], SHORT: [500, None]})
    lost = made({formula: [None, 2000], SHORT: [500, None]})

    assert few.best_interval_ns == formula
    assert "too few runs ended at the 4.53m of the exact formula" in lost.verdict


def test_records_that_come_at_their_own_times_are_judged_by_the_overhead() -> None:
    """The job catches up, so its makespan hides what a checkpoint costs: the longest pause of a task counts."""
    advice = advise(calls, mtbf="50ms", seeds=2, cost={**COSTS, "source_record": "1us"})

    assert (advice.measure, advice.checkpoint_ns) == ("overhead_ns", 1_000_000)
    row = advice.study[0]
    assert row["overhead_ns"] == pytest.approx(row["lost_ns"] + 1_000_000 * row["checkpoints"])
    assert row["makespan_ns"] < 152_000_000 + row["overhead_ns"]
    expected = advice.means["expected_ns"]
    assert min(expected) < min(expected[0], expected[-1])
    assert all(0 < one < 150_000_000 for one in expected)


def test_rows_are_kept(tmp_path: Path) -> None:
    """The same call makes no run again; other settings are another study."""
    out = tmp_path / "advice.jsonl"
    first = advise(numbers, mtbf="20ms", seeds=2, out=out, cost=COSTS)
    told: list[int] = []
    again = advise(numbers, mtbf="20ms", seeds=2, out=out, cost=COSTS, progress=lambda done, of, row: told.append(done))

    assert (list(again.study), told) == (list(first.study), [])
    assert read_study(out).name == "numbers"
    with pytest.raises(StorageError, match="results of another version of the study"):
        advise(numbers, mtbf="20ms", seeds=2, out=out, cost=COSTS, batch_size=1)


def test_a_plot_has_a_line_for_each_formula(tmp_path: Path) -> None:
    """Beside the curve of the simulation with its band; times along the axis have a unit that fits."""
    pytest.importorskip("matplotlib")
    advice = advice_for_numbers()
    (axes,) = advice.plot(tmp_path / "advice.svg").axes

    curve, *marks = axes.lines
    assert list(curve.get_xdata()) == [ns / 1e6 for ns in advice.means["checkpoint_interval_ns"]]
    assert {mark.get_label(): mark.get_xdata()[0] for mark in marks} == {
        row["formula"]: row["checkpoint_interval_ns"] / 1e6 for row in advice.formulas
    }
    assert axes.get_xlabel() == "checkpoint_interval (ms)"
    assert len(axes.collections) == 1
    assert (tmp_path / "advice.svg").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mtbf": "6"}, "mtbf '6' is not a time"),
        ({"mtbf": "0s"}, "mtbf is 0s; it must be above 0"),
        ({"mtbf": 6}, "mtbf is 6 of type int; write a time such as '6h'"),
        ({"mtbf": "6h"}, "the job takes 122ms of virtual time, too short for a failure each 6h: .* 6h\n  fix:"),
        ({"mtbf": "100ms", "cost": {**COSTS, "sync": "20ms"}}, "a failure each 100ms and a checkpoint about each 70"),
        ({"mode": "none"}, "mode none takes no checkpoints, so there is no interval"),
        ({"mode": "acking"}, "mode acking takes no checkpoints"),
        ({"cost": {"source_record": "1ms"}}, "costs the job no time.*\n  fix: .* set cost.sync"),
        ({"cost": {**COSTS, "sync": "60ms"}}, "costs the job 60ms, more than the 20ms between two failures"),
        ({"cost": {**COSTS, "detection": "5s"}}, "a recovery costs the job 5.01s, .*\n  fix: make a recovery"),
        ({"target": "storage"}, "target is storage: its failures lose checkpoints and no work"),
        ({"target": "hots"}, "target of Failures is 'hots'; .*did you mean 'host'"),
        ({"rate": "900"}, "rate is '900'; write records per unit of time"),
        ({"seeds": 1}, "seeds is 1; it must be a whole number from 2"),
        ({"checkpoint_interval": "1s"}, "advise: checkpoint_interval is decided here, for each run; leave it out"),
        ({"job": numbers()}, "does not build a job; give a function that returns a new one"),
        ({"job": int}, "does not build a job"),
    ],
)
def test_what_cannot_be_advised_about_is_refused(settings: dict[str, Any], message: str) -> None:
    """With what to change."""
    asked: dict[str, Any] = {"job": numbers, "mtbf": "20ms", "cost": COSTS, **settings}
    with pytest.raises(ConfigurationError, match=message):
        advise(asked.pop("job"), **asked)


def test_a_checkpoint_that_outlasts_the_job_is_refused() -> None:
    """Its cost is not to be measured."""
    slow = {**COSTS, "storage_latency": "1h"}
    with pytest.raises(ConfigurationError, match=r"no checkpoint completes within the .*h of the job"):
        advise(numbers, mtbf="50ms", cost=slow, inline_state_bytes=0, checkpoint_timeout="9h")


def test_more_records_than_the_job_can_handle_are_refused() -> None:
    """As in a single run."""
    with pytest.raises(JobFailedError, match="the load is above the capacity") as raised:
        advise(calls, mtbf="50ms", cost={**COSTS, "source_record": "5ms"})
    assert isinstance(raised.value.__cause__, OverloadError)
