"""Trigger requests, and the barriers that they lead to."""

from __future__ import annotations

from engine.checkpoint.coordinator import TriggerRequest
from engine.checkpoint.coordinator.triggering import DEFAULT_MAX_QUEUED, CheckpointRequestDecider, Decision, Situation
from engine.elements.events import CheckpointOptions, SnapshotKind
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields, steps_with_expectations

MS = 1_000_000
UNSET_TIMEOUT_MS = 2**63 - 1
_REQUEST = {"id", "savepoint", "forced", "periodic", "ts"}
_SITUATION = {"is_triggering", "pending", "cleaning", "last_completion_ms", "now_ms"}
_DAY_MS = 86_400_000


def request_decider(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"config", "steps"}, "input")
    check_fields(vector["expect"], {"per_step"}, "expect")
    config = given.get("config", {})
    check_fields(config, {"max_concurrent", "min_pause_ms", "max_queued"}, "config")
    decider = CheckpointRequestDecider(
        config.get("max_concurrent", 1),
        config.get("min_pause_ms", 0) * MS,
        config.get("max_queued", DEFAULT_MAX_QUEUED),
    )
    steps = steps_with_expectations(given["steps"], vector["expect"]["per_step"])
    for position, step, wanted in steps:
        decision = _decide(decider, step, position)
        decider.validate()
        rearm_ns = decision.rearm_after_ns
        observed = {
            "chosen": decision.chosen and decision.chosen.label,
            "failed": {str(request.label): reason.name for request, reason in decision.failed},
            "reschedule_after_ms": None if rearm_ns is None else rearm_ns / MS,
            "queue": [request.label for request in decider.queued],
        }
        comparison.fields(wanted, observed, f"step {position} ")
    return comparison.finish()


def _decide(decider: CheckpointRequestDecider, step: Vector, position: int) -> Decision:
    situation = Situation(
        step.get("now_ms", _DAY_MS) * MS,
        step.get("is_triggering", False),
        step.get("pending", 0),
        step.get("cleaning", 0),
        step.get("last_completion_ms", 0) * MS,
    )
    match step["op"]:
        case "submit":
            check_fields(step, {"op", "request", *_SITUATION}, f"step {position}")
            wish = step["request"]
            check_fields(wish, _REQUEST, f"the request of step {position}")
            request = TriggerRequest(
                position,
                wish.get("ts", 0) * MS,
                wish["id"],
                is_periodic=wish.get("periodic", False),
                is_savepoint=wish.get("savepoint", False),
                is_forced=wish.get("forced", False),
            )
            return decider.submit(request, situation)
        case "choose_queued":
            check_fields(step, {"op", *_SITUATION}, f"step {position}")
            return decider.choose(situation)
        case other:
            raise MalformedVector(f"unknown operation {other!r}")


def checkpoint_options(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"exactly_once", "savepoint", "unaligned_enabled", "aligned_timeout_ms"}, "input")
    timeout_ms = given["aligned_timeout_ms"]
    configured = CheckpointOptions.configured(
        exactly_once=given["exactly_once"],
        unaligned=given["unaligned_enabled"],
        aligned_timeout_ns=None if timeout_ms == UNSET_TIMEOUT_MS else timeout_ms * MS,
    )
    options = configured.for_snapshot(SnapshotKind.SAVEPOINT if given["savepoint"] else SnapshotKind.CHECKPOINT)
    observed = {
        "alignment": options.alignment.name,
        "timeoutable": options.timeoutable,
        "needs_alignment": options.needs_alignment,
        "needs_channel_state": options.needs_channel_state,
    }
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


KINDS = {"request_decider": request_decider, "checkpoint_options": checkpoint_options}
