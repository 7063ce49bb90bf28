"""V13 and V14: a job ends once no more faults strike; and which files and transactions it may leave. And the engine's
own assertions, checked between events: every machine validates its own state."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from engine.checkpoint.coordinator import CheckpointCoordinator
from engine.explore.invariants.base import Shared, Watcher, faults_possible, shown
from engine.explore.invariants.databases import databases_of, left_in
from engine.explore.invariants.snapshots import SnapshotFile, readable_metadata, storage_of
from engine.explore.invariants.transactions import logs_of
from engine.explore.run import CaseView, FinishedCase, hears
from engine.faults.fault import FAULT_KINDS
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, RunEnded, TaskState, TimerFired
from engine.runtime.acking import OFFSETS_FILE_NAME
from operators.files.writing import RETRACTED, attempt_of
from state_backends.snapshots import (
    CHECKPOINT_IDS_FILE_NAME,
    INCARNATION_FILE_NAME,
    SHARED_DIRECTORIES_FILE_NAME,
    FileStateHandle,
)

LONGEST_NS = 3_600 * 1_000_000_000
LONGEST_TIMES = 20
"""Limit of the last attempt: the greater of the first, and the second times (time before it + checkpoint timeout)."""

EVERY_EVENTS = 97
"""A prime number, so that checks do not coincide with a job's period; a check costs about two events of a small job."""

_ZOMBIES = {"pause", "partition"}
"""Faults after which a task that was given up may go on writing."""

_OF_THE_DIRECTORY = (
    INCARNATION_FILE_NAME, CHECKPOINT_IDS_FILE_NAME, SHARED_DIRECTORIES_FILE_NAME, OFFSETS_FILE_NAME, "lock",
)  # fmt: skip


class Liveness(Watcher):
    """V13. The runner judges whether a job ends at all, and cuts it off."""

    name = "V13"
    title = "After the last failure a checkpoint completes, and the job ends in good time."
    reason = "A job that is safe because it stands still is of no use."
    source = "TigerBeetle's simulator: safety first, then heal and demand liveness"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._started_ns: int | None = None
        self._attempt_ns = 0
        self._attempt = 0
        self._runs = False
        self._completed = False
        self._ended_ns: int | None = None

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        if self._started_ns is None:
            self._started_ns = event.time_ns
        self._attempt_ns, self._attempt = event.time_ns, event.attempt
        self._runs = self._completed = False

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        if event.state == "running" and event.attempt == self._attempt:
            self._runs = True

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        self._completed = True

    @hears(RunEnded)
    def _on_end(self, event: RunEnded) -> None:
        self._ended_ns = event.time_ns

    def finished(self, case: FinishedCase) -> None:
        if case.outcome != "finished" or self._started_ns is None or self._ended_ns is None:
            self.skipped = f"the job is {case.outcome}"
            return
        config = self.view.config
        if config.protocol.takes_checkpoints and self._runs and not self._completed:
            self.violated(f"attempt {self._attempt} has finished the job without a completed checkpoint")
        before_ns, took_ns = self._attempt_ns - self._started_ns, self._ended_ns - self._attempt_ns
        longest_ns = max(LONGEST_NS, LONGEST_TIMES * (before_ns + config.checkpoint_timeout_ns))
        if took_ns > longest_ns:
            self.violated(f"attempt {self._attempt} took {took_ns} ns to finish the job, more than {longest_ns} ns")


