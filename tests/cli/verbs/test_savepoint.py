"""Savepoints by the command line: taken by a run, stopped with, made of a storage directory, and started from."""

from __future__ import annotations

import json
import shlex
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cli.runs import hold_directory
from engine.runtime.storage import find_checkpoint
from state_backends.files import LocalFileSystem, write_atomically
from state_backends.snapshots import FileStateHandle, OperatorStateHandle, StateScope, SubtaskSnapshot, locate_snapshot
from tests.cli.conftest import BRISK, Answer, Weir

RENAMED = ("--param", "step=total")


def savepoints(weir: Weir, directory: str) -> list[Path]:
    return sorted((weir.directory / directory).glob("savepoint-*"))


def stopped(weir: Weir, *arguments: str) -> Answer:
    """A run that stops at half its input, with storage in `state`."""
    answer = weir("run", "sums.py", *BRISK, "--storage", "state", "--stop-with-savepoint", "100us", *arguments)
    assert answer.exit_code == 0
    return answer


# --- taking them ------------------------------------------------------------------------------------------------------


def test_a_run_takes_savepoints(weir: Weir) -> None:
    """At each time one, in a directory of its own; their paths are told, and the report has them."""
    answer = weir("run", "sums.py", *BRISK, "--savepoint-at", "50us", "--savepoint-at", "120us", "--json")
    told = answer.json()["savepoints"]

    assert [one["at_ns"] for one in told] == [50_000, 120_000]
    assert [Path(one["path"]) for one in told] != []
    assert sorted(Path(one["path"]) for one in told) == savepoints(weir, "out/sums/1/savepoints")
    for one in told:
        assert f"savepoint {one['checkpoint_id']} in {one['path']}" in answer.stderr
        assert (one["format"], one["stop"], one["error"]) == ("canonical", None, None)


def test_savepoints_land_where_told(weir: Weir) -> None:
    """In --savepoint-dir; else in the storage directory, if there is one."""
    weir("run", "sums.py", *BRISK, "--savepoint-at", "50us", "--savepoint-dir", "mine", "--savepoint-format", "native")
    weir("run", "sums.py", *BRISK, "--savepoint-at", "50us", "--storage", "state")

    (mine,) = savepoints(weir, "mine")
    assert len(savepoints(weir, "state/savepoints")) == 1
    assert weir("inspect", str(mine), "--json").json()["properties"]["format"] == "native"


def test_a_savepoint_that_was_not_taken_is_named(weir: Weir) -> None:
    """Because the run was over, or because it could not be written; the run itself is as valid as ever."""
    late = weir("run", "sums.py", *BRISK, "--savepoint-at", "5s")
    (weir.directory / "file").touch()
    failed = weir("run", "sums.py", *BRISK, "--savepoint-at", "50us", "--savepoint-dir", "file")

    assert "note: --savepoint-at 5s never came: the run was over at +" in late.stderr
    assert "warning: --savepoint-at 50us failed: an I/O error" in failed.stderr
    assert (late.exit_code, failed.exit_code) == (2, 2)


@pytest.mark.parametrize("drain", [(), ("--drain",)])
def test_stop_with_a_savepoint_and_go_on(weir: Weir, drain: tuple[str, ...]) -> None:
    """The last line says what to type; typed, the output of both runs together is that of one."""
    answer = stopped(weir, *drain)
    assert answer.last_line.startswith("valid: the job stopped;")
    command = shlex.split(answer.last_line.partition("Next: weir ")[2])
    assert command[-2] == "--from"
    again = weir(*command, "--out", "state/out")

    assert again.exit_code == 0
    weir("run", "sums.py", *BRISK, "--out", "calm")
    assert weir.rows("state/out") == weir.rows("calm")


