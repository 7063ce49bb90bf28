"""`weir resume`: continues where a run ended, and refuses a resume that it cannot do right."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from state_backends.files import LocalFileSystem
from tests.cli.conftest import BRISK, SUMS, Weir

BRISK_STORED = (*BRISK, "--storage", "state")


def crash(weir: Weir, *options: str) -> None:
    """Start the job with storage and have SIGKILL end it in the middle."""
    trap = weir.directory / "trap"
    trap.touch()
    answer = weir.process("run", "sums.py", *BRISK_STORED, *options, TRAP=str(trap))
    assert answer.exit_code == -signal.SIGKILL, answer.stderr
    assert not trap.exists()


def checkpoints(weir: Weir) -> list[Path]:
    found = [path.parent for path in (weir.directory / "state/sums").glob("chk-*/_metadata")]
    return sorted(found, key=lambda path: int(path.name.removeprefix("chk-")))


def flip_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_output_after_sigkill_and_resume_is_that_of_an_undisturbed_run(weir: Weir) -> None:
    """Recovery is real: a killed process, a new one, and the same committed rows."""
    weir("run", "sums.py", *BRISK, "--out", "calm")
    crash(weir)
    committed_before = sum(map(len, weir.rows("state/out").values()))
    answer = weir("resume", "state")

    assert answer.exit_code == 0
    assert "restored checkpoint" in answer.stderr
    assert "incarnation 2" in answer.stderr.splitlines()[0]
    assert 0 < committed_before < 200
    assert weir.rows("state/out") == weir.rows("calm")


def test_files_that_vanished_while_nothing_ran_are_a_loss(weir: Weir) -> None:
    """Pending files of the newest checkpoint exist under no name: exit code 1, and the last line names a file."""
    crash(weir)
    for path in (weir.directory / "state/out/sums").rglob("*part-*"):
        path.unlink()
    answer = weir("resume", "state")

    assert answer.exit_code == 1
    assert answer.last_line.startswith("violated: records that a completed checkpoint covers are lost: sink 'out'")
    assert "state/out/sums" in answer.last_line
    report = json.loads((weir.directory / "state/out/run.json").read_text())
    assert report["losses"]
    assert all("is neither pending nor committed" in loss for loss in report["losses"])


def test_a_run_killed_before_its_first_checkpoint_begins_again(weir: Weir) -> None:
    """The killed run had not committed any row, so none is lost or doubled; the message says so."""
    trap = weir.directory / "trap"
    trap.touch()
    arguments = ("run", "sums.py", "--batch-size", "4", "--storage", "state")
    assert weir.process(*arguments, TRAP=str(trap)).exit_code == -signal.SIGKILL
    answer = weir("resume", "state")

    assert answer.exit_code == 0
    assert "no checkpoint had completed: starting from the beginning" in answer.stderr
    assert sum(map(len, weir.rows("state/out").values())) == 200


def test_options_and_parameters_come_from_the_first_start(weir: Weir) -> None:
    """The descriptor holds them; the report shows them again, also from another directory."""
    weir("run", "sums.py", *BRISK_STORED, "--param", "records=30", "--seed", "9", "--parallelism", "2")
    (weir.directory / "elsewhere").mkdir()
    before = Path.cwd()
    report = weir.process("resume", str(weir.directory / "state"), "--json").json()

    assert report["job"]["params"] == {"records": "30"}
    assert report["run"]["seed"] == "9"
    assert report["run"]["options"]["parallelism"] == 2
    assert set(report["job"]["parallelism"].values()) == {2}
    assert report["run"]["output_dir"] == str(weir.directory / "state/out")
    assert Path.cwd() == before


def test_a_finished_job_has_nothing_left_to_do(weir: Weir) -> None:
    """Resuming it commits nothing new."""
    weir("run", "sums.py", *BRISK_STORED)
    rows = weir.rows("state/out")
    answer = weir("resume", "state")

    assert answer.exit_code == 0
    assert weir.rows("state/out") == rows


def test_a_damaged_checkpoint_is_reported_and_an_older_one_used(weir: Weir) -> None:
    """The report names the file, the damage, and the checkpoint that the run resumes from instead."""
    crash(weir)
    older, newest = checkpoints(weir)
    flip_byte(newest / "_metadata")
    answer = weir("resume", "state")

    assert answer.exit_code == 0
    assert f"warning: checkpoint {newest.name.removeprefix('chk-')} cannot be used" in answer.stderr
    assert f"going back to checkpoint {older.name.removeprefix('chk-')}" in answer.stderr
    assert f"restored checkpoint {older.name.removeprefix('chk-')}" in answer.stderr


def test_nothing_usable_is_refused_rather_than_committed_twice(weir: Weir) -> None:
    """Beginning again after committed output would double it; the output is left alone."""
    crash(weir)
    for checkpoint in checkpoints(weir):
        flip_byte(checkpoint / "_metadata")
    rows = weir.rows("state/out")
    answer = weir("resume", "state")

    assert answer.exit_code == 16
    assert "none can be restored" in answer.stderr
    assert "would commit rows twice" in answer.stderr
    assert weir.rows("state/out") == rows


def test_a_storage_directory_in_use_is_refused(weir: Weir) -> None:
    """Both verbs refuse a directory that another process holds, and name it."""
    weir("run", "sums.py", *BRISK_STORED)
    lock = LocalFileSystem().lock_directory(str(weir.directory / "state"))
    try:
        answers = [weir("resume", "state"), weir("run", "sums.py", "--storage", "state")]
    finally:
        lock.release()

    assert [answer.exit_code for answer in answers] == [16, 16]
    assert all("is in use by process" in answer.stderr for answer in answers)
    assert weir("resume", "state").exit_code == 0


def test_a_second_run_over_a_storage_directory_is_refused(weir: Weir) -> None:
    """Starting anew would commit the first run's output again; the message says how to go on with it."""
    weir("run", "sums.py", *BRISK_STORED)
    rows = weir.rows("state/out")
    answer = weir("run", "sums.py", "--storage", "state", "--out", "other")

    assert answer.exit_code == 16
    assert f"weir resume {weir.directory / 'state'}" in answer.stderr
    assert weir.rows("state/out") == rows
    assert not (weir.directory / "other").exists()