class Quiescence(Watcher):
    name = "V14"
    title = "When a job has finished nothing of it is left: no file, transaction, timer, blocked channel or checkpoint."
    reason = "What is left over fills disks, holds readers back, and may be taken for something by the next run."
    source = "TigerBeetle's simulator; Flink: CheckpointsCleaner, SharedStateRegistry"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._over: set[tuple[str, int]] = set()
        self._coordinator: CheckpointCoordinator | None = None
        self._registered: set[str] = set()
        """Keys of shared state that it knew when a checkpoint completed."""

    def process_started(self, view: CaseView) -> None:
        """Attempts count from 1 again."""
        super().process_started(view)
        self._over.clear()
        self._registered.clear()

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        coordinator = self.view.execution.manager.coordinator
        if coordinator is not self._coordinator:
            # The next job manager does not know the files that its predecessor was about to delete.
            self._coordinator = coordinator
            self._registered.clear()
        self._registered.update(coordinator.retained.shared_keys)

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        if event.state in ("end_of_data", "finished"):
            self._over.add((event.task, event.attempt))

    @hears(TimerFired)
    def _on_timer(self, event: TimerFired) -> None:
        if (event.task, event.attempt) in self._over:
            text = f"a timer of {event.operator} is called in {event.task} after the end of its data"
            self.violated(text, event.time_ns, task=event.task)

    def finished(self, case: FinishedCase) -> None:
        if case.outcome != "finished":
            self.skipped = f"the job is {case.outcome}"
            return
        for problem in (*self._in_memory(), *self._files(), *self._transactions()):
            self.violated(problem)

    def _in_memory(self) -> Iterator[str]:
        manager = self.view.execution.manager
        for task in manager.tasks.values():
            if task.life.state != "finished":
                yield f"the job has finished, and {task.name} is {task.life.state}"
            blocked = [channel.name for channel in task.inputs if channel.blocked]
            if blocked:
                yield f"{shown(blocked)} is still blocked"
        pending = manager.coordinator.pending.ids
        if pending:
            yield f"checkpoints {', '.join(map(str, pending))} are still pending"

    def _files(self) -> Iterator[str]:
        if any(FAULT_KINDS[kind].group == "storage" and kind != "lose-unsynced" for kind in faults_possible(self.view)):
            self.skipped = "files that cannot be deleted stay"
            return
        files = self.view.world.checkpoints
        storage = storage_of(self.view, files)
        live = {posixpath.join(storage.job_dir, name) for name in _OF_THE_DIRECTORY}
        for number in storage.list_checkpoints():
            location = storage.location(number)
            metadata = readable_metadata(self.shared, SnapshotFile(files, location))
            if metadata is None:
                return
            live.add(location.metadata_path)
            live.update(location.full_path(one) for one in metadata.streams() if isinstance(one, FileStateHandle))
        left = [path for path in files.walk_files(storage.job_dir) if path not in live]
        if left:
            yield f"files that no checkpoint refers to: {shown(left)}"
        leaked = self._leaked(storage.job_dir)
        if leaked:
            yield f"shared files were forgotten and not deleted, until the job swept up at its end: {shown(leaked)}"
        if not self.view.config.protocol.takes_checkpoints:
            # Then it is not known which files an attempt has left.
            return
        world = self.view.world
        for uid, output in sorted(world.file_outputs.items()):
            was_disturbed = self.view.incarnation > 1 or self.view.execution.manager.job.attempt > 1
            hidden = output.left_behind(world.files, was_disturbed=was_disturbed)
            if self.shared.went_back:
                # Rows that a later checkpoint had made visible are hidden again, and kept (docs/file-sink.md).
                hidden = [path for path in hidden if RETRACTED not in posixpath.basename(path)]
            if not _ZOMBIES.isdisjoint(faults_possible(self.view)):
                # An unreachable task goes on writing after its successor has cleaned up.
                last = (self.view.incarnation, self.view.execution.manager.job.attempt)
                hidden = [path for path in hidden if attempt_of(path.rpartition(".")[2]) in (last, None)]
            if hidden:
                yield f"unfinished files of sink {uid!r}: {shown(hidden)}"

    def _leaked(self, job_dir: str) -> list[str]:
        """Files that the coordinator once knew and has forgotten, and that still existed when the job ended. Files that
        no acknowledgement named are left to the sweep."""
        manager = self.view.execution.manager
        if manager.coordinator is not self._coordinator:
            return []
        forgotten = self._registered.difference(manager.coordinator.retained.shared_keys)
        known = {posixpath.join(job_dir, key) for key in forgotten}
        return [path for path in manager.swept if path in known]

    def _transactions(self) -> Iterator[str]:
        for uid, database in databases_of(self.view.world):
            unfinished = left_in(database)
            if unfinished:
                yield f"unfinished transactions of sink {uid!r}: {shown(unfinished)}"
        # Faults that end or fence a producer's transaction leave remains that only time out.
        if any(FAULT_KINDS[kind].group == "external" for kind in faults_possible(self.view)):
            return
        for uid, log in logs_of(self.view.world):
            left = [str(one.producer) for one in log.open_transactions() if one.records]
            if left:
                yield f"open transactions of sink {uid!r}: {shown(left)}"


class Assertions(Watcher):
    """Every so many events, ``validate()`` of the job manager, and so of coordinator, tasks, gates and channels."""

    name = "assertion"
    title = "Between two events every part of the engine is in a state that it may be in."
    reason = "A wrong state is nearer to its cause than the wrong output that comes of it, if one ever does."
    source = "TigerBeetle: assertions in every function, in production"

    def __init__(self, shared: Shared | None = None, every_events: int = EVERY_EVENTS) -> None:
        super().__init__(shared)
        self.every_events = every_events

    def between_events(self) -> None:
        """Validate now. A failed assertion is a violation, and is reported once."""
        if self.violations:
            return
        execution = self.view.execution
        try:
            execution.manager.validate()
        except AssertionError as error:
            self.violated(f"{_where(error)}: {error}", execution.kernel.now_ns)

    def process_died(self, view: CaseView) -> None:
        """A dead process may have died in any state."""


def _where(error: AssertionError) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an assertion"
    code = trace.tb_frame.f_code
    return f"{code.co_qualname} does not hold"
