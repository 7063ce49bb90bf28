"""V18 to V20: a savepoint does not change after its user got it, a job started from one begins there, and a drained job
produces no more output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from engine.checkpoint.coordinator import RestoreMode
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import StopMode
from engine.explore.cases import DRAIN
from engine.explore.invariants.base import DAMAGE, Shared, Watcher, faults_possible, shown
from engine.explore.invariants.snapshots import SnapshotFile, readable_metadata, snapshot_of, storage_of
from engine.explore.run import SAVEPOINTS_DIR, CaseView, FinishedCase, hears
from engine.observe.trace_events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    TaskState,
)
from engine.runtime.tasks import Task
from state_backends.api import OperatorStateBackend
from state_backends.base import StateBackendError
from state_backends.files import FileSystem
from state_backends.offline import SnapshotContent
from state_backends.snapshots import CheckpointMetadata, FileStateHandle

_SUBSUMED = CheckpointFailureReason.CHECKPOINT_SUBSUMED.name
_GONE = frozenset(("delete-referenced",))


class _Taken(NamedTuple):
    """A savepoint, as it was when it completed. ``files``: digests, by path."""

    checkpoint_id: int
    directory: str
    files: Mapping[str, bytes]


class SavepointsStay(Watcher):
    name = "V18"
    title = "A savepoint is its user's: it subsumes nothing, and no job recovers from it or deletes it but by a claim."
    reason = "A user who comes back to a savepoint next year finds it whole; the job goes on as if none had been taken."
    source = "Flink: CheckpointSubsumeHelper, CompletedCheckpointStore, RestoreMode (FLIP-193); FLINK-25191"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._taken: dict[str, _Taken] = {}
        """By directory: savepoints of all jobs that no job may have deleted yet."""
        self._triggered: set[int] = set()
        """Savepoints of this job."""
        self._completed: list[int] = []
        """Completed checkpoints of this job, without those newer than a checkpoint that it has gone back to."""
        self._newest = 0
        """The newest snapshot of this job that subsumes others."""

    def process_started(self, view: CaseView) -> None:
        super().process_started(view)
        if not view.case.savepoints:
            self.skipped = "no savepoint is taken"

    def job_started(self, view: CaseView) -> None:
        """Its checkpoints are in another directory."""
        self._triggered.clear()
        self._completed.clear()
        self._newest = 0

    def process_died(self, view: CaseView) -> None:
        """A savepoint that the machine has lost does not count."""
        self._look(view.execution.kernel.now_ns)

    @hears(CheckpointTriggered)
    def _on_triggered(self, event: CheckpointTriggered) -> None:
        if not self.view.case.savepoints:
            return
        if self.shared.is_savepoint(event.checkpoint_id):
            self._triggered.add(event.checkpoint_id)
        # By now the effects of the last completed one are done.
        self._look(event.time_ns)

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        if not self.view.case.savepoints:
            return
        number, now_ns = event.checkpoint_id, event.time_ns
        snapshot = snapshot_of(self.view, number, durable=False)
        if self.shared.is_savepoint(number):
            directory = snapshot.location.directory
            self._taken[directory] = _Taken(number, directory, _digests(snapshot.files, directory))
        else:
            self._judge_places(snapshot, now_ns)
            self._completed.append(number)
            self._let_claimed_go()
        if self.shared.commits(number):
            self._newest = max(self._newest, number)
        self._look(now_ns)

    def _judge_places(self, snapshot: SnapshotFile, now_ns: int) -> None:
        """A checkpoint refers to no savepoint but the one its job was started from, if the claim mode allows it."""
        number, start = snapshot.location.checkpoint_id, self.view.start
        lent = f"{start.path}/" if start is not None and start.restore.mode is not RestoreMode.NO_CLAIM else None
        for path in self._paths(snapshot):
            if path.startswith(f"{SAVEPOINTS_DIR}/") and not (lent and path.startswith(lent)):
                text = f"checkpoint {number} refers to {path}, a file of a savepoint that is its user's"
                self.violated(text, now_ns, checkpoint_id=number, kind="borrowed")

    def _paths(self, snapshot: SnapshotFile) -> Iterator[str]:
        metadata = readable_metadata(self.shared, snapshot)
        for stream in () if metadata is None else metadata.streams():
            if isinstance(stream, FileStateHandle):
                yield snapshot.location.full_path(stream)

    def _let_claimed_go(self) -> None:
        start = self.view.start
        if start is not None and start.restore.mode is RestoreMode.CLAIM and self._has_subsumed_start():
            self._taken.pop(start.path, None)

    def _has_subsumed_start(self) -> bool:
        return len(self._completed) >= self.view.config.retained

    @hears(CheckpointAborted)
    def _on_aborted(self, event: CheckpointAborted) -> None:
        if event.reason != _SUBSUMED or not self.view.case.savepoints:
            return
        number = event.checkpoint_id
        if number in self._triggered:
            self.violated(f"savepoint {number} is given up as if it could be subsumed", event.time_ns, kind="subsumed")
        elif number > self._newest:
            newest = max(self._triggered, default=0)
            text = f"checkpoint {number} is subsumed, but only savepoint {newest} has been completed since"
            self.violated(text, event.time_ns, checkpoint_id=number, kind="subsumes")

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        if not self.view.case.savepoints:
            return
        restored = event.restored_checkpoint or 0
        if restored in self._triggered:
            text = f"attempt {event.attempt} recovers from savepoint {restored}, which is its user's"
            self.violated(text, event.time_ns, checkpoint_id=restored, kind="recovered")
        self._completed = [number for number in self._completed if number <= restored]
        start = self.view.start
        if restored > max([*self._completed, 0 if start is None else start.checkpoint_id]):
            # It became durable, but no event said that it completed.
            self._completed.append(restored)
        self._look(event.time_ns)

    def _look(self, now_ns: int | None) -> None:
        """Check that everything is still there that must be."""
        possible = faults_possible(self.view)
        if possible.isdisjoint(_GONE):
            files = self.view.world.checkpoints
            for taken in self._taken.values():
                gone = [path for path in taken.files if not files.exists(path)]
                if gone:
                    text = f"savepoint {taken.checkpoint_id} was deleted, or part of it: {shown(gone)}"
                    self.violated(text, now_ns, checkpoint_id=taken.checkpoint_id, kind="deleted")
        if possible.isdisjoint(DAMAGE) and self._completed:
            kept = set(storage_of(self.view, self.view.world.checkpoints).list_checkpoints())
            early = [number for number in self._completed[-self.view.config.retained :] if number not in kept]
            if early:
                text = f"checkpoint {early[0]} was deleted, but is among the newest {self.view.config.retained}"
                self.violated(f"{text}: savepoints do not count", now_ns, checkpoint_id=early[0], kind="retained")

    def finished(self, case: FinishedCase) -> None:
        """Every byte is unchanged; a claimed savepoint is gone once it was subsumed."""
        if self.skipped is not None or not faults_possible(self.view).isdisjoint(_GONE):
            return
        self._look(None)
        files, start = self.view.world.checkpoints, self.view.start
        for taken in self._taken.values():
            now = _digests(files, taken.directory)
            changed = [path for path in sorted({*now, *taken.files}) if now.get(path) != taken.files.get(path)]
            if changed and all(map(files.exists, taken.files)):
                text = f"savepoint {taken.checkpoint_id} is another one than it was: {shown(changed)}"
                self.violated(text, None, checkpoint_id=taken.checkpoint_id, kind="changed")
        if start is None or start.restore.mode is not RestoreMode.CLAIM or case.outcome != "finished" or case.faults:
            return
        if self._has_subsumed_start() and files.exists(start.path) and not self._is_lent(start.path):
            text = f"savepoint {start.checkpoint_id} was claimed and subsumed, but {start.path} is still there"
            self.violated(text, None, checkpoint_id=start.checkpoint_id, kind="left")

    def _is_lent(self, directory: str) -> bool:
        storage = storage_of(self.view, self.view.world.checkpoints)
        retained = (snapshot_of(self.view, number, durable=False) for number in storage.list_checkpoints())
        return any(path.startswith(f"{directory}/") for snapshot in retained for path in self._paths(snapshot))


def _digests(files: FileSystem, directory: str) -> dict[str, bytes]:
    return {path: blake2b(files.read_bytes(path), digest_size=8).digest() for path in files.walk_files(directory)}


class StartsWhereItWasStopped(Watcher):
    name = "V19"
    title = "A job starts from the savepoint it was given: at its positions, with its lists, and nothing was in flight."
    reason = "Started elsewhere, records are lost or counted twice, and no failure has happened that would excuse it."
    source = "Flink: CheckpointCoordinator.restoreSavepoint, RoundRobinOperatorStateRepartitioner, CheckpointOptions"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._expected: dict[tuple[str, str], Counter[str]] = {}
        """By uid and name of a list: its content in the savepoint."""
        self._found: dict[tuple[str, str], Counter[str]] = {}
        self._waiting: set[str] = set()
        """Tasks that do not run yet."""
        self._attempt = 0

    def process_started(self, view: CaseView) -> None:
        super().process_started(view)
        self._waiting.clear()
        if not view.case.savepoints:
            self.skipped = "no savepoint is taken"

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        view, number = self.view, event.checkpoint_id
        if not view.case.savepoints or not self.shared.is_savepoint(number):
            return
        if any(edge.is_feedback for edge in view.plan.edges):
            # Records in the loop when the barrier comes are part of the savepoint.
            return
        metadata = self._metadata(number)
        for operator in () if metadata is None else metadata.operators:
            for subtask, snapshot in sorted(operator.subtasks.items()):
                if snapshot.input_channels is not None or snapshot.output_channels is not None:
                    text = f"savepoint {number} holds records in flight of {operator.name}[{subtask}]"
                    self.violated(text, event.time_ns, checkpoint_id=number, kind="in flight")

    def _metadata(self, number: int) -> CheckpointMetadata | None:
        return readable_metadata(self.shared, snapshot_of(self.view, number, durable=False))

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        start = self.view.start
        self._waiting.clear()
        if start is None:
            return
        restored = event.restored_checkpoint
        if (restored or 0) < start.checkpoint_id:
            begins = "from nothing" if restored is None else f"from checkpoint {restored}"
            text = f"attempt {event.attempt} begins {begins}, but the job was started from savepoint"
            self.violated(f"{text} {start.checkpoint_id}", event.time_ns, kind="elsewhere")
        metadata = self._metadata(start.checkpoint_id) if restored == start.checkpoint_id else None
        if metadata is not None:
            self._attempt, self._found = event.attempt, {}
            self._expected = self._lists(metadata)
            self._waiting = {one.name for one in self.view.plan.subtasks}

    def _lists(self, metadata: CheckpointMetadata) -> dict[tuple[str, str], Counter[str]]:
        """The lists that are divided among subtasks, each as a whole."""
        reader = snapshot_of(self.view, metadata.checkpoint_id, durable=False).location.reader()
        found: dict[tuple[str, str], Counter[str]] = {}
        for operator in metadata.operators:
            handles = [one.operator for _, one in sorted(operator.subtasks.items()) if one.operator is not None]
            for handle in handles:
                backend = OperatorStateBackend()
                backend.restore([handle], reader)
                _add(found, operator.uid, backend)
        return found

    @hears(TaskState)
    def _on_task(self, event: TaskState) -> None:
        if event.task not in self._waiting or event.attempt != self._attempt or event.state not in _THERE:
            return
        self._waiting.discard(event.task)
        for task in self.view.execution.manager.tasks.values():
            if task.name == event.task:
                self._take(task)
        if not self._waiting:
            self._compare(event.time_ns)

    def _take(self, task: Task) -> None:
        for context in task.chain.contexts:
            if context.operator is not None:
                _add(self._found, context.uid, context.operator)

    def _compare(self, now_ns: int) -> None:
        start = self.view.start
        assert start is not None, "there is a savepoint to compare with"
        for (uid, name), held in sorted(self._expected.items()):
            found = self._found.get((uid, name), Counter())
            if found != held:
                lost, more = held - found, found - held
                self.violated(
                    f"operator {uid!r} begins with another list {name!r} than savepoint {start.checkpoint_id} holds:"
                    f" without {shown(lost) or 'nothing'}, with {shown(more) or 'nothing'} besides",
                    now_ns,
                    checkpoint_id=start.checkpoint_id,
                    kind="list",
                )


class NothingLeftAfterDrain(Watcher):
    name = "V20"
    title = "When a job is drained event time is over: no event-time timer is left in its savepoint, no window open."
    reason = "What is still open is late in the job that goes on: it closes with part of its records, or never."
    source = "Flink: stop-with-savepoint --drain, StreamTask.endData and MAX_WATERMARK (FLIP-34)"

    def process_started(self, view: CaseView) -> None:
        super().process_started(view)
        if not any(one.kind == DRAIN for one in view.case.savepoints):
            self.skipped = "no job is drained"

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        if self.skipped is not None or not self.shared.is_savepoint(event.checkpoint_id) or not self._drains():
            return
        snapshot = snapshot_of(self.view, event.checkpoint_id, durable=False)
        try:
            content = SnapshotContent.at(snapshot.files, snapshot.location.directory)
            left = [one for one in content.entries() if one.state.startswith(_EVENT_TIMERS)]
        except (StateBackendError, OSError):
            # V6 and V12 report it.
            return
        if left:
            shows = shown(f"{one.operator} at {one.value} for key {one.key!r}" for one in left)
            text = f"the job is drained, but savepoint {event.checkpoint_id} holds event-time timers: {shows}"
            self.violated(text, event.time_ns, checkpoint_id=event.checkpoint_id, kind="open")

    def _drains(self) -> bool:
        savepoints = self.view.execution.manager.savepoints
        stops = [one.order.stop for one in savepoints.reports if one.order.stop is not None and one.error is None]
        return savepoints.is_stopping and stops[-1] is StopMode.TERMINATE


_THERE = ("running", "finished")
_EVENT_TIMERS = "_timer_state/event_"


def _add(found: dict[tuple[str, str], Counter[str]], uid: str, backend: OperatorStateBackend) -> None:
    for name, elements in backend.split_lists().items():
        found.setdefault((uid, name), Counter()).update(map(repr, elements))
