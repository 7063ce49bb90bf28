"""What cannot run in batches, and is refused before anything happens: the operator, the reason, the way out."""

from __future__ import annotations

from collections.abc import Iterator

from engine.elements.errors import ConfigurationError, JobGraphError
from engine.elements.operator import Operator
from engine.graph.plan import ExecutionPlan, OperatorPlan, VertexPlan
from engine.runtime.config import RunConfig
from operators.async_io import AsyncWaitOperator
from operators.basic import CollectSink, CountingSink, PrintSink
from operators.log.connectors import LogSink, LogSource
from operators.log.disk import DiskLog
from operators.sources import SourceOperator
from spark_bridge.transform import SparkTransformOperator

_ALIGNED = ("aligned", "exactly-once")
_WITHOUT = "run the job without --on"


def check_plan(plan: ExecutionPlan, config: RunConfig) -> None:
    """Raises :class:`JobGraphError` with every operator that cannot run, and :class:`ConfigurationError` for a mode
    that batches do not have."""
    if config.mode not in _ALIGNED:
        raise ConfigurationError(
            f"mode {config.mode} does not exist on Spark, where each batch ends with a checkpoint of all tasks, as in"
            f" mode aligned\n  leave --mode out, or {_WITHOUT}"
        )
    problems = dict.fromkeys(_problems(plan))
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise JobGraphError(f"job {plan.job_name!r} cannot run on Spark:\n{listed}")


def _problems(plan: ExecutionPlan) -> Iterator[str]:
    for edge in plan.edges:
        if edge.is_feedback:
            head = plan.vertices[edge.target_vertex].name
            yield f"{head!r} is the head of an iteration, and a batch goes through each stage once: {_WITHOUT}"
    for vertex, operator in plan.operators():
        problem = _problem(vertex, operator)
        if problem is not None:
            yield f"{operator.name!r} {problem}"


def _problem(vertex: VertexPlan, operator: OperatorPlan) -> str | None:
    made = operator.factory()
    described = getattr(operator.factory, "__self__", operator.factory)
    described = getattr(described, "source", described)
    if isinstance(made, SparkTransformOperator):
        return f"calls Spark for its batches, and an executor has no session of its own: {_WITHOUT}"
    if isinstance(made, AsyncWaitOperator):
        return f"waits for answers while time passes, and none passes in a batch: use map, or {_WITHOUT}"
    problem = _memory_problem(vertex, described)
    if problem is not None:
        return problem
    assigner = getattr(made, "_assigner", None)
    if assigner is not None and not getattr(assigner, "is_event_time", True):
        return f"has windows in processing time, which does not pass in a batch: use event time, or {_WITHOUT}"
    sends = operator.chained_outputs or operator.edge_outputs
    if sends and commits(operator) and not isinstance(made, SourceOperator):
        return f"sends records once a checkpoint is complete, when the batch is over: use a plain sink, or {_WITHOUT}"
    return None


def _memory_problem(vertex: VertexPlan, described: object) -> str | None:
    """``described``: the object that makes the operator, a sink or a source."""
    if isinstance(described, CountingSink | PrintSink) or (
        isinstance(described, CollectSink) and described.delivery != "exactly-once"
    ):
        return "keeps its rows in the memory of one process, and tasks run in several: use a CollectSink, or files"
    if isinstance(described, LogSink) and not isinstance(described.log, DiskLog):
        return "uses a log in the memory of one process, and tasks run in several: give it log=DiskLog('path')"
    if isinstance(described, LogSink) and vertex.parallelism > 1:
        return "has several subtasks, and one process at a time writes to a log on disk: give it parallelism=1"
    if isinstance(described, LogSource) and described.group is not None:
        return "commits offsets to a consumer group, and a source hears of no completed checkpoint: leave group= out"
    return None


def commits(operator: OperatorPlan) -> bool:
    """Whether an operator does something when a checkpoint is complete."""
    return type(operator.factory()).notify_checkpoint_complete is not Operator.notify_checkpoint_complete
