"""The failure budget and the effect of each reason on it."""

from __future__ import annotations

from engine.checkpoint.coordinator.checkpoint_ending import CheckpointFailureManager
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

UNLIMITED = 2**31 - 1
_UNKNOWN_ID = -1


def reason_named(name: str) -> CheckpointFailureReason:
    if name not in CheckpointFailureReason.__members__:
        raise MalformedVector(f"unknown reason {name!r}")
    return CheckpointFailureReason[name]


def failure_manager(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"tolerable_failures", "events"}, "input")
    tolerable = given["tolerable_failures"]
    manager = CheckpointFailureManager(None if tolerable == UNLIMITED else tolerable)
    failed = 0
    for event in given["events"]:
        checkpoint_id = event.get("checkpoint", _UNKNOWN_ID)
        match event["event"]:
            case "success":
                check_fields(event, {"event", "checkpoint"}, "an event")
                manager.on_completed(event["checkpoint"])
            case "failure":
                known = {"event", "reason", "checkpoint", "savepoint", "sync", "task_level"}
                check_fields(event, known, "an event")
                failed += manager.on_failure(
                    reason_named(event["reason"]),
                    None if checkpoint_id == _UNKNOWN_ID else checkpoint_id,
                    is_savepoint=event.get("savepoint", False),
                    is_synchronous=event.get("sync", False),
                    by_task=event.get("task_level", False),
                )
            case other:
                raise MalformedVector(f"unknown event {other!r}")
        manager.validate()
    comparison.fields(vector["expect"], {"job_failures": failed})
    return comparison.finish()


def failure_reason(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"reason"}, "input")
    reason = reason_named(given["reason"])
    comparison.fields(vector["expect"], {"counted": reason.counted, "pre_flight": reason.pre_flight})
    return comparison.finish()


KINDS = {"failure_manager": failure_manager, "failure_reason": failure_reason}
