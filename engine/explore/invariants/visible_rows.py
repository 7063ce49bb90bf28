"""V17: readers of a file sink may see only the rows that its newest completed checkpoint covers.

Received records are counted at the tasks of a sink's writers. A checkpoint covers the records that these tasks had
received when they took their snapshots. Any row above that number was committed too early, even if nothing ever fails:
V2 would notice only if the row is gone or different after a failure.

If newer checkpoints are damaged, a job goes back to an older one. While its writers start, it takes back, one by one,
the files that the newer ones had committed. Until all writers run, readers may see as many rows as before.

A sink may promise that its readers see all rows of a checkpoint at once (``shows_whole_checkpoints``), as one with a
global committer can. Rows of an aborted checkpoint are then committed before those of the next one, also as a whole. So
such readers see as many rows as the writers had received before their barriers of *one* checkpoint. For a writer that
has not seen this barrier, the barrier before it counts.

A record must be one row, so tables that are filled at the end are left to V1 and V2. All tasks must restart together;
otherwise it is unknown where the count of the others starts.
"""

from __future__ import annotations

from engine.elements.errors import StorageError
from engine.explore.invariants.base import Shared, Watcher
from engine.explore.run import CaseView, FinishedCase, hears
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, Receive, SnapshotTaken, TaskState
from operators.table.staging import StagedFileSink

_FULL = "full"


