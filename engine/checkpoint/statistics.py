"""The checkpoint table: counts, history and per-subtask rows (Flink: ``CheckpointStatsTracker``).

It only listens; nothing is decided by it, so it is no part of any fingerprint. The history is bounded, the counts are
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import SubtaskCheckpointMetrics, TaskId
from engine.elements.events import SnapshotKind

DEFAULT_HISTORY_SIZE = 10_000
"""Checkpoints whose rows are kept."""


class CheckpointStatus(Enum):
    """A row's status, by Flink's names."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class SubtaskRow:
    """One subtask's acknowledgement. ``end_to_end_ns`` counts from the trigger."""

    task: TaskId
    acknowledged_at_ns: int
    end_to_end_ns: int
    metrics: SubtaskCheckpointMetrics


@dataclass(slots=True)
class CheckpointRow:
    """One line of the history. ``trigger_time_ns`` is when it was asked for; sizes are sums over subtasks."""

    checkpoint_id: int
    kind: SnapshotKind
    trigger_time_ns: int
    task_count: int
    status: CheckpointStatus = CheckpointStatus.IN_PROGRESS
    ended_at_ns: int | None = None
    failure_reason: CheckpointFailureReason | None = None
    failure_cause: str = ""
    is_discarded: bool = False
    subtasks: list[SubtaskRow] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        """Subtasks that have acknowledged."""
        return len(self.subtasks)

    @property
    def latest_acknowledgement_ns(self) -> int | None:
        """When the last of them did."""
        return self.subtasks[-1].acknowledged_at_ns if self.subtasks else None

    @property
    def end_to_end_ns(self) -> int | None:
        """Trigger to last acknowledgement, or to the failure; ``None`` while in progress."""
        if self.status is CheckpointStatus.IN_PROGRESS:
            return None
        end = self.ended_at_ns
        if self.status is CheckpointStatus.COMPLETED and self.subtasks:
            end = self.latest_acknowledgement_ns
        assert end is not None, self.checkpoint_id
        return end - self.trigger_time_ns

    @property
    def checkpointed_bytes(self) -> int:
        """Flink: Checkpointed Data Size."""
        return sum(row.metrics.checkpointed_bytes for row in self.subtasks)

    @property
    def full_bytes(self) -> int:
        """Flink: Full Checkpoint Data Size."""
        return sum(row.metrics.full_bytes for row in self.subtasks)

    @property
    def processed_bytes(self) -> int:
        """Flink: Processed in-flight data."""
        return sum(row.metrics.processed_bytes for row in self.subtasks)

    @property
    def persisted_bytes(self) -> int:
        """Flink: Persisted in-flight data."""
        return sum(row.metrics.persisted_bytes for row in self.subtasks)


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """One restore."""

    checkpoint_id: int
    restored_at_ns: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, average, maximum and percentiles of one column over the completed checkpoints."""

    minimum: int
    average: float
    maximum: int
    p50: int
    p90: int
    p99: int
    p999: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Spread | None:
        """By nearest rank; ``None`` without values."""
        if not values:
            return None
        ordered = sorted(values)

        def rank(per_mille: int) -> int:
            return ordered[max(0, -(-len(ordered) * per_mille // 1000) - 1)]

        average = sum(ordered) / len(ordered)
        return cls(ordered[0], average, ordered[-1], rank(500), rank(900), rank(990), rank(999))


class CheckpointStatistics:
    """Collects what the coordinator reports. ``history_size``: rows kept, oldest forgotten first.

    ``triggered``, ``in_progress``, ``completed``, ``failed``, ``restored`` are Flink's overview line.
    """

    def __init__(self, history_size: int = DEFAULT_HISTORY_SIZE) -> None:
        assert history_size >= 1, history_size
        self.triggered = 0
        self.in_progress = 0
        self.completed = 0
        self.failed = 0
        self.restored = 0
        self.history: dict[int, CheckpointRow] = {}
        self.restores: list[RestoreRow] = []
        self._history_size = history_size

    # --- events ---------------------------------------------------------------------------------------------------

    def on_triggered(
        self, checkpoint_id: int, kind: SnapshotKind, timestamp_ns: int, task_count: int
    ) -> None:
        """The checkpoint got its id."""
        self.triggered += 1
        self.in_progress += 1
        self.history[checkpoint_id] = CheckpointRow(checkpoint_id, kind, timestamp_ns, task_count)
        if len(self.history) > self._history_size:
            del self.history[next(iter(self.history))]

    def on_acknowledged(
        self, checkpoint_id: int, task: TaskId, metrics: SubtaskCheckpointMetrics, now_ns: int
    ) -> None:
        """A subtask has delivered its part."""
        row = self.history.get(checkpoint_id)
        if row is not None:
            row.subtasks.append(SubtaskRow(task, now_ns, now_ns - row.trigger_time_ns, metrics))

    def on_completed(self, checkpoint_id: int, now_ns: int) -> None:
        """The checkpoint is durable."""
        self.in_progress -= 1
        self.completed += 1
        row = self.history.get(checkpoint_id)
        if row is not None:
            row.status, row.ended_at_ns = CheckpointStatus.COMPLETED, now_ns

    def on_failed(
        self, checkpoint_id: int, reason: CheckpointFailureReason, now_ns: int, cause: str = ""
    ) -> None:
        """The checkpoint was aborted."""
        self.in_progress -= 1
        self.failed += 1
        row = self.history.get(checkpoint_id)
        if row is not None:
            row.status, row.ended_at_ns = CheckpointStatus.FAILED, now_ns
            row.failure_reason, row.failure_cause = reason, cause

    def on_failed_without_id(self) -> None:
        """A trigger failed before it got an id (Flink counts it as triggered and failed)."""
        self.triggered += 1
        self.failed += 1

    def on_discarded(self, checkpoint_id: int) -> None:
        """A completed checkpoint is no longer retained."""
        row = self.history.get(checkpoint_id)
        if row is not None:
            row.is_discarded = True

    def on_restored(self, checkpoint_id: int, now_ns: int, attempt: int) -> None:
        """The job was started from a checkpoint."""
        self.restores.append(RestoreRow(checkpoint_id, now_ns, attempt))
        self.restored += 1

    # --- queries --------------------------------------------------------------------------------------------------

    def rows(self) -> tuple[CheckpointRow, ...]:
        """The history, oldest first."""
        return tuple(self.history.values())

    def latest(self, status: CheckpointStatus) -> CheckpointRow | None:
        """The newest row with this status."""
        return next((row for row in reversed(self.history.values()) if row.status is status), None)

    def summary(self) -> dict[str, Spread | None]:
        """Flink's Summary tab over the completed rows of the history, by column."""
        completed = [row for row in self.history.values() if row.status is CheckpointStatus.COMPLETED]
        columns = {
            "end_to_end_ns": [row.end_to_end_ns or 0 for row in completed],
            "checkpointed_bytes": [row.checkpointed_bytes for row in completed],
            "full_bytes": [row.full_bytes for row in completed],
            "processed_bytes": [row.processed_bytes for row in completed],
            "persisted_bytes": [row.persisted_bytes for row in completed],
        }
        return {name: Spread.of(values) for name, values in columns.items()}