def test_a_stopped_directory_is_not_resumed(weir: Weir) -> None:
    """Its checkpoints are older than the savepoint: resuming from them would repeat committed output."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    answer = weir("resume", "state")

    assert answer.exit_code == 16
    assert f"was stopped with savepoint {savepoint}, which is newer than every checkpoint here" in answer.stderr
    command = shlex.split(answer.stderr.partition("go on from it: weir ")[2].splitlines()[0])
    assert weir(*["other" if one == "NEW" else one for one in command]).exit_code == 0


def test_a_resumed_run_takes_savepoints_too(weir: Weir) -> None:
    """`weir resume` has the same options."""
    first = weir("run", "sums.py", *BRISK, "--storage", "state", "--kill", "sum@90us", "--restart", "none")
    assert first.exit_code == 18
    answer = weir("resume", "state", "--savepoint-at", "1us", "--savepoint-dir", "mine")

    assert answer.exit_code == 0
    assert len(savepoints(weir, "mine")) == 1


# --- of a storage directory -------------------------------------------------------------------------------------------


def test_a_savepoint_of_a_storage_directory(weir: Weir) -> None:
    """Its path is standard output; it holds everything, and says that it is a savepoint."""
    weir("run", "sums.py", *BRISK, "--storage", "state")
    newest = weir("inspect", "state", "--json").json()
    answer = weir("savepoint", "state")
    path = answer.stdout.strip()
    shutil.rmtree(weir.directory / "state/sums")

    assert [Path(path)] == savepoints(weir, "state/savepoints")
    assert f"savepoint of checkpoint {newest['checkpoint_id']} of job sums" in answer.stderr
    found = weir("inspect", path, "--json").json()
    assert (found["kind"], found["checkpoint_id"]) == ("savepoint", newest["checkpoint_id"])
    assert found["operators"] == newest["operators"]
    text = weir("inspect", "state/savepoints").stdout
    assert text.startswith(f"canonical savepoint {newest['checkpoint_id']} of job")


def test_a_savepoint_of_a_damaged_directory_is_of_an_older_checkpoint(weir: Weir) -> None:
    """The newest usable one; without any there is none."""
    weir("run", "sums.py", *BRISK, "--storage", "state")
    older, newest = sorted(Path(weir.directory / "state/sums").glob("chk-*"), key=lambda one: int(one.name[4:]))
    (newest / "_metadata").write_bytes(b"damaged")
    answer = weir("savepoint", "state", "--savepoint-dir", "mine")
    assert f"warning: checkpoint {newest.name[4:]} cannot be used" in answer.stderr
    assert weir("inspect", "mine", "--json").json()["checkpoint_id"] == int(older.name[4:])

    (older / "_metadata").write_bytes(b"damaged")
    assert weir("savepoint", "state").exit_code == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "there is no such storage directory"),
        ((".",), "no run was started here"),
        (("state", "--savepoint-dir", "sums.py"), "cannot be written"),
        (("state", "--savepoint-dir", "/proc/nowhere"), "cannot be written (No such file or directory)"),
    ],
)
def test_what_is_no_place_for_a_savepoint(weir: Weir, arguments: tuple[str, ...], message: str) -> None:
    """No directory, no job, or no room: the error says which."""
    weir("run", "sums.py", *BRISK, "--storage", "state")
    answer = weir("savepoint", *arguments)

    assert answer.exit_code == 16
    assert message in answer.stderr
    assert answer.stdout == ""


def test_a_job_without_a_checkpoint_has_no_savepoint(weir: Weir) -> None:
    """There is nothing to make one of."""
    never = ("--checkpoint-interval", "none", "--kill", "sum@9us", "--restart", "none")
    weir("run", "sums.py", *never, "--storage", "state")
    answer = weir("savepoint", "state")

    assert answer.exit_code == 16
    assert "no checkpoint has completed" in answer.stderr


def test_the_savepoint_of_a_stopped_job_is_named(weir: Weir) -> None:
    """A copy of its newest checkpoint is older than the savepoint that stopped the job."""
    stopped(weir)

    assert "note: the job stopped with savepoint" in weir("savepoint", "state").stderr


# --- starting from one ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("claim", "is_kept"), [("no-claim", True), ("claim", False), ("legacy", True)])
def test_claim_modes(weir: Weir, claim: str, is_kept: bool) -> None:
    """Only a claimed savepoint is deleted; the first line of the restart names it."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    options = ("--from", str(savepoint), "--claim-mode", claim, "--retain", "1")
    answer = weir("run", "sums.py", *BRISK, *options, "--out", "state/out")

    assert answer.exit_code == 0
    number = json.loads((weir.directory / "state/out/run.json").read_text())["restores"][0]["checkpoint_id"]
    assert f"restored checkpoint {number}" in answer.stderr
    assert savepoint.exists() is is_kept


