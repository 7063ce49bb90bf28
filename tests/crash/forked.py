"""``weir`` in processes that are forked from one that has imported everything: a real process, ready in milliseconds.

SIGKILL ends a fork as it ends any other process, but a fork starts a hundred times faster than Python does: thousands
can be killed. The process that forks must have one thread only; run it as a program of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from engine.cli import main

_LOOK_EVERY_S = 0.0005


@dataclass(frozen=True)
class Ending:
    """How a process ended: ``killed``, or by itself with ``exit_code``; ``lasted_s`` by the wall clock; ``words``: its
    output."""

    killed: bool
    exit_code: int
    lasted_s: float
    words: str


def weir(
    arguments: Sequence[str],
    log: str,
    kill_after_s: float | None,
    prepare: Callable[[], None],
    meanwhile: Callable[[int, float], None] | None = None,
) -> Ending:
    """Run ``weir`` with these arguments in a fork; SIGKILL it after so many seconds, if it lives that long.

    ``log``: the file for its output; ``prepare``: called in the fork, before anything else; ``meanwhile``: called here
    again and again while it lives, with its process id and its age in seconds.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # Opened here: the fork may be killed before it has opened any file.
    with open(log, "w", encoding="utf-8"):
        pass
    started = time.monotonic()
    process = os.fork()
    if not process:
        _child(arguments, log, prepare)
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        lasted_s = time.monotonic() - started
        if ended:
            break
        if kill_after_s is not None and lasted_s >= kill_after_s:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            break
        if meanwhile is not None:
            meanwhile(process, lasted_s)
        time.sleep(_LOOK_EVERY_S)
    with open(log, encoding="utf-8", errors="replace") as file:
        words = file.read()
    if os.WIFSIGNALED(status):
        return Ending(True, -os.WTERMSIG(status), lasted_s, words)
    return Ending(False, os.WEXITSTATUS(status), lasted_s, words)


def _child(arguments: Sequence[str], log: str, prepare: Callable[[], None]) -> NoReturn:
    code = 99
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(file, stream)
        prepare()
        main(list(arguments), prog_name="weir")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 99
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: the exit handlers of the parent must not run in the child.
        os._exit(code)
