"""Options about keyed state: typed, stored, changed at resume; `weir inspect` shows every form of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import BRISK, Answer, Weir

BACKENDS = ("heap", "lsm", "changelog", "changelog:lsm")
FORM_OF = {"heap": "incremental", "lsm": "incremental", "changelog": "changelog", "changelog:lsm": "changelog"}
RUN = ("run", "sums.py", *BRISK, "--storage", "state", "--parallelism", "2")


def sums(weir: Weir) -> list[str]:
    """The committed rows of a run that is done, whichever way it got there."""
    return sorted(row for rows in weir.rows("state/out").values() for row in rows)


def expected(tmp_path: Path) -> list[str]:
    """The rows of an undisturbed run on the heap."""
    other = Weir(tmp_path)
    answer = other("run", "sums.py", *BRISK, "--out", str(tmp_path / "heap"), "--parallelism", "2")
    assert answer.exit_code == 0, answer.stderr
    return sorted(row for rows in other.rows("heap").values() for row in rows)


def keyed(answer: Answer) -> list[dict[str, Any]]:
    """The keyed state of every subtask in the JSON of an inspected checkpoint."""
    found = [one["keyed"] for operator in answer.json()["operators"] for one in operator["subtasks"]]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("snapshot", ["full", "incremental"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_state_backend_runs_and_its_checkpoints_are_shown(weir: Weir, backend: str, snapshot: str) -> None:
    """A run that is killed in the middle ends as on the heap; the same sums are in its last checkpoint."""
    answer = weir(*RUN, "--state-backend", backend, "--snapshot", snapshot, "--kill", "sum[0]@60us", "--json")
    inspected = weir("inspect", "state", "--json")
    text = weir("inspect", "state")

    assert answer.exit_code == 0, answer.stderr
    assert answer.json()["run"]["state_backend"] == backend
    assert answer.json()["run"]["snapshot"] == snapshot
    assert sums(weir) == expected(weir.directory)
    states = keyed(inspected)
    is_full = snapshot == "full" and not backend.startswith("changelog")
    assert {one["form"] for one in states} == {"full" if is_full else FORM_OF[backend]}
    shown = {entry["key"]: entry["value"] for one in states for entry in one["states"][0]["shown"]}
    assert shown == {key: 40 * (key + 1) for key in range(5)}
    assert text.exit_code == 0, text.stderr
    if not is_full:
        assert "of which this checkpoint uploaded" in text.stdout


def test_files_of_a_store_are_shown_with_level_size_and_origin(weir: Weir) -> None:
    """Which of them this checkpoint has uploaded; which an earlier one has, and that one's number."""
    assert weir(*RUN, "--state-backend", "lsm", "--snapshot", "incremental", "--retain", "3").exit_code == 0
    numbers = sorted(int(path.name[4:]) for path in (weir.directory / "state/sums").glob("chk-*"))
    shown = {number: keyed(weir("inspect", f"state/sums/chk-{number}", "--json")) for number in numbers}
    files = {number: [file for state in states for file in state["data_files"]] for number, states in shown.items()}

    assert any(files.values())
    for number, found in files.items():
        for file in found:
            assert file["level"] >= 0
            assert file["entries"] > 0
            assert file["scope"] == "shared"
            assert (weir.directory / "state/sums" / file["file"]).stat().st_size == file["bytes"]
            assert file["uploaded_now"] == (file["uploaded_by"] is None)
            if not file["uploaded_now"]:
                assert file["uploaded_by"] < number
    text = weir("inspect", f"state/sums/chk-{numbers[0]}").stdout
    assert "lsm files: " in text
    assert "level 0" in text


def test_a_log_of_changes_is_shown_by_segment(weir: Weir) -> None:
    """Each segment says which changes it holds; they follow each other."""
    assert weir(*RUN, "--state-backend", "changelog").exit_code == 0
    state = keyed(weir("inspect", "state", "--json"))[0]

    ends = [(one["first"], one["end"]) for one in state["log"]]
    assert ends
    assert all(one[1] == later[0] for one, later in itertools.pairwise(ends))
    assert "log, changes 0 to" in weir("inspect", "state").stdout