def test_start_from_a_checkpoint_or_a_storage_directory(weir: Weir) -> None:
    """Any pointer that `weir inspect` takes."""
    weir("run", "sums.py", *BRISK, "--storage", "state", "--kill", "sum@90us", "--restart", "none")
    newest = weir("inspect", "state", "--json").json()
    for pointer in ("state", newest["path"], f"{newest['path']}/_metadata"):
        answer = weir("run", "sums.py", *BRISK, "--from", pointer, "--json")
        assert answer.exit_code == 0
        assert answer.json()["restores"][0]["checkpoint_id"] == newest["checkpoint_id"]


def test_another_parallelism_and_another_job(weir: Weir) -> None:
    """More subtasks than before; a renamed operator needs to be told, and a new one starts empty."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    start = ("--from", str(savepoint))
    wider = weir("run", "sums.py", *BRISK, *start, "--parallelism", "3")
    refused = weir("run", "sums.py", *BRISK, *RENAMED, *start)
    dropped = weir("run", "sums.py", *BRISK, *RENAMED, *start, "--allow-non-restored-state")

    assert wider.exit_code == 0
    assert refused.exit_code == 17
    assert "uid 'reduce'" in refused.stderr
    assert "here: the same command with --allow-non-restored-state" in refused.stderr
    assert dropped.exit_code == 0
    assert "dropped" in dropped.stderr


def test_the_next_command_after_a_claim_names_nothing_that_is_gone(weir: Weir) -> None:
    """A claimed savepoint is deleted once it is subsumed; the suggested command runs all the same."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    options = ("--from", str(savepoint), "--claim-mode", "claim", "--retain", "1")
    answer = weir("run", "sums.py", *BRISK, *options)
    following = answer.last_line.partition("Next: weir ")[2]

    assert not savepoint.exists()
    assert "--from" not in following
    assert weir(*shlex.split(following)).exit_code == 0


def test_a_checkpoint_in_use_is_not_claimed(weir: Weir) -> None:
    """The run that holds its storage directory may have to go back to it; starting from it without claiming goes."""
    weir("run", "sums.py", *BRISK, "--storage", "state", "--kill", "sum@90us", "--restart", "none")
    with hold_directory(LocalFileSystem(), str(weir.directory / "state")):
        claimed = weir("run", "sums.py", *BRISK, "--from", "state", "--claim-mode", "claim", "--storage", "next")
        borrowed = weir("run", "sums.py", *BRISK, "--from", "state")

    assert (claimed.exit_code, borrowed.exit_code) == (16, 0)
    assert "use --claim-mode no-claim" in claimed.stderr
    assert not (weir.directory / "next/weir-job.json").exists()


def test_dropping_state_with_storage_is_told_as_a_command(weir: Weir) -> None:
    """The refused run has taken its storage directory, so it is resumed, not run again."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    answer = weir("run", "sums.py", *BRISK, *RENAMED, "--from", str(savepoint), "--storage", "next")
    (told,) = [line for line in answer.stderr.splitlines() if line.startswith("  here: weir ")]

    assert weir(*shlex.split(told.removeprefix("  here: weir "))).exit_code == 0


def test_a_crashed_run_from_a_savepoint_is_resumed_from_it(weir: Weir) -> None:
    """Before its first checkpoint the savepoint is all there is: the descriptor remembers it, and whose it is."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    start = ("--from", str(savepoint), "--claim-mode", "legacy")
    first = weir("run", "sums.py", *BRISK, *start, "--storage", "next", "--kill", "sum@5us", "--restart", "none")
    assert first.exit_code == 18
    kept = json.loads((weir.directory / "next/weir-job.json").read_text())
    assert (kept["restore_path"], kept["claim_mode"]) == (str(savepoint), "legacy")
    answer = weir("resume", "next", "--json")

    assert answer.exit_code == 0
    number = weir("inspect", str(savepoint), "--json").json()["checkpoint_id"]
    assert answer.json()["restores"][0]["checkpoint_id"] == number


