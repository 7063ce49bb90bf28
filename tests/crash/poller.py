"""A process that reads a sink's output all the time, while other processes write it, are killed, and go on.

It is forked, as they are, and talks to its parent over two pipes: one line of JSON down, one back. In between it looks,
rests for a moment, and looks again; it stops at the first wrong view, and remembers it.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from tests.crash.readers import UnreachableError, View, Watch

_REST_S = 0.005
_END = "end"

Covered = Callable[[str], Mapping[int, int] | None]
"""Directory of a checkpoint, or nothing -> key -> how many of its rows; ``None``: cannot be told."""


@dataclass
class Sighting:
    """What the poller has seen so far. ``looks``: views, of which ``changes`` showed something new; ``unreachable``:
    attempts at which there was no output to look at; ``rows``: in the last view."""

    problem: str | None = None
    looks: int = 0
    changes: int = 0
    unreachable: int = 0
    rows: int = 0


class Poller:
    """Owns the process. ``read`` looks once; ``watch`` judges; ``covered`` says how many rows of each key a checkpoint
    covers. ``newest``: the newest checkpoint; with it, every new view is compared with what that covers, while the job
    writes, too."""

    def __init__(
        self, read: Callable[[], View], watch: Watch, covered: Covered, newest: Callable[[], str] | None = None
    ) -> None:
        command_read, self._commands = os.pipe()
        self._answers, answer_write = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(self._commands)
            os.close(self._answers)
            _run(_Loop(read, watch, covered, newest), command_read, answer_write)
        os.close(command_read)
        os.close(answer_write)

    def look(self, checkpoint: str) -> Sighting:
        """Look now, while no process writes: this newest checkpoint must cover every visible row."""
        return self._ask(checkpoint)

    def end(self) -> Sighting:
        """Look for the last time: now all rows have to be there."""
        sighting = self._ask(_END)
        self.close()
        return sighting

    def close(self) -> None:
        if self._process:
            os.close(self._commands)
            os.close(self._answers)
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            self._process = 0

    def _ask(self, command: str) -> Sighting:
        os.write(self._commands, json.dumps(command).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = os.read(self._answers, 65_536)
            assert part, "the poller has died"
            answer += part
        return Sighting(**json.loads(answer))


class _Loop:
    def __init__(
        self, read: Callable[[], View], watch: Watch, covered: Covered, newest: Callable[[], str] | None
    ) -> None:
        self._read, self._watch, self._covered, self._newest = read, watch, covered, newest
        self.sighting = Sighting()

    def look(self, *, until_reached: bool = False, checkpoint: str | None = None) -> None:
        sighting = self.sighting
        if sighting.problem is not None:
            return
        while True:
            try:
                view = self._read()
                break
            except UnreachableError as error:
                sighting.unreachable += 1
                if not until_reached:
                    return
                if sighting.unreachable > 100_000:
                    sighting.problem = f"never reached again: {error}"
                    return
            except Exception as error:
                sighting.problem = f"reading failed: {type(error).__name__}: {error}"
                return
        sighting.looks += 1
        sighting.problem = self._watch.problem(view)
        if self._newest is not None and self._watch.changes != sighting.changes:
            # Asked for after the view was read: a checkpoint that covers it was there before.
            checkpoint = self._newest()
        if sighting.problem is None and checkpoint is not None:
            sighting.problem = self._watch.problem_of_early_rows(self._covered(checkpoint))
        sighting.changes, sighting.rows = self._watch.changes, self._watch.shown

    def end(self) -> None:
        self.look(until_reached=True)
        if self.sighting.problem is None:
            self.sighting.problem = self._watch.problem_at_the_end()


def _run(loop: _Loop, commands: int, answers: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            ready, _, _ = select.select([commands], [], [], _REST_S)
            if not ready:
                loop.look()
                continue
            lines = os.read(commands, 65_536)
            if not lines:
                break
            command = json.loads(lines)
            if command == _END:
                loop.end()
            else:
                loop.look(until_reached=True, checkpoint=command)
            os.write(answers, json.dumps(vars(loop.sighting)).encode() + b"\n")
    finally:
        os._exit(0)
