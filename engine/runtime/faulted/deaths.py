"""Deaths happen between two events, after the step in which they were decided is over, or unwound.

* An actor that is struck down dies at that instruction: :class:`StruckDown` unwinds the event, and is caught here.
* An actor that is condemned was not at work: it dies when the present event is over, before anything else happens.
* With the process everything ends at once; only the files are left to go on from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.runtime.acking import AckerTask
from engine.runtime.faulted.interference import ProcessDiedError, StruckDown
from engine.runtime.faulted.task_faults import TaskFaults, TaskPause
from engine.runtime.job import JobManager, TaskKilledError
from engine.runtime.kernel import JOB_MANAGER, PROCESS, WORKER, Kernel

T = TypeVar("T")


class Deaths:
    """The deaths and silences of one run."""

    manager: JobManager

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.condemned: list[tuple[str, str]] = []
        """Actors that die when the present event is over, and why."""

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
            if self.manager.is_over:
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
            self.manager.failover.kill_master(cause)
            return
        for acker in self._ackers(target):
            acker.die(cause)
        for faults in self._tasks(target):
            faults.die(TaskKilledError(f"{faults.task.name} was {cause}"))

    def _perish(self) -> None:
        for task in self.manager.tasks.values():
            if isinstance(task.hook, TaskFaults) and task.state == "running":
                task.perish()

    def _tasks(self, target: str) -> list[TaskFaults]:
        """Of the tasks that the job manager still counts on: those with this name, or in this worker."""
        found = []
        for task in self.manager.tasks.values():
            names = (f"{WORKER}[{task.plan.subtask}]", task.name, *task.vertex.names_of(task.plan.subtask))
            if target in names and isinstance(task.hook, TaskFaults) and not task.disowned:
                found.append(task.hook)
        return found

    def _ackers(self, target: str) -> tuple[AckerTask, ...]:
        return () if self.manager.acking is None else self.manager.acking.named(target)

    # -- silences -----------------------------------------------------------------------------------------------------

    def pause(self, target: str, for_ns: int) -> None:
        """Have tasks, those of a name or of ``worker[i]``, do nothing from the end of the present step on."""
        for faults in self._tasks(target):
            faults.begin_pause(for_ns)
        for acker in self._ackers(target):
            acker.pause(for_ns)

    def task_paused(self, faults: TaskFaults, pause: TaskPause) -> None:
        """A task has fallen silent: its heartbeat is missed if that lasts too long."""
        timeout_ns, now = self.manager.config.heartbeat_timeout_ns, self._kernel.now_ns
        if pause.until_ns - now > timeout_ns:
            silence = ("heartbeat_missed", (faults, pause))
            self._kernel.schedule(now + timeout_ns, "happens", self.manager, silence)

    def heartbeat_missed(self, faults: TaskFaults, pause: TaskPause) -> None:
        """A task has been silent for too long, if it still is."""
        if faults.pause is pause:
            self.manager.declare_dead(
                faults.task, f"nothing was heard of it for {self.manager.config.heartbeat_timeout_ns} ns"
            )
