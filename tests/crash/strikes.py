"""Where exactly a process is struck: before its n-th change to the files of sinks, or around a call to a database.

The process that is to die sends the signal to itself. So the signal strikes exactly between the two renames of one
commit, or between ``PREPARE`` and ``COMMIT PREPARED``. SIGSTOP instead of SIGKILL leaves the process there until the
campaign has killed the database.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import engine.runtime.execution as execution
from state_backends.files import FaultInjectingFileSystem, FaultRule, LocalFileSystem

CHANGES = ("open_write", "open_append", "write", "fsync", "rename", "fsync_dir", "truncate", "delete", "delete_tree")
"""Operations of the file system at which a process may be struck."""

CALLS = ("take_over", "prepare", "commit", "abort", "write", "upsert")
"""Calls to a database, likewise."""


@dataclass(frozen=True)
class FileStrike:
    """Before the ``number``-th call of one of these operations, counted from 1."""

    number: int
    operations: tuple[str, ...] = CHANGES


@dataclass(frozen=True)
class CallStrike:
    """Around the ``number``-th call of this name to the database."""

    number: int
    call: str
    behind: bool = False
    stops: bool = False
    """Whether the process is stopped there, and not killed."""


def prepare_files(strike: FileStrike | None, rules: tuple[FaultRule, ...]) -> None:
    """Give sources and sinks a file system that strikes, or fails by these rules."""
    if strike is None and not rules:
        return
    decide = None if strike is None else _decide(strike)
    failing = FaultInjectingFileSystem(LocalFileSystem(), rules, decide=decide)
    vars(execution)["LocalFileSystem"] = lambda: failing


def _decide(strike: FileStrike) -> Callable[[str, tuple[str, ...]], None]:
    left = strike.number

    def decide(operation: str, paths: tuple[str, ...]) -> None:
        nonlocal left
        if operation in strike.operations:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return decide


def prepare_calls(strike: CallStrike, session: type[Any]) -> None:
    inner = getattr(session, strike.call)
    left = strike.number

    def hit() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGSTOP if strike.stops else signal.SIGKILL)

    def struck(self: Any, *arguments: Any, **options: Any) -> Any:
        if not strike.behind:
            hit()
        answer = inner(self, *arguments, **options)
        if strike.behind:
            hit()
        return answer

    setattr(session, strike.call, struck)
