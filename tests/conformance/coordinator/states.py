"""State objects: keyed state one operation at a time, merged namespaces, operator state, and their snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from state_backends.api import OperatorListState, OperatorStateBackend
from state_backends.api.operator_state import OperatorSnapshotTask
from state_backends.base import (
    AggregatingStateDescriptor,
    KeyGroupRange,
    KeyTypeError,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateArgumentError,
    StateSchemaError,
    ValueStateDescriptor,
)
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointStorage,
    KeyedStateHandle,
    OperatorStateHandle,
    SnapshotOptions,
    SnapshotTask,
    run_to_completion,
)
from tests.conformance.compare import (
    Comparison,
    MalformedVector,
    Vector,
    check_fields,
    steps_with_expectations,
    unordered,
)

GROUPS = 128


def keyed_backend() -> HeapKeyedStateBackend:
    """An empty backend over all key groups; its key type is that of the first key."""
    return HeapKeyedStateBackend(None, GROUPS, KeyGroupRange(0, GROUPS - 1))


def location() -> CheckpointLocation:
    return CheckpointStorage(MemoryFileSystem(), "/storage", "job").initialize_location(1)


def keyed_snapshot(backend: HeapKeyedStateBackend, where: CheckpointLocation) -> SnapshotTask[KeyedStateHandle]:
    """The synchronous part is done; the asynchronous one has not begun."""
    resources = backend.sync_prepare_resources(1)
    return backend.async_snapshot(resources, where.stream_factory("keyed"), SnapshotOptions())


def _operator_snapshot(backend: OperatorStateBackend, where: CheckpointLocation) -> OperatorSnapshotTask:
    resources = backend.sync_prepare_resources(1)
    return backend.async_snapshot(resources, where.stream_factory("operator"), SnapshotOptions())


def _restored(handle: KeyedStateHandle | None, where: CheckpointLocation) -> HeapKeyedStateBackend:
    backend = keyed_backend()
    backend.restore([] if handle is None else [handle], where.reader())
    return backend


# --- one keyed state --------------------------------------------------------------------------------------------------


def _add(total: list[int], value: int) -> list[int]:
    total[0] += value
    return total


def _merge(left: list[int], right: list[int]) -> list[int]:
    return [left[0] + right[0]]


def _state(backend: HeapKeyedStateBackend, state_type: str, default: Any = None) -> Any:
    match state_type:
        case "value":
            return backend.value_state(ValueStateDescriptor("state", default))
        case "list":
            return backend.list_state(ListStateDescriptor("state"))
        case "map":
            return backend.map_state(MapStateDescriptor("state"))
        case "reducing_sum":
            return backend.reducing_state(ReducingStateDescriptor("state", lambda total, value: total + value))
        case "aggregating_sum":
            descriptor = AggregatingStateDescriptor("state", lambda: [0], _add, lambda total: total[0], _merge)
            return backend.aggregating_state(descriptor)
        case other:
            raise MalformedVector(f"unknown state type {other!r}")


_OPERATIONS: dict[str, tuple[set[str], Callable[[Any, Vector], Any]]] = {
    "get": (set(), lambda state, op: state.get()),
    "add": ({"value"}, lambda state, op: state.add(op["value"])),
    "addAll": ({"value"}, lambda state, op: state.add_all(op["value"])),
    "update": ({"value"}, lambda state, op: state.update(op["value"])),
    "clear": (set(), lambda state, op: state.clear()),
    "put": ({"map_key", "value"}, lambda state, op: state.put(op["map_key"], op["value"])),
    "map_get": ({"map_key"}, lambda state, op: state.get(op["map_key"])),
    "remove": ({"map_key"}, lambda state, op: state.remove(op["map_key"])),
    "entries": (set(), lambda state, op: dict(state.entries())),
    "is_empty": (set(), lambda state, op: state.is_empty()),
}


class _KeyedState:
    def __init__(self, given: Vector) -> None:
        check_fields(given, {"state_type", "default", "ops"}, "input")
        self._type, self._default = given["state_type"], given.get("default")
        if self._default is not None and self._type != "value":
            raise MalformedVector(f"a {self._type} state has no default")
        self._backend = keyed_backend()
        self._state = _state(self._backend, self._type, self._default)

    def apply(self, op: Vector) -> Any:
        match op["op"]:
            case "key":
                check_fields(op, {"op", "key"}, "an operation")
                self._backend.set_current_key(op["key"])
            case "num_entries":
                check_fields(op, {"op"}, "an operation")
                return self._backend.num_entries()
            case "snapshot_and_restore":
                check_fields(op, {"op"}, "an operation")
                where = location()
                handle = run_to_completion(keyed_snapshot(self._backend, where)).job_manager_state
                self._backend = _restored(handle, where)
                self._state = _state(self._backend, self._type, self._default)
            case name if name in _OPERATIONS:
                known, run = _OPERATIONS[name]
                check_fields(op, {"op", *known}, "an operation")
                return run(self._state, op)
            case other:
                raise MalformedVector(f"unknown operation {other!r}")
        return None


def keyed_state_ops(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(vector["expect"], {"per_op"}, "expect")
    keyed = _KeyedState(given)
    for position, op, wanted in steps_with_expectations(given["ops"], vector["expect"]["per_op"]):
        observed: dict[str, Any] = {"value": None, "error": None}
        try:
            observed["value"] = keyed.apply(op)
        except StateArgumentError:
            observed["error"] = "null_pointer"
        except KeyTypeError:
            if op["op"] != "key" or op["key"] is not None:
                raise
            observed["error"] = "null_pointer"
        if isinstance(wanted.get("value"), list) and isinstance(observed["value"], dict):
            # Entries given as pairs; their order does not count.
            wanted = {**wanted, "value": unordered(wanted["value"])}
            observed["value"] = unordered([list(entry) for entry in observed["value"].items()])
        comparison.fields(wanted, observed, f"op {position} ")
        if observed["error"] is not None and "error" not in wanted:
            comparison.field(f"op {position} error", None, observed["error"])
    return comparison.finish()


def keyed_state_merge_namespaces(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    known = {"state_type", "target_namespace", "source_namespaces", "per_key_namespace_adds"}
    check_fields(given, known, "input")
    check_fields(vector["expect"], {"target_value", "source_namespaces_empty_after", "compare"}, "expect")
    backend = keyed_backend()
    state = _state(backend, given["state_type"])
    target, sources = given["target_namespace"], given["source_namespaces"]
    values: dict[str, Any] = {}
    left = 0
    for key, adds in given["per_key_namespace_adds"].items():
        backend.set_current_key(key)
        for namespace, added in adds.items():
            state.set_namespace(int(namespace))
            for value in added:
                state.add(value)
        state.merge_namespaces(target, sources)
        for namespace in sources:
            state.set_namespace(namespace)
            left += state.get() is not None
        state.set_namespace(target)
        values[key] = unordered(state.get())
    wanted = {key: unordered(value) for key, value in vector["expect"]["target_value"].items()}
    comparison.field("target_value", wanted, values)
    if "source_namespaces_empty_after" in vector["expect"]:
        comparison.field("source_namespaces_empty_after", vector["expect"]["source_namespaces_empty_after"], not left)
    return comparison.finish()


# --- snapshots of whole backends --------------------------------------------------------------------------------------


def _typed(keys: Iterable[str]) -> list[Any]:
    """Keys of a JSON object as they were meant: numbers where all of them are."""
    texts = list(keys)
    return [int(text) for text in texts] if all(text.lstrip("-").isdecimal() for text in texts) else list(texts)


def snapshot_isolation(vector: Vector) -> list[str]:
    given, expect, comparison = vector["input"], vector["expect"], Comparison()
    check_fields(given, {"before", "after_sync_part"}, "input")
    check_fields(expect, {"live", "restored"}, "expect")
    backend, where = keyed_backend(), location()
    _write(backend, given["before"])
    task = keyed_snapshot(backend, where)
    _write(backend, given["after_sync_part"])
    handle = run_to_completion(task).job_manager_state
    found = {"live": backend, "restored": _restored(handle, where)}
    for name, wanted in expect.items():
        values = _state(found[name], "value").get_many(_typed(wanted))
        comparison.field(name, wanted, dict(zip(wanted, values, strict=True)))
    return comparison.finish()


def _write(backend: HeapKeyedStateBackend, entries: Vector) -> None:
    state = _state(backend, "value")
    for key, value in zip(_typed(entries), entries.values(), strict=True):
        backend.set_current_key(key)
        state.update(value)


def empty_snapshot(vector: Vector) -> list[str]:
    """``empty_snapshot``; operator state of every kind, since all kinds give the same result."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"backend", "registered_states", "entries"}, "input")
    registered, entries = given.get("registered_states", 0), given.get("entries", 0)
    match given["backend"]:
        case "keyed":
            comparison.fields(vector["expect"], _empty_keyed(registered, entries))
        case "operator":
            for kind in ("list_state", "union_list_state", "broadcast_state"):
                observed = _empty_operator(kind, registered, entries)
                comparison.fields(vector["expect"], observed, f"{kind} ")
        case other:
            raise MalformedVector(f"unknown backend {other!r}")
    return comparison.finish()


