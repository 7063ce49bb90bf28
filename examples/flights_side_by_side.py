"""Work in processes beside this one, which get what they wait for through a pipe: the proofs of the flights job, each
on its own core as far as there are any, with one session of Spark for all.

They are forked, and at once: a process with threads, such as those of a session, cannot be forked safely.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from engine.elements.errors import WeirError
from spark_bridge import SparkBridgeError

Receive = Callable[[], Any]
"""Waits for the next thing that the process is told."""
Work = Callable[[Receive], Any]


class SideProcessError(WeirError):
    """The work failed; the message is that of its error."""


class SideProcess:
    """A process that does ``work``. What it prints is kept until it is asked for."""

    def __init__(self, name: str, work: Work) -> None:
        context = get_context("fork")
        self._name = name
        self._ours, theirs = context.Pipe()
        # A fork copies what the parent has not written yet, and would write it again.
        sys.stdout.flush()
        self._process = context.Process(target=_do, args=(work, theirs, self._ours), daemon=True)
        self._process.start()
        theirs.close()

    def tell(self, fact: object) -> None:
        """Send what the work waits for; one that has failed already reads no more."""
        try:
            self._ours.send(fact)
        except ConnectionError:
            return

    def result(self) -> Any:
        """Print what the work has printed, and return what it has returned.

        Raises :class:`SideProcessError` when it failed, or its process died.
        """
        try:
            printed, problem, returned = self._ours.recv()
        except (EOFError, ConnectionError):
            # The second one if it has died without reading all that it was told.
            self._process.join()
            raise SideProcessError(f"{self._name}: its process died (exit code {self._process.exitcode})") from None
        print(printed, end="")
        if problem is not None:
            raise SideProcessError(f"{self._name}: {problem}")
        self._process.join()
        return returned


def _do(work: Work, told: Connection[Any, Any], of_parent: Connection[Any, Any]) -> None:
    # Only then does it hear that the parent has died.
    of_parent.close()
    # The parent handles Ctrl-C, and ends its children with itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    printed, problem, returned = StringIO(), None, None
    with redirect_stdout(printed):
        try:
            returned = work(told.recv)
        except (WeirError, SparkBridgeError) as error:
            problem = str(error)
        except EOFError:
            os._exit(1)
        except Exception:
            problem = traceback.format_exc()
    told.send((printed.getvalue(), problem, returned))
