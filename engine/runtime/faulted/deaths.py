"""Deaths happen between two events, after the step in which they were decided is over, or unwound.

* An actor that is struck down dies at that instruction: :class:`StruckDown` unwinds the event, and is caught here.
* An actor that is condemned was not at work: it dies when the present event is over, before anything else happens.
* With the process everything ends at once; only the files are left to go on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from engine.checkpoint.coordinator import TaskId
from engine.runtime.acking import AckerTask
from engine.runtime.faulted.interference import ProcessDiedError, StruckDown
from engine.runtime.faulted.task_faults import TaskFaults, TaskPause
from engine.runtime.kernel import JOB_MANAGER, PROCESS, Kernel
from engine.runtime.tasks import RUNNING, TaskPlace

T = TypeVar("T")


class HookedTask(Protocol):
    """A task, which may have a hook."""

    place: TaskPlace


class MortalJob(Protocol):
    """The job manager, as deaths see it."""

    is_over: bool

    @property
    def tasks(self) -> Mapping[TaskId, HookedTask]:
        """The tasks that it counts on."""

    def kill_master(self, cause: str) -> None:
        """It dies."""

    def declare_dead(self, task_id: TaskId, attempt: int, why: str) -> None:
        """Nothing was heard of a task for too long."""


class Deaths:
    """The deaths and silences of one run. A task is missed after ``heartbeat_timeout_ns``."""

    _job: MortalJob

    def __init__(self, kernel: Kernel, heartbeat_timeout_ns: int) -> None:
        self._kernel = kernel
        self._heartbeat_timeout_ns = heartbeat_timeout_ns
        self._ackers: Callable[[str], Iterable[AckerTask]] | None = None
        self.condemned: list[tuple[str, str]] = []
        """Actors that die when the present event is over, and why."""

    def attach(self, job: MortalJob, ackers: Callable[[str], Iterable[AckerTask]] | None) -> None:
        """Get to know the actors: ``ackers`` finds those of a name, or of a worker."""
        self._job, self._ackers = job, ackers

    def condemn(self, target: str, cause: str) -> None:
        """``target`` (a task, ``worker[i]``, ``job manager`` or ``process``) dies when the present event is over,
        before anything else happens: another actor was at work."""
        self.condemned.append((target, cause))
        self._kernel.stop()

    def survived(self, step: Callable[[], None]) -> None:
        """Take a step of the run. An actor that is struck down in it dies.

        Raises :class:`ProcessDiedError` when the whole process dies.
        """
        try:
            step()
        except StruckDown as struck:
            self.settle(struck)

    def begun(self, begin: Callable[[], T]) -> T:
        """Look for the state to begin with. When the job manager dies of it, nothing was begun: its successor begins
        in the same way.

        Raises :class:`ProcessDiedError` when the whole process dies.
        """
        while True:
            try:
                return begin()
            except StruckDown as struck:
                struck.is_over = True
                if struck.target != JOB_MANAGER:
                    raise ProcessDiedError(struck.cause, self._kernel.now_ns) from struck

    def run(self, max_events: int | None) -> int:
        """Run until nothing is left to happen, the job is over, or ``max_events`` events were executed. Actors that are
        struck down or condemned meanwhile die. Returns the number of events.

        Raises :class:`ProcessDiedError` when the whole process dies.
        """
        kernel = self._kernel
        before = kernel.executed
        self.settle()
        while True:
            try:
                kernel.run(None if max_events is None else max_events - (kernel.executed - before))
            except StruckDown as struck:
                self.settle(struck)
            else:
                if not self.condemned:
                    break
                self.settle()
            if self._job.is_over:
                break
        return kernel.executed - before

    def settle(self, struck: StruckDown | None = None) -> None:
        """Between two events: the actors that the last one struck down or condemned die.

        Raises :class:`ProcessDiedError` when the whole process dies.
        """
        now = self._kernel.now_ns
        if struck is not None:
            struck.is_over = True
            self.condemned.insert(0, (struck.target, struck.cause))
        while self.condemned:
            target, cause = self.condemned.pop(0)
            if target == PROCESS:
                self._perish()
                raise ProcessDiedError(cause, now) from struck
            try:
                self._strike(target, cause)
            except StruckDown as another:
                # Only the whole process dies during another death; see TaskFaults.alone.
                another.is_over = True
                self._perish()
                raise ProcessDiedError(another.cause, now) from another

    def _strike(self, target: str, cause: str) -> None:
        """The job manager, an acker, a task or all tasks of a worker die."""
        if target == JOB_MANAGER:
            self._job.kill_master(cause)
            return
        for acker in self._ackers_named(target):
            acker.die(cause)
        for faults in self._named(target):
            faults.die(cause)

    def _perish(self) -> None:
        for faults in self._hooks():
            if faults.task.life.state == RUNNING:
                faults.task.life.perish()

    def _hooks(self) -> Iterator[TaskFaults]:
        """Of the tasks that the job manager still counts on."""
        hooks = (task.place.hook for task in self._job.tasks.values())
        return (hook for hook in hooks if isinstance(hook, TaskFaults))

    def _named(self, target: str) -> list[TaskFaults]:
        """Those of the tasks with this name, or in this worker."""
        return [faults for faults in self._hooks() if target in faults.names and not faults.task.life.disowned]

    def _ackers_named(self, target: str) -> Iterable[AckerTask]:
        return () if self._ackers is None else self._ackers(target)

    # -- silences -----------------------------------------------------------------------------------------------------

    def pause(self, target: str, for_ns: int) -> None:
        """Have tasks, those of a name or of ``worker[i]``, do nothing from the end of the present step on."""
        for faults in self._named(target):
            faults.begin_pause(for_ns)
        for acker in self._ackers_named(target):
            acker.pause(for_ns)

    def task_paused(self, faults: TaskFaults, pause: TaskPause) -> None:
        """A task has fallen silent: its heartbeat is missed if that lasts too long."""
        missed_ns = self._kernel.now_ns + self._heartbeat_timeout_ns
        if pause.until_ns > missed_ns:
            self._kernel.schedule(missed_ns, "happens", self._job, ("heartbeat_missed", (faults, pause)))

    def heartbeat_missed(self, faults: TaskFaults, pause: TaskPause) -> None:
        """A task has been silent for too long, if it still is."""
        if faults.pause is pause:
            why = f"nothing was heard of it for {self._heartbeat_timeout_ns} ns"
            self._job.declare_dead(faults.task_id, faults.task.life.attempt, why)
