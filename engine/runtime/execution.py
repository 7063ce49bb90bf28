"""One run of a job: kernel, choices and job manager put together, and its result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from engine.checkpoint.coordinator import CheckpointStatistics, TaskId
from engine.elements.errors import ConfigurationError, StorageError
from engine.elements.events import SavepointFormat, StopMode
from engine.elements.suggestions import nearest
from engine.graph.plan import ExecutionPlan
from engine.observe.provenance import Provenance
from engine.observe.trace_events import Instrument, RunEnded, RunStarted, TraceEvent
from engine.protocols.acking.statistics import AckingStatistics
from engine.runtime.acking import AckingRun, check_acking
from engine.runtime.config import RunConfig
from engine.runtime.faulted import Deaths, Interference, RunFaults
from engine.runtime.job import ENDED, RUNNING, JobManager, Restore, SavepointOrder, SavepointReport, TaskReport
from engine.runtime.kernel import JOB_MANAGER, START_NS, ChoiceRecorder, Kernel
from engine.runtime.storage import RestoredJob, SavepointRestore
from engine.runtime.tasks import check_loops
from state_backends.base import StateBackendError
from state_backends.files import FileSystem, LocalFileSystem, MemoryFileSystem
from state_backends.snapshots import CheckpointStorage

_PROGRESS_EVERY_EVENTS = 2_000
_FEW = 5
"""A message lists this many names; of the others it gives the number."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run has come."""

    virtual_ns: int
    source_records: int
    checkpoints_completed: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The result of a run. Times are virtual."""

    state: str
    """``finished``, ``stopped`` (with a savepoint) or ``failed``."""
    error: Exception | None
    attempts: int
    incarnation: int
    started_ns: int
    ended_ns: int
    restores: tuple[Restore, ...]
    source_records: int
    """Records that the sources sent in all attempts together, ``replayed_records`` included."""
    checkpoints: CheckpointStatistics
    counters: Mapping[tuple[str, int], Mapping[str, int]]
    tasks: tuple[TaskReport, ...]
    choices: ChoiceRecorder
    notes: tuple[str, ...]
    events_executed: int
    losses: tuple[str, ...] = ()
    """Records that completed checkpoints cover and sinks can never commit, each once. With one of them the run has not
    kept its promise, whatever ``state`` says."""
    savepoints: tuple[SavepointReport, ...] = ()
    """The outcome of each requested savepoint, in the order of the requests."""
    local_recovery: Mapping[str, int] | None = None
    """Counts of local restores, remote fallbacks and secondary failures; ``None`` without local recovery."""
    messages: Mapping[str, int] = field(default_factory=dict)
    """Messages between job manager and tasks, by the method that takes them."""
    replayed_records: int = 0
    """Those of ``source_records`` that were sent again: by a source that went back, or because no acknowledgement came
    (mode ``acking``). The others are the records of the input that were read, each once."""
    acking: AckingStatistics | None = None
    """Costs and results of mode ``acking``; ``None`` in other modes."""

    def __repr__(self) -> str:
        """One line: the fields would fill screens."""
        return (
            f"<ExecutionResult {self.state}: {self.source_records:,} records in"
            f" {(self.ended_ns - self.started_ns) / 1e6:g} ms of virtual time, attempts: {self.attempts},"
            f" completed checkpoints: {self.checkpoints.completed}>"
        )

    def raise_on_failure(self) -> ExecutionResult:
        """Raise the job's error if it failed."""
        if self.error is not None:
            raise self.error
        return self


_LARGE_CHANNELS = 10_000
_YOUNG_OBJECTS, _COLLECTIONS_OF_YOUNGER = 50_000, (2, 5)
"""So many new ones between two garbage collections, by default 700; and half a million between two full ones."""


@contextmanager
def long_lived(channels: int) -> Iterator[Callable[[], None]]:
    """Enter it around building and running a graph with so many channels; call the yielded function between the two.

    Tasks and channels live as long as their attempt. With a million of them every full garbage collection takes seconds
    and finds nothing: most of the time of a large run went there. So Python does not look at those of a large graph at
    all. With a small one it looks less often, which saves a tenth of the time of a run with 2,500 channels, and still
    frees the graphs of earlier runs. The results do not depend on it.
    """
    thresholds = gc.get_threshold()
    if not gc.isenabled() or not thresholds[0]:
        yield lambda: None
        return
    if channels < _LARGE_CHANNELS:
        gc.set_threshold(max(thresholds[0], _YOUNG_OBJECTS), *_COLLECTIONS_OF_YOUNGER)
        try:
            yield lambda: None
        finally:
            gc.set_threshold(*thresholds)
        return
    gc.disable()
    try:

        def built() -> None:
            gc.freeze()
            gc.enable()

        yield built
    finally:
        gc.enable()
        gc.unfreeze()


