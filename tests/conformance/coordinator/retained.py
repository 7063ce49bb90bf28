"""Completed checkpoints: retention, policies, the cleaner, and the registry of shared state."""

from __future__ import annotations

from typing import Any

from engine.checkpoint.coordinator import CompletedCheckpoint, JobStatus, RestoreMode, SharedState, SharingFilesStrategy
from engine.checkpoint.coordinator.coordinator_config import RetentionPolicy
from engine.checkpoint.coordinator.retained_checkpoints import CheckpointsCleaner, CompletedCheckpointStore
from engine.checkpoint.coordinator.shared_state_registry import (
    HandleMismatchError,
    RegistryClosedError,
    SharedStateError,
    SharedStateRegistry,
    UnknownPlaceholderError,
)
from engine.elements.events import SnapshotKind
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields, steps_with_expectations


def completed_store_retention(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"num_retained", "add"}, "input")
    store = CompletedCheckpointStore(given["num_retained"])
    order: list[int] = []
    last: int | None = None
    for added in given["add"]:
        check_fields(added, {"id", "savepoint", "sync"}, "an entry")
        kind = SnapshotKind.SAVEPOINT if added.get("savepoint", False) else SnapshotKind.CHECKPOINT
        entry = CompletedCheckpoint(added["id"], kind, is_synchronous=added.get("sync", False))
        subsumed = [one.checkpoint_id for one in store.add(entry)]
        store.validate()
        order += subsumed
        last = max(subsumed, default=None)
    observed = {
        "retained": [entry.checkpoint_id for entry in store.entries],
        "last_add_returns": last,
        "subsumed_in_order": order,
    }
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def discard_policy(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"policy"}, "input")
    check_fields(vector["expect"], {"discard_when"}, "expect")
    kind, policy = SnapshotKind.CHECKPOINT, given["policy"]
    if policy == "SAVEPOINT":
        # A savepoint is treated the same under every policy; this policy would discard everything else.
        kind, policy = SnapshotKind.SAVEPOINT, RetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION.name
    if policy not in RetentionPolicy.__members__:
        raise MalformedVector(f"unknown policy {policy!r}")
    observed = {
        status.name: _store_with(kind).shut_down(RetentionPolicy[policy], status) == (1,) for status in JobStatus
    }
    store = _store_with(kind)
    store.add(CompletedCheckpoint(2))
    observed["subsumed"] = store.take_deletable() == (1,)
    comparison.fields(vector["expect"]["discard_when"], observed, "discard_when.")
    return comparison.finish()


def _store_with(kind: SnapshotKind) -> CompletedCheckpointStore:
    store = CompletedCheckpointStore(1)
    store.add(CompletedCheckpoint(1, kind))
    return store


def checkpoints_cleaner(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"subsumed", "up_to", "still_in_use"}, "input")
    cleaner = CheckpointsCleaner()
    cleaner.add(CompletedCheckpoint(checkpoint_id) for checkpoint_id in given["subsumed"])
    discarded = cleaner.clean(given["up_to"], in_use=given.get("still_in_use", ()))
    comparison.fields(vector["expect"], {"discarded": discarded, "kept": cleaner.waiting_ids})
    return comparison.finish()


_ERRORS: tuple[tuple[type[SharedStateError], str], ...] = (
    (UnknownPlaceholderError, "unknown_placeholder"),
    (HandleMismatchError, "handle_mismatch"),
    (RegistryClosedError, "registry_closed"),
)


def shared_state_registry(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"ops"}, "input")
    check_fields(vector["expect"], {"per_op"}, "expect")
    registry = SharedStateRegistry()
    for position, op, wanted in steps_with_expectations(given["ops"], vector["expect"]["per_op"]):
        observed: dict[str, Any] = {"error": None, "returned": None, "discarded": [], "checkpoints_in_use": []}
        try:
            _apply(registry, op, observed)
        except SharedStateError as error:
            observed["error"] = next(name for kind, name in _ERRORS if isinstance(error, kind))
        registry.validate()
        check_fields(wanted, observed, f"expect of op {position}")
        for name, expected in wanted.items():
            as_set = name in ("discarded", "checkpoints_in_use")
            comparison.field(f"op {position} {name}", expected, observed[name], as_set=as_set)
        if observed["error"] is not None and "error" not in wanted:
            comparison.field(f"op {position} error", None, observed["error"])
    return comparison.finish()


def _apply(registry: SharedStateRegistry, op: Vector, observed: dict[str, Any]) -> None:
    match op["op"]:
        case "register":
            known = {"op", "key", "handle", "checkpoint", "placeholder", "marker", "prevent_discard_creator"}
            check_fields(op, known, "an operation")
            observed["returned"] = registry.register(_state(op), op["checkpoint"]).handle
        case "restored":
            check_fields(op, {"op", "checkpoint", "mode", "sharing", "entries"}, "an operation")
            for entry in op["entries"]:
                check_fields(entry, {"key", "handle", "marker", "placeholder", "prevent_discard_creator"}, "an entry")
            registry.register_restored(
                [_state(entry) for entry in op["entries"]],
                op["checkpoint"],
                _member(RestoreMode, op["mode"]),
                _member(SharingFilesStrategy, op["sharing"]),
            )
        case "unregister_unused":
            check_fields(op, {"op", "lowest_valid"}, "an operation")
            unused = registry.unregister_unused(op["lowest_valid"])
            observed |= {"discarded": unused.handles, "checkpoints_in_use": unused.in_use}
        case "close":
            check_fields(op, {"op"}, "an operation")
            registry.close()
        case other:
            raise MalformedVector(f"unknown operation {other!r}")


def _state(described: Vector) -> SharedState:
    keeps = described.get("prevent_discard_creator", False)
    if described.get("marker", False):
        return SharedState(described["key"], is_marker=True, keeps_creator=keeps)
    handle = None if described.get("placeholder", False) else described.get("handle")
    return SharedState(described["key"], handle, keeps_creator=keeps)


def _member(kind: Any, name: str) -> Any:
    if name not in kind.__members__:
        raise MalformedVector(f"unknown {kind.__name__} {name!r}")
    return kind[name]


KINDS = {
    "completed_store_retention": completed_store_retention,
    "discard_policy": discard_policy,
    "checkpoints_cleaner": checkpoints_cleaner,
    "shared_state_registry": shared_state_registry,
}
