"""Real storage directories with damaged files: the messages of ``weir resume``, and its exit code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine.cli import main
from engine.elements.errors import StorageError
from operators.files.sinks import read_committed
from state_backends.files import LocalFileSystem
from state_backends.snapshots import CheckpointStorage, FileStateHandle
from tests.crash.jobs.stateful_job import expected_rows
from tests.scenarios.live_files import check_live_files

RECORDS = 3_000
JOB_FILE = str(Path(__file__).with_name("jobs") / "stateful_job.py")


def weir(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def stopped_run(directory: Path, backend: str) -> CheckpointStorage:
    """A run that failed in the middle and left two checkpoints."""
    options = ["--checkpoint-interval", "400rec", "--batch-size", "50", "--retain", "2", "--restart", "none"]
    options += ["--kill", "visits[0]@1ms", "--state-backend", backend, "--snapshot", "incremental"]
    places = ["--storage", str(directory / "state"), "--out", str(directory / "out")]
    answer = weir("run", JOB_FILE, *places, *options, "--param", f"records={RECORDS}")
    assert answer.exit_code == 18, answer.output
    storage = CheckpointStorage(LocalFileSystem(), str(directory / "state"), "killed")
    assert len(storage.list_checkpoints()) == 2
    return storage


def shared_by(storage: CheckpointStorage, checkpoint_id: int) -> set[str]:
    """The shared files that a checkpoint refers to."""
    location = storage.location(checkpoint_id)
    streams = [one for one in location.read_metadata().streams() if isinstance(one, FileStateHandle)]
    return {location.full_path(one) for one in streams if one.scope.value == "shared"}


def flip(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 4
    Path(path).write_bytes(data)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("backend", ["lsm", pytest.param("changelog:lsm", marks=pytest.mark.slow)])
def test_resume_goes_back_and_then_refuses(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one shared file damaged a warning names it; with one of each checkpoint the exit code is 16."""
    monkeypatch.chdir(tmp_path)
    refused, resumed = tmp_path / "refused", tmp_path / "resumed"
    for directory in (refused, resumed):
        storage = stopped_run(directory, backend)
        older, newest = storage.list_checkpoints()
        of_newest, of_older = shared_by(storage, newest), shared_by(storage, older)
        damaged = [min(of_newest - of_older)]
        if directory == refused:
            both = of_newest & of_older
            damaged = [min(both)] if both else [*damaged, min(of_older)]
        for path in damaged:
            flip(path)
        before = contents(storage_dir := directory / "state")
        answer = weir("resume", str(storage_dir))

        assert all(path in answer.stderr for path in damaged), answer.stderr
        if directory == refused:
            assert answer.exit_code == StorageError.exit_code == 16
            after = contents(storage_dir)
            assert set(after) == set(before)
            assert [path for path in after if after[path] != before[path]] in ([], [f"{storage.job_dir}/incarnation"])
        else:
            assert answer.exit_code == 0, answer.output
            assert f"going back to checkpoint {older}" in answer.stderr
            committed = read_committed(LocalFileSystem(), os.path.join(directory, "out", "counts"))
            assert committed == expected_rows(RECORDS)
            check_live_files(LocalFileSystem(), storage)