class CoveredRows(Watcher):
    name = "V17"
    title = "Readers of files never see more rows than the newest completed checkpoint covers."
    reason = "A row that is shown before its checkpoint is complete has to be taken back if it never is."
    source = "Flink TwoPhaseCommitSinkFunction and StreamingFileSink: pending files wait for the notification"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._writers: dict[int, str] = {}
        """By channel: the receiving task, if it writes to files."""
        self.records_of = self.shared.records_of
        self._tasks: dict[str, tuple[str, ...]] = {}
        """By uid of a sink: the tasks of its writers."""
        self._received: dict[str, int] = {}
        """By task: records in this attempt."""
        self._at_snapshot: dict[int, dict[str, int]] = {}
        self._base: dict[str, int] = {}
        """By uid: rows covered by the checkpoint that this attempt began from."""
        self._covered: dict[int, dict[str, int]] = {0: {}}
        """By checkpoint: the same."""
        self._pending: dict[int, dict[str, int]] = {}
        """By checkpoint that was pending when the previous process died: the same."""
        self._newest = 0
        self._attempt = 0
        self._starting: set[str] = set()
        """Tasks of writers that do not run yet in this attempt."""
        self._uncounted: set[str] = set()
        """By uid: sinks with records that were not counted in some process."""
        self._there: dict[str, int] | None = None
        """By uid: rows that existed before the first process."""
        self._whole: dict[str, set[int]] = {}
        """By uid, of sinks that show whole checkpoints: how many rows readers may see."""

    def process_started(self, view: CaseView) -> None:
        super().process_started(view)
        # With the counts of the dead process's tasks, because the next process may have others.
        self._book()
        self._pending = {one: self._covered_by(one) for one in self._at_snapshot}
        plan, outputs = view.plan, view.world.file_outputs
        is_judged = view.config.failover == _FULL and view.config.protocol.takes_checkpoints
        wanted = {uid for uid, one in outputs.items() if is_judged and not isinstance(one.sink, StagedFileSink)}
        names = {(one.vertex, one.subtask): one.name for one in plan.subtasks}
        tasks: dict[str, list[str]] = {}
        for (vertex, _), name in names.items():
            head = plan.vertices[vertex].operators[0].uid
            if head in wanted:
                tasks.setdefault(head, []).append(name)
        # With another parallelism a writer may be chained to others, and its received records are not counted.
        self._uncounted |= wanted - tasks.keys()
        self._tasks = {uid: tuple(mine) for uid, mine in tasks.items() if uid not in self._uncounted}
        writing = {task for mine in self._tasks.values() for task in mine}
        receivers = {one.index: names[one.receiver_vertex, one.receiver_subtask] for one in plan.channels}
        self.shared.records_of.difference_update(self._writers)
        self._writers = {channel: task for channel, task in receivers.items() if task in writing}
        self.shared.counted = frozenset(self._writers)
        self.shared.records_of |= self.shared.counted
        self._at_snapshot.clear()
        for uid in self._tasks:
            if getattr(outputs[uid].sink, "shows_whole_checkpoints", False):
                self._whole.setdefault(uid, {0})
        if self._there is None:
            self._there = {uid: self._seen(uid) for uid in self._tasks}

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        self.shared.attempt_started(event)
        self._book()
        self._attempt = event.attempt
        restored = event.restored_checkpoint or 0
        if restored not in self._covered:
            # It became durable, but no event said that it completed.
            is_own = restored in self._at_snapshot or restored not in self._pending
            self._covered[restored] = self._covered_by(restored) if is_own else self._pending[restored]
        self._newest = restored
        self._starting = {task for mine in self._tasks.values() for task in mine}
        self._base = self._covered[restored]
        self._received = {}
        self._at_snapshot.clear()

    @hears(TaskState)
    def _on_task_state(self, event: TaskState) -> None:
        if event.attempt != self._attempt:
            # A zombie: no checkpoint covers the records that it takes.
            return
        if event.state == "running":
            self._starting.discard(event.task)
        elif event.state == "end_of_data" and event.task in self._received:
            # The rest belongs to the checkpoint after the last one that the writer has seen.
            seen = (number for number, tasks in self._at_snapshot.items() if event.task in tasks)
            last = max(seen, default=self._newest)
            self._at_snapshot.setdefault(last + 1, {})[event.task] = self._received[event.task]

    @hears(Receive)
    def _on_receive(self, event: Receive) -> None:
        task = self._writers.get(event.channel)
        if task is not None and event.records and event.attempt == self._attempt:
            self._received[task] = self._received.get(task, 0) + event.records

    @hears(SnapshotTaken)
    def _on_snapshot(self, event: SnapshotTaken) -> None:
        if event.attempt != self._attempt:
            return
        self._at_snapshot.setdefault(event.checkpoint_id, {})[event.task] = self._received.get(event.task, 0)

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        self.shared.completed(event)
        self._book()
        self._covered[event.checkpoint_id] = self._covered_by(event.checkpoint_id)
        if self.shared.commits(event.checkpoint_id):
            self._newest = max(self._newest, event.checkpoint_id)

    def _covered_by(self, checkpoint_id: int) -> dict[str, int]:
        snapshots = self._at_snapshot.get(checkpoint_id, {})
        # A task without a snapshot has finished before: it receives nothing more.
        return {
            uid: self._base.get(uid, 0) + sum(snapshots.get(task, self._received.get(task, 0)) for task in mine)
            for uid, mine in self._tasks.items()
        }

    def _book(self) -> None:
        """Note the rows that writers have handed out for each checkpoint and those before it."""
        for uid, numbers in self._whole.items():
            mine = dict.fromkeys(self._tasks.get(uid, ()), 0)
            for _, snapshots in sorted(self._at_snapshot.items()):
                mine |= {task: snapshots[task] for task in mine if task in snapshots}
                numbers.add(self._base.get(uid, 0) + sum(mine.values()))

    def files_changed(self) -> None:
        assert self._there is not None, "a process has started"
        for uid in self._tasks:
            covered = self._covered[self._newest].get(uid, 0)
            if not self._starting.isdisjoint(self._tasks[uid]):
                covered = max(rows.get(uid, 0) for rows in self._covered.values())
            seen = self._seen(uid) - self._there.get(uid, 0)
            if seen > covered:
                newest = f"the newest completed checkpoint is {self._newest}" if self._newest else "none is completed"
                self.violated(
                    f"readers of sink {uid!r} see {seen} rows, but {newest}, which covers {covered}",
                    self.view.execution.kernel.now_ns,
                    uid=uid,
                    checkpoint_id=self._newest,
                )
            elif seen not in self._whole.get(uid, (seen,)) and not self.shared.went_back:
                self.violated(
                    f"readers of sink {uid!r} see {seen} rows, which is a part of a checkpoint: they must see all of it"
                    " at once",
                    self.view.execution.kernel.now_ns,
                    uid=uid,
                )

    def _seen(self, uid: str) -> int:
        world = self.view.world
        try:
            return sum(map(len, world.file_outputs[uid].rows(world.files).values()))
        except StorageError:
            # V2 finds a torn file.
            return 0

    def finished(self, case: FinishedCase) -> None:
        if not self._tasks:
            self.skipped = "no sink writes rows to files, or its tasks do not restart together"
