"""Metrics of a run under Flink's names: of the job, of each task, of each operator in each subtask.

Flink's documentation ("Metrics", section "System metrics") lists the names with their units; ours mean the same,
with virtual time in place of the wall clock. The functions here make them from plain numbers, such as those of a
result.

As on Flink, the metrics of a task start again with each attempt; those of the job, the counters and the times of a task
do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.observe.trace_events import Send, TraceEvent

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
    """The metrics of a job from plain numbers; ``None`` means no value yet, and is left out."""
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


def time_metrics(busy_ns: int, back_pressured_ns: int, idle_ns: int) -> dict[str, int]:
    """How a task has passed its time, all attempts together: in ms, and in ms of each second."""
    ran_ns = max(1, busy_ns + back_pressured_ns + idle_ns)
    found = {}
    for name, time_ns in (("busy", busy_ns), ("backPressured", back_pressured_ns), ("idle", idle_ns)):
        found[f"accumulate{name[0].upper()}{name[1:]}TimeMs"] = time_ns // _NS_PER_MS
        found[f"{name}TimeMsPerSecond"] = round(1_000 * time_ns / ran_ns)
    return found


def operator_metrics(counters: Mapping[tuple[str, int], Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The counters that operators keep, such as ``numLateRecordsDropped``, by ``uid[subtask]``.

    ``counters`` is ``(uid, subtask) -> name -> value``; operators without counters are left out.
    """
    return {f"{uid}[{subtask}]": dict(values) for (uid, subtask), values in sorted(counters.items()) if values}


def _sorted(values: Mapping[str, int]) -> dict[str, int]:
    return {name: values[name] for name in sorted(values)}


_CONTROL = {"CheckpointBarrier": "barrier", "CancelCheckpointMarker": "cancel marker"}


class MessageCounter:
    """``records``: sent on channels between tasks; ``control``: barriers and cancellation markers there, by kind."""

    def __init__(self) -> None:
        self.records = 0
        self.control = dict.fromkeys(_CONTROL.values(), 0)

    def __call__(self, event: TraceEvent) -> None:
        """Take in one event."""
        if isinstance(event, Send):
            self.records += event.records
            kind = _CONTROL.get(event.kind)
            if kind is not None:
                self.control[kind] += 1
