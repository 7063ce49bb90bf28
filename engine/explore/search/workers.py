"""Worker processes: each makes chunks of runs, and the chunks come back in the order of their numbers.

Workers are started afresh (``spawn``) and load the job themselves: they inherit nothing from the parent. Each has its
own seed for the hashes of texts, so that a run that depends on one is noticed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from engine.elements.errors import WorkerError

ChunkT = TypeVar("ChunkT")
ChunkT_co = TypeVar("ChunkT_co", covariant=True)

_AHEAD = 2
"""Chunks per worker that are handed out before the oldest one has come back."""


class Workers(Protocol[ChunkT_co]):
    """Processes that make chunks, here or on other machines."""

    def in_order(self, spans: Iterator[tuple[int, int]]) -> Iterator[ChunkT_co]:
        """Hand out ``(first, count)`` one by one; return the chunks in the same order.

        Raises :class:`WorkerError` when a process dies, or its work raises an error.
        """


Hire = Callable[[int, Callable[[], Callable[[int, int], ChunkT]]], AbstractContextManager[Workers[ChunkT]]]
"""Starts so many workers. In each the given function is called once, and returns the function that makes a chunk."""


class Pool(Generic[ChunkT]):
    """Some worker processes. ``make()`` is called in each, once, and returns the function that makes a chunk."""

    def __init__(self, workers: int, make: Callable[[], Callable[[int, int], ChunkT]]) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: list[multiprocessing.context.SpawnProcess] = []
        self._connections: list[Connection[Any, Any]] = []
        for number in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(make, theirs), name=f"weir explore {number}", daemon=True)
            process.start()
            theirs.close()
            self._processes.append(process)
            self._connections.append(ours)

    def __enter__(self) -> Pool[ChunkT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop them in the middle of their work: the results are no longer needed."""
        for process, connection in zip(self._processes, self._connections, strict=True):
            process.terminate()
            process.join()
            connection.close()

    def in_order(self, spans: Iterator[tuple[int, int]]) -> Iterator[ChunkT]:
        idle = [connection for connection in self._connections for _ in range(_AHEAD)]
        waiting: list[int] = []
        made: dict[int, ChunkT] = {}
        spans = iter(spans)
        is_more = True
        while True:
            while idle and is_more:
                span = next(spans, None)
                if span is None:
                    is_more = False
                    break
                waiting.append(span[0])
                idle.pop(0).send(span)
            while waiting and waiting[0] in made:
                yield made.pop(waiting.pop(0))
            if not waiting and not is_more:
                return
            if not is_more or not idle:
                for connection in wait(self._connections):
                    assert isinstance(connection, Connection)
                    first, chunk = self._received(connection)
                    made[first] = chunk
                    idle.append(connection)

    def _received(self, connection: Connection[Any, Any]) -> tuple[int, ChunkT]:
        try:
            first, chunk, problem = connection.recv()
        except EOFError as error:
            process = self._processes[self._connections.index(connection)]
            process.join()
            raise WorkerError(f"worker process {process.name!r} died (exit code {process.exitcode})") from error
        if problem is not None:
            raise WorkerError(f"a worker process failed:\n{problem}")
        return first, chunk


def _work(make: Callable[[], Callable[[int, int], Any]], connection: Connection[Any, Any]) -> None:
    # The parent handles Ctrl-C, and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The mixed output of several runs is unreadable; and only the parent handles a closed output.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open as long as the process is
    first = -1
    try:
        chunk_of = make()
        while True:
            first, count = connection.recv()
            connection.send((first, chunk_of(first, count), None))
    except EOFError:
        return
    except Exception:
        connection.send((first, None, traceback.format_exc()))
