"""Who dies, and when: between two events, once the step is over, or unwound, in which that was decided.

* Who is struck down dies at that instruction: :class:`StruckDown` unwinds the event, and is caught here.
* Who is condemned was not at work: it dies as soon as the present event is over, before anything else happens.
* With the process everything ends at once; what is in files is all there is to go on from.
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
        """Who dies as soon as the present event is over, and why."""

    def condemn(self, target: str, cause: str) -> None:
        """``target`` (a task, ``worker[i]``, ``job manager`` or ``process``) dies as soon as the present event is over,
        before anything else happens: it was not the one who was at work."""
        self.condemned.append((target, cause))
        self._kernel.stop()

    def survived(self, step: Callable[[], None]) -> None:
        """Take a step of the run. Who is struck down in it dies.

        Raises :class:`ProcessDiedError` when that is the whole process.
        """
        try:
            step()
        except StruckDown as struck:
            self.settle(struck)

    def begun(self, begin: Callable[[], T]) -> T:
        """Look for the state to begin with. When the job manager dies of it, nothing was begun: its successor begins
        like it.

        Raises :class:`ProcessDiedError` when that is the whole process.
        """
        while True:
            try:
                return begin()
            except StruckDown as struck:
                struck.is_over = True
                if struck.target != JOB_MANAGER:
                    raise ProcessDiedError(struck.cause, self._kernel.now_ns) from struck

    def run(self, max_events: int | None) -> int:
        """Run until nothing is left to happen, the job is over, or ``max_events`` events were executed; who is struck
        down or condemned meanwhile dies. Returns the number of events.

        Raises :class:`ProcessDiedError` when that is the whole process.
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
        """Between two events: let those die whom the last one struck down or condemned.

        Raises :class:`ProcessDiedError` when that is the whole process.
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
                # Only the whole process dies while somebody else does; see TaskFaults.alone.
                another.is_over = True
                self._perish()
                raise ProcessDiedError(another.cause, now) from another

    def _strike(self, target: str, cause: str) -> None:
        """The job manager, an acker, a task or all tasks of a worker are dead."""
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
        """The tasks that go by a name, or that a worker holds, of those that the job manager still counts upon."""
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
