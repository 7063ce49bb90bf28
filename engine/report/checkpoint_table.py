"""The checkpoint table under the names of Flink's REST API, as JSON-able data.

One dict holds Flink's answers to ``/jobs/:id/checkpoints`` (``counts``, ``summary``, ``latest``, ``history``), to
``.../checkpoints/details/:checkpoint`` (a row of the history with its ``tasks``) and to ``.../details/:checkpoint/
subtasks/:vertex`` (such a task with its ``summary`` and ``subtasks``), field by field (Flink:
``CheckpointingStatistics``, ``CheckpointStatistics``, ``TaskCheckpointStatisticsWithSubtaskDetails``,
``SubtaskCheckpointStatistics``, ``StatsSummaryDto``). A script that reads Flink's can read this one. Differences:

* times and durations are ns of virtual time (Flink: ms of the wall clock);
* a vertex is named by the uid of its first operator; ``tasks`` also carry the vertex's ``name``;
* summaries of a task have percentiles too (Flink keeps them for the job only), those of ``end_to_end_duration`` are
  of durations (Flink's are of timestamps), and a checkpoint has the same ``summary`` over all its subtasks;
* a percentile of nothing is ``null`` (Flink: ``NaN``, which is not JSON).

As in Flink, a time or duration that does not exist yet is -1, and ``alignment_buffered`` and ``buffered``
are always 0, because channels are blocked at their sender and nothing is buffered. Beyond Flink a row of the history
has ``kind``, ``request_timestamp``, ``retained``, ``failure_reason``, and the findings of the cut oracle (``orphans``,
``in_transit``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.checkpoint.coordinator import (
    CheckpointRow,
    CheckpointStatistics,
    CheckpointStatus,
    Spread,
    SubtaskRow,
    spreads,
)
from engine.runtime.config import ALIGNED_TIMEOUT, UNALIGNED

if TYPE_CHECKING:
    from engine.checkpoint.coordinator import RestoreRow
    from engine.graph.plan import ExecutionPlan, VertexPlan
    from engine.observe.cut_oracle import CutOracle, CutVerdict
    from engine.runtime.config import RunConfig

    Cuts = Mapping[int, CutVerdict]

_NOT_YET = -1
_PERCENTILES = ("p50", "p90", "p95", "p99", "p999")
_SUMMARY_NAMES = {
    "checkpointed_bytes": "checkpointed_size",
    "full_bytes": "state_size",
    "end_to_end_ns": "end_to_end_duration",
    "processed_bytes": "processed_data",
    "persisted_bytes": "persisted_data",
}


def checkpoint_table(
    statistics: CheckpointStatistics, plan: ExecutionPlan, config: RunConfig, oracle: CutOracle
) -> dict[str, Any]:
    """The whole table; the history begins with the newest checkpoint."""
    # The latest verdict of an id counts: a later attempt may have used the id again.
    cuts = {cut.checkpoint_id: cut for cut in oracle.verdicts}
    return {
        "units": {"time": "ns of virtual time", "size": "bytes"},
        "counts": {
            "restored": statistics.restored,
            "total": statistics.triggered,
            "in_progress": statistics.in_progress,
            "completed": statistics.completed,
            "failed": statistics.failed,
        },
        "summary": _job_summary(statistics),
        "latest": _latest(statistics, cuts),
        "history": [{**_checkpoint(row, cuts), **_details(row, plan)} for row in reversed(statistics.rows())],
        "restores": [{**_restore(row), "attempt": row.attempt} for row in statistics.restores],
        "configuration": _configuration(config),
    }


def _job_summary(statistics: CheckpointStatistics) -> dict[str, Any]:
    columns = statistics.summary()
    summary = {name: _spread(columns[column]) for column, name in _SUMMARY_NAMES.items()}
    return {**summary, "alignment_buffered": _zeros()}


def _latest(statistics: CheckpointStatistics, cuts: Cuts) -> dict[str, Any]:
    rows = {
        "completed": statistics.latest_completed,
        "savepoint": statistics.latest_savepoint,
        "failed": statistics.latest_failed,
    }
    return {
        **{which: None if row is None else _checkpoint(row, cuts) for which, row in rows.items()},
        "restored": _restore(statistics.restores[-1]) if statistics.restores else None,
    }


def _restore(row: RestoreRow) -> dict[str, Any]:
    return {
        "id": row.checkpoint_id,
        "restore_timestamp": row.restored_at_ns,
        "is_savepoint": row.is_savepoint,
        "external_path": row.external_path,
    }


# --- one checkpoint -----------------------------------------------------------------------------------------------


def _checkpoint(row: CheckpointRow, cuts: Cuts) -> dict[str, Any]:
    is_failed = row.status is CheckpointStatus.FAILED
    cut = cuts.get(row.checkpoint_id) if row.status is CheckpointStatus.COMPLETED else None
    return {
        "id": row.checkpoint_id,
        "status": row.status.value,
        "is_savepoint": row.is_savepoint,
        "savepointFormat": row.savepoint_format,
        "checkpoint_type": row.type.value,
        "kind": row.kind.value,
        "request_timestamp": row.requested_at_ns,
        "trigger_timestamp": row.triggered_at_ns,
        "latest_ack_timestamp": _or_not_yet(row.latest_acknowledgement_ns),
        "checkpointed_size": row.checkpointed_bytes,
        "state_size": row.full_bytes,
        "end_to_end_duration": _or_not_yet(row.end_to_end_ns),
        "alignment_buffered": 0,
        "processed_data": row.processed_bytes,
        "persisted_data": row.persisted_bytes,
        "num_subtasks": row.task_count,
        "num_acknowledged_subtasks": row.acknowledged,
        "external_path": row.external_path,
        "discarded": row.is_discarded,
        "retained": row.is_retained,
        "failure_timestamp": row.ended_at_ns if is_failed else None,
        "failure_reason": None if row.failure_reason is None else row.failure_reason.name,
        "failure_message": row.failure_message,
        "orphans": None if cut is None else cut.orphans,
        "in_transit": None if cut is None else cut.in_transit,
    }


def _details(row: CheckpointRow, plan: ExecutionPlan) -> dict[str, Any]:
    """The parts that need the subtasks' reports; no tasks once these reports were dropped."""
    by_vertex = row.by_vertex()
    vertices = () if row.are_details_dropped else plan.vertices
    return {
        "summary": _subtask_summary(row.subtasks),
        "tasks": {vertex.operators[0].uid: _task(row, vertex, by_vertex.get(vertex.index, [])) for vertex in vertices},
    }


