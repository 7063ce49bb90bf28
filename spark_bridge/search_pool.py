"""The workers of a search on Spark: executors make the chunks of runs, in place of processes of this machine.

A chunk is named by the number of its first run and decides nothing else, so Spark may make one twice, or somewhere
else. Each Python worker loads the job once. It gets some chunks in a task, about a second of work: a task costs some
twenty milliseconds by itself. Tasks are handed out one by one, a few ahead of the oldest that is not back. So a search
that ends at its first failure has begun little more than it needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.elements.errors import JobFileError
from engine.explore.search import WorkerError
from spark_bridge.pipeline.executor_checks import check_executors
from spark_bridge.pipeline.giving_up import SEARCH, told
from spark_bridge.pipeline.query import send_modules_of_the_job
from spark_bridge.pipeline.stage_function import keep_modules, register
from spark_bridge.session import SessionSettings, get_session, session_log_tail
from state_backends.codec import default_codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ChunkT = TypeVar("ChunkT")
Span = tuple[int, int]
Make = Callable[[], Callable[[int, int], ChunkT]]

_AHEAD = 2
"""Tasks per core that are handed out before the oldest one has come back."""
_TASK_SECONDS = 1.0
_MOST_CHUNKS = 16

_numbers = itertools.count()
_kept: dict[str, Callable[[int, int], Any]] = {}
"""In a Python worker: what makes the chunks of the search that it works for."""


def search_session(master: str | None) -> SparkSession:
    """The session for a search. ``master``: the URL of a Spark master, ``None`` = two local cores."""
    return get_session(None if master is None else SessionSettings(master=master))


class SparkPool(Generic[ChunkT]):
    """The executors of ``session``. Each calls ``make()`` once in every Python worker.

    Raises :class:`JobFileError` when the job cannot be sent to them, and what :func:`check_executors` raises.
    """

    def __init__(self, session: SparkSession, make: Make[ChunkT]) -> None:
        from pyspark import cloudpickle

        send_modules_of_the_job()
        try:
            packed: bytes = cloudpickle.dumps((tuple(default_codec().registry.of_users()), make))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise JobFileError(
                f"the job cannot be sent to executors: {type(error).__name__}: {error}\n"
                "  fix: open files, locks and connections in functions of the job, not at the top of its file"
            ) from None
        self._context = session.sparkContext
        try:
            check_executors(session, [], "", 0, packed)
        except Exception as error:
            raise self._told(error) from None
        self._tag = f"weir-search-{os.getpid()}-{next(_numbers)}"
        self._cores = max(1, self._context.defaultParallelism)
        self._ahead = self._cores * _AHEAD
        # A reference that Spark sends to each worker once.
        self._packed = self._context.broadcast(packed)
        self._name = hashlib.sha256(packed).hexdigest()
        self._threads = ThreadPoolExecutor(self._ahead, "weir-search", partial(self._context.addJobTag, self._tag))

    def __enter__(self) -> SparkPool[ChunkT]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the tasks in the middle of their work: the results are no longer needed."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        # The JVM may be gone: then so are the tasks.
        with contextlib.suppress(Exception):
            self._context.cancelJobsWithTag(self._tag)
        self._threads.shutdown()

    def in_order(self, spans: Iterator[Span]) -> Iterator[ChunkT]:
        """Hand out ``(first, count)``, some in a task; return the chunks in the same order.

        Raises :class:`WorkerError` when the work raises an error, and :class:`SparkBridgeError` when Spark gives up.
        """
        spans, together = iter(spans), 1
        waiting: deque[Future[tuple[list[ChunkT], float, str | None]]] = deque()
        while True:
            while len(waiting) < self._ahead and (some := list(itertools.islice(spans, together))):
                waiting.append(self._threads.submit(self._task, some))
            if not waiting:
                return
            try:
                chunks, seconds, problem = waiting.popleft().result()
            except Exception as error:
                raise self._told(error) from None
            yield from chunks
            if problem is not None:
                raise WorkerError(f"an executor failed:\n{problem}")
            together = max(1, min(_MOST_CHUNKS, int(_TASK_SECONDS * len(chunks) / max(seconds, 1e-3))))

    def _task(self, spans: Sequence[Span]) -> tuple[list[ChunkT], float, str | None]:
        packed, name = self._packed, self._name
        rows = self._context.parallelize([list(spans)], 1).mapPartitions(lambda some: _made(packed, name, some))
        answers: list[tuple[list[ChunkT], float, str | None]] = rows.collect()
        return answers[0]

    def _told(self, error: BaseException) -> BaseException:
        return told(error, session_log_tail, SEARCH)


def _made(packed: Any, name: str, partition: Iterable[Sequence[Span]]) -> Iterator[tuple[list[Any], float, str | None]]:
    """In a Python worker: the chunks of these spans, how long they took, and the error that ended them. It travels as
    text: it may hold anything."""
    keep_modules()
    chunks: list[Any] = []
    problem = None
    started = time.perf_counter()
    # The mixed output of several runs is unreadable.
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        try:
            if name not in _kept:
                _kept.clear()
                types, make = pickle.loads(packed.value)
                register(types)
                _kept[name] = make()
            started = time.perf_counter()
            for spans in partition:
                chunks += [_kept[name](first, count) for first, count in spans]
        except Exception:
            problem = traceback.format_exc()
    yield chunks, time.perf_counter() - started, problem
