"""`weir explore` searches a job and reports on it; `weir replay` makes a failure again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from engine.explore.search import parse_token
from tests.cli.conftest import Weir
from tests.house.project import ROOT

COUNTING = '''
"""Counts per key from two sources, one of them slow: small, and with a barrier to wait for."""

from __future__ import annotations

from engine import CollectedResults, Job, SequenceSource


def job(records: str = "24", wrong: str = "") -> Job:
    job = Job("counting", max_parallelism=8)
    numbers = job.source(SequenceSource(0, int(records), splits=2), name="numbers", uid="numbers", parallelism=2)
    pairs = numbers.key_by(lambda number: number % 3, value=lambda number: (number % 3, 1))
    counts = pairs.reduce(lambda left, right: (left[0], left[1] + right[1]), name="count", uid="count")
    counts.collect(CollectedResults(), name="out", uid="out", parallelism=1, chain=False)
    return job
'''

FAILING = ("--mode", "at-least-once", "--promise", "exactly-once", "--fault", "crash",
           "--set", "checkpoint_interval=6us", "--set", "batch_size=1",
           "--set", "cost.slow_links.numbers[0]=9000", "--seed", "s1", "--runs", "40", "--no-shrink")  # fmt: skip
"""At-least-once counts records twice after a crash, and exactly-once is asked for: with this seed, soon."""


@pytest.fixture
def counting(weir: Weir) -> Weir:
    """The command line beside `counting.py`."""
    (weir.directory / "counting.py").write_text(COUNTING)
    return weir


def summary(stderr: str) -> dict[str, str]:
    """The line of `key=value`."""
    line = next(line for line in stderr.splitlines() if line.startswith("runs="))
    return dict(pair.split("=", 1) for pair in line.split())


def test_a_search_says_what_it_saw(counting: Weir) -> None:
    """One summary line, a table of points, the verdict last with the next command; JSON holds nothing else."""
    answer = counting("explore", "counting.py", "--runs", "40", "--fault", "crash", "--seed", "s", "--json")
    values = summary(answer.stderr)
    assert (values["runs"], values["failures"], values["run_twice"]) == ("40", "0", "2")
    assert {"seconds", "runs_per_s", "distinct", "min_choices", "avg_choices", "max_choices", "sometimes"} <= {*values}
    assert re.fullmatch(r"[1-9]\d*/[1-9]\d*", values["crash_points"])
    assert "barrier.receive" in answer.stderr
    assert "a checkpoint was completed" in " ".join(answer.stderr.split())
    report = answer.json()
    assert report["coverage"]["runs"] == 40
    assert report["verdict"]["name"] == values["verdict"]
    assert answer.exit_code == report["verdict"]["exit_code"] in (0, 2)
    assert re.match(r"(valid|unknown): .* Next: weir explore .*counting.py", answer.last_line)


def test_a_failure_is_explained_and_can_be_made_again(counting: Weir) -> None:
    """Exit code 1; the last line names the report, the JSON the token; its replay gives the same verdict and trace."""
    answer = counting("explore", "counting.py", *FAILING, "--out", "found", "--json")
    assert answer.exit_code == 1
    assert answer.last_line.startswith("violated: run s1/")
    failure = answer.json()["failures"][0]
    assert failure["replayed"] == 3
    assert answer.last_line.endswith("Next: weir replay found/")
    assert (counting.directory / "found/explore.json").exists()
    assert (counting.directory / "found/failure.json").exists()

    again = counting("replay", failure["token"], "--times", "3", "--trace", "trace.jsonl", "--no-story")
    assert again.exit_code == 1
    assert again.last_line.startswith("violated: V1")
    assert f"3 times, trace digest {failure['trace_digest'][:16]})" in again.last_line
    lines = (counting.directory / "trace.jsonl").read_text().splitlines()
    assert json.loads(lines[1])["event"] == "RunStarted"


def test_the_smallest_run_is_the_one_to_type_next(counting: Weir) -> None:
    """The output shows the failure, not the small coverage before it; the last line names the shrunk run."""
    answer = counting("explore", "counting.py", *FAILING[:-1])
    command = next(line for line in answer.stderr.splitlines() if line.startswith("replay: ")).removeprefix("replay: ")
    assert command == "weir replay out/counting/failures/1/"
    assert answer.last_line.endswith(f"Next: {command}")
    assert "Named points" not in answer.stderr
    assert counting("replay", *command.split()[2:], "--no-story").exit_code == 1


def test_every_verb_takes_the_report_for_the_run(counting: Weir) -> None:
    """Its directory, the JSON file in it and a file with nothing but a token name the run as the token does."""
    counting("explore", "counting.py", *FAILING, "--keep-going", "--runs", "8", "--out", "found")
    token = json.loads((counting.directory / "found/explore.json").read_text())["failures"][0]["token"]
    (counting.directory / "token").write_text(f"{token}\n")

    for name in ("found", "found/", "found/failure.json", "token", "found/token-2.txt"):
        assert counting("replay", name, "--no-story").last_line.startswith("violated: V1"), name
    assert counting("replay", "found/", "--no-story").last_line.endswith("Next: weir shrink found/")
    assert "violated V1" in counting("shrink", "found/", "--runs", "1").stdout
    assert counting("diff", "found/", "token").exit_code in (0, 1)
    missing = counting("replay", "found/token-99.txt")
    assert (missing.exit_code, "there is no such file" in missing.stderr) == (11, True)


def test_a_replay_in_another_process_is_the_same_run(counting: Weir) -> None:
    """So it is under any seed of the hashes of texts."""
    answer = counting("explore", "counting.py", *FAILING, "--json")
    failure = answer.json()["failures"][0]
    again = counting.process("replay", failure["token"], "--no-story", PYTHONHASHSEED="12345")
    assert (again.exit_code, failure["trace_digest"][:16] in again.last_line) == (1, True)


def test_the_story_of_a_replay_is_told(counting: Weir) -> None:
    """Step by step, with the names of the job; and the case itself for those who want to see it."""
    answer = counting("explore", "counting.py", *FAILING, "--json")
    again = counting("replay", answer.json()["failures"][0]["token"], "--case")
    assert "count[" in again.stderr
    assert again.json()["seed"] == answer.json()["failures"][0]["seed"]


def test_the_same_seed_finds_the_same_in_any_number_of_processes(counting: Weir) -> None:
    """Two workers report the failure that one finds."""
    arguments = ("explore", "counting.py", *FAILING, "--json")
    one = counting("explore", *arguments[1:]).json()
    two = counting.process(*arguments, "--jobs", "2").json()
    assert [{**failure, "token": ""} for failure in two["failures"]] == [
        {**failure, "token": ""} for failure in one["failures"]
    ]
    assert two["coverage"] == one["coverage"]


def test_settings_and_modes_reach_every_run(counting: Weir) -> None:
    """The settings that the user asks for are in the report and in each case."""
    answer = counting("explore", "counting.py", "--runs", "20", "--mode", "unaligned", "--set", "batch_size=4",
                      "--fault", "none", "--param", "records=12", "--keep-going", "--json")  # fmt: skip
    report = answer.json()
    assert report["coverage"]["modes"] == {"unaligned": 20}
    assert report["coverage"]["faults"] == {}
    assert (report["order"]["settings"], report["job"]["params"]) == ({"batch_size": 4}, {"records": "12"})


def test_real_files_on_request(counting: Weir, tmp_path: Path) -> None:
    """Runs on a real disk leave nothing there."""
    (tmp_path / "disk").mkdir()
    answer = counting("explore", "counting.py", "--runs", "3", "--fault", "crash", "--files", "disk")
    assert answer.exit_code in (0, 2)
    assert os.listdir(tmp_path / "disk") == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("explore", "missing.py"), 19, "there is no such job file"),
        (("explore", "counting.py", "--fault", "flood"), 11, "there is no fault 'flood'"),
        (("explore", "counting.py", "--set", "speed=3"), 11, "no setting 'speed'"),
        (("explore", "counting.py", "--set", "speed"), 11, "not of the form NAME=VALUE"),
        (("explore", "counting.py", "--fault", "answer-lost"), 11, "can happen to this job"),
        (("explore", "counting.py", "--files", "nowhere"), 11, "there is no directory"),
        (("explore", "counting.py", "--runs", "0"), 11, "--runs"),
        (("replay", "weir2.AAAAAAAAAA"), 11, "torn"),
        (("replay", "hello"), 11, "no token"),
    ],
)
def test_wrong_usage_is_refused(counting: Weir, arguments: tuple[str, ...], code: int, message: str) -> None:
    """Each says what is wrong, and runs nothing."""
    answer = counting(*arguments)
    assert answer.exit_code == code, answer.stderr
    assert message in answer.stderr


def test_a_token_of_another_job_is_refused(counting: Weir) -> None:
    """Also when the file is there, but defines another graph now; or is gone, and named with --job."""
    found = counting("explore", "counting.py", *FAILING, "--json")
    token = found.json()["failures"][0]["token"]
    (counting.directory / "counting.py").rename(counting.directory / "moved.py")
    gone = counting("replay", token, "--no-story")
    assert (gone.exit_code, "--job" in gone.stderr) == (11, True)
    moved = counting("replay", token, "--no-story", "--job", "moved.py")
    assert moved.exit_code == 1
    other = COUNTING.replace('name="count", uid="count"', 'name="counts", uid="counts"')
    (counting.directory / "moved.py").write_text(other)
    refused = counting("replay", token, "--job", "moved.py")
    assert (refused.exit_code, "of another job" in refused.stderr) == (11, True)


def test_a_change_of_the_job_file_is_noted(counting: Weir) -> None:
    """The same graph with another function: the run is made, and the reader knows that it may be another one."""
    found = counting("explore", "counting.py", *FAILING, "--json")
    token = found.json()["failures"][0]["token"]
    (counting.directory / "counting.py").write_text(COUNTING.replace("% 3, 1)", "% 3, 2)"))
    answer = counting("replay", token, "--no-story", "--job", "counting.py")
    assert "has changed since the token was made" in answer.stderr


def test_the_token_carries_the_promise(counting: Weir) -> None:
    """The promise by which the output is judged is part of the replay."""
    found = counting("explore", "counting.py", *FAILING, "--json")
    assert parse_token(found.json()["failures"][0]["token"]).promise == "exactly-once"


def test_the_standard_scenario_can_be_searched(weir: Weir) -> None:
    """The example that ships: its own modes, a log, and nothing violated."""
    answer = weir("explore", str(ROOT / "examples/standard_scenario.py"), "--runs", "40", "--json")
    report = answer.json()
    assert report["failures"] == []
    assert {*report["coverage"]["modes"]} == {"aligned", "unaligned", "aligned-timeout", "at-least-once"}


def test_results_have_a_row_for_each_run(counting: Weir) -> None:
    """In the order of their numbers, up to the failure that ended the search; an older file is replaced."""
    parquet = pytest.importorskip("pyarrow.parquet")
    path = counting.directory / "runs.parquet"
    path.write_bytes(b"an older file")
    answer = counting("explore", "counting.py", *FAILING, "--out", "found", "--results", "runs.parquet", "--json")
    rows = parquet.read_table(path).to_pylist()
    assert [row["number"] for row in rows] == [*range(answer.json()["coverage"]["runs"])]
    failure = answer.json()["failures"][0]
    last = rows[-1]
    assert last["seed"] == failure["seed"]
    assert last["violates"][0] == "V1"
    assert last["violation"].startswith("V1")
    assert not any(row["violates"] or row["violation"] for row in rows[:-1])
    assert {kind for row in rows for kind in row["faults"]} == {"crash"}
    assert not list(counting.directory.glob("*.inprogress"))


def test_results_that_cannot_be_written_are_told_first(counting: Weir) -> None:
    """Before a run is made, with the fix; a search that fails leaves no file."""
    answer = counting("explore", "counting.py", "--runs", "1", "--results", "no/runs.parquet")
    assert answer.exit_code == 11
    assert answer.stderr.splitlines()[-2].startswith("error: --results no/runs.parquet: ")
    assert answer.last_line == "  fix: name a file in a directory that exists and that you may write"
    (counting.directory / "failing.py").write_text(COUNTING.replace("number % 3,", "1 / 0,"))
    answer = counting("explore", "failing.py", "--runs", "1", "--results", "runs.parquet")
    assert answer.exit_code != 0
    assert not list(counting.directory.glob("runs.parquet*"))


@pytest.mark.parametrize("option", [("--jobs", "2"), ("--files", "tmpfs")], ids=lambda one: one[0])
def test_a_search_on_spark_has_the_cores_of_executors(counting: Weir, option: tuple[str, str]) -> None:
    """Options that belong to processes of this machine are refused, and a place that there is not."""
    answer = counting("explore", "counting.py", "--on", "spark", *option)
    assert answer.exit_code == 11
    assert answer.stderr.startswith(f"error: {option[0]} and --on exclude each other")
    assert "is no place to run a job" in counting("explore", "counting.py", "--on", "sprak").stderr


def test_a_search_on_spark_misses_java_first(counting: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the job is loaded."""
    monkeypatch.setattr("spark_bridge.session._running", None)
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    answer = counting("explore", "counting.py", "--on", "spark")
    assert answer.exit_code == 20
    assert answer.stderr.startswith("error: JAVA_HOME is /no/java, but there is no such directory")