def _empty_keyed(registered: int, entries: int) -> dict[str, object]:
    backend, where = keyed_backend(), location()
    for number in range(registered):
        state = backend.value_state(ValueStateDescriptor(f"state {number}"))
        for key in range(entries if number == 0 else 0):
            backend.set_current_key(key)
            state.update(key)
    handle = run_to_completion(keyed_snapshot(backend, where)).job_manager_state
    restored = _restored(handle, where)
    return {"handle": None if handle is None else "present", "restored_entries": restored.num_entries()}


def _empty_operator(kind: str, registered: int, entries: int) -> dict[str, object]:
    backend, where = OperatorStateBackend(), location()
    for number in range(registered):
        state = getattr(backend, kind)(f"state {number}")
        for entry in range(entries if number == 0 else 0):
            state.put(entry, entry) if kind == "broadcast_state" else state.add(entry)
    handle = run_to_completion(_operator_snapshot(backend, where)).job_manager_state
    restored = OperatorStateBackend()
    restored.restore([] if handle is None else [handle], where.reader())
    found = 0
    for name in restored.state_names():
        found += len(getattr(restored, kind)(name).get())
    for name in restored.broadcast_state_names():
        found += len(restored.broadcast_state(name).entries())
    return {"handle": None if handle is None else "present", "restored_entries": found}


