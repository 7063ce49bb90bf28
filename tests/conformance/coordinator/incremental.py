"""Incremental snapshots: which files are uploaded again, by the real strategy over a store with a vector's files."""

from __future__ import annotations

from collections.abc import Callable

from state_backends.files import MemoryFileSystem
from state_backends.rows import RestoredBase
from state_backends.rows.incremental import NativeSnapshotTask
from state_backends.snapshots import (
    CheckpointStorage,
    FileStateHandle,
    IncrementalKeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateScope,
    StoreFile,
    run_to_completion,
)
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields, steps_with_expectations
from tests.state_backends.rows.support import ScriptedStore, restored_base, strategy_over

_TYPES = {
    "CHECKPOINT": SnapshotType.CHECKPOINT,
    "FULL_CHECKPOINT": SnapshotType.FULL_CHECKPOINT,
    "NATIVE_SAVEPOINT": SnapshotType.NATIVE_SAVEPOINT,
}
_FIELDS = {
    "snapshot": {"op", "checkpoint", "files", "type"},
    "notify_complete": {"op", "checkpoint"},
    "notify_aborted": {"op", "checkpoint"},
}
_NO_BASE = -1


class _Backend:
    """The strategy of one vector, and the outcome of its last snapshot."""

    def __init__(self, restored: Vector | None) -> None:
        file_system = MemoryFileSystem()
        self._storage = CheckpointStorage(file_system, "/storage", "job", inline_threshold_bytes=0)
        self._store = ScriptedStore(file_system)
        self._strategy = strategy_over(self._store, file_system, _base(restored))
        self._handle: IncrementalKeyedStateHandle | None = None

    def apply(self, step: Vector) -> None:
        self._handle = None
        match step["op"]:
            case "snapshot":
                self._handle = self._snapshot(step)
            case "notify_complete":
                self._strategy.history.complete(step["checkpoint"])
            case "notify_aborted":
                self._strategy.history.abort(step["checkpoint"])
        self._strategy.history.validate()

    def _snapshot(self, step: Vector) -> IncrementalKeyedStateHandle:
        snapshot_type = step.get("type", "CHECKPOINT")
        if snapshot_type not in _TYPES:
            raise MalformedVector(f"unknown type of a snapshot {snapshot_type!r}")
        checkpoint = step["checkpoint"]
        self._store.names = step["files"]
        streams = self._storage.initialize_location(checkpoint).stream_factory(f"subtask-{checkpoint}")
        task: NativeSnapshotTask = self._strategy.async_snapshot(
            self._strategy.sync_prepare_resources(checkpoint), streams, SnapshotOptions(_TYPES[snapshot_type])
        )
        handle = run_to_completion(task).job_manager_state
        assert isinstance(handle, IncrementalKeyedStateHandle)
        return handle

    def observed(self) -> dict[str, object]:
        """The fields that a step may expect; uploads only after a snapshot."""
        history = self._strategy.history
        base = history.base_checkpoint
        state: dict[str, object] = {
            "base_checkpoint": _NO_BASE if base is None else base,
            "tracked": list(history.tracked),
        }
        if self._handle is None:
            return state
        data, private = self._handle.shared_files, self._handle.private_files
        scopes = {_scope(file).name for file in data}
        return {
            **state,
            # Without data files there is no scope.
            "sst_scope": scopes.pop() if len(scopes) == 1 else sorted(scopes) or None,
            "reused_placeholders": [file.name for file in data if not file.uploaded],
            "uploaded_sst": [file.name for file in data if file.uploaded],
            "uploaded_misc": [file.name for file in private if file.uploaded],
        }


def _scope(file: StoreFile) -> StateScope:
    assert isinstance(file.stream, FileStateHandle)
    return file.stream.scope


def _base(restored: Vector | None) -> RestoredBase | None:
    """The files that carry over: none to other key groups."""
    if restored is None:
        return None
    check_fields(restored, {"checkpoint", "sst", "same_key_group_range"}, "restored")
    if not restored["same_key_group_range"]:
        return None
    return restored_base(restored["checkpoint"], *restored["sst"])


def incremental_snapshot(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"restored", "steps"}, "input")
    check_fields(vector["expect"], {"per_step"}, "expect")
    backend = _Backend(given.get("restored"))
    for position, step, wanted in steps_with_expectations(given["steps"], vector["expect"]["per_step"]):
        if step["op"] not in _FIELDS:
            raise MalformedVector(f"unknown operation {step['op']!r}")
        check_fields(step, _FIELDS[step["op"]], f"step {position}")
        backend.apply(step)
        observed = backend.observed()
        check_fields(wanted, observed, f"step {position} expect")
        for name, expected in wanted.items():
            comparison.field(f"step {position} {name}", expected, observed[name], as_set=True)
    return comparison.finish()


KINDS: dict[str, Callable[[Vector], list[str]]] = {"incremental_snapshot": incremental_snapshot}
