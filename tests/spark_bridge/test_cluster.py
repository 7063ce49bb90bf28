"""A Spark cluster on this machine: its processes, its errors, and a job and a search on it."""

from __future__ import annotations

import io
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_bridge import cluster
from spark_bridge.cluster import HOST, StandaloneCluster
from spark_bridge.errors import ClusterError
from spark_bridge.session import SessionSettings
from tests.house.project import ROOT

MASTER = "Starting Spark master at spark://127.0.0.1:7\nI have been elected leader! New state: ALIVE"


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shell script in the place of `spark-class`, which each test writes: no JVM starts."""
    script = tmp_path / "home" / "bin" / "spark-class"
    script.parent.mkdir(parents=True)
    environment = cluster._environment
    monkeypatch.setattr(
        cluster, "_environment", lambda *given: environment(*given) | {"SPARK_HOME": str(tmp_path / "home")}
    )
    monkeypatch.setattr(cluster.tempfile, "mkdtemp", lambda prefix: _made(tmp_path / f"{prefix}1"))  # type: ignore[attr-defined]
    yield script
    assert not (tmp_path / "weir-cluster-1").exists(), "files of the cluster are left"


def _made(path: Path) -> str:
    path.mkdir()
    return str(path)


def _write(script: Path, master: str, worker: str) -> None:
    script.write_text(f'#!/bin/sh\ncase "$1" in *Master) {master};; *) {worker};; esac\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def _lives(pid: int) -> bool:
    """Whether it is a process that is not just waiting for its parent to ask."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip()[:1] not in ("", "Z")


SLEEPS = "exec sleep 100"
GOOD = f"echo '{MASTER}'; {SLEEPS}", f"echo Successfully registered with master; {SLEEPS}"


def test_a_cluster_ends_with_all_that_it_has_started(pretended: Path, tmp_path: Path) -> None:
    """Executors are in the group of their worker: they end, too, and so does what ignores SIGTERM."""
    child = tmp_path / "child"
    _write(pretended, GOOD[0], f"sh -c 'trap : TERM; echo $$ > {child}; while :; do sleep 0.1; done' & {GOOD[1]}")
    with StandaloneCluster(1) as running:
        assert running.url == "spark://127.0.0.1:7"
        running.check()
        while not (child.exists() and child.read_text().strip()):
            pass
        pids = [running.workers[0].pid, int(child.read_text())]
        running.add_worker()
        assert len(running.workers) == 2
    assert not any(map(_lives, pids))


KILLED = """
import os, sys
from spark_bridge import cluster
environment = cluster._environment
cluster._environment = lambda *given: environment(*given) | {"SPARK_HOME": sys.argv[1]}
running = cluster.StandaloneCluster(1)
print(running._directory, running._master.pid, running.workers[0].pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_cluster_ends_with_its_program(tmp_path: Path) -> None:
    """Killed, it cannot clean up, and nothing of the cluster stays nevertheless."""
    script = tmp_path / "home" / "bin" / "spark-class"
    script.parent.mkdir(parents=True)
    _write(script, *GOOD)
    answer = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "home")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    directory, *pids = answer.stdout.split()
    end = time.monotonic() + 30
    while any(map(_lives, map(int, pids))) or os.path.exists(directory):
        assert time.monotonic() < end, "the cluster has outlived its program"
        time.sleep(0.02)


def test_a_lost_process_is_noticed(pretended: Path) -> None:
    """By name, with its exit code and its last words."""
    _write(pretended, *GOOD)
    with StandaloneCluster(2) as running:
        running.workers[1].signal(signal.SIGKILL)
        running.workers[1].process.wait()
        with pytest.raises(ClusterError, match=r"worker 2 has ended \(exit code -9\). It printed: Successfully"):
            running.check()


@pytest.mark.parametrize(
    ("master", "worker", "words"),
    [
        ("echo no space left; exit 3", SLEEPS, r"master .* ended at its start \(exit code 3\). It printed: no space"),
        (GOOD[0], SLEEPS, r"worker 1 .* has not registered with spark://127.0.0.1:7 within 0.5 s. It printed nothing"),
        (SLEEPS, SLEEPS, r"master .* has not begun within 0.5 s"),
    ],
    ids=["ended", "unregistered", "silent"],
)
def test_a_cluster_that_does_not_start(pretended: Path, master: str, worker: str, words: str) -> None:
    """The process is named, with its last words; nothing is left of the others."""
    _write(pretended, master, worker)
    with pytest.raises(ClusterError, match=words):
        StandaloneCluster(2, seconds=0.5)


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything starts; Spark itself would silently take the next one."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cluster.main(["--port", str(port)]) == 25
    assert capsys.readouterr().err == (
        f"error: the master cannot have port {port} of 127.0.0.1: Address already in use\n"
        "  fix: end the program that has it, or name another one with --port\n"
    )


def test_a_cluster_misses_java_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of a missing dependency."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    assert cluster.main([]) == 20
    assert capsys.readouterr().err.startswith("error: JAVA_HOME is /no/java, but there is no such directory")


class Interrupting(io.StringIO):
    """Sends SIGTERM to this process once it is told how to end the program."""

    def write(self, text: str) -> int:
        written = super().write(text)
        if "Ctrl-C ends it" in text:
            os.kill(os.getpid(), signal.SIGTERM)
        return written


def test_the_program_runs_until_it_is_interrupted(pretended: Path) -> None:
    """It prints the URL and the command to type; SIGTERM ends it as Ctrl-C does."""
    _write(pretended, *GOOD)
    printed = Interrupting()
    assert cluster.main(["--workers", "1"], printed) == 0
    assert "weir run JOB --on spark=spark://127.0.0.1:7 --storage DIR" in printed.getvalue()
    assert printed.getvalue().endswith("the cluster has ended\n")


@pytest.mark.parametrize("text", ["0", "-1", "x"])
def test_a_cluster_has_a_worker(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The usage says so."""
    with pytest.raises(SystemExit):
        cluster.main(["--workers", text])
    assert "--workers" in capsys.readouterr().err


def test_a_driver_of_a_cluster_on_loopback_is_there_too() -> None:
    """No host name needs to resolve."""
    assert SessionSettings("spark://127.0.0.1:7").spark_properties()["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in SessionSettings("spark://h:7").spark_properties()


PROGRAM = """
import sys
from engine.cli import main
from spark_bridge.cluster import StandaloneCluster
with StandaloneCluster(2) as cluster:
    for arguments in (sys.argv[1:], ["explore", sys.argv[2], "--runs", "60", "--on", cluster.url]):
        try:
            main([cluster.url if one == "URL" else one for one in arguments], prog_name="weir")
        except SystemExit as ended:
            assert not ended.code, ended.code
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_and_a_search_run_on_a_cluster(tmp_path: Path) -> None:
    """A master and two workers: the job commits its rows, and two executors share the runs of the search."""
    job = str(ROOT / "examples/wordcount.py")
    command = ["run", job, "--param", "repeat=200", "--on", "URL", "--storage", str(tmp_path / "state"),
               "--out", str(tmp_path / "out"), "--checkpoint-interval", "300rec"]  # fmt: skip
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "valid: the job finished" in answer.stderr
    assert "jobs=2" in answer.stderr
    assert "valid: 60 runs" in answer.stderr or "unknown: no run violates anything" in answer.stderr