# --- operator state ---------------------------------------------------------------------------------------------------

_OPERATOR_OPERATIONS = {
    "get_list": {"name"},
    "get_union": {"name"},
    "get_broadcast": {"name"},
    "add": {"name", "values"},
    "put_all": {"name", "values"},
    "mutate_each": {"name", "plus"},
    "clear": {"name"},
    "snapshot_sync_part": set(),
    "snapshot_async_part": set(),
    "restore_from_snapshot": set(),
}


class _OperatorState:
    """The backend of one vector. Elements are lists of one number, so that they can be changed in place."""

    def __init__(self) -> None:
        self.backend = OperatorStateBackend()
        self._states: dict[str, Any] = {}
        self._elements: dict[str, list[list[int]]] = {}
        self._where = location()
        self._task: OperatorSnapshotTask | None = None
        self._handle: OperatorStateHandle | None = None

    def apply(self, op: Vector) -> None:
        name = op.get("name", "")
        match op["op"]:
            case "get_list":
                self._states[name] = self.backend.list_state(name)
            case "get_union":
                self._states[name] = self.backend.union_list_state(name)
            case "get_broadcast":
                self._states[name] = self.backend.broadcast_state(name)
            case "add":
                elements: list[Any] = [None if value is None else [value] for value in op["values"]]
                self._states[name].add_all(elements)
                self._elements.setdefault(name, []).extend(elements)
            case "put_all":
                self._states[name].put_all(op["values"])
            case "mutate_each":
                for element in self._elements.get(name, ()):
                    element[0] += op["plus"]
            case "clear":
                self._elements.pop(name, None)
                self._states[name].clear()
            case "snapshot_sync_part":
                self._task = _operator_snapshot(self.backend, self._where)
            case "snapshot_async_part":
                assert self._task is not None
                self._handle = run_to_completion(self._task).job_manager_state
            case "restore_from_snapshot":
                self.backend = OperatorStateBackend()
                self.backend.restore([] if self._handle is None else [self._handle], self._where.reader())
                self._states, self._elements = {}, {}

    def observed(self) -> dict[str, object]:
        names, broadcast = self.backend.state_names(), self.backend.broadcast_state_names()
        return {
            "values": {name: [element[0] for element in self._list(name).get()] for name in names},
            "broadcast": {name: dict(self.backend.broadcast_state(name).entries()) for name in broadcast},
            "registered_names": len(names),
            "registered_broadcast_names": len(broadcast),
        }

    def _list(self, name: str) -> OperatorListState:
        try:
            return self.backend.list_state(name)
        except StateSchemaError:
            return self.backend.union_list_state(name)


def operator_state_backend(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"ops"}, "input")
    operator = _OperatorState()
    for position, op in enumerate(given["ops"]):
        if op["op"] not in _OPERATOR_OPERATIONS:
            raise MalformedVector(f"unknown operation {op['op']!r}")
        check_fields(op, {"op", "expect_error", *_OPERATOR_OPERATIONS[op["op"]]}, f"operation {op['op']}")
        error = None
        try:
            operator.apply(op)
        except StateSchemaError:
            error = "illegal_state"
        except StateArgumentError:
            error = "null_pointer"
        comparison.field(f"op {position} error", op.get("expect_error"), error)
    comparison.fields(vector["expect"], operator.observed())
    return comparison.finish()


KINDS = {
    "keyed_state_ops": keyed_state_ops,
    "keyed_state_merge_namespaces": keyed_state_merge_namespaces,
    "snapshot_isolation": snapshot_isolation,
    "empty_snapshot": empty_snapshot,
    "operator_state_backend": operator_state_backend,
}
