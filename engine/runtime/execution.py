"""One run of a job: kernel, choices and job manager put together, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from engine.checkpoint.messages import TaskId
from engine.checkpoint.statistics import CheckpointStatistics
from engine.elements.errors import ConfigurationError
from engine.observe.events import Instrument, RunEnded, RunStarted, TraceEvent
from engine.runtime.choices import ChoiceRecorder
from engine.runtime.config import RunConfig
from engine.runtime.job_manager import JobManager, Restore
from engine.runtime.kernel import START_NS, Kernel
from state_backends.filesystem import LocalFileSystem, MemoryFileSystem
from state_backends.storage import CheckpointStorage

if TYPE_CHECKING:
    from engine.graph.job import Job
    from engine.graph.plan import ExecutionPlan
    from state_backends.filesystem import FileSystem

_PROGRESS_EVERY_EVENTS = 2_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    virtual_ns: int
    source_records: int
    checkpoints_completed: int
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What one subtask did in the last attempt."""

    name: str
    vertex: str
    subtask: int
    records_in: int
    records_out: int
    state: str


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """What came of a run. Times are virtual."""

    state: str
    """``finished`` or ``failed``."""
    error: Exception | None
    attempts: int
    incarnation: int
    started_ns: int
    ended_ns: int
    restores: tuple[Restore, ...]
    source_records: int
    """Records the sources emitted in all attempts together."""
    checkpoints: CheckpointStatistics
    counters: Mapping[tuple[str, int], Mapping[str, int]]
    tasks: tuple[TaskReport, ...]
    choices: ChoiceRecorder
    notes: tuple[str, ...]
    events_executed: int

    def raise_on_failure(self) -> ExecutionResult:
        """Raise the job's error if it failed."""
        if self.error is not None:
            raise self.error
        return self


def run(job: Job, config: RunConfig | None = None, **surroundings: Any) -> ExecutionResult:
    """Run ``job`` to its end, in memory unless told otherwise; raises its error when it fails.

    ``surroundings`` are those of :class:`Execution`: ``storage=``, ``output_dir=``, ``instruments=`` …
    """
    return Execution(job.plan(), RunConfig() if config is None else config, **surroundings).run().raise_on_failure()