class Execution:
    """One run, from a fresh start or from the contents of a storage directory."""

    def __init__(
        self,
        plan: ExecutionPlan,
        config: RunConfig,
        *,
        storage: CheckpointStorage | None = None,
        file_system: FileSystem | None = None,
        savepoint_files: FileSystem | None = None,
        output_dir: str = ".",
        incarnation: int = 1,
        instruments: Sequence[Instrument] = (),
        restore: bool = False,
        restore_from: SavepointRestore | None = None,
        choices: ChoiceRecorder | None = None,
        interference: Interference | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        """Prepare a run.

        ``storage``      where checkpoints go, ``None`` = in memory;
        ``file_system``  of sources and sinks, ``None`` = the real one; ``savepoint_files``: of savepoints, ``None`` =
                         the same. Checkpoints may refer to files of a savepoint, so ``storage`` must find these, too;
        ``output_dir``   relative paths of sinks are below it;
        ``restore``      start from the newest usable checkpoint in ``storage`` (from nothing if there is none);
        ``restore_from`` the savepoint or checkpoint to start from, on ``savepoint_files``. With ``restore`` it is one
                         more candidate, and may be gone: the job was started from it once;
        ``choices``      a recording to replay, ``None`` = draw from ``config.seed``;
        ``interference`` decides which faults happen, ``None`` = none;
        ``provenance``   is told the causes of each record. Then every record is a batch of its own.
        """
        check_loops(plan, config)
        check_acking(plan, config)
        if config.protocol.tracks_records and (provenance is not None or restore_from is not None):
            what = "keeps no ledger" if provenance is not None else "starts from no savepoint or checkpoint"
            raise ConfigurationError(f"mode {config.mode} {what}; leave that out, or use mode at-least-once")
        self.plan = plan
        self.config = config
        self.interference = interference
        self.choices = ChoiceRecorder(config.seed) if choices is None else choices
        self._restore = restore
        self._progress_every = _PROGRESS_EVERY_EVENTS
        observe = None if provenance is None else provenance.observe
        self._instrument = _joined(instruments if observe is None else (*instruments, observe))
        self.kernel = Kernel(START_NS, self.choices if config.seeded_schedule else None)
        if storage is None:
            storage = CheckpointStorage(
                MemoryFileSystem(), "/checkpoints", plan.job_name, inline_threshold_bytes=config.inline_state_bytes
            )
        file_system = LocalFileSystem() if file_system is None else file_system
        tracks_records = config.protocol.tracks_records
        self.deaths = deaths = Deaths(self.kernel, config.heartbeat_timeout_ns)
        hook = None
        if interference is not None:
            hook = RunFaults(interference, self.kernel, deaths, tracks_records=tracks_records)
        acking = None
        if tracks_records:
            instrument = self._instrument
            acking = AckingRun(plan, config, kernel=self.kernel, storage=storage, instrument=instrument, hook=hook)
        self.manager = JobManager(
            plan,
            config,
            kernel=self.kernel,
            storage=storage,
            file_system=file_system,
            savepoint_files=file_system if savepoint_files is None else savepoint_files,
            output_dir=output_dir,
            incarnation=incarnation,
            instrument=self._instrument,
            choices=self.choices,
            hook=hook,
            acking=acking,
            provenance=provenance,
        )
        deaths.attach(self.manager, None if acking is None else acking.named)
        self._restore_from = restore_from
        self._orders: list[tuple[int, str, object]] = []
        """Events planned for the job manager: when, which operation, with which payload."""
        self._appointments: list[tuple[int, str, Any, object]] = []
        """Other planned events: when on the virtual clock, which operation, of which target, with which payload."""

    def kill(self, target: str, at_ns: int, cause: str = "killed") -> None:
        """Kill tasks, or the job manager, ``at_ns`` after the start of the run.

        ``target`` names a subtask (``count[1]``) or all subtasks of a vertex (``count``); an operator stands for the
        vertex it is chained into. ``job manager`` is the job manager.
        """
        if at_ns < 0:
            raise ConfigurationError(f"kill of {target!r} at {at_ns} ns: a run starts at 0")
        if target == JOB_MANAGER:
            self._orders.append((at_ns, "kill_master", cause))
        elif self.manager.acking is not None and self.manager.acking.named(target):
            self._orders.append((at_ns, "kill_acker", (target, cause)))
        else:
            self._orders.append((at_ns, "kill", (self._tasks_named(target), cause)))

    def savepoint(
        self,
        at_ns: int,
        target: str,
        *,
        savepoint_format: SavepointFormat = SavepointFormat.CANONICAL,
        stop: StopMode | None = None,
    ) -> None:
        """Take a savepoint ``at_ns`` after the start of the run, in a directory of its own below ``target``, on the
        file system of savepoints. ``stop``: the job stops with it.

        Raises :class:`ConfigurationError` when the mode takes no snapshots, or the job would stop twice.
        """
        what = "a savepoint" if stop is None else "stopping with a savepoint"
        if at_ns < 0:
            raise ConfigurationError(f"{what} at {at_ns} ns: a run starts at 0")
        if not self.config.protocol.takes_checkpoints:
            raise ConfigurationError(
                f"{what} needs a mode that takes snapshots; in mode {self.config.mode} there are none"
            )
        if stop is not None and any(one.order.stop is not None for one in self.manager.savepoints.reports):
            raise ConfigurationError(f"{what} is asked for twice; a job stops once, so leave one out")
        number = self.manager.savepoints.order(SavepointOrder(at_ns, target, savepoint_format, stop))
        self._orders.append((at_ns, "trigger_savepoint", number))

    def _tasks_named(self, target: str) -> tuple[TaskId, ...]:
        tasks: dict[str, list[TaskId]] = {}
        for subtask in self.plan.subtasks:
            for name in self.plan.vertices[subtask.vertex].names_of(subtask.subtask):
                tasks.setdefault(name, []).append((subtask.vertex, subtask.subtask))
        if target in tasks:
            return tuple(tasks[target])
        close = nearest(target, (*tasks, JOB_MANAGER))
        hint = f"; did you mean {close!r}?" if close else "."
        names = [subtask.name for subtask in self.plan.subtasks]
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise ConfigurationError(f"there is no task {target!r}{hint} Tasks: {shown}; or {JOB_MANAGER!r}")

    def appoint(self, time_ns: int, operation: str, target: Any, payload: object = None) -> None:
        """Have ``target.operation(payload)`` called when the virtual clock shows ``time_ns``; never when the run begins
        later than that. ``target`` has a ``name``. For faults; call it before the run."""
        self._appointments.append((time_ns, operation, target, payload))

    def condemn(self, target: str, cause: str) -> None:
        """Have ``target`` (a task, ``worker[i]``, ``job manager`` or ``process``) die as soon as the present event is
        over, before anything else happens. For faults; see :mod:`engine.runtime.faulted`."""
        self.deaths.condemn(target, cause)

    def pause(self, target: str, for_ns: int) -> None:
        """Have tasks, those of a name or of ``worker[i]``, do nothing from the end of the present step on."""
        self.deaths.pause(target, for_ns)

    def run(
        self, progress: Callable[[Progress], None] | None = None, progress_every: int = _PROGRESS_EVERY_EVENTS
    ) -> ExecutionResult:
        """Run to the end. A failed job is a result, not an exception; a bug of Weir is an ``AssertionError``.

        ``progress`` is told how far the run is, between two events, each time ``progress_every`` of them are over.
        """
        manager, kernel = self.manager, self.kernel
        with long_lived(len(self.plan.channels)) as built:
            started_ns = self.begin()
            built()
            self._progress_every = progress_every
            self._run_kernel(progress)
            if manager.acking is not None and manager.job.state == RUNNING:
                error = manager.acking.unacknowledged()
                manager.failover.fail_job(str(error), error)
            manager.close()
        assert manager.job.state in ENDED, (
            f"nothing is left to happen, but the job is {manager.job.state}: {who_waits(manager)}"
        )
        self._trace(RunEnded(kernel.now_ns, manager.job.state))
        return self._result(started_ns)

    def begin(self) -> int:
        """Restore the state there is and deploy the tasks: everything before the first event. For callers that run the
        events one by one; :meth:`run` does everything. Returns the virtual time of the start."""
        manager, kernel = self.manager, self.kernel
        restored, problems = self._starting_point()
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
                manager.deployment.environment.incarnation,
            )
        )
        for at_ns, operation, payload in self._orders:
            kernel.schedule(started_ns + at_ns, operation, manager, payload)
        for time_ns, operation, target, payload in self._appointments:
            if time_ns >= started_ns:
                kernel.schedule(time_ns, operation, target, payload)
        if manager.acking is not None:
            manager.acking.begin(self._restore)
        self.deaths.survived(lambda: manager.start(restored, problems))
        return started_ns

    def _starting_point(self) -> tuple[RestoredJob | None, tuple[str, ...]]:
        return self.deaths.begun(self._newest_state)

    def _newest_state(self) -> tuple[RestoredJob | None, tuple[str, ...]]:
        files, gone = self.manager.files, []
        if self._restore_from is not None:
            try:
                files.adopt(self._restore_from)
            except (StateBackendError, StorageError) as error:
                if not self._restore:
                    raise
                gone = [f"the snapshot that the job was started from cannot be used: {error}"]
        if not self._restore and self._restore_from is None:
            return None, ()
        restored, problems = files.latest()
        if restored is None and (problems or self._restore_from is not None):
            # A fresh start would commit a second time the records that these checkpoints have committed.
            raise StorageError("\n  ".join(["there is nothing to start from", *problems, *gone]))
        return restored, problems

    def _run_kernel(self, progress: Callable[[Progress], None] | None) -> None:
        # Reports come between events, never as events: a watcher must not change what happens.
        if progress is None:
            self.run_events()
            return
        while self.run_events(self._progress_every) == self._progress_every and not self.manager.is_over:
            manager = self.manager
            completed = manager.coordinator.statistics.completed
            progress(Progress(self.kernel.now_ns, manager.sources.records, completed, manager.job.attempt))

    def run_events(self, max_events: int | None = None) -> int:
        """Run until nothing is left to happen, the job is over, or ``max_events`` events were executed. Actors that are
        struck down meanwhile die. Returns the number of events.

        Raises :class:`ProcessDiedError` when the whole process dies.
        """
        return self.deaths.run(max_events)

    def _result(self, started_ns: int) -> ExecutionResult:
        manager = self.manager
        deployment, sent = manager.deployment, manager.sources.records
        sent_again = 0 if manager.acking is None else manager.acking.statistics.replayed
        return ExecutionResult(
            state=manager.job.state,
            error=manager.job.error,
            attempts=manager.job.attempt,
            incarnation=deployment.environment.incarnation,
            started_ns=started_ns,
            ended_ns=self.kernel.now_ns,
            restores=tuple(deployment.restores),
            source_records=sent + sent_again,
            replayed_records=deployment.counts.read_again(sent) + sent_again,
            checkpoints=manager.coordinator.statistics,
            counters=deployment.environment.counters,
            tasks=deployment.counts.reports(),
            choices=self.choices,
            notes=tuple(manager.job.notes),
            losses=tuple(deployment.environment.losses),
            events_executed=self.kernel.executed,
            savepoints=tuple(manager.savepoints.reports),
            local_recovery=manager.local.report(),
            messages=dict(manager.post.sent),
            acking=None if manager.acking is None else manager.acking.statistics.copy(),
        )

    def _trace(self, event: TraceEvent) -> None:
        if self._instrument is not None:
            self._instrument(event)

    def fingerprint(self) -> object:
        return (self.kernel.fingerprint(), self.manager.fingerprint())


def who_waits(manager: JobManager) -> str:
    """The first few tasks that have not ended, and what they wait for: those that cannot go on come first."""
    stuck, others = [], []
    for task in manager.tasks.values():
        if task.life.state not in ("finished", "canceled"):
            blocked = [channel.name for channel in task.inputs if channel.blocked]
            reasons = [f"{task.full_outputs} outputs full"] if task.full_outputs else []
            reasons += [f"{_first_few(blocked)} blocked"] if blocked else []
            told = f"{task.name} {task.life.state}"
            if reasons:
                stuck.append(f"{told} ({'; '.join(reasons)})")
            else:
                others.append(told)
    pending = manager.coordinator.pending.ids
    checkpoints = f"; checkpoints pending: {', '.join(map(str, pending))}" if pending else ""
    return f"job manager {manager.job.state}{checkpoints}; {_first_few([*stuck, *others]) or 'no task'}"


def _first_few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


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
