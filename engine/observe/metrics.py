"""Metrics of a run under Flink's names: of the job, of each task, of each operator in each subtask.

Flink's documentation ("Metrics", section "System metrics") lists the names with their units; ours mean the same,
with virtual time in place of the wall clock. Two ways lead to a :class:`MetricsSnapshot`:

* :class:`MetricsCollector` is an instrument: it has the values at every instant of a run, from the trace events;
* :func:`job_metrics` and :func:`operator_metrics` make them from plain numbers, such as a result holds.

As on Flink, the metrics of a task start again with each attempt; those of the job and the counters do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.observe.events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Receive,
    RunStarted,
    Send,
    SnapshotAcknowledged,
    SnapshotTaken,
    TimerFired,
    TraceEvent,
)

JOB_METRICS: Mapping[str, str] = {
    "numRestarts": "restarts so far",
    "totalNumberOfCheckpoints": "checkpoints triggered",
    "numberOfInProgressCheckpoints": "checkpoints triggered and not ended",
    "numberOfCompletedCheckpoints": "checkpoints that became durable",
    "numberOfFailedCheckpoints": "checkpoints that were given up",
    "lastCheckpointDuration": "ms of virtual time from trigger to last acknowledgement, of the latest completed one",
    "lastCheckpointSize": "bytes written for the latest completed checkpoint",
    "lastCheckpointFullSize": "bytes of the latest completed checkpoint with those that earlier ones wrote",
    "lastCheckpointProcessedData": "bytes taken during the alignment of the latest completed checkpoint",
    "lastCheckpointPersistedData": "bytes of records in flight in the latest completed checkpoint",
    "lastCompletedCheckpointId": "id of the latest completed checkpoint",
    "lastCheckpointRestoreTimestamp": "virtual ms at which state was last restored",
}
"""Metrics of the job (Flink: scope of the job manager) and what they mean. One that has no value yet is absent, and so
are the full size, processed and persisted data from a :class:`MetricsCollector`: no trace event tells them. Savepoints
count as checkpoints, as in Flink."""

TASK_METRICS: Mapping[str, str] = {
    "numRecordsIn": "records received on all inputs",
    "numRecordsOut": "records sent on all outputs; a broadcast counts once per channel",
    "checkpointAlignmentTime": "ns of virtual time the latest alignment took",
    "checkpointStartDelayNanos": "ns of virtual time from trigger to first barrier of the latest checkpoint",
    "numFiredTimers": "processing-time timers fired",
}
"""Metrics of a task and what they mean."""

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All metrics at one instant, as plain data. ``operators`` is keyed by ``uid[subtask]``."""

    job: Mapping[str, int]
    tasks: Mapping[str, Mapping[str, int]]
    operators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def total(self, name: str) -> int:
        """The sum of a metric over all tasks and operators."""
        groups = (*self.tasks.values(), *self.operators.values())
        return sum(group.get(name, 0) for group in groups)

    def as_dict(self) -> dict[str, Any]:
        """For reports, sorted by scope and name."""
        return {
            "job": _sorted(self.job),
            "tasks": {scope: _sorted(self.tasks[scope]) for scope in sorted(self.tasks)},
            "operators": {scope: _sorted(self.operators[scope]) for scope in sorted(self.operators)},
        }