class Execution:
    """One run, from a fresh start or from what a storage directory holds."""

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        *,
        storage: CheckpointStorage | None = None,
        file_system: FileSystem | None = None,
        output_dir: str = ".",
        incarnation: int = 1,
        instruments: Sequence[Instrument] = (),
        restore: bool = False,
        choices: ChoiceRecorder | None = None,
    ) -> None:
        """Prepare a run.

        ``storage``      where checkpoints go, ``None`` = in memory;
        ``file_system``  of sources and sinks, ``None`` = the real one;
        ``output_dir``   relative paths of sinks are below it;
        ``restore``      start from the newest usable checkpoint in ``storage`` (from nothing if there is none);
        ``choices``      a recording to replay, ``None`` = draw from ``config.seed``.
        """
        self.plan = plan
        self.config = config
        self.choices = ChoiceRecorder(config.seed) if choices is None else choices
        self._restore = restore
        self._instrument = _joined(instruments)
        self.kernel = Kernel(START_NS, self.choices if config.seeded_schedule else None)
        if storage is None:
            storage = CheckpointStorage(
                MemoryFileSystem(), "/checkpoints", plan.job_name, inline_threshold_bytes=config.inline_state_bytes
            )
        self.manager = JobManager(
            plan,
            config,
            kernel=self.kernel,
            storage=storage,
            file_system=LocalFileSystem() if file_system is None else file_system,
            output_dir=output_dir,
            incarnation=incarnation,
            instrument=self._instrument,
        )
        self._kills: list[tuple[int, tuple[TaskId, ...], str]] = []

    def kill(self, target: str, at_ns: int, cause: str = "killed") -> None:
        """Kill tasks ``at_ns`` after the start of the run.

        ``target`` names a subtask (``count[1]``) or all subtasks of a vertex (``count``); an operator stands for the
        vertex it is chained into.
        """
        if at_ns < 0:
            raise ConfigurationError(f"kill of {target!r} at {at_ns} ns: a run starts at 0")
        self._kills.append((at_ns, self._tasks_named(target), cause))

    def _tasks_named(self, target: str) -> tuple[TaskId, ...]:
        tasks: dict[str, list[TaskId]] = {}
        for subtask in self.plan.subtasks:
            for name in self.plan.vertices[subtask.vertex].names_of(subtask.subtask):
                tasks.setdefault(name, []).append((subtask.vertex, subtask.subtask))
        if target in tasks:
            return tuple(tasks[target])
        close = get_close_matches(target, tasks, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        names = [subtask.name for subtask in self.plan.subtasks]
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise ConfigurationError(f"there is no task {target!r}{hint} Tasks: {shown}")

    def run(self, progress: Callable[[Progress], None] | None = None) -> ExecutionResult:
        """Run to the end. A failed job is a result, not an exception; a bug of Weir is an ``AssertionError``."""
        manager, kernel = self.manager, self.kernel
        restored, problems = manager.files.latest() if self._restore else (None, ())
        if restored is not None:
            # The clock goes on where the checkpoint was taken: restored timers must not lie in the future twice.
            kernel.now_ns = max(START_NS, restored.timestamp_ns)
        started_ns = kernel.now_ns
        self._trace(
            RunStarted(
                started_ns,
                self.plan.job_name,
                self.plan.fingerprint,
                self.config.mode,
                self.config.seed,
                manager.incarnation,
            )
        )
        for at_ns, targets, cause in self._kills:
            kernel.schedule(started_ns + at_ns, "kill", manager, (targets, cause))
        manager.start(restored, problems)
        self._run_kernel(progress)
        assert manager.state in ("finished", "failed"), (
            f"nothing is left to happen, but the job is {manager.state}: {self._who_waits()}"
        )
        self._trace(RunEnded(kernel.now_ns, manager.state))
        return self._result(started_ns)

    def _run_kernel(self, progress: Callable[[Progress], None] | None) -> None:
        # Reports come between events, never as events: whoever watches must not change what happens.
        if progress is None:
            self.kernel.run()
            return
        while self.kernel.run(_PROGRESS_EVERY_EVENTS) == _PROGRESS_EVERY_EVENTS and not self.kernel.stopped:
            manager = self.manager
            completed = manager.coordinator.statistics.completed
            progress(Progress(self.kernel.now_ns, manager.source_records, completed, manager.attempt))

    def _result(self, started_ns: int) -> ExecutionResult:
        manager = self.manager
        return ExecutionResult(
            state=manager.state,
            error=manager.error,
            attempts=manager.attempt,
            incarnation=manager.incarnation,
            started_ns=started_ns,
            ended_ns=self.kernel.now_ns,
            restores=tuple(manager.restores),
            source_records=manager.source_records,
            checkpoints=manager.coordinator.statistics,
            counters=manager.counters,
            tasks=tuple(
                TaskReport(
                    task.name,
                    task.vertex.name,
                    task.plan.subtask,
                    task.records_in,
                    sum(channel.sent_records for writer in task.writers for channel in writer.channels),
                    task.state,
                )
                for task in manager.tasks.values()
            ),
            choices=self.choices,
            notes=tuple(manager.notes),
            events_executed=self.kernel.executed,
        )

    def _who_waits(self) -> str:
        return "; ".join(
            f"{task.name} {task.state}, {task.full_outputs} full outputs, blocked "
            f"{[channel.name for channel in task.inputs if channel.blocked]}"
            for task in self.manager.tasks.values()
            if task.state == "running"
        )

    def _trace(self, event: TraceEvent) -> None:
        if self._instrument is not None:
            self._instrument(event)

    def fingerprint(self) -> object:
        """Everything that decides how the run goes on."""
        return (self.kernel.fingerprint(), self.manager.fingerprint())


def _joined(instruments: Sequence[Instrument]) -> Instrument | None:
    if not instruments:
        return None
    if len(instruments) == 1:
        return instruments[0]
    several = tuple(instruments)

    def tell_all(event: TraceEvent) -> None:
        for instrument in several:
            instrument(event)

    return tell_all
