"""Background work of one keyed state backend, such as compaction and materialisation, done in virtual time.

One step is one kernel event. The next one comes after the time that this one costs: its bytes, read and written, and
the latency of the files that it began in checkpoint storage. Records processed meanwhile meet half-done work. The
work of one backend is done in the order in which it was submitted, one piece at a time. It ends with the task; work
not done by then is cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from engine.observe.trace_events import BackgroundWorkDone
from engine.runtime.storage import SharedStreams
from engine.runtime.tasks.environment import TaskPlace
from state_backends.base import BackgroundWork


@runtime_checkable
class Materializing(Protocol):
    """A keyed backend that takes snapshots of its own from time to time, independent of checkpoints."""

    @property
    def materialization_due_ms(self) -> int | None:
        """When the next is due, in virtual ms; ``None`` = never, or one is under way."""

    def materialize_if_due(self, now_ms: int) -> BackgroundWork | None:
        """Begin it between two elements if it is due: returns the remaining work."""


class TaskExecutor:
    """Implements :class:`state_backends.base.Executor` for one backend of one task."""

    __slots__ = ("_bytes", "_done", "_fail", "_is_closed", "_place", "_queue", "_started_ns", "_uploads", "name")

    def __init__(
        self,
        place: TaskPlace,
        name: str,
        uploads: SharedStreams,
        *,
        done: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        """``name``: of the operator, for traces and fingerprints; ``uploads``: how the work reaches checkpoint storage;
        ``done`` is called at the end of each work; ``fail`` ends the task."""
        self._uploads = uploads
        self._done = done
        self.name = f"{place.name}/{name}"
        self._place = place
        self._fail = fail
        self._queue: deque[BackgroundWork] = deque()
        self._started_ns = 0
        self._bytes = 0
        self._is_closed = False

    def submit(self, work: BackgroundWork) -> None:
        """Do it in the events to come, after earlier submissions."""
        assert not self._is_closed, f"{self.name}: {work.name} comes after the end"
        self._queue.append(work)
        if len(self._queue) == 1:
            self._begin()

    def _begin(self) -> None:
        self._started_ns, self._bytes = self._place.kernel.now_ns, 0
        self._schedule(0)

    def _schedule(self, delay_ns: int) -> None:
        kernel = self._place.kernel
        kernel.schedule(kernel.now_ns + delay_ns, "step", self)

    def step(self, _payload: None = None) -> None:
        """One bounded piece of the oldest work (kernel event)."""
        if self._is_closed:
            return
        place = self._place
        if place.hook is None:
            self._step()
        elif place.hook.may("step", target=self):
            with place.around("background.step"):
                self._step()

    def _step(self) -> None:
        work = self._queue[0]
        try:
            moved = work.step()
        except AssertionError:
            raise
        except Exception as error:
            # A local store whose disk fails can no longer be trusted: the task goes back to a checkpoint.
            error.add_note(f"in {work.name} of {self.name}")
            self._fail(error)
            return
        if moved is not None:
            self._bytes += moved
            files, _ = self._uploads.take_written()
            self._schedule(self._place.environment.cost.storage_ns(files, moved))
            return
        self._queue.popleft()
        self._trace(work)
        if self._queue:
            self._begin()
        self._done()

    def _trace(self, work: BackgroundWork) -> None:
        place = self._place
        if place.environment.instrument is not None:
            took_ns = place.kernel.now_ns - self._started_ns
            place.environment.instrument(
                BackgroundWorkDone(place.kernel.now_ns, place.attempt, self.name, work.name, self._bytes, took_ns)
            )

    def close(self) -> None:
        """The task is over: cancel the remaining work. A second call does nothing."""
        self._is_closed = True
        while self._queue:
            self._queue.popleft().cancel()

    def perish(self) -> None:
        """The process of the task is gone: work stops, and is not cancelled."""
        self._is_closed = True
        self._queue.clear()

    def fingerprint(self) -> object:
        """The remaining work."""
        return (tuple(work.name for work in self._queue), self._bytes, self._is_closed)
