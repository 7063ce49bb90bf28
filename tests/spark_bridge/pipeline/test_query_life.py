"""A run on Spark that ends from outside, in a process of its own: no Java trace, and it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.house.project import ROOT
from tests.spark_bridge.pipeline import jobs

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOB = """
import os, time
from engine import CollectionSource, FileSink, Job


def slowly(number):
    time.sleep(float(os.environ.get("PAUSE_S", "0")))
    return number


job = Job("slow", parallelism=2)
numbers = job.source(CollectionSource(range(3000), splits=2), name="numbers")
numbers.map(slowly).key_by(lambda number: number % 7).reduce(max).sink(FileSink("rows"))
"""
PATIENCE_SECONDS = 240


def weir(directory: Path, *arguments: str, pause_s: float = 0.0) -> subprocess.Popen[str]:
    # A test run that a script has started with `&` ignores SIGINT, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        [sys.executable, "-m", "engine.cli", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PAUSE_S": str(pause_s)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupt(run: subprocess.Popen[str]) -> None:
    """As a terminal does: every process of the group gets it."""
    os.killpg(run.pid, signal.SIGINT)


def terminate(run: subprocess.Popen[str]) -> None:
    run.terminate()


def kill_the_jvm(run: subprocess.Popen[str]) -> None:
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    (jvm,) = (one for one in children if Path(f"/proc/{one}/comm").read_text().strip() == "java")
    os.kill(int(jvm), signal.SIGKILL)


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        (interrupt, 130, "Next: weir resume {}\n\ninterrupted\n"),
        (terminate, 143, "Next: weir resume {}\nterminated\n"),
        (kill_the_jvm, 25, "error: the Spark cluster is gone: the connection to its driver is lost\n"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_run_that_is_ended_in_a_batch(
    end: Callable[[subprocess.Popen[str]], None], code: int, words: str, tmp_path: Path
) -> None:
    """In the middle of its third batch; then it goes on, here in the simulator, to all rows, each once."""
    (tmp_path / "slow.py").write_text(JOB)
    order = ("run", "slow.py", "--on", "spark", "--storage", "state", "--checkpoint-interval", "100rec")
    # The rows that are left after the second batch take twelve seconds more: also a slow test meets it at work.
    run = weir(tmp_path, *order, pause_s=0.01)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (tmp_path / "state/slow/chk-2/_metadata").exists():
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline, "no second checkpoint"
        time.sleep(0.05)
    time.sleep(0.3)
    end(run)
    _, said = run.communicate(timeout=PATIENCE_SECONDS)
    assert run.returncode == code, said
    assert words.format(tmp_path / "state") in said
    assert f"weir resume {tmp_path / 'state'}\n" in said
    assert "Traceback" not in said
    assert "\tat " not in said
    again = weir(tmp_path, "resume", "state", "--on", "simulator")
    _, said = again.communicate(timeout=PATIENCE_SECONDS)
    assert again.returncode == 0, said
    assert sum(jobs.committed(tmp_path / "state" / "out" / "rows").values()) == 3000
