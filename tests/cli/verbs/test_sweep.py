"""``weir sweep`` and ``weir report``: a grid of settings and parameters, rows in a file, means and a plot."""

from __future__ import annotations

import json
from typing import Any

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


def test_all_combinations_are_shown(weir: Weir) -> None:
    """However many there are."""
    answer = swept(weir, "--grid", f"cost.link_latency={','.join(f'{time}us' for time in range(24))}", "--jobs", "2")

    assert len(answer.stdout.splitlines()) == 2 + 24


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


def test_a_job_that_is_not_determined_by_its_arguments_is_named(weir: Weir) -> None:
    """It reads the clock. A job that changes with a file is refused when the sweep goes on."""
    (weir.directory / "clock.py").write_text(
        "import time\nfrom pathlib import Path\nfrom engine import CountingSink, Job, SequenceSource\n"
        "def job(path=''):\n"
        "    job = Job('clock')\n"
        "    count = int(Path(path).read_text()) if path else time.monotonic_ns() % 1_000\n"
        "    job.source(SequenceSource(0, count)).sink(CountingSink())\n"
        "    return job\n"
    )
    (weir.directory / "count").write_text("10")
    goes_on = ("sweep", "clock.py", "--param", "path=count", "--out", "results.parquet", "--seeds")
    assert weir(*goes_on, "1").exit_code == 0
    (weir.directory / "count").write_text("11")

    assert "study 'clock' is not determined by its arguments" in weir("sweep", "clock.py").stderr
    assert "results.parquet: holds a row that study 'clock' no longer gives" in weir(*goes_on, "2").stderr


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
        (("--grid", "storage=a"), "--grid storage=a: storage: a study keeps checkpoints in memory; leave it out"),
        (("--grid", "mode=aligned,algned"), "--grid mode=algned: there is no mode 'algned'; did you mean 'aligned'?"),
        (("--set", "mode=algned"), "error: there is no mode 'algned'; did you mean 'aligned'?"),
        (("--set", "storage=a"), "error: storage: a study keeps checkpoints in memory; leave it out"),
        (("--grid", "cost.record=1us,-1us"), "--grid cost.record=-1us: cost record '-1us' is negative"),
        (("--grid", "service.sum=pareto:1ms:1"), "shape of Pareto is 1.0; it must be above 1"),
        (("--grid", "service.smu=1ms"), "every case failed; correct the first one: service.smu='1ms', seed=0"),
        (("--metric", "makspan"), "no measure 'makspan'; did you mean 'makespan_ns'"),
        (("--metric", "choices"), "measure 'choices' of study 'sums' has texts, and these have no mean"),
        (("--on", "spark", "--jobs", "2"), "jobs=2 and on='spark' exclude each other"),
        (("--on", "sprak"), "'sprak' is no place to run a job"),
        (("--out", "results.csv"), "results.csv: the name of a results file ends with .parquet or .jsonl"),
    ],
)
def test_sweeps_that_cannot_be_made_are_refused(weir: Weir, arguments: tuple[str, ...], message: str) -> None:
    """With the option, its value and what to write instead."""
    answer = swept(weir, *arguments)

    assert answer.exit_code not in (0, 2)
    assert message in answer.stderr


def test_a_misspelt_metric_is_told_after_the_first_run(weir: Weir) -> None:
    """The rows are kept; the same command with the right one makes the runs that are left."""
    answer = swept(weir, "--seeds", "50", "--metric", "makspan", "--out", "results.jsonl")

    assert "no measure 'makspan'" in answer.stderr
    assert len((weir.directory / "results.jsonl").read_text().splitlines()) == 2
    assert len(swept(weir, "--seeds", "3", "--out", "results.jsonl", "--json").json()) == 3


def test_a_sweep_that_is_interrupted_tells_what_it_keeps(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how to go on."""

    rows = weir.directory / "results.parquet.journal"

    def interrupted(*_: object, progress: Any, **__: object) -> None:
        progress(1, 2, {"seed": 0, "status": "failed", "error": "it did"})
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.study.sweep", interrupted)
    kept = "results.parquet keeps the runs that have ended; the same command makes the others"

    assert swept(weir, "--out", "results.parquet").stderr.split("\n")[1:] == [
        "1/2  seed=0: it did", "", "interrupted", "",
    ]  # fmt: skip
    rows.touch()
    assert swept(weir, "--out", "results.parquet").stderr.split("\n")[1:] == [
        "1/2  seed=0: it did", kept, "", "interrupted", "",
    ]  # fmt: skip


def test_a_plot_has_a_place(weir: Weir) -> None:
    """Another ending and a directory that does not exist are refused before anything is printed, and so is a file that
    no sweep wrote."""
    swept(weir, "--out", "results.jsonl")

    def refused(*arguments: str) -> str:
        answer = weir("report", *arguments)
        assert (answer.exit_code != 0, answer.stdout) == (True, "")
        return answer.stderr

    assert "--plot 'plot.gif' must end with .svg or .png" in refused("results.jsonl", "--plot", "plot.gif")
    assert "there is no directory 'no'; create it" in refused("results.jsonl", "--plot", "no/plot.svg")
    assert "give the file of the plot, too: --plot FILE" in refused("results.jsonl", "--x", "seed")
    assert "has no argument 'sed'; did you mean 'seed'?" in refused("results.jsonl", "--x", "sed", "--plot", "plot.svg")
    assert "is not a results file" in refused("sums.py")
    assert "there is no such results file" in refused("nothing.parquet")
    assert ".: cannot be read: Is a directory" in refused(".")
