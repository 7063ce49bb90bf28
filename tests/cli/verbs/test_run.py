"""`weir run`: its text on both streams, the place of its output, and its exit code."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from engine.cli.text import progress_line
from engine.runtime.execution import Progress
from state_backends.base import unseal_json
from tests.cli.conftest import BRISK, Weir

LONG = """
from engine import CollectionSource, Job

job = Job("long")
stream = job.source(CollectionSource([0, 1, 2]))
for number in range(500):
    stream = stream.map(lambda value: value + 1)
stream.print()
"""


def test_first_line_says_what_is_needed_to_do_it_again(weir: Weir) -> None:
    """Versions, job, mode and seed stand in the first line, on standard error; standard output stays empty."""
    answer = weir("run", "sums.py", "--seed", "lucky")
    first = answer.stderr.splitlines()[0]

    assert answer.exit_code == 0
    assert answer.stdout == ""
    assert first.startswith("weir 0.")
    assert first.endswith("job sums, mode aligned, seed lucky")


def test_a_run_ends_with_five_lines(weir: Weir) -> None:
    """The run, its failures, the checkpoints, the output, the verdict; `--table` puts the tables before them."""
    faults = ("--checkpoint-interval", "20us", "--kill", "sum[0]@50us")
    _, *lines = weir("run", "sums.py", *faults).stderr.splitlines()
    tables = weir("run", "sums.py", *faults, "--table").stderr.splitlines()

    parts = ("200 records in ", "attempt 1 ended: sum", " checkpoints completed", "output in ", "valid: ")
    assert [part in line for line, part in zip(lines, parts, strict=True)] == [True] * 5, lines
    assert "Tasks, each in its last attempt" in tables
    assert (tables[-6], tables[-5]) == ("", lines[0])


def test_last_line_has_the_verdict_and_the_next_command(weir: Weir) -> None:
    """The command it names can be typed: it runs, and comes out well."""
    answer = weir("run", "sums.py")
    assert answer.last_line.startswith("valid: the job finished; 1 completed checkpoint, each a consistent cut.")
    command = answer.last_line.partition("Next: weir ")[2]
    assert "--kill" in command

    again = weir(*shlex.split(command))
    assert again.exit_code == 0
    assert "was killed" in again.stderr


def test_each_run_gets_a_directory_of_its_own(weir: Weir) -> None:
    """No run overwrites another; `latest` points to the newest; relative sink paths land in it."""
    weir("run", "sums.py")
    weir("run", "sums.py", "--param", "records=10")
    parent = weir.directory / "out/sums"

    assert sorted(one.name for one in parent.iterdir()) == ["1", "2", "latest"]
    assert (parent / "latest").resolve() == parent / "2"
    assert sum(map(len, weir.rows("out/sums/1").values())) == 200
    assert sum(map(len, weir.rows("out/sums/latest").values())) == 10


def test_json_is_the_only_thing_on_standard_output(weir: Weir) -> None:
    """`--json` prints the report, the same as in run.json, even when the job itself prints."""
    (weir.directory / "loud.py").write_text(
        "from engine import CollectionSource, Job\n"
        "def job():\n"
        "    job = Job('loud')\n"
        "    job.source(CollectionSource([1, 2])).map(lambda v: print('hello') or v).print()\n"
        "    return job\n"
    )
    answer = weir("run", "loud.py", "--json")

    assert answer.json()["verdict"]["name"] == "valid"
    assert answer.stderr.count("hello") == 2
    assert answer.json() == unseal_json((weir.directory / "out/loud/1/run.json").read_text())


def test_same_seed_same_report(weir: Weir) -> None:
    """Two processes with different hash seeds give the same bytes, files and digests included."""
    arguments = ("run", "sums.py", *BRISK, "--kill", "sum@50us", "--parallelism", "2", "--json")
    reports = []
    for number in ("1", "2"):
        out = ("--out", f"run{number}")
        reports.append(weir.process(*arguments, *out, PYTHONHASHSEED=number).stdout.replace(f"run{number}", "run"))
    first, second = weir.rows("run1"), weir.rows("run2")

    assert reports[0] == reports[1]
    assert json.loads(reports[0])["run"]["attempts"] == 2
    assert first == second


def test_a_kill_changes_nothing_in_the_output(weir: Weir) -> None:
    """Exactly-once: after a crash and a restart the committed rows are those of the undisturbed run."""
    calm = weir("run", "sums.py", *BRISK, "--out", "calm")
    killed = weir("run", "sums.py", *BRISK, "--out", "killed", "--kill", "sum[0]@50us", "--json")

    assert (calm.exit_code, killed.exit_code) == (0, 0)
    assert killed.json()["restores"][1]["checkpoint_id"] is not None
    assert weir.rows("killed") == weir.rows("calm")


def test_a_kill_that_never_struck_is_named(weir: Weir) -> None:
    """Otherwise a crash that did not happen would count as one that the job survived."""
    late = weir("run", "sums.py", *BRISK, "--kill", "sum[0]@5s")
    in_time = weir("run", "sums.py", *BRISK, "--kill", "sum[0]@50us")

    assert "note: --kill sum[0]@5s never struck: the run was over at +" in late.stderr
    assert "never struck" not in in_time.stderr


def test_out_is_taken_literally_and_never_twice(weir: Weir) -> None:
    """`--out` is exactly that directory, may hold other files, and is refused when it holds a run."""
    (weir.directory / "mine").mkdir()
    (weir.directory / "mine/notes.txt").write_text("keep")

    assert weir("run", "sums.py", "--out", "mine").exit_code == 0
    again = weir("run", "sums.py", "--out", "mine")
    assert again.exit_code == 16
    assert "holds the output of another run" in again.stderr
    assert (weir.directory / "mine/notes.txt").read_text() == "keep"


def test_trace_lies_beside_the_report_or_where_told(weir: Weir) -> None:
    """Every event of the digest is a line, after one with the version."""
    report = weir("run", "sums.py", "--json", "--trace").json()
    lines = Path(report["run"]["trace_file"]).read_text().splitlines()
    weir("run", "sums.py", "--trace", "here.jsonl")

    assert report["run"]["trace_file"] == str(weir.directory / "out/sums/1/trace.jsonl")
    assert len(lines) == 1 + report["run"]["trace_events"]
    assert (weir.directory / "here.jsonl").read_text().splitlines() == lines


def test_trace_does_not_write_over_the_job(weir: Weir) -> None:
    """`--trace sums.py` has swallowed the job's name; the file stays as it was."""
    before = (weir.directory / "sums.py").read_text()
    answer = weir("run", "sums.py", "--trace", "sums.py")

    assert answer.exit_code == 11
    assert "put --trace after the job file" in answer.stderr
    assert (weir.directory / "sums.py").read_text() == before


