"""What cannot run in batches, and is refused before anything happens: the operator, the reason, the way out."""

from __future__ import annotations

from collections.abc import Iterator

from engine.elements.errors import ConfigurationError, JobGraphError
from engine.elements.operator import Operator
from engine.graph.plan import ExecutionPlan, OperatorPlan
from engine.runtime.config import RunConfig
from operators.async_io import AsyncWaitOperator
from operators.sources import ArrivalsOperator, source_of

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
    for _, operator in plan.operators():
        problem = _problem(operator, operator.factory())
        if problem is not None:
            yield f"{operator.name!r} {problem}"


def _problem(operator: OperatorPlan, made: Operator) -> str | None:
    """``made``: one that the factory has made. It knows more than the object that describes it: a user may have
    wrapped that in a function."""
    if isinstance(made, AsyncWaitOperator):
        return f"waits for answers while time passes, and none passes in a batch: use map, or {_WITHOUT}"
    if made.one_process is not None:
        return made.one_process
    if isinstance(made, ArrivalsOperator):
        return f"waits for times of arrival, and no time passes in a batch: use GeneratorSource, or {_WITHOUT}"
    source = source_of(operator.factory)
    if getattr(getattr(source, "inner", source), "group", None) is not None:
        return "commits offsets to a consumer group, and a source hears of no completed checkpoint: leave group= out"
    assigner = getattr(made, "_assigner", None)
    if assigner is not None and not getattr(assigner, "is_event_time", True):
        return f"has windows in processing time, which does not pass in a batch: use event time, or {_WITHOUT}"
    return None
