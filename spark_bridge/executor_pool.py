"""Executors of Spark as workers, in place of processes of this machine: for the chunks of runs of a search, and for the
cases of a sweep.

An item is a few arguments, which decide its result and nothing else. So Spark may make one twice, or somewhere else.
Each Python worker prepares itself once. Tasks are handed out one by one, a few ahead of what executors work on. So a
search that ends at its first failure has begun little more than it needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import pickle
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from engine.elements.errors import JobFileError, WorkerError
from spark_bridge.pipeline.executor_checks import check_executors
from spark_bridge.pipeline.giving_up import SEARCH, Work, told
from spark_bridge.pipeline.query import send_modules_of_the_job
from spark_bridge.pipeline.stage_function import keep_modules, register
from spark_bridge.session import SessionSettings, get_session, session_is_running, session_log_tail
from state_backends.codec import default_codec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ResultT = TypeVar("ResultT")
Arguments = tuple[Any, ...]
Make = Callable[[], Callable[..., ResultT]]
_Answer = tuple[list[bytes], float, str | None]
"""The pickled results of a task, how long they took, and the error that ended them."""

_AHEAD = 2
"""Tasks per core that are handed out and have not come back."""
_TASK_SECONDS = 1.0
"""A task costs some twenty milliseconds by itself, and the last ones leave cores idle."""
_MOST_ITEMS = 16

_numbers = itertools.count()
_kept: dict[str, Callable[..., Any]] = {}
"""In a Python worker: what makes the results of the pool that it works for."""


def pool_session(master: str | None, *imports: str) -> SparkSession:
    """The session for a pool. ``master``: the URL of a Spark master, ``None`` = the session that runs, or two local
    cores. Its JVM only hands out tasks, and leaves the cores to Python. ``imports``: modules of the pool's work."""
    if master is None and session_is_running():
        return get_session()
    settings = SessionSettings(short_lived=True, imports=(__name__, *imports))
    return get_session(settings if master is None else replace(settings, master=master))


class ExecutorPool(Generic[ResultT]):
    """The executors of ``session``. Each calls ``make()`` once in every Python worker, and what it returns for each
    item. ``most``: items in a task, which has about a second of work.

    Raises :class:`JobFileError` when ``make`` cannot be sent to them, and what :func:`check_executors` raises.
    """

    def __init__(
        self, session: SparkSession, make: Make[ResultT], work: Work = SEARCH, *, most: int = _MOST_ITEMS
    ) -> None:
        from pyspark import cloudpickle

        self._work, self._most = work, most
        send_modules_of_the_job()
        try:
            packed: bytes = cloudpickle.dumps((tuple(default_codec().registry.of_users()), make))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise JobFileError(
                f"{work.sent} cannot be sent to executors: {type(error).__name__}: {error}\n"
                "  fix: open files, locks and connections inside of the functions that use them"
            ) from None
        self._context = session.sparkContext
        try:
            check_executors(session, [], "", 0, packed, needs=[__name__])
        except Exception as error:
            raise self._told(error) from None
        self._tag = f"weir-pool-{os.getpid()}-{next(_numbers)}"
        self._ahead = max(1, self._context.defaultParallelism) * _AHEAD
        # A reference that Spark sends to each worker once.
        self._packed = self._context.broadcast(packed)
        self._name = hashlib.sha256(packed).hexdigest()
        self._one_task = self._context.parallelize([None], 1)
        self._threads = ThreadPoolExecutor(self._ahead, "weir-pool", partial(self._context.addJobTag, self._tag))

    def __enter__(self) -> ExecutorPool[ResultT]:
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

    def in_order(self, items: Iterable[Arguments]) -> Iterator[ResultT]:
        """The results, in the order of the items.

        Raises :class:`WorkerError` when the work raises an error, and :class:`SparkBridgeError` when Spark gives up.
        """
        following, ended = 0, dict[int, tuple[list[ResultT], str | None]]()
        for first, results, problem in self._ended(items):
            ended[first] = results, problem
            while following in ended:
                results, problem = ended.pop(following)
                yield from results
                _check(problem)
                following += len(results)

    def as_they_end(self, items: Iterable[Arguments]) -> Iterator[tuple[int, ResultT]]:
        """``(number of the item, result)``. Raises as :meth:`in_order`."""
        for first, results, problem in self._ended(items):
            yield from enumerate(results, first)
            _check(problem)

    def _ended(self, items: Iterable[Arguments]) -> Iterator[tuple[int, list[ResultT], str | None]]:
        """The number of the first item of each task, its results, and the error that ended it."""
        numbered, together = enumerate(items), 1
        running: dict[Future[_Answer], int] = {}
        while True:
            while len(running) < self._ahead and (some := list(itertools.islice(numbered, together))):
                running[self._threads.submit(self._task, [item for _, item in some])] = some[0][0]
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                try:
                    results, seconds, problem = future.result()
                except Exception as error:
                    raise self._told(error) from None
                yield running.pop(future), list(map(pickle.loads, results)), problem
                together = max(1, min(self._most, int(_TASK_SECONDS * len(results) / max(seconds, 1e-3))))

    def _task(self, items: Sequence[Arguments]) -> _Answer:
        packed, name = self._packed, self._name
        answers: list[_Answer] = self._one_task.mapPartitions(lambda rows: _made(packed, name, items, rows)).collect()
        return answers[0]

    def _told(self, error: BaseException) -> BaseException:
        return told(error, session_log_tail, self._work)


def _check(problem: str | None) -> None:
    if problem is not None:
        raise WorkerError(f"an executor failed:\n{problem}")


def _made(packed: Any, name: str, items: Sequence[Arguments], rows: Iterable[object]) -> Iterator[_Answer]:
    """In a Python worker: the answer of a task. The error travels as text: it may hold anything."""
    # Spark starts another worker if this one has not read all of its input.
    list(rows)
    keep_modules()
    results: list[bytes] = []
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
            # Packed here: Spark would have the slower pickler of functions look at every object.
            for item in items:
                results.append(pickle.dumps(_kept[name](*item), pickle.HIGHEST_PROTOCOL))
        except Exception:
            problem = traceback.format_exc()
    yield results, time.perf_counter() - started, problem