@pytest.mark.parametrize(("form", "expected"), [("text", "numbers"), ("mermaid", "flowchart")])
def test_explain_prints_the_plan_and_runs_nothing(weir: Weir, form: str, expected: str) -> None:
    """The drawing is data, on standard output; no directory is made."""
    answer = weir("run", "sums.py", "--explain", form)

    assert answer.exit_code == 0
    assert expected in answer.stdout
    assert not (weir.directory / "out").exists()


def test_parallelism_is_that_of_operators_that_do_not_say(weir: Weir) -> None:
    """It also reaches a job function that asks for it, and ends with the command."""
    assert weir("run", "sums.py", "--parallelism", "2", "--json").json()["job"]["parallelism"] == {
        "numbers -> map": 2, "sum -> out": 2,
    }  # fmt: skip
    assert set(weir("run", "sums.py", "--json").json()["job"]["parallelism"].values()) == {1}


def test_at_least_once_says_what_a_restore_would_count_twice(weir: Weir) -> None:
    """Orphans are no violation in a mode that predicts them."""
    options = ("--mode", "at-least-once", "--parallelism", "2")
    answer = weir("run", "sums.py", *BRISK, *options)

    assert answer.exit_code == 0
    assert "completed checkpoints lose nothing, and hold" in answer.last_line
    once = weir("run", "sums.py", "--mode", "at-least-once", "--checkpoint-interval", "none")
    assert "1 completed checkpoint loses nothing, and holds" in once.last_line


