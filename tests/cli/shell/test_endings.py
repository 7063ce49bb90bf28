"""How a command is ended from outside: its reader has gone, its output is full or closed, SIGTERM and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Weir
from tests.house.project import ROOT

PRINTS = """
from engine import CollectionSource, Job
job = Job("prints")
job.source(CollectionSource(list(range(20_000)))).print()
"""

WAITS = """
import time
from engine import CollectionSource, Job

def wait(value):
    print("begun", flush=True)
    time.sleep(60)

job = Job("waits")
job.source(CollectionSource([1])).map(wait).print()
"""


def start(weir: Weir, command: str) -> subprocess.Popen[str]:
    """A command line in a shell: `weir` is the command line of this checkout."""
    # A test run that a script has started with `&` ignores SIGINT, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        ["bash", "-c", command.replace("weir ", f"{sys.executable} -m engine.cli ")],
        cwd=weir.directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "command",
    [
        "weir run sums.py --json | :",
        "weir run sums.py 2>&1 >/dev/null | head -1 >/dev/null",
        "weir run prints.py --restart none | head -1",
    ],
)
def test_a_reader_that_has_gone_has_seen_enough(weir: Weir, command: str) -> None:
    """Data, people's text, what a job prints, help: the command ends quietly with 0, for 1 would say *violated*."""
    (weir.directory / "prints.py").write_text(PRINTS)
    process = start(weir, f"{command}; echo ${{PIPESTATUS[0]}}")
    stdout, stderr = process.communicate()

    assert stdout.splitlines()[-1] == "0", stderr
    assert "Traceback" not in stderr
    assert "rror" not in stderr


def test_closed_streams_change_nothing(weir: Weir) -> None:
    """The command does not print into a file that gets the number of a closed stream; the verdict counts."""
    process = start(weir, "weir run sums.py --json --out mine >&- 2>&- <&-; echo $?")
    stdout, stderr = process.communicate()

    assert stdout == "0\n", stderr
    assert weir.rows("mine")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_an_error(weir: Weir) -> None:
    """Data that did not arrive are never a success, and the message says what could not be written."""
    (weir.directory / "prints.py").write_text(PRINTS)
    process = start(weir, "weir run prints.py --restart none >/dev/full")
    _, stderr = process.communicate()

    assert process.returncode not in (0, 120), stderr
    assert "standard output: cannot be written (No space left on device)" in stderr
    assert "Exception ignored" not in stderr


@pytest.mark.parametrize(
    ("number", "exit_code", "word"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_ends_a_run_that_says_how_to_go_on(
    weir: Weir, number: signal.Signals, exit_code: int, word: str
) -> None:
    """The exit code is that of the signal; the command that goes on is printed before it."""
    (weir.directory / "waits.py").write_text(WAITS)
    process = start(weir, "exec weir run waits.py --storage state")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(number)
    _, stderr = process.communicate()

    assert process.returncode == exit_code
    assert stderr.rstrip().endswith(word)
    assert f"Next: weir resume {weir.directory / 'state'}" in stderr
    assert "Traceback" not in stderr