def interrupted(weir: Weir, *options: str) -> None:
    """A run that failed in the middle, for want of restarts."""
    answer = weir(*RUN, *options, "--restart", "none", "--kill", "sum[0]@60us")
    assert answer.exit_code != 0
    assert list((weir.directory / "state/sums").glob("chk-*"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_resumed_run_keeps_its_state_backend(weir: Weir, backend: str) -> None:
    """It stands in the descriptor, like every option."""
    interrupted(weir, "--state-backend", backend, "--snapshot", "incremental")

    answer = weir("resume", "state", "--json")

    assert answer.exit_code == 0, answer.stderr
    assert answer.json()["run"]["state_backend"] == backend
    assert sums(weir) == expected(weir.directory)


def test_a_resumed_run_may_change_its_state_backend_where_the_checkpoint_can_be_read(weir: Weir) -> None:
    """Full snapshots are read by every backend; the change stays for later resumes."""
    interrupted(weir, "--state-backend", "heap")

    answer = weir("resume", "state", "--state-backend", "lsm", "--snapshot", "incremental", "--json")

    assert answer.exit_code == 0, answer.stderr
    assert answer.json()["run"]["state_backend"] == "lsm"
    assert json.loads((weir.directory / "state/weir-job.json").read_text())["options"]["state_backend"] == "lsm"
    assert sums(weir) == expected(weir.directory)


def test_a_resumed_run_with_a_backend_that_cannot_read_the_checkpoint_is_refused(weir: Weir) -> None:
    """The error says which one wrote it; nothing has changed, so the old one still goes on."""
    interrupted(weir, "--state-backend", "lsm", "--snapshot", "incremental")

    refused = weir("resume", "state", "--state-backend", "heap")

    assert refused.exit_code != 0
    assert "was written by state backend lsm, in a form that heap does not read" in refused.stderr
    assert weir("resume", "state").exit_code == 0
    assert sums(weir) == expected(weir.directory)


def test_a_savepoint_of_an_incremental_checkpoint_holds_the_shared_files(weir: Weir) -> None:
    """The savepoint is native, does not need other files, and its own backend resumes from it."""
    interrupted(weir, "--state-backend", "lsm", "--snapshot", "incremental")
    made = weir("savepoint", "state", "--savepoint-dir", "saved")
    assert made.exit_code == 0, made.stderr
    path = made.stdout.strip()
    assert weir("inspect", path, "--json").json()["properties"]["format"] == "native"
    assert "of which this checkpoint uploaded 0 B" not in weir("inspect", path).stdout

    refused = weir("run", "sums.py", *BRISK, "--from", path, "--out", "state/out", "--parallelism", "2")
    answer = weir(
        "run", "sums.py", *BRISK, "--from", path, "--out", "state/out", "--parallelism", "3", "--state-backend", "lsm"
    )

    assert refused.exit_code != 0
    assert "savepoint in canonical format" in refused.stderr
    elsewhere = ("run", "sums.py", *BRISK, "--from", path, "--storage", "elsewhere")
    assert weir(*elsewhere).exit_code == refused.exit_code
    assert not (weir.directory / "elsewhere").exists()
    assert answer.exit_code == 0, answer.stderr
    assert sums(weir) == expected(weir.directory)


def test_local_recovery_is_told_in_the_report(weir: Weir) -> None:
    """How often state came from a local copy; without the option there is nothing to tell."""
    kill = ("--kill", "sum[0]@60us", "--json")
    with_copies = weir(*RUN, *kill, "--local-recovery")
    without = weir("run", "sums.py", *BRISK, *kill, "--out", "other")

    assert with_copies.json()["run"]["local_recovery"]["local_restores"] > 0
    assert without.json()["run"]["local_recovery"] is None
    assert not (weir.directory / "state/sums/local").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--state-backend", "disk"), "'disk' is none of heap"),
        (("--materialization-interval", "1us"), "must be at least 1000000"),
        (("--materialization-interval", "soon"), "materialization interval 'soon' is not a time"),
        (("--snapshot", "partial"), "'partial' is none of full, incremental"),
    ],
)
def test_options_that_make_no_sense_are_refused(weir: Weir, options: tuple[str, ...], message: str) -> None:
    """Before anything is created."""
    answer = weir(*RUN, *options)

    assert answer.exit_code != 0
    assert message in answer.stderr
    assert not (weir.directory / "state").exists()


def test_storage_may_be_a_url(weir: Weir) -> None:
    """Checkpoints lie at the URL, and a failed run is resumed from there; output is on this machine."""
    pytest.importorskip("fsspec")
    url = f"memory://weir-{weir.directory.name}"
    run = ("run", "sums.py", *BRISK, "--storage", url, "--out", "state/out", "--state-backend", "lsm")
    failed = weir(*run, "--snapshot", "incremental", "--restart", "none", "--kill", "sum[0]@60us")
    assert failed.exit_code != 0
    assert url in failed.last_line

    inspected, resumed = weir("inspect", url, "--json"), weir("resume", url)

    assert inspected.json()["path"].startswith(url)
    assert resumed.exit_code == 0, resumed.stderr
    assert sums(weir) == expected(weir.directory)
    assert weir("savepoint", url, "--savepoint-dir", "saved").exit_code == 0


def test_a_url_of_an_unknown_kind_is_refused(weir: Weir) -> None:
    """With what is wrong, not a traceback."""
    answer = weir("run", "sums.py", "--storage", "nonsense://somewhere/else")

    assert answer.exit_code != 0
    assert "nonsense" in answer.stderr
