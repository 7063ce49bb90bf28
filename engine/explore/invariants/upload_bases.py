"""V21: the files of earlier checkpoints that an incremental one may refer to."""

from __future__ import annotations

import re

from engine.explore.invariants.base import Shared, Watcher
from engine.explore.invariants.snapshots import readable_metadata, snapshot_of
from engine.explore.run import CaseView, hears
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, SnapshotAcknowledged
from state_backends.snapshots import IncrementalKeyedStateHandle

_UPLOADED_FOR = re.compile(r"-keyed-\d+-\d+-(\d+)-\d+$")
"""Names of shared files end in incarnation, attempt, checkpoint and number."""


class ConfirmedBase(Watcher):
    name = "V21"
    title = "An incremental checkpoint refers only to files of checkpoints that were complete when it was taken."
    reason = "A checkpoint that may still be aborted takes its files with it."
    source = "Flink RocksIncrementalSnapshotStrategy: lastCompletedCheckpointId"

    def __init__(self, shared: Shared | None = None) -> None:
        super().__init__(shared)
        self._completed: dict[int, None] = {}
        self._complete_by_then: dict[tuple[int, str], frozenset[int]] = {}
        """By checkpoint and task: completed checkpoints when the job manager received its acknowledgement."""
        self._restored = 0

    def job_started(self, view: CaseView) -> None:
        """Numbers are used again."""
        self._completed.clear()
        self._complete_by_then.clear()
        self._restored = 0

    @hears(AttemptStarted)
    def _on_attempt(self, event: AttemptStarted) -> None:
        # References of a restored checkpoint were judged when that completed, by this job or by another one.
        self._restored = max(self._restored, event.restored_checkpoint or 0)

    @hears(SnapshotAcknowledged)
    def _on_acknowledged(self, event: SnapshotAcknowledged) -> None:
        self._complete_by_then[event.checkpoint_id, event.task] = frozenset(self._completed)

    @hears(CheckpointCompleted)
    def _on_completed(self, event: CheckpointCompleted) -> None:
        number = event.checkpoint_id
        self._completed[number] = None
        metadata = readable_metadata(self.shared, snapshot_of(self.view, number, durable=False))
        for operator in () if metadata is None else metadata.operators:
            for subtask, snapshot in operator.subtasks.items():
                if isinstance(snapshot.keyed, IncrementalKeyedStateHandle):
                    self._judge(event, f"{operator.name}[{subtask}]", snapshot.keyed)

    def _judge(self, event: CheckpointCompleted, name: str, keyed: IncrementalKeyedStateHandle) -> None:
        number = event.checkpoint_id
        then = self._complete_by_then.get((number, self._task_of(name)))
        if then is None:
            return
        for file, is_new in keyed.shared():
            match = _UPLOADED_FOR.search(file.path)
            base = 0 if match is None else int(match[1])
            if not is_new and base > self._restored and base not in then:
                text = f"checkpoint {number} refers to {file.path} of {name}: checkpoint {base} was not complete then"
                self.violated(text, event.time_ns, checkpoint_id=number, task=name)

    def _task_of(self, name: str) -> str:
        """The task whose chain has the operator's subtask."""
        plan = self.view.plan
        for one in plan.subtasks:
            if name in plan.vertices[one.vertex].names_of(one.subtask):
                return one.name
        return name
