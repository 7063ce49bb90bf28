"""The checkpoint table under Flink's names, as JSON-able data.

The columns are those of the *Checkpoints* tab of Flink's web dashboard (documentation: "Monitoring Checkpointing"),
so that a reader meets them again there: Overview, History with a row per operator and subtask, Summary,
Configuration. Units stand last in each name: virtual ns, and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.checkpoint.statistics import CheckpointRow, CheckpointStatistics, CheckpointStatus, Spread, SubtaskRow

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan
    from engine.observe.cut_oracle import CutOracle
    from engine.runtime.config import RunConfig

SUBTASK_COLUMNS = (
    "end_to_end_duration_ns",
    "checkpointed_data_size_bytes",
    "full_checkpoint_data_size_bytes",
    "processed_in_flight_data_bytes",
    "persisted_in_flight_data_bytes",
    "sync_duration_ns",
    "async_duration_ns",
    "alignment_duration_ns",
    "start_delay_ns",
)
"""Numbers of one subtask's row, each also as Min / Avg / Max over the subtasks of its operator."""

_SUMMARY_NAMES = {
    "end_to_end_ns": "end_to_end_duration_ns",
    "checkpointed_bytes": "checkpointed_data_size_bytes",
    "full_bytes": "full_checkpoint_data_size_bytes",
    "processed_bytes": "processed_in_flight_data_bytes",
    "persisted_bytes": "persisted_in_flight_data_bytes",
}


def checkpoint_table(
    statistics: CheckpointStatistics, plan: ExecutionPlan, config: RunConfig, oracle: CutOracle
) -> dict[str, Any]:
    """All four parts. Each row of the history also carries the cut oracle's finding about it."""
    return {
        "overview": _overview(statistics),
        "history": [_history_row(row, plan, oracle) for row in statistics.rows()],
        "summary": {
            _SUMMARY_NAMES[name]: None if spread is None else _spread(spread)
            for name, spread in statistics.summary().items()
        },
        "configuration": _configuration(config),
    }


def _overview(statistics: CheckpointStatistics) -> dict[str, Any]:
    completed = statistics.latest(CheckpointStatus.COMPLETED)
    failed = statistics.latest(CheckpointStatus.FAILED)
    return {
        "triggered": statistics.triggered,
        "in_progress": statistics.in_progress,
        "completed": statistics.completed,
        "failed": statistics.failed,
        "restored": statistics.restored,
        "latest_completed": None if completed is None else completed.checkpoint_id,
        "latest_failed": None if failed is None else failed.checkpoint_id,
        "latest_restore": statistics.restores[-1].checkpoint_id if statistics.restores else None,
    }


def _history_row(row: CheckpointRow, plan: ExecutionPlan, oracle: CutOracle) -> dict[str, Any]:
    cut = oracle.verdict(row.checkpoint_id) if row.status is CheckpointStatus.COMPLETED else None
    return {
        "id": row.checkpoint_id,
        "status": row.status.value,
        "type": row.kind.value,
        "acknowledged": row.acknowledged,
        "subtasks": row.task_count,
        "trigger_time_ns": row.trigger_time_ns,
        "latest_acknowledgement_ns": row.latest_acknowledgement_ns,
        "end_to_end_duration_ns": row.end_to_end_ns,
        "checkpointed_data_size_bytes": row.checkpointed_bytes,
        "full_checkpoint_data_size_bytes": row.full_bytes,
        "processed_in_flight_data_bytes": row.processed_bytes,
        "persisted_in_flight_data_bytes": row.persisted_bytes,
        "discarded": row.is_discarded,
        "failure_reason": None if row.failure_reason is None else row.failure_reason.name,
        "failure_message": row.failure_cause or None,
        "orphans": None if cut is None else cut.orphans,
        "in_transit": None if cut is None else cut.in_transit,
        "operators": _operators(row, plan),
    }


def _operators(row: CheckpointRow, plan: ExecutionPlan) -> list[dict[str, Any]]:
    operators = []
    for vertex in plan.vertices:
        rows = sorted((one for one in row.subtasks if one.task[0] == vertex.index), key=lambda one: one.task)
        subtasks = [_subtask_row(one) for one in rows]
        operators.append(
            {
                "name": vertex.name,
                "acknowledged": len(subtasks),
                "parallelism": vertex.parallelism,
                "spread": {name: _min_avg_max([one[name] for one in subtasks]) for name in SUBTASK_COLUMNS},
                "subtasks": subtasks,
            }
        )
    return operators


def _subtask_row(row: SubtaskRow) -> dict[str, Any]:
    metrics = row.metrics
    return {
        "subtask": row.task[1],
        "latest_acknowledgement_ns": row.acknowledged_at_ns,
        "end_to_end_duration_ns": row.end_to_end_ns,
        "checkpointed_data_size_bytes": metrics.checkpointed_bytes,
        "full_checkpoint_data_size_bytes": metrics.full_bytes,
        "processed_in_flight_data_bytes": metrics.processed_bytes,
        "persisted_in_flight_data_bytes": metrics.persisted_bytes,
        "sync_duration_ns": metrics.sync_ns,
        "async_duration_ns": metrics.async_ns,
        "alignment_duration_ns": metrics.alignment_ns,
        "start_delay_ns": metrics.start_delay_ns,
        "unaligned_checkpoint": metrics.is_unaligned,
    }


def _min_avg_max(values: Sequence[int]) -> dict[str, float] | None:
    if not values:
        return None
    return {"min": min(values), "avg": sum(values) / len(values), "max": max(values)}


def _spread(spread: Spread) -> dict[str, float]:
    return {
        "min": spread.minimum,
        "avg": spread.average,
        "max": spread.maximum,
        "p50": spread.p50,
        "p90": spread.p90,
        "p99": spread.p99,
        "p99.9": spread.p999,
    }


def _configuration(config: RunConfig) -> dict[str, Any]:
    interval = config.checkpoint_interval
    return {
        "checkpointing_mode": config.mode,
        "interval_ns": None if interval is None else interval.time_ns,
        "interval_records": None if interval is None else interval.records,
        "timeout_ns": config.checkpoint_timeout_ns,
        "minimum_pause_ns": config.min_pause_ns,
        "maximum_concurrent": config.max_concurrent,
        "retained": config.retained,
        "tolerable_failures": config.tolerable_failures,
    }
