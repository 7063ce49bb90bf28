"""The server of the tests themselves does not outlive the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.processes import ROOT
from tests.postgres_server import needs_server, remove_orphans

STARTS = """
import sys, tempfile, time
tempfile.tempdir = sys.argv[1]
from tests.postgres_server import PostgresServer
server = PostgresServer(fsync=False)
server.start()
print(server.directory, server._postmaster(), flush=True)
time.sleep(60)
"""


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_server_dies_with_who_has_started_it_and_leaves_nothing() -> None:
    """SIGKILL takes the server along, and the next process deletes its files; files of living servers stay."""
    needs_server()
    # Another user can enter there, too.
    directory = Path(f"/tmp/weir-orphans-{os.getpid()}")
    directory.mkdir(mode=0o755)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", STARTS, str(directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            said = process.stdout.readline().split()
            data, postmaster = Path(said[0]), int(said[1])
            assert remove_orphans(directory) == []
            assert is_running(postmaster)
            process.send_signal(signal.SIGKILL)
        until = time.monotonic() + 20
        while is_running(postmaster) and time.monotonic() < until:
            time.sleep(0.02)
        assert not is_running(postmaster)
        # That of the server, and what it was copied from.
        removed = remove_orphans(directory)
        assert data in removed
        assert len(removed) == 2
        assert list(directory.iterdir()) == []
    finally:
        directory.rmdir()


def test_what_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    """A directory with a living owner, or without one, is not deleted; one whose owner is gone is."""
    for name, owner in (("new", None), ("mine", f"{os.getpid()} "), ("gone", "999999999 1")):
        (tmp_path / f"weir-postgres-{name}").mkdir()
        if owner is not None:
            started = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
            (tmp_path / f"weir-postgres-{name}/owner").write_text(owner + (started if name == "mine" else ""))
    assert [one.name for one in remove_orphans(tmp_path)] == ["weir-postgres-gone"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["weir-postgres-mine", "weir-postgres-new"]


def test_a_number_that_somebody_else_has_by_now_is_no_owner(tmp_path: Path) -> None:
    """The process of the same number was started at another time."""
    (tmp_path / "weir-postgres-old").mkdir()
    (tmp_path / "weir-postgres-old/owner").write_text(f"{os.getpid()} 1")
    assert [one.name for one in remove_orphans(tmp_path)] == ["weir-postgres-old"]
