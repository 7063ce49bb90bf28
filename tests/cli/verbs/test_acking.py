"""Mode ``acking`` on the command line: run, resume, explore, and refusals."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Weir

JOB = '''
"""Numbers to standard output, through two tasks."""

from engine import CollectedResults, CollectSink, Job, SequenceSource


def job(n: str = "40") -> Job:
    made = Job("tens", parallelism=2)
    numbers = made.source(SequenceSource(0, int(n), splits=2), name="numbers")
    tens = numbers.rebalance().map(lambda number: number * 10, name="tens")
    tens.rebalance().sink(CollectSink(CollectedResults(transactional=False)), name="out", chain=False)
    return made
'''


@pytest.fixture
def job_file(weir: Weir) -> str:
    Path("tens.py").write_text(JOB, encoding="utf-8")
    return "tens.py"


def test_a_run_says_that_all_records_are_acknowledged_and_the_next_command_works(weir: Weir, job_file: str) -> None:
    """Also the one with a kill that it proposes."""
    answer = weir("run", job_file, "--mode", "acking", "--acker-timeout", "1ms", "--ackers", "1")
    assert answer.exit_code == 0
    assert answer.last_line.startswith("valid: the job finished, and all of 40 records are acknowledged.")

    again = weir(*shlex.split(answer.last_line.partition("Next: weir ")[2]))
    assert again.exit_code == 0
    assert "--kill" in answer.last_line


def test_text_and_json_say_what_acking_has_cost(weir: Weir, job_file: str) -> None:
    """The counts of the statistics, and records sent again apart from those of the input."""
    options = ("--mode", "acking", "--acker-timeout", "1ms", "--batch-size", "1", "--ackers", "1")
    answer = weir("run", job_file, *options, "--fault", "lose:acker_ack tens[0]#1", "--json", "--table")
    report = answer.json()
    acking, run = report["acking"], report["run"]

    assert run["source_records"] - run["replayed_records"] == 40
    assert acking["replayed"] == acking["timed_out"] == run["replayed_records"] == 1
    assert acking["tracked"] == run["source_records"]
    assert (acking["completed"], acking["failed"], acking["unresolved"]) == (40, 0, 0)
    assert acking["control_messages"] == sum(acking["control"].values())
    assert acking["latency_max_ns"] > 1_000_000 > acking["latency_mean_ns"] > 0

    lines = [line.split() for line in answer.stderr.splitlines()]
    assert ["Roots", "tracked", "41"] in lines
    assert ["acknowledged", "40"] in lines
    assert ["timed", "out", "1"] in lines
    assert "41 records (1 of them again) in " in answer.stderr
    assert "all of 40 records are acknowledged; 1 record was sent again." in answer.last_line


def test_other_modes_have_no_statistics_of_acking(weir: Weir, job_file: str) -> None:
    """JSON says null, and text does not mention them."""
    answer = weir("run", job_file, "--json")

    assert answer.json()["acking"] is None
    assert "acking" not in answer.stderr


def test_a_storage_directory_keeps_the_offsets(weir: Weir, job_file: str) -> None:
    """A job that has failed goes on where everything was acknowledged."""
    options = ("--mode", "acking", "--batch-size", "1", "--checkpoint-interval", "2us", "--restart", "none")
    failed = weir("run", job_file, *options, "--storage", "state", "--kill", "tens[0]@20us")
    assert failed.exit_code == 18
    assert Path("state/tens/offsets").exists()

    resumed = weir("resume", "state")
    assert resumed.exit_code == 0
    assert "40 records are acknowledged" not in resumed.last_line
    assert "Next: weir run" in resumed.last_line


def test_exploring_finds_no_lost_record(weir: Weir, job_file: str) -> None:
    """A job without state keeps at-least-once under all kinds of faults."""
    options = ("--mode", "acking", "--promise", "at-least-once", "--runs", "25", "--param", "n=8")
    answer = weir("explore", job_file, *options)
    # Valid, or unknown: in so few runs not everything happens that could.
    assert answer.exit_code in (0, 2), answer.stderr
    assert "failures=0" in answer.stderr
    assert "acker.receive" in answer.stderr


def test_an_exhaustive_check_is_refused(weir: Weir, job_file: str) -> None:
    """It does not know which messages may change places."""
    answer = weir("check", job_file, "--mode", "acking")
    assert answer.exit_code != 0
    assert "a check cannot try every schedule in mode acking" in answer.stderr


def test_options_of_acking_are_refused_in_other_modes(weir: Weir, job_file: str) -> None:
    """They would have no effect there."""
    answer = weir("run", job_file, "--ackers", "2")
    assert answer.exit_code != 0
    assert "--ackers, --acker-timeout and --max-spout-pending are about mode acking" in answer.stderr


def test_a_sink_that_waits_for_checkpoints_is_refused(weir: Weir) -> None:
    """Before anything is written."""
    answer = weir("run", "sums.py", "--mode", "acking")
    assert answer.exit_code != 0
    assert "holds rows back until a checkpoint completes" in answer.stderr
