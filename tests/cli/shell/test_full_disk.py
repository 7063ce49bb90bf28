"""A full disk: the error names the file, and does not hide why the job failed."""

from __future__ import annotations

import errno
import os
from typing import BinaryIO

import pytest

from state_backends.files import local as local_filesystem
from tests.cli.conftest import BRISK, Weir

FAILS = """
import builtins
from engine import CollectionSource, Job

def fail(value):
    builtins.fill_the_disk()
    raise ValueError("broken on purpose")

job = Job("fails")
job.source(CollectionSource([1])).map(fail).print()
"""


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts: once there are any, no file with one of them in its path can be written any more."""
    texts: list[str] = []
    write = local_filesystem._LocalWritableFile.write

    class Full:
        def __init__(self, file: BinaryIO) -> None:
            self.name = file.name

        def write(self, _data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def checked(self: local_filesystem._LocalWritableFile, data: bytes) -> int:
        if any(text in str(self._file.name) for text in texts):
            return write(local_filesystem._LocalWritableFile(Full(self._file)), data)  # type: ignore[arg-type]
        return write(self, data)

    monkeypatch.setattr(local_filesystem._LocalWritableFile, "write", checked)
    return texts


def test_a_checkpoint_names_the_file(weir: Weir, full: list[str]) -> None:
    """Not only that a checkpoint failed, but which file could not be written and why."""
    full.append("_metadata")
    answer = weir("run", "sums.py", *BRISK, "--storage", "state", "--restart", "none")

    assert answer.exit_code == 18
    error = answer.stderr.split("error: ")[1]
    assert "No space left on device" in error
    assert f"{weir.directory}/state/sums/chk-1/_metadata" in error


def test_the_report_does_not_hide_the_error_of_the_job(
    weir: Weir, full: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's own error comes after that of the unwritten report, and decides the exit code."""
    (weir.directory / "sums.py").write_text(FAILS)
    monkeypatch.setattr("builtins.fill_the_disk", lambda: full.append("run.json"), raising=False)
    answer = weir("run", "sums.py", "--out", "yours", "--restart", "none")

    warning, error = answer.stderr.index("warning: "), answer.stderr.index("broken on purpose")
    assert answer.exit_code == 12
    assert warning < error
    assert "yours/run.json: cannot be written (No space left on device)" in answer.stderr


def test_a_report_of_a_search_names_its_file(weir: Weir, full: list[str]) -> None:
    """No traceback."""
    full.append("explore.json")
    answer = weir("explore", "sums.py", "--runs", "1", "--out", "found")

    assert answer.exit_code == 16
    assert "found/explore.json: cannot be written (No space left on device)" in answer.stderr
