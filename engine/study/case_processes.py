"""Each case of a sweep in a process of its own, forked from this one.

All cases begin with the same memory, so the result of one depends neither on the others nor on their order. One that
dies takes only its own row with it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from threading import Thread
from typing import Any, TypeVar

from engine.elements.errors import OverloadError

CaseT = TypeVar("CaseT")
Outcome = tuple[Any, tuple[str, str] | None]
"""What the work returned; instead of it, the status of the case and the error."""

OK, FAILED, OVERLOADED, DIED = "ok", "failed", "overloaded", "died"


def each_in_its_process(
    work: Callable[[CaseT], Any], cases: Sequence[CaseT], jobs: int
) -> Iterator[tuple[int, Outcome]]:
    """``(number of the case, outcome)``, as they end; ``jobs`` of them run at the same time."""
    context = get_context("fork")
    running: dict[Connection[Any, Any], tuple[int, Any]] = {}
    left = iter(enumerate(cases))
    # A fork copies what the parent has not written yet, and would write it again.
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        while True:
            while len(running) < jobs and (following := next(left, None)) is not None:
                number, case = following
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(work, case, theirs), daemon=True)
                with warnings.catch_warnings():
                    # Python 3.12 warns of threads in the parent; the child uses none of theirs.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                theirs.close()
                running[ours] = (number, process)
            if not running:
                return
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                number, process = running.pop(connection)
                try:
                    outcome = connection.recv()
                except EOFError:
                    process.join()
                    outcome = None, (DIED, f"its process died (exit code {process.exitcode})")
                connection.close()
                process.join()
                yield number, outcome
    finally:
        for connection, (_, process) in running.items():
            process.kill()
            process.join()
            connection.close()


def _work(work: Callable[[Any], Any], case: Any, connection: Connection[Any, Any]) -> None:
    # The parent handles Ctrl-C, and ends the cases.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    # The parent's garbage is the parent's: a connection that is collected here would say so to its other end.
    gc.freeze()
    # The mixed output of several cases is unreadable.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the process is
    try:
        outcome: Outcome = work(case), None
    except Exception as error:
        status = OVERLOADED if isinstance(error.__cause__ or error, OverloadError) else FAILED
        outcome = None, (status, f"{type(error).__name__}: {error}")
    connection.send(outcome)


def _end_with_parent() -> None:
    """A parent that is killed ends no case; Spark kills its workers."""
    parent = parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