def _task(row: CheckpointRow, vertex: VertexPlan, reports: Sequence[SubtaskRow]) -> dict[str, Any]:
    acknowledged_ns = max((report.acknowledged_at_ns for report in reports), default=None)
    known = {report.task[1]: report for report in reports}
    return {
        "id": row.checkpoint_id,
        "name": vertex.name,
        "status": row.status.value,
        "latest_ack_timestamp": _or_not_yet(acknowledged_ns),
        "checkpointed_size": sum(report.metrics.checkpointed_bytes for report in reports),
        "state_size": sum(report.metrics.full_bytes for report in reports),
        "end_to_end_duration": max((report.end_to_end_ns for report in reports), default=_NOT_YET),
        "alignment_buffered": 0,
        "processed_data": sum(report.metrics.processed_bytes for report in reports),
        "persisted_data": sum(report.metrics.persisted_bytes for report in reports),
        "num_subtasks": vertex.parallelism,
        "num_acknowledged_subtasks": len(reports),
        "summary": _subtask_summary(reports),
        "subtasks": [_subtask(subtask, known.get(subtask)) for subtask in range(vertex.parallelism)],
    }


def _subtask(index: int, report: SubtaskRow | None) -> dict[str, Any]:
    if report is None:
        return {"index": index, "status": "pending_or_failed"}
    metrics = report.metrics
    return {
        "index": index,
        "status": "completed",
        "ack_timestamp": report.acknowledged_at_ns,
        "end_to_end_duration": report.end_to_end_ns,
        "checkpointed_size": metrics.checkpointed_bytes,
        "state_size": metrics.full_bytes,
        "checkpoint": {"sync": metrics.sync_ns, "async": metrics.async_ns},
        "alignment": {
            "buffered": 0,
            "processed": metrics.processed_bytes,
            "persisted": metrics.persisted_bytes,
            "duration": metrics.alignment_ns,
        },
        "start_delay": metrics.start_delay_ns,
        "unaligned_checkpoint": metrics.is_unaligned,
        "aborted": report.is_aborted,
        "finished": report.is_finished,
    }


def _subtask_summary(reports: Sequence[SubtaskRow]) -> dict[str, Any]:
    columns = {column: _spread(spread) for column, spread in spreads(reports).items()}
    return {
        "checkpointed_size": columns["checkpointed_bytes"],
        "state_size": columns["full_bytes"],
        "end_to_end_duration": columns["end_to_end_ns"],
        "checkpoint_duration": {"sync": columns["sync_ns"], "async": columns["async_ns"]},
        "alignment": {
            "buffered": _zeros(),
            "processed": columns["processed_bytes"],
            "persisted": columns["persisted_bytes"],
            "duration": columns["alignment_ns"],
        },
        "start_delay": columns["start_delay_ns"],
    }


# --- values -------------------------------------------------------------------------------------------------------


def _or_not_yet(value: int | None) -> int:
    return _NOT_YET if value is None else value


def _zeros() -> dict[str, float]:
    return {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(_PERCENTILES, 0.0)}


def _spread(spread: Spread | None) -> dict[str, float | None]:
    if spread is None:
        return {"min": 0, "max": 0, "avg": 0, **dict.fromkeys(_PERCENTILES)}
    least = {"min": spread.minimum, "max": spread.maximum, "avg": spread.average}
    return {**least, **{name: getattr(spread, name) for name in _PERCENTILES}}


def _configuration(config: RunConfig) -> dict[str, Any]:
    """Flink's Configuration tab (``CheckpointConfigInfo``), as far as its settings exist here."""
    interval, protocol = config.checkpoint_interval, config.protocol
    guarantee = "exactly_once" if protocol.consistent_cut else "at_least_once"
    return {
        "mode": guarantee if protocol.takes_checkpoints else None,
        "protocol": protocol.name,
        "interval": None if interval is None else interval.time_ns,
        "interval_records": None if interval is None else interval.records,
        "timeout": config.checkpoint_timeout_ns,
        "min_pause": config.min_pause_ns,
        "max_concurrent": config.max_concurrent,
        "unaligned_checkpoints": protocol.name in (UNALIGNED, ALIGNED_TIMEOUT),
        "aligned_checkpoint_timeout": config.aligned_timeout_ns,
        "tolerable_failed_checkpoints": config.tolerable_failures,
        "checkpoints_after_tasks_finish": config.checkpoints_after_tasks_finish,
        "interval_during_backlog": config.interval_during_backlog_ns,
        "retained": config.retained,
    }
