"""``weir sweep`` and ``weir report``: a grid of settings and parameters, rows in a file, means and a plot."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Answer, Weir

FEW = ("--set", "batch_size=4", "--set", "checkpoint_interval=20rec", "--param", "records=40")


def swept(weir: Weir, *arguments: str) -> Answer:
    return weir("sweep", "sums.py", *FEW, *arguments)


def test_a_grid_of_settings_is_swept(weir: Weir) -> None:
    """With each of the seeds; times are texts, a mode is a setting, and the means are told by combination."""
    answer = swept(
        weir, "--grid", "cost.link_latency=0s,50us", "--grid", "mode=aligned,unaligned", "--seeds", "2",
        "--metric", "end_to_end_p99",
    )  # fmt: skip

    assert answer.exit_code == 0, answer.stderr
    assert "sweep of job sums, 8 runs" in answer.stderr
    title, names, *rows = answer.stdout.splitlines()
    assert title == "end_to_end_p99_ns: mean and 95 % confidence interval"
    assert names.split() == ["cost.link_latency", "mode", "mean_ns", "low_ns", "high_ns", "runs", "failed"]
    assert [row.split()[:2] for row in rows] == [
        ["0s", "aligned"], ["0s", "unaligned"], ["50us", "aligned"], ["50us", "unaligned"],
    ]  # fmt: skip
    assert {tuple(row.split()[-2:]) for row in rows} == {("2", "0")}


def test_a_grid_of_parameters_is_swept(weir: Weir) -> None:
    """A parameter of job(), and its parallelism."""
    answer = weir("sweep", "sums.py", "--grid", "name=a,b", "--grid", "parallelism=1,2", "--json")

    assert [(row["name"], row["parallelism"], row["source_records"]) for row in answer.json()] == [
        ("a", "1", 200), ("a", "2", 200), ("b", "1", 200), ("b", "2", 200),
    ]  # fmt: skip
    assert not (weir.directory / "out").exists(), "the output of the runs is gone"


def test_settings_of_single_tasks_are_swept(weir: Weir) -> None:
    """Beside those of all: a straggler of a grid, and the service time of one operator."""
    given = ("--set", "service.sum=10us", "--set", "cost.stragglers=numbers=1", "--set", "cost.stragglers.sum=2")
    rows = swept(weir, *given, "--grid", "service.out=0s,30us", "--json").json()

    slower = [row["makespan_ns"] for row in rows]
    assert [row["service.out"] for row in rows] == ["0s", "30us"]
    assert slower[0] > 40 * 20_000, "40 records, each twice 10 us"
    assert slower[1] > 40 * 80_000


def test_results_are_kept_and_reported(weir: Weir) -> None:
    """A second sweep makes only the runs that the file lacks; the report shows them all, and draws them."""
    pytest.importorskip("matplotlib")
    asked = ("--grid", "cost.link_latency=10us,50us", "--out", "results.parquet")
    assert "Next: weir report results.parquet" in swept(weir, *asked).stderr
    more = swept(weir, *asked, "--seeds", "2", "--json").json()
    reported = weir("report", "results.parquet", "--metric", "makespan", "--plot", "plot.svg")

    assert [row["seed"] for row in more] == [0, 1, 0, 1]
    assert reported.exit_code == 0
    assert reported.stdout.splitlines()[2].split()[-2:] == ["2", "0"]
    assert (weir.directory / "plot.svg").read_text().startswith("<?xml")
    assert weir("report", "results.parquet", "--json").json()[0]["status"] == "ok"


def test_results_of_other_settings_are_refused(weir: Weir) -> None:
    """The settings that all runs have are a part of the study, and so is the job file."""
    swept(weir, "--out", "results.jsonl")
    other = weir("sweep", "sums.py", "--param", "records=40", "--out", "results.jsonl")

    assert other.exit_code != 0
    assert "results of another version of the study" in other.stderr
    job_file = weir.directory / "sums.py"
    job_file.write_text(job_file.read_text() + "\n# changed\n")
    assert "results of another version of the study" in swept(weir, "--out", "results.jsonl").stderr


def test_a_run_that_fails_is_a_row(weir: Weir) -> None:
    """The others go on; the exit code says that not all is known."""
    answer = weir("sweep", "sums.py", "--grid", "records=10,x", "--json")

    assert answer.exit_code == 2
    first, second = json.loads(answer.stdout)
    assert (first["status"], second["status"]) == ("ok", "failed")
    assert "invalid literal for int" in second["error"]
    assert "2/2  records='x', seed=0: JobFileError" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--grid", "mode"), "--grid 'mode' is not of the form NAME=A,B"),
        (("--grid", "mode=a,,b"), "--grid 'mode=a,,b' is not of the form NAME=A,B"),
        (("--grid", "mode=a", "--grid", "mode=b"), "--grid mode is given twice"),
        (("--grid", "seed=1,2"), "--grid seed is what --seeds counts"),
        (("--grid", "batch_size=1,2"), "--grid batch_size is given as one value, too"),
        (("--grid", "recods=1"), "job() has no parameter 'recods'"),
        (("--grid", "storage=a"), "storage: a study keeps checkpoints in memory; leave it out"),
        (("--grid", "mode=algned"), "every case failed; correct the first one: mode='algned', seed=0"),
        (("--metric", "makspan_ns"), "no measure 'makspan_ns'; did you mean 'makespan_ns'"),
        (("--on", "spark", "--jobs", "2"), "jobs=2 and on='spark' exclude each other"),
        (("--on", "sprak"), "'sprak' is no place to run a job"),
        (("--out", "results.csv"), "results.csv: the name of a results file ends with .parquet or .jsonl"),
    ],
)
def test_sweeps_that_cannot_be_made_are_refused(weir: Weir, arguments: tuple[str, ...], message: str) -> None:
    """With the option, its value and what to write instead."""
    answer = swept(weir, *arguments)

    assert answer.exit_code != 0
    assert message in answer.stderr


def test_a_plot_is_svg_or_png(weir: Weir) -> None:
    """Another ending is refused, and a file that no sweep wrote, too."""
    swept(weir, "--out", "results.jsonl")

    assert "must end with .svg or .png" in weir("report", "results.jsonl", "--plot", "plot.gif").stderr
    assert "is not a results file" in weir("report", "sums.py").stderr
    assert "there is no such results file" in weir("report", "nothing.parquet").stderr
