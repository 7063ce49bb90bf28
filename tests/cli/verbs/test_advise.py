"""``weir advise``: costs, formulas, simulation and number of tasks; jobs and options that are refused."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Answer, Weir

COSTS = ("--set", "cost.source_record=1ms", "--set", "cost.sync=1ms")


def advised(weir: Weir, *arguments: str) -> Answer:
    return weir("advise", "sums.py", "--mtbf", "20ms", "--seeds", "2", "--param", "records=80", *arguments)


def test_the_job_is_measured_and_simulated(weir: Weir) -> None:
    """What costs are, what the formulas say, what happens at each interval, and which was best; then the tasks."""
    answer = advised(weir, *COSTS, "--rate", "1500/s", "--out", "advice.jsonl")

    assert answer.exit_code == 0, answer.stderr
    assert "advice for job sums, a task fails each 20ms" in answer.stderr
    assert answer.last_line == "Next: weir report advice.jsonl"
    costs, *lines = answer.stdout.splitlines()
    assert costs == "without failures the job takes 82ms; a checkpoint costs it 1ms, a recovery takes 10ms"
    assert [line.split()[0] for line in lines[:4]] == ["formula", "Young", "Daly", "exact"]
    assert lines[4].startswith("makespan: mean and 95 % confidence interval; each seed has the same failures")
    assert lines[5].split() == [
        "checkpoint_interval_ns", "mean_ns", "low_ns", "high_ns", "runs", "failed", "expected_ns",
    ]  # fmt: skip
    assert [line.split()[-3:-1] for line in lines[6:13]] == [["2", "0"]] * 7
    assert lines[13].startswith("best in simulation: ")
    assert lines[14] == "tasks for 1500/s, by true rates"
    assert lines[16].split()[:4] == ["numbers", "->", "map", "1"]
    assert not (weir.directory / "out").exists(), "the output of the runs is gone"
    assert advised(weir, *COSTS, "--out", "advice.jsonl", "--set", "batch_size=2").exit_code != 0, "another study"


def test_all_of_it_is_told_as_json(weir: Weir) -> None:
    """And drawn."""
    pytest.importorskip("matplotlib")
    answer = advised(weir, *COSTS, "--target", "host", "--json", "--plot", "advice.svg")

    found = answer.json()
    assert (found["target"], found["checkpoint_ns"], found["measure"]) == ("host", 1_000_000, "makespan_ns")
    assert [row["formula"] for row in found["formulas"]] == ["Young", "Daly", "exact"]
    assert found["best_interval_ns"] in [row["checkpoint_interval_ns"] for row in found["means"]]
    assert found["rescaling"] == []
    assert (weir.directory / "advice.svg").read_text().startswith("<?xml")


def test_runs_that_fail_are_told(weir: Weir) -> None:
    """With the exit code for what is not known."""
    answer = advised(weir, *COSTS, "--set", "restart=fixed:4:10ms")

    assert answer.exit_code == 2
    assert "JobFailedError" in answer.stderr
    assert {line.split()[-2] for line in answer.stdout.splitlines()[6:13]} - {"0"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mtbf", "6"), "mtbf '6' is not a time"),
        (("--mtbf", "-6h"), "mtbf '-6h' is negative: write a time of 0 or more"),
        (("--mtbf", "0h"), "mtbf is 0h; it must be above 0"),
        (("--mtbf", "6h"), "the job takes 82ms of virtual time, too short for a failure each 6h"),
        (("--target", "hosts"), "--target: 'hosts' is none of task, host, job manager, storage; did you mean 'host'?"),
        (("--target", "storage"), "target is storage: its failures lose checkpoints and no work"),
        (("--seeds", "1"), "--seeds: 1 is too small; the least is 2"),
        (("--rate", "900"), "rate is '900'; write records per unit of time, such as '8/s'"),
        (("--plot", "advice.gif"), "--plot 'advice.gif' must end with .svg or .png"),
        (("--plot", "no/advice.svg"), "--plot 'no/advice.svg': there is no directory 'no'; create it"),
        (("--set", "mode=none"), "mode none takes no checkpoints, so there is no interval to choose"),
        (("--set", "cost.sync=0s"), "a checkpoint costs the job no time"),
        (("--set", "checkpoint_interval=1s"), "advise: checkpoint_interval is decided here"),
        (("--set", "failures=exponential:1s"), "advise: failures is decided here"),
        (("--set", "storage=state"), "storage: a study keeps checkpoints in memory"),
        (("--param", "recods=1"), "job() has no parameter 'recods'"),
        (("--out", "advice.csv"), "advice.csv: the name of a results file ends with .parquet or .jsonl"),
    ],
)
def test_what_cannot_be_advised_about_is_refused(weir: Weir, arguments: tuple[str, ...], message: str) -> None:
    """With the option, its value and what to write instead."""
    answer = advised(weir, *COSTS, *arguments)

    assert answer.exit_code not in (0, 2)
    assert message in answer.stderr


def test_more_records_than_the_job_handles_are_refused(weir: Weir) -> None:
    """As by weir run."""
    (weir.directory / "flood.py").write_text(
        "from engine import CountingSink, Job\n"
        "from engine.study import Arrivals, Periodic\n"
        "def job():\n"
        "    job = Job('flood')\n"
        "    job.source(Arrivals(Periodic('1/ms'), count=400, most_waiting=100)).sink(CountingSink())\n"
        "    return job\n"
    )
    answer = weir("advise", "flood.py", "--mtbf", "50ms", "--set", "cost.source_record=2ms")

    assert answer.exit_code == 26