class MetricsCollector:
    """An instrument that keeps the metrics of a run up to date.

    ``channels`` says for each channel of the plan which task sends and which receives, by name; events on other
    channels are an error of the caller.
    """

    def __init__(self, channels: Mapping[int, tuple[str, str]]) -> None:
        self._channels = dict(channels)
        self._job = job_metrics(restarts=0, triggered=0, in_progress=0, completed=0, failed=0)
        self._tasks: dict[str, dict[str, int]] = {}
        self._triggered_ns: dict[int, int] = {}
        self._acknowledged_ns: dict[int, int] = {}
        self._attempts_started = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            RunStarted: self._run_started,
            AttemptStarted: self._attempt_started,
            Send: self._sent,
            Receive: self._received,
            TimerFired: self._timer_fired,
            CheckpointTriggered: self._triggered,
            SnapshotTaken: self._snapshot_taken,
            SnapshotAcknowledged: self._acknowledged,
            CheckpointCompleted: self._completed,
            CheckpointAborted: self._aborted,
        }

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event."""
        handler = self._handlers.get(event.__class__)
        if handler is not None:
            handler(event)

    def snapshot(self, operators: Mapping[str, Mapping[str, int]] | None = None) -> MetricsSnapshot:
        """The metrics now; later events do not change it. ``operators`` come from :func:`operator_metrics`."""
        tasks = {task: dict(values) for task, values in self._tasks.items()}
        return MetricsSnapshot(dict(self._job), tasks, {} if operators is None else dict(operators))

    def _add(self, task: str, name: str, amount: int) -> None:
        values = self._tasks.setdefault(task, {})
        values[name] = values.get(name, 0) + amount

    def _run_started(self, event: RunStarted) -> None:
        # One collector may see several runs of a job (resume): counts of the job go on, attempts begin again.
        self._attempts_started = 0

    def _attempt_started(self, event: AttemptStarted) -> None:
        if self._attempts_started:
            self._job["numRestarts"] += 1
        self._attempts_started += 1
        # What was pending in the attempt before ended with it: no event of that attempt follows.
        self._triggered_ns.clear()
        self._acknowledged_ns.clear()
        self._job["numberOfInProgressCheckpoints"] = 0
        self._tasks = {
            task: {"numRecordsIn": 0, "numRecordsOut": 0} for ends in self._channels.values() for task in ends
        }
        if event.restored_checkpoint is not None:
            self._job["lastCheckpointRestoreTimestamp"] = event.time_ns // _NS_PER_MS

    def _sent(self, event: Send) -> None:
        if event.kind == "records":
            self._add(self._channels[event.channel][0], "numRecordsOut", event.records)

    def _received(self, event: Receive) -> None:
        if event.kind == "records":
            self._add(self._channels[event.channel][1], "numRecordsIn", event.records)

    def _timer_fired(self, event: TimerFired) -> None:
        self._add(event.task, "numFiredTimers", 1)

    def _triggered(self, event: CheckpointTriggered) -> None:
        self._triggered_ns[event.checkpoint_id] = event.time_ns
        self._job["totalNumberOfCheckpoints"] += 1
        self._job["numberOfInProgressCheckpoints"] += 1

    def _snapshot_taken(self, event: SnapshotTaken) -> None:
        values = self._tasks.setdefault(event.task, {})
        values["checkpointAlignmentTime"] = event.alignment_ns
        values["checkpointStartDelayNanos"] = event.start_delay_ns

    def _acknowledged(self, event: SnapshotAcknowledged) -> None:
        if event.checkpoint_id in self._triggered_ns:
            self._acknowledged_ns[event.checkpoint_id] = event.time_ns

    def _completed(self, event: CheckpointCompleted) -> None:
        # Without an acknowledgement there was nobody to wait for.
        acknowledged_ns = self._acknowledged_ns.get(event.checkpoint_id, event.time_ns)
        triggered_ns = self._end(event.checkpoint_id)
        self._job["numberOfCompletedCheckpoints"] += 1
        self._job["lastCompletedCheckpointId"] = event.checkpoint_id
        self._job["lastCheckpointSize"] = event.size_bytes
        if triggered_ns is not None:
            self._job["lastCheckpointDuration"] = (acknowledged_ns - triggered_ns) // _NS_PER_MS

    def _aborted(self, event: CheckpointAborted) -> None:
        self._end(event.checkpoint_id)
        self._job["numberOfFailedCheckpoints"] += 1

    def _end(self, checkpoint_id: int) -> int | None:
        self._acknowledged_ns.pop(checkpoint_id, None)
        triggered_ns = self._triggered_ns.pop(checkpoint_id, None)
        if triggered_ns is not None:
            self._job["numberOfInProgressCheckpoints"] -= 1
        return triggered_ns


def job_metrics(
    *,
    restarts: int,
    triggered: int,
    in_progress: int,
    completed: int,
    failed: int,
    last_completed_id: int | None = None,
    last_duration_ns: int | None = None,
    last_size_bytes: int | None = None,
    last_full_bytes: int | None = None,
    last_processed_bytes: int | None = None,
    last_persisted_bytes: int | None = None,
    last_restore_ns: int | None = None,
) -> dict[str, int]:
    """The metrics of a job from plain numbers; what is ``None`` has no value yet and is left out."""
    values = {
        "numRestarts": restarts,
        "totalNumberOfCheckpoints": triggered,
        "numberOfInProgressCheckpoints": in_progress,
        "numberOfCompletedCheckpoints": completed,
        "numberOfFailedCheckpoints": failed,
        "lastCompletedCheckpointId": last_completed_id,
        "lastCheckpointDuration": None if last_duration_ns is None else last_duration_ns // _NS_PER_MS,
        "lastCheckpointSize": last_size_bytes,
        "lastCheckpointFullSize": last_full_bytes,
        "lastCheckpointProcessedData": last_processed_bytes,
        "lastCheckpointPersistedData": last_persisted_bytes,
        "lastCheckpointRestoreTimestamp": None if last_restore_ns is None else last_restore_ns // _NS_PER_MS,
    }
    return {name: value for name, value in values.items() if value is not None}


def operator_metrics(counters: Mapping[tuple[str, int], Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The counters that operators keep, such as ``numLateRecordsDropped``, by ``uid[subtask]``.

    ``counters`` is ``(uid, subtask) -> name -> value``; operators without counters are left out.
    """
    return {
        f"{uid}[{subtask}]": dict(values) for (uid, subtask), values in sorted(counters.items()) if values
    }


def _sorted(values: Mapping[str, int]) -> dict[str, int]:
    return {name: values[name] for name in sorted(values)}
