"""Stopping a job with a savepoint."""

from __future__ import annotations

from engine.checkpoint.coordinator import (
    FailGlobally,
    StartScheduler,
    StopFailed,
    StopInstruction,
    StopSucceeded,
    StopWithSavepoint,
    TaskTermination,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import StopMode
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

_PATH = "the savepoint"


def stop_with_savepoint(vector: Vector) -> list[str]:
    """``stop_with_savepoint``: with the tasks ending after the outcome of the savepoint, and before it."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"savepoint", "executions"}, "input")
    if given["savepoint"] not in ("completed", "failed"):
        raise MalformedVector(f"unknown outcome {given['savepoint']!r}")
    is_complete = given["savepoint"] == "completed"
    for tasks_first in (False, True):
        told = _told(is_complete, _ends(given.get("executions")), tasks_first)
        comparison.fields(vector["expect"], _observed(told, is_complete), "tasks first: " if tasks_first else "")
    return comparison.finish()


def _ends(executions: list[str] | None) -> dict[tuple[int, int], TaskTermination] | None:
    if executions is None:
        return None
    for name in executions:
        if name not in TaskTermination.__members__:
            raise MalformedVector(f"unknown end of a task {name!r}")
    return {(0, subtask): TaskTermination[name] for subtask, name in enumerate(executions)}


def _told(
    is_complete: bool, ends: dict[tuple[int, int], TaskTermination] | None, tasks_first: bool
) -> list[StopInstruction]:
    machine = StopWithSavepoint(StopMode.SUSPEND)
    told: list[StopInstruction] = list(machine.begin())
    if ends is not None and tasks_first:
        told += machine.on_tasks_terminated(ends)
    if is_complete:
        told += machine.on_savepoint_completed(1, _PATH)
    else:
        told += machine.on_savepoint_failed(CheckpointFailureReason.CHECKPOINT_DECLINED)
    if ends is not None and not tasks_first:
        told += machine.on_tasks_terminated(ends)
    machine.validate()
    return told


def _observed(told: list[StopInstruction], is_complete: bool) -> dict[str, object]:
    answer = next((one for one in told if isinstance(one, (StopSucceeded, StopFailed))), None)
    result = None
    if isinstance(answer, StopSucceeded):
        result = "savepoint_path" if answer.external_pointer == _PATH else answer.external_pointer
    elif isinstance(answer, StopFailed):
        result = "error"
    lost = is_complete and answer is not None and answer.external_pointer != _PATH
    return {
        "result": result,
        "global_failover": any(isinstance(one, FailGlobally) for one in told),
        "scheduler_restarted": any(isinstance(one, StartScheduler) for one in told),
        "savepoint_discarded": lost,
    }


KINDS = {"stop_with_savepoint": stop_with_savepoint}
