"""Output on a terminal of 80 columns: lines are broken between words; tables and commands are whole."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from rich.console import Console

from engine.cli.text import progress_of, say
from tests.house.project import ROOT

COLUMNS = 80
LONG = "  violated V1: " + "word [of] 'it' " * 12
COMMAND = "weir replay weir2." + "x" * 100


def _said(text: str, *, terminal: bool) -> list[str]:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=COLUMNS, no_color=True, highlight=False)
    say(console, text)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_terminal_breaks_lines_between_words() -> None:
    """No line is wider than the terminal, no word is lost, and what goes on is indented."""
    first, *others = _said(LONG, terminal=True)

    assert max(map(len, [first, *others])) <= COLUMNS
    assert " ".join([first, *others]).split() == LONG.split()
    assert all(re.match(" {6}[^ ]", line) for line in others)


def test_the_next_command_is_a_line_of_its_own() -> None:
    """It is whole at any length, so that it can be copied; the lines before it stay as they are."""
    lines = _said(f"first\n\n  second\nvalid: all is well. Next: {COMMAND}", terminal=True)

    assert lines == ["first", "", "  second", "valid: all is well.", f"Next: {COMMAND}"]


def test_a_log_keeps_lines_whole() -> None:
    """Without a terminal, a line is a line: programs search them."""
    assert _said(f"{LONG}Next: {COMMAND}", terminal=False) == [f"{LONG}Next: {COMMAND}"]


def test_progress_is_a_line_that_changes_on_a_terminal_and_a_line_now_and_then_in_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often a search tells how far it is, the text is made ten times a second, or once in ten seconds."""
    made: list[int] = []
    for terminal, expected in ((True, [0, 10, 20]), (False, [0])):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=COLUMNS, no_color=True)
        now = [1_000.0]
        monkeypatch.setattr("engine.cli.text.terminal.monotonic", lambda now=now: now[0])
        made.clear()

        def how_far(number: int) -> str:
            made.append(number)
            return f"{number} [of] 30"

        with progress_of(console, how_far) as progress:
            progress(-1)
            now[0] += 10.05
            for number in range(30):
                progress(number)
                now[0] += 0.0101
        assert made == expected
        assert isinstance(console.file, io.StringIO)
        assert ("0 [of] 30\n" in console.file.getvalue().splitlines(keepends=True)) is not terminal


def test_progress_of_a_process_that_forks_has_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child could inherit a lock that the thread held. The line changes all the same."""
    now = [1_000.0]
    monkeypatch.setattr("engine.cli.text.terminal.monotonic", lambda: now[0])
    for forks in (False, True):
        console = Console(file=io.StringIO(), force_terminal=True, width=COLUMNS, no_color=True)
        threads, errors = set(threading.enumerate()), sys.stderr
        with progress_of(console, lambda done: f"{done} of 30", forks=forks) as progress:
            assert (not set(threading.enumerate()) - threads) is forks
            assert (sys.stderr is errors) is forks
            now[0] += 0.11
            progress(7)
        assert isinstance(console.file, io.StringIO)
        assert "7 of 30" in console.file.getvalue()


def _on_a_terminal(arguments: list[str], directory: Path, columns: int) -> list[str]:
    """The lines that a command leaves on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "engine.cli", *arguments]
    with subprocess.Popen(command, cwd=directory, env=environment, stdout=theirs, stderr=theirs):
        os.close(theirs)
        printed = b""
        # Linux says EIO when the last process has closed the terminal.
        try:
            while piece := os.read(ours, 65_536):
                printed += piece
        except OSError:
            pass
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed.decode())
    return [line.rpartition("\r")[2].rstrip() for line in text.replace("\r\n", "\n").splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "wordcount.py", "--checkpoint-interval", "2ms", "--kill", "count[0]@3ms", "--table"],
        ["explore", "wordcount.py", "--runs", "5", "--param", "repeat=2"],
        ["explore", "visits.py", "--fault", "crash"],
        ["check", "two_phase_commit.py", "--param", "commit=barrier"],
    ],
    ids=["run", "explore", "failure", "check"],
)
@pytest.mark.parametrize("columns", [COLUMNS, 120])
def test_a_verb_fits_the_terminal(arguments: list[str], columns: int, tmp_path: Path) -> None:
    """Nothing but a command to type is wider, and no table is cut."""
    for name in ("wordcount.py", "visits.py", "teaching/two_phase_commit.py"):
        (tmp_path / Path(name).name).write_text((ROOT / "examples" / name).read_text("utf-8"), "utf-8")
    lines = _on_a_terminal(arguments, tmp_path, columns)

    assert len(lines) > 20
    # A word, such as a path, is not broken.
    wide = [line for line in lines if len(line) > columns and not line.startswith("Next: ") and " " in line.strip()]
    assert wide == []
    assert [line for line in lines if "…" in line and "Explaining" not in line] == []
    assert lines[-1].startswith("Next: weir ")