def test_output_of_another_job_is_not_taken_over(weir: Weir) -> None:
    """A run that goes on may go on with the output of the same job, and of no other."""
    stopped(weir)
    (savepoint,) = savepoints(weir, "state/savepoints")
    weir("run", "sums.py", "--param", "name=other", "--out", "theirs")
    answer = weir("run", "sums.py", *BRISK, "--from", str(savepoint), "--out", "theirs")

    assert answer.exit_code == 16
    assert "holds the output of another run" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("--drain",), 11, "add --stop-with-savepoint TIME"),
        (("--savepoint-dir", "x"), 11, "add --savepoint-at TIME"),
        (("--savepoint-at", "soon"), 11, "--savepoint-at 'soon' is not a time"),
        (("--stop-with-savepoint", "never"), 11, "--stop-with-savepoint 'never' is not a time"),
        (("--savepoint-format", "native"), 11, "--savepoint-format native says how savepoints are written, but none"),
        (("--mode", "none", "--savepoint-at", "1ms"), 11, "a savepoint needs a mode that takes snapshots"),
        (("--mode", "none", "--stop-with-savepoint", "1ms"), 11, "stopping with a savepoint needs a mode"),
        (("--claim-mode", "claim"), 11, "--claim-mode claim says whose a savepoint is: add --from PATH"),
        (("--allow-non-restored-state",), 11, "add --from PATH"),
        (("--from", "nowhere"), 16, "there is no such file or directory"),
        (("--from", "sums.py"), 16, "is a file, but no _metadata"),
        (("--from", "."), 16, "holds no completed checkpoint"),
        (("--savepoint-format", "rocks"), 11, "'rocks' is none of canonical, native"),
    ],
)
def test_contradictions_are_refused_before_anything_is_created(
    weir: Weir, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    """The error names the typed options, and what to type instead."""
    answer = weir("run", "sums.py", *arguments)

    assert answer.exit_code == exit_code
    assert message in answer.stderr
    assert [one.name for one in weir.directory.iterdir()] == ["sums.py"]


def test_several_savepoints_need_a_name(weir: Weir) -> None:
    """A directory of savepoints stands for the only one in it; an unfinished one is told apart."""
    weir("run", "sums.py", *BRISK, "--savepoint-at", "50us", "--savepoint-at", "120us", "--savepoint-dir", "mine")
    first, second = savepoints(weir, "mine")
    several = weir("inspect", "mine")
    assert several.exit_code == 16
    assert str(first) in several.stderr
    (second / "_metadata").unlink()

    assert weir("inspect", "mine").exit_code == 0
    unfinished = weir("inspect", str(second))
    assert unfinished.exit_code == 16
    assert "this savepoint was never completed" in unfinished.stderr


# --- the job manager, regions and the other settings ------------------------------------------------------------------


def test_the_job_manager_can_be_killed(weir: Weir) -> None:
    """By its name; the output is that of an undisturbed run."""
    calm = weir("run", "sums.py", *BRISK, "--out", "calm")
    killed = weir("run", "sums.py", *BRISK, "--out", "killed", "--kill", "job manager@70us", "--json")

    assert (calm.exit_code, killed.exit_code) == (0, 0)
    assert killed.json()["run"]["attempts"] == 2
    assert any("the job manager was killed" in note for note in killed.json()["notes"])
    assert weir.rows("killed") == weir.rows("calm")


@pytest.mark.parametrize(
    "options",
    [
        ("--failover", "region"),
        ("--mode", "aligned-timeout", "--aligned-timeout", "2us"),
        ("--mode", "aligned-timeout"),
        ("--mode", "unaligned"),
        ("--max-concurrent", "3"),
        ("--checkpoints-after-tasks-finish", "false"),
        ("--restart", "exponential:1us:10us"),
        ("--restart", "rate:3:1m:1us"),
        ("--checkpoint-interval", "10us", "--interval-during-backlog", "20us"),
    ],
)
def test_every_setting_runs_and_is_remembered(weir: Weir, options: tuple[str, ...]) -> None:
    """With a kill and without; a resumed run has it, too, and the suggested command as well."""
    calm = weir("run", "sums.py", "--batch-size", "4", "--checkpoint-interval", "20us", "--out", "calm")
    first = ("run", "sums.py", "--batch-size", "4", "--checkpoint-interval", "20us", *options)
    answer = weir(*first, "--storage", "state", "--kill", "sum@70us")
    repeated = weir(*shlex.split(weir(*first).last_line.partition("Next: weir ")[2]))

    assert (calm.exit_code, answer.exit_code, repeated.exit_code) == (0, 0, 0)
    assert weir.rows("state/out") == weir.rows("calm")
    assert weir("resume", "state").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--aligned-timeout", "3ms"), "in mode aligned no barrier turns unaligned"),
        (("--aligned-timeout", "3ms"), "here: --aligned-timeout 3ms\n"),
        (("--restart", "rate:0"), "here: --restart rate:0\n"),
        (("--mode", "aligned-timeout", "--aligned-timeout", "20m"), "longer than checkpoint_timeout_ns"),
        (("--mode", "unaligned", "--max-concurrent", "2"), "set max_concurrent to 1"),
        (("--interval-during-backlog", "1ms"), "shorter than checkpoint_interval"),
        (("--checkpoint-timeout", "0s"), "checkpoint_timeout_ns is 0; it must be at least 1"),
        (("--restart", "exponential:1s:1ms"), "restart max_ns is 1000000"),
        (("--kill", "jobmanager@1ms"), "did you mean 'job manager'?"),
    ],
)
def test_settings_that_make_no_sense_are_refused(weir: Weir, arguments: tuple[str, ...], message: str) -> None:
    """Exit code 11, the setting and what to set instead; nothing is created."""
    answer = weir("run", "sums.py", *arguments)

    assert answer.exit_code == 11
    assert message in answer.stderr
    assert [one.name for one in weir.directory.iterdir()] == ["sums.py"]


