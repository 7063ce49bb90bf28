"""The report of a run: all its results, as one JSON-able dict with a versioned schema.

It holds no wall-clock time: two runs with one seed in one directory give the same report, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.checkpoint.coordinator import CheckpointStatus
from engine.observe.metrics import MetricsSnapshot, job_metrics, operator_metrics, time_metrics
from engine.report.checkpoint_table import checkpoint_table
from engine.report.verdict import Verdict, breaks_promise, exit_code_of

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan
    from engine.observe.cut_oracle import CutOracle
    from engine.runtime.config import RunConfig
    from engine.runtime.execution import ExecutionResult

REPORT_SCHEMA = "weir-run"
REPORT_SCHEMA_VERSION = 2


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts that the run itself does not know: its origin and its inputs.

    ``trace_digest``  names the behaviour of the run: one digest, one behaviour.
    """

    weir_version: str
    python_version: str
    job_file: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[str] = ()
    output_dir: str | None = None
    storage_dir: str | None = None
    trace_file: str | None = None
    trace_events: int = 0
    trace_digest: str | None = None


def build_report(
    result: ExecutionResult,
    plan: ExecutionPlan,
    config: RunConfig,
    oracle: CutOracle,
    verdict: Verdict,
    facts: RunFacts,
) -> dict[str, Any]:
    """The whole report. Keys are only ever added within one schema version."""
    return {
        "schema": REPORT_SCHEMA,
        "schema_version": REPORT_SCHEMA_VERSION,
        "weir_version": facts.weir_version,
        "python_version": facts.python_version,
        "verdict": {"name": verdict.name, "reason": verdict.reason, "exit_code": verdict.exit_code},
        "job": {
            "name": plan.job_name,
            "file": facts.job_file,
            "params": dict(facts.params),
            "plan_fingerprint": plan.fingerprint,
            "parallelism": {vertex.name: vertex.parallelism for vertex in plan.vertices},
        },
        "run": _run(result, config, facts),
        "restores": [
            {
                "attempt": restore.attempt,
                "tasks": None if restore.tasks is None else list(restore.tasks),
                "checkpoint_id": restore.checkpoint_id,
                "time_ns": restore.time_ns,
                "problems": list(restore.problems),
            }
            for restore in result.restores
        ],
        "tasks": [
            {
                "name": task.name,
                "vertex": task.vertex,
                "subtask": task.subtask,
                "state": task.state,
                "records_in": task.records_in,
                "records_out": task.records_out,
                "attempt": task.attempt,
                "total_records_in": task.total_records_in,
                "total_records_out": task.total_records_out,
            }
            for task in result.tasks
        ],
        "metrics": metrics_of(result, plan).as_dict(),
        "acking": None if result.acking is None else result.acking.as_dict(),
        "checkpoints": checkpoint_table(result.checkpoints, plan, config, oracle),
        "cuts": [
            {
                "attempt": cut.attempt,
                "checkpoint_id": cut.checkpoint_id,
                "channels": cut.channels,
                "records_sent": cut.records_sent,
                "orphans": cut.orphans,
                "in_transit": cut.in_transit,
                "consistent": cut.consistent,
                "as_promised": not breaks_promise(cut, config.protocol),
            }
            for cut in oracle.verdicts
        ],
        "losses": list(result.losses),
        "notes": list(result.notes),
    }


def metrics_of(result: ExecutionResult, plan: ExecutionPlan) -> MetricsSnapshot:
    """The metrics at the end of a run, under Flink's names, without an instrument."""
    tasks = {
        task.name: {
            "numRecordsIn": task.records_in,
            "numRecordsOut": task.records_out,
            **time_metrics(task.times.busy_ns, task.times.back_pressured_ns, task.times.idle_ns),
        }
        for task in result.tasks
    }
    statistics = result.checkpoints
    completed = [row for row in statistics.rows() if row.status is CheckpointStatus.COMPLETED]
    latest = completed[-1] if completed else None
    restored = [restore.time_ns for restore in result.restores if restore.checkpoint_id is not None]
    names = {(subtask.vertex, subtask.subtask): subtask.name for subtask in plan.subtasks}
    for row in completed:
        for one in row.subtasks:
            if not one.is_finished:
                # Later rows overwrite earlier ones: each task's latest completed checkpoint remains.
                task = tasks[names[one.task]]
                task["checkpointAlignmentTime"] = one.metrics.alignment_ns
                task["checkpointStartDelayNanos"] = one.metrics.start_delay_ns
    job = job_metrics(
        restarts=result.attempts - 1,
        triggered=statistics.triggered,
        in_progress=statistics.in_progress,
        completed=statistics.completed,
        failed=statistics.failed,
        last_completed_id=None if latest is None else latest.checkpoint_id,
        last_duration_ns=None if latest is None else latest.end_to_end_ns,
        last_size_bytes=None if latest is None else latest.checkpointed_bytes,
        last_full_bytes=None if latest is None else latest.full_bytes,
        last_processed_bytes=None if latest is None else latest.processed_bytes,
        last_persisted_bytes=None if latest is None else latest.persisted_bytes,
        last_restore_ns=restored[-1] if restored else None,
    )
    return MetricsSnapshot(job, tasks, operator_metrics(result.counters))


def _run(result: ExecutionResult, config: RunConfig, facts: RunFacts) -> dict[str, Any]:
    return {
        "state": result.state,
        "error": None if result.error is None else error_entry(result.error),
        "mode": config.mode,
        "seed": config.seed,
        "options": dict(facts.options),
        "faults": list(facts.faults),
        "incarnation": result.incarnation,
        "attempts": result.attempts,
        "started_ns": result.started_ns,
        "ended_ns": result.ended_ns,
        "duration_ns": result.ended_ns - result.started_ns,
        "source_records": result.source_records,
        "replayed_records": result.replayed_records,
        "kernel_events": result.events_executed,
        "state_backend": config.backend().name,
        "snapshot": "incremental" if config.backend().incremental else "full",
        "local_recovery": None if result.local_recovery is None else dict(result.local_recovery),
        "choices": len(result.choices.log),
        "choice_digest": result.choices.digest(),
        "trace_events": facts.trace_events,
        "trace_digest": facts.trace_digest,
        "trace_file": facts.trace_file,
        "output_dir": facts.output_dir,
        "storage_dir": facts.storage_dir,
    }


def error_entry(error: BaseException) -> dict[str, Any]:
    """An error with its chain of causes, as plain data."""
    seen, causes = [error], []
    cause = error.__cause__
    # An error that was raised from itself would be an endless chain.
    while cause is not None and not any(cause is one for one in seen):
        causes.append({"type": type(cause).__name__, "message": str(cause)})
        seen.append(cause)
        cause = cause.__cause__
    return {"type": type(error).__name__, "message": str(error), "exit_code": exit_code_of(error), "causes": causes}
