"""`--fault`: a fault strikes exactly where the user asks for it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from operators.log.disk.log_reader import committed_records
from state_backends.files import LocalFileSystem
from tests.cli.conftest import BRISK, Weir


def test_a_fault_strikes_where_it_was_asked_for(weir: Weir) -> None:
    """The run survives, the report names the fault, and its output is that of an undisturbed run."""
    fault = "crash:sum[0]@before:snapshot.sync#2"
    weir("run", "sums.py", *BRISK, "--out", "calm")
    answer = weir("run", "sums.py", *BRISK, "--out", "struck", "--fault", fault, "--json")

    assert answer.exit_code == 0, answer.stderr
    report = answer.json()
    assert report["run"]["attempts"] == 2
    assert report["run"]["faults"] == [fault]
    assert "struck down before snapshot.sync" in answer.stderr
    assert "never struck" not in answer.stderr
    assert f"--fault '{fault}'" in answer.last_line
    assert weir.rows("struck") == weir.rows("calm")


def test_a_fault_that_never_strikes_is_said_to_have_not(weir: Weir) -> None:
    """A fault that did not happen must not pass for one that was survived."""
    fault = "crash:sum[0]@before:snapshot.sync#2000"
    answer = weir("run", "sums.py", *BRISK, "--fault", fault)

    assert answer.exit_code == 0
    assert f"note: --fault {fault} never struck" in answer.stderr


def test_the_death_of_the_process_is_gone_on_from(weir: Weir) -> None:
    """After a death right after the rename of a checkpoint's metadata, the run resumes from that checkpoint."""
    weir("run", "sums.py", *BRISK, "--out", "calm")
    died = weir("run", "sums.py", *BRISK, "--storage", "state", "--fault", "crash:process@after:manifest.rename#3")
    assert died.exit_code == 18
    assert "the process of the run was struck down after manifest.rename" in died.stderr
    assert "weir resume" in died.stderr

    resumed = weir("resume", "state")
    assert resumed.exit_code == 0, resumed.stderr
    assert "restored checkpoint 3" in resumed.stderr
    assert weir.rows("state/out") == weir.rows("calm")


def test_a_fault_for_nobody_is_refused_before_anything_is_made(weir: Weir) -> None:
    """An unknown task, point or form is an error that says what there is."""
    for fault, says in (
        ("crash:sums[0]@1us", "there is no task 'sums[0]'"),
        ("crash:sum[0]@before:snapshot.synch", "there is no point 'snapshot.synch'"),
        ("crash sum[0]", "is not of the form"),
    ):
        answer = weir("run", "sums.py", "--out", "made", "--fault", fault)
        assert answer.exit_code == 11
        assert says in answer.stderr
    assert not (weir.directory / "made").exists()


INTO_SQLITE = """
from engine import Job, SequenceSource, SqliteSink

job = Job("outside", parallelism=2)
rows = job.source(SequenceSource(0, 30), name="numbers").rebalance().map(lambda number: (number,), name="row")
rows.sink(SqliteSink("out.db", "rows", {"number": "INTEGER"}, batch_rows=2), name="out", uid="out")
"""


@pytest.mark.parametrize("fault", ["answer-lost:commit#1", "fence:prepare#1", "late-marker:commit#1"])
def test_faults_reach_a_database_outside(weir: Weir, fault: str) -> None:
    """Requests to the file of a database go through the fault; every row is there once."""
    (weir.directory / "outside.py").write_text(INTO_SQLITE)
    answer = weir("run", "outside.py", *BRISK, "--out", "made", "--fault", fault, "--json")

    assert answer.exit_code == 0, answer.stderr
    assert answer.json()["run"]["faults"] == [fault]
    assert "never struck" not in answer.stderr
    with closing(sqlite3.connect(weir.directory / "made" / "out.db")) as connection:
        assert sorted(connection.execute("SELECT number FROM rows")) == [(number,) for number in range(30)]


INTO_A_LOG = """
from engine import DiskLog, Job, LogSink, SequenceSource

job = Job("outside", parallelism=2)
job.source(SequenceSource(0, 30), name="numbers").rebalance().sink(LogSink("rows", log=DiskLog("log")), name="out")
"""


def test_faults_reach_a_log_on_disk(weir: Weir) -> None:
    """The process dies at its fifth request to a log; before that, the answer to a commit is lost. Files of the log are
    no files of a sink."""
    (weir.directory / "outside.py").write_text(INTO_A_LOG)
    faults = ("answer-lost:commit#1", "crash:process@before:sink.request#12")
    options = [part for fault in faults for part in ("--fault", fault)]
    died = weir("run", "outside.py", *BRISK, "--storage", "state", *options)
    assert died.exit_code == 18, died.stderr
    assert "before sink.request" in died.stderr
    resumed = weir("resume", "state", "--fault", "crash:process@before:sink.write#1")
    assert resumed.exit_code == 0, resumed.stderr
    assert "never struck" in resumed.stderr

    found = committed_records(LocalFileSystem(), str(weir.directory / "state" / "out" / "log"), "rows")
    assert sorted(record.value for records in found for record in records) == list(range(30))