def test_a_checkpoint_that_names_files_of_others_is_refused_before_anything_is_created(weir: Weir) -> None:
    """Its metadata has a valid checksum. The error names both files; no storage and no output directory is made."""
    weir("run", "sums.py", *BRISK, "--storage", "state")
    files = LocalFileSystem()
    location, metadata = locate_snapshot(files, find_checkpoint(files, str(weir.directory / "state")).directory)
    (weir.directory / "letter.txt").write_text("dear Ann")
    letter = FileStateHandle(str(weir.directory / "letter.txt"), StateScope.SHARED, 8, zlib.crc32(b"dear Ann"))
    operator = replace(metadata.operators[0], subtasks={0: SubtaskSnapshot(operator=OperatorStateHandle({}, letter))})
    forged = replace(metadata, operators=(operator, *metadata.operators[1:]))
    write_atomically(files, location.metadata_path, forged.to_bytes())
    before = sorted(weir.directory.iterdir())

    for verb in (("run", "sums.py", "--claim-mode", "claim", "--storage", "next", "--from"), ("inspect",)):
        answer = weir(*verb, location.directory)
        assert answer.exit_code == 15
        assert "letter.txt" in answer.stderr
        assert "Nothing was read or deleted there" in answer.stderr

    assert sorted(weir.directory.iterdir()) == before
    assert (weir.directory / "letter.txt").read_text() == "dear Ann"