def test_checkpoints_that_no_command_line_made_are_not_mixed_with(weir: Weir) -> None:
    """A run would count on from foreign checkpoints, and delete them as its own."""
    weir("run", "sums.py", *BRISK_STORED)
    (weir.directory / "state/weir-job.json").unlink()
    (weir.directory / "state/out/run.json").unlink()
    answer = weir("run", "sums.py", "--storage", "state")

    assert answer.exit_code == 16
    assert "that weir run did not start" in answer.stderr


def test_a_job_that_lost_an_operator_is_refused_by_uid(weir: Weir) -> None:
    """State without an owner is named; dropping it must be asked for."""
    crash(weir)
    (weir.directory / "sums.py").write_text(SUMS.replace('step: str = "reduce"', 'step: str = "renamed"'))
    refused = weir("resume", "state")
    allowed = weir("resume", "state", "--allow-non-restored-state")

    assert refused.exit_code == 17
    assert "reduce" in refused.stderr
    assert f"weir resume {weir.directory}/state --allow-non-restored-state" in refused.stderr
    assert allowed.exit_code == 0, allowed.stderr


def test_a_job_file_that_defines_another_job_is_refused(weir: Weir) -> None:
    """The name of the job is part of where its state lies."""
    weir("run", "sums.py", *BRISK_STORED)
    (weir.directory / "sums.py").write_text(SUMS.replace('name: str = "sums"', 'name: str = "others"'))
    answer = weir("resume", "state")

    assert answer.exit_code == 17
    assert "now defines job 'others'" in answer.stderr


def test_a_job_file_that_is_gone_is_named(weir: Weir) -> None:
    """The error names the file, and where to write its new place."""
    weir("run", "sums.py", *BRISK_STORED)
    (weir.directory / "sums.py").rename(weir.directory / "moved.py")
    answer = weir("resume", "state")

    assert answer.exit_code == 19
    assert "weir-job.json" in answer.stderr


@pytest.mark.parametrize(
    ("prepare", "message"), [("missing", "there is no such storage directory"), ("empty", "no run was started here")]
)
def test_a_directory_without_a_descriptor_is_refused(weir: Weir, prepare: str, message: str) -> None:
    """The error says what is missing, and looking does not create a missing directory."""
    state = weir.directory / "state"
    if prepare == "empty":
        state.mkdir()
    answer = weir("resume", "state")

    assert answer.exit_code == 16, answer.stderr
    assert message in answer.stderr
    assert state.exists() == (prepare == "empty")


def test_kills_apply_to_one_start_only(weir: Weir) -> None:
    """A fault is no property of the job: the resumed run has its own."""
    weir("run", "sums.py", *BRISK_STORED, "--kill", "sum@50us", "--restart", "none")
    killed_again = weir("resume", "state", "--kill", "sum@1us")
    calm = weir("resume", "state")

    assert killed_again.exit_code == 18
    assert killed_again.last_line.endswith(f"Next: weir resume {weir.directory / 'state'}")
    assert calm.exit_code == 0
    assert sum(map(len, weir.rows("state/out").values())) == 200


def test_each_start_traces_into_a_file_of_its_own(weir: Weir) -> None:
    """The trace of the crashed run stays, since the user will want to look at it."""
    weir("run", "sums.py", *BRISK_STORED, "--trace")
    weir("resume", "state", "--trace")

    assert {path.name for path in (weir.directory / "state/out").glob("*.jsonl")} == {"trace.jsonl", "trace-2.jsonl"}


def test_relative_source_paths_mean_what_they_meant(weir: Weir) -> None:
    """A job that reads beside where it was started finds its input again from elsewhere."""
    (weir.directory / "lines.txt").write_text("a\nb\nc\n")
    (weir.directory / "reader.py").write_text(
        "from pathlib import Path\n"
        "from engine import CollectionSource, FileSink, Job\n"
        "def job():\n"
        "    job = Job('reader')\n"
        "    job.source(CollectionSource(Path('lines.txt').read_text().split())).sink(FileSink('sums'))\n"
        "    return job\n"
    )
    assert weir("run", "reader.py", "--storage", "state").exit_code == 0
    elsewhere = weir.directory / "elsewhere"
    elsewhere.mkdir()

    assert Weir(elsewhere).process("resume", str(weir.directory / "state")).exit_code == 0


def test_a_storage_directory_cannot_hold_a_job_of_a_reserved_name(weir: Weir) -> None:
    """A job named like the directory's own output directory would mix with it."""
    answer = weir("run", "sums.py", "--storage", "state", "--param", "name=out")

    assert answer.exit_code == 11
    assert sys.platform == "win32" or "give the job another name" in answer.stderr
