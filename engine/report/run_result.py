"""What ``job.run(...)`` returns: the run with its verdict, and tables that other tools take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from engine.elements.errors import EXIT_UNKNOWN, ConfigurationError
from engine.observe.cut_oracle import CutOracle
from engine.observe.latencies import Latencies
from engine.report.report import metrics_of
from engine.report.result_table import ResultTable
from engine.report.units import plural
from engine.report.verdict import Verdict, judge_run
from operators.basic import CollectSink

if TYPE_CHECKING:
    from engine.graph.plan import ExecutionPlan
    from engine.runtime.config import RunConfig
    from engine.runtime.execution import ExecutionResult

_CHECKPOINT_COLUMNS = (
    "checkpoint_id", "kind", "status", "requested_at_ns", "triggered_at_ns", "end_to_end_ns", "alignment_ns",
    "start_delay_ns", "sync_ns", "async_ns", "checkpointed_bytes", "full_bytes", "processed_bytes", "persisted_bytes",
    "is_unaligned", "task_count", "acknowledged", "failure",
)  # fmt: skip
_SLOWEST = ("alignment_ns", "start_delay_ns", "sync_ns", "async_ns")
"""Of a checkpoint: the greatest of its subtasks."""


_RECOVERY_COLUMNS = (
    "attempt", "checkpoint_id", "restored_at_ns", "lost_ns", "tasks", "down_ns", "read_ns", "recovery_ns",
    "remote_bytes", "local_bytes",
)  # fmt: skip
_PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class RunResult:
    """The result of one run. Times are virtual; those with ``at`` in their name count from the start of the run.

    ``execution``  everything that the run has measured: restores, counters, choices, notes, savepoints, losses.
    """

    execution: ExecutionResult
    plan: ExecutionPlan
    config: RunConfig
    oracle: CutOracle | None = None
    """Has judged each completed checkpoint, if the run was audited."""
    latencies: Latencies | None = None
    """The latency of each record, if it was measured."""

    def __repr__(self) -> str:
        return f"{repr(self.execution).replace('ExecutionResult', 'RunResult', 1)}"

    def _repr_html_(self) -> str:
        """For notebooks: the line, the verdict and the checkpoints."""
        lines = (escape(repr(self)), f"{escape(self.verdict.name)}: {escape(self.verdict.reason)}")
        return "".join(f"<p>{line}</p>" for line in lines) + self.checkpoints._repr_html_()

    @property
    def state(self) -> str:
        """``finished``, or ``stopped`` with a savepoint."""
        return self.execution.state

    @property
    def attempts(self) -> int:
        """How often tasks were deployed."""
        return self.execution.attempts

    @property
    def makespan_ns(self) -> int:
        """Virtual time from the start to the end."""
        return self.execution.ended_ns - self.execution.started_ns

    @property
    def source_records(self) -> int:
        """Records that the sources sent, ``replayed_records`` included."""
        return self.execution.source_records

    @property
    def replayed_records(self) -> int:
        """Records that the sources sent again after a failure."""
        return self.execution.replayed_records

    @property
    def verdict(self) -> Verdict:
        """Whether the run kept the promise of its mode. Checkpoints are judged only in a run with ``audit=True``."""
        audited = self.oracle or CutOracle()
        verdict = judge_run(self.execution, audited, self.config.protocol)
        completed = self.execution.checkpoints.completed
        if self.oracle is None and verdict.name == "unknown" and completed:
            judged = f"the job {self.state}; {plural(completed, 'checkpoint')} completed, and none was judged:"
            return Verdict("unknown", f"{judged} add audit=True", EXIT_UNKNOWN)
        return verdict

    @cached_property
    def checkpoints(self) -> ResultTable:
        """The checkpoint table, oldest first: triggered, completed or failed. Times of the slowest subtask."""
        return ResultTable.of_records("checkpoints", _CHECKPOINT_COLUMNS, list(self._checkpoint_rows()))

    def _checkpoint_rows(self) -> Iterator[Mapping[str, Any]]:
        started_ns = self.execution.started_ns
        for row in self.execution.checkpoints.rows():
            yield {
                "checkpoint_id": row.checkpoint_id,
                "kind": row.kind.value,
                "status": row.status.value,
                "requested_at_ns": row.requested_at_ns - started_ns,
                "triggered_at_ns": row.triggered_at_ns - started_ns,
                "end_to_end_ns": row.end_to_end_ns,
                **{column: max((one.number(column) for one in row.subtasks), default=None) for column in _SLOWEST},
                "checkpointed_bytes": row.checkpointed_bytes,
                "full_bytes": row.full_bytes,
                "processed_bytes": row.processed_bytes,
                "persisted_bytes": row.persisted_bytes,
                "is_unaligned": row.is_unaligned,
                "task_count": row.task_count,
                "acknowledged": row.acknowledged,
                "failure": row.failure_message,
            }

    @cached_property
    def recoveries(self) -> ResultTable:
        """The restarts after failures: from which checkpoint, when the tasks were deployed again, and how much virtual
        time before that the checkpoint had been triggered (``lost_ns``: from the start of the run if there was none).
        ``down_ns`` is from the failure to the deployment, ``read_ns`` the time that the slowest task reads state after
        that, and ``recovery_ns`` both together; ``remote_bytes`` and ``local_bytes`` are what all tasks read.
        """
        triggered = {row.checkpoint_id: row.triggered_at_ns for row in self.execution.checkpoints.rows()}
        started_ns = self.execution.started_ns
        rows = []
        for restore in self.execution.restores:
            if restore.attempt > 1:
                line_ns = started_ns if restore.checkpoint_id is None else triggered.get(restore.checkpoint_id)
                lost_ns = None if line_ns is None else restore.time_ns - line_ns
                tasks = None if restore.tasks is None else len(restore.tasks)
                down_ns = None if restore.failed_ns is None else restore.time_ns - restore.failed_ns
                recovery_ns = None if down_ns is None else down_ns + restore.read_ns
                times = (restore.time_ns - started_ns, lost_ns, tasks, down_ns, restore.read_ns, recovery_ns)
                read = (restore.remote_bytes, restore.local_bytes)
                rows.append((restore.attempt, restore.checkpoint_id, *times, *read))
        return ResultTable("recoveries", _RECOVERY_COLUMNS, rows)

    @cached_property
    def metrics(self) -> ResultTable:
        """Metrics at the end of the run, by Flink's names. ``scope`` is ``job``, ``task`` or ``operator``, and ``of``
        the task or operator."""
        snapshot = metrics_of(self.execution, self.plan)
        rows = [("job", "", name, value) for name, value in snapshot.job.items()]
        for scope, groups in (("task", snapshot.tasks), ("operator", snapshot.operators)):
            rows += [(scope, of, name, value) for of, values in groups.items() for name, value in values.items()]
        return ResultTable("metrics", ("scope", "of", "name", "value"), rows)

    @cached_property
    def latency(self) -> ResultTable:
        """How long records took. A row of kind ``event`` is of a sink: from when a source record was due until it got
        there. A row of kind ``sojourn`` is of a vertex: from when a record was sent to it until it was handled; in a
        source from when the record was due until it was sent. Percentiles are exact to 0.1 %.

        Raises :class:`ConfigurationError` when it was not measured.
        """
        if self.latencies is None:
            raise ConfigurationError("latency was not measured; run the job with job.run(latency=True)")
        rows = []
        for kind, histograms in (("event", self.latencies.events), ("sojourn", self.latencies.sojourns)):
            for of, one in histograms.items():
                times = [one.percentile(percent) for percent in _PERCENTILES]
                mean = None if one.mean is None else round(one.mean)
                rows.append((kind, of, one.count, mean, *times, one.greatest if one.count else None))
        names = [f"p{percent:g}_ns".replace(".", "_") for percent in _PERCENTILES]
        return ResultTable("latency", ("kind", "of", "records", "mean_ns", *names, "max_ns"), rows)

    @property
    def collected(self) -> list[Any]:
        """The records of all collecting sinks, in the order of commits, sink after sink."""
        sinks: dict[str, CollectSink] = {}
        for vertex in self.plan.vertices:
            for operator in vertex.operators:
                owner = getattr(operator.factory, "__self__", None)
                if isinstance(owner, CollectSink):
                    sinks[operator.uid] = owner
        return [record for sink in sinks.values() for record in sink.records]