def test_a_user_error_is_told_without_traceback(weir: Weir) -> None:
    """Function, record, line and fix; exit code 12; the traceback on request."""
    (weir.directory / "bad.py").write_text(
        "from engine import CollectionSource, Job\n"
        "def parse(value):\n"
        "    return 1 // (value - 3)\n"
        "def job():\n"
        "    job = Job('bad')\n"
        "    job.source(CollectionSource([1, 2, 3])).map(parse, name='parse').print()\n"
        "    return job\n"
    )
    answer = weir("run", "bad.py", "--restart", "none")

    assert answer.exit_code == 12
    assert "map function of operator 'parse' raised ZeroDivisionError" in answer.stderr
    assert "record  3" in answer.stderr
    assert "bad.py:3, in parse" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.last_line.startswith("failed: the job failed (UserFunctionError). Next: fix the cause, then ")
    traced = weir.process("run", "bad.py", "--restart", "none", WEIR_TRACEBACK="1")
    assert "Traceback" in traced.stderr
    assert traced.stderr.count("engine.elements.errors.JobFailedError") == 0


def test_a_job_killed_too_often_has_failed(weir: Weir) -> None:
    """The restart strategy is used up: exit code 18, and the message names it."""
    answer = weir("run", "sums.py", *BRISK, "--kill", "sum@50us", "--restart", "none")

    assert answer.exit_code == 18
    assert "no restart" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("--kill", "sun[0]@1ms"), 11, "did you mean 'sum[0]'?"),
        (("--kill", "sum[0]"), 11, "not of the form NAME@TIME"),
        (("--checkpoint-interval", "5"), 11, "e.g. 250ms; or a number of source records, e.g. 10000rec"),
        (("--checkpoint-interval", "0ms"), 11, "must be above 0"),
        (("--checkpoint-timeout", "1parsec"), 11, "checkpoint timeout '1parsec'"),
        (("--restart", "maybe"), 11, "fixed:3:10ms"),
        (("--param", "records"), 11, "name=value"),
        (("--param", "record=3"), 19, "did you mean 'records'?"),
        (("--mode", "exactly"), 11, "did you mean 'exactly-once'?"),
        (("--batch-size", "0"), 11, "--batch-size: 0 is too small"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_made(
    weir: Weir, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    """The message says what was wrong and what would do; no directory is left."""
    answer = weir("run", "sums.py", "--storage", "state", *arguments)

    assert answer.exit_code == exit_code, answer.stderr
    assert message in answer.stderr
    assert sorted(one.name for one in weir.directory.iterdir()) == ["sums.py"]


def test_the_place_of_an_error_is_a_line_of_a_file(weir: Weir) -> None:
    """Not one of a package's compiled code, which the user cannot look at."""
    (weir.directory / "a.parquet").write_text("no")
    (weir.directory / "odd.py").write_text(
        "from engine import FileSource, Job, ParquetInputFormat\n"
        "def job():\n"
        "    job = Job('odd')\n"
        "    job.source(FileSource('a.parquet', ParquetInputFormat())).print()\n"
        "    return job\n"
    )
    pytest.importorskip("pyarrow")
    answer = weir("run", "odd.py", "--restart", "none")

    assert answer.exit_code == 13
    assert "a.parquet: not a whole Parquet file" in answer.stderr
    assert ".pxi" not in answer.stderr


def test_a_graph_that_cannot_run_is_refused(weir: Weir) -> None:
    """The graph's own error comes through, with its exit code."""
    (weir.directory / "empty.py").write_text("from engine import Job\njob = Job('empty')\n")

    assert weir("run", "empty.py").exit_code == 10


def test_a_bug_of_weir_shows_everything(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken invariant is no user's mistake: full traceback, and it says so."""
    from engine.runtime.execution import Execution

    def broken(self: Execution, progress: object = None) -> None:
        raise AssertionError("queue went negative")

    monkeypatch.setattr(Execution, "run", broken)
    answer = weir("run", "sums.py")

    assert answer.exit_code == 3
    assert "Traceback" in answer.stderr
    assert "queue went negative" in answer.stderr
    assert "this is a bug of Weir" in answer.last_line


def test_help_shows_examples_first_and_the_exit_codes(weir: Weir) -> None:
    """Every verb is listed, and the table of exit codes is there."""
    text = weir("--help").stdout

    assert text.index("Examples:") < text.index("Options:")
    assert all(f"\n  {verb} " in text for verb in ("run", "resume", "inspect"))
    assert "12 a user's function raised" in text
    assert weir("--version").stdout.startswith("weir 0.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no verb is given; there are run, resume"),
        (("rum",), "there is no verb rum; did you mean run?"),
        (("swim",), "there are run, resume"),
        (("run",), "missing argument 'JOB'"),
        (("run", "sums.py", "--paralelism", "2"), "there is no option --paralelism; did you mean --parallelism?"),
        (("run", "sums.py", "--mode", "exactlyonce"), "did you mean 'exactly-once'?"),
        (("run", "sums.py", "--parallelism", "-2"), "--parallelism: -2 is too small; the least is 1"),
        (("run", "sums.py", "--parallelism", "two"), "'two' is no whole number; write 1 or more"),
        (("run", "sums.py", "--mode"), "'--mode' requires an argument"),
    ],
)
def test_wrong_usage_is_told_with_what_would_do(weir: Weir, arguments: tuple[str, ...], message: str) -> None:
    """It exits with 11, not with click's 2, which means *unknown* here; the message is an error of ours."""
    answer = weir(*arguments)

    assert answer.exit_code == 11
    assert f"error: {message}" in answer.stderr or message in answer.stderr.split("error: ")[1]
    assert answer.stdout == ""


def test_a_job_file_with_another_name_is_not_suggested(weir: Weir) -> None:
    """`visits.py` is no slip of the hand for `sums.py`."""
    assert "did you mean" not in weir("run", "visits.py").stderr
    assert "did you mean sums.py?" in weir("run", "sum.py").stderr


def test_a_killed_run_keeps_its_directory(weir: Weir) -> None:
    """A run that never came to write its report still owns its output: another one may not mix with it."""
    (weir.directory / "trap").touch()
    weir.process("run", "sums.py", *BRISK, "--out", "mine", TRAP=str(weir.directory / "trap"))
    report = json.loads((weir.directory / "mine/run.json").read_text())

    assert report["run"]["state"] == "running"
    assert weir("run", "sums.py", "--out", "mine").exit_code == 16


def test_progress_is_shown_on_terminals_only() -> None:
    """A line with virtual time, records, checkpoints and attempt; a log file gets none, a dumb one no colours."""
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, width=120, no_color=True)
    with progress_line(terminal, lambda: 5) as show:
        assert show is not None
        show(Progress(virtual_ns=1_500_005, source_records=1234, checkpoints_completed=2, attempt=3))
    with progress_line(Console(file=io.StringIO()), lambda: 0) as nothing:
        assert nothing is None

    assert "+1.5ms virtual, 1,234 records, 2 checkpoints, attempt 3" in file.getvalue()


def test_exactly_once_is_another_name_of_aligned(weir: Weir) -> None:
    """The guarantee may be asked for by its name."""
    answer = weir("run", "sums.py", "--mode", "exactly-once")

    assert answer.exit_code == 0
    assert "each a consistent cut" in answer.stderr


def test_a_job_of_many_operators_runs_and_is_searched(weir: Weir) -> None:
    """500 in a row without a shuffle, each of which adds one to every record: Python's stack is deep enough."""
    (weir.directory / "long.py").write_text(LONG)
    answer = weir("run", "long.py")

    assert answer.stdout.split() == ["500", "501", "502"]
    assert answer.exit_code == 0

    searched = weir("explore", "long.py", "--runs", "1", "--fault", "none", "--json").json()
    assert searched["coverage"]["runs"] == 1
    assert searched["failures"] == []
