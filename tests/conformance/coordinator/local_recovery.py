"""Local copies of state: which are kept, which candidates a restore has, and how they are tried."""

from __future__ import annotations

import re
from typing import Any

from state_backends.base import CorruptStateError, KeyGroupRange, RestoreCancelledError, StateBackendError
from state_backends.files import MemoryFileSystem
from state_backends.local.state_store import LOCAL_STATE_FILE_NAME, LocalStateStore, LocalTaskState
from state_backends.snapshots import (
    ByteStreamStateHandle,
    FullKeyedStateHandle,
    KeyedStateHandle,
    OperatorStateHandle,
    OperatorStateMode,
    RestoreCandidate,
    StateOffsets,
    StreamStateHandle,
    SubtaskSnapshot,
    keyed_alternatives,
    restore_backend,
    single_alternatives,
)
from tests.conformance.compare import Comparison, MalformedVector, Vector, check_fields

# --- what is kept -----------------------------------------------------------------------------------------------------

_ROOT = "/local/task"


def _state_of(checkpoint_id: int) -> LocalTaskState:
    stream = ByteStreamStateHandle(b"%d" % checkpoint_id)
    return LocalTaskState({"uid": SubtaskSnapshot(keyed=FullKeyedStateHandle(KeyGroupRange(0, 7), (), stream))})


def _said_by(state: LocalTaskState | None) -> int | None:
    if state is None:
        return None
    handle = state.operators["uid"].keyed
    assert isinstance(handle, FullKeyedStateHandle)
    return int(_bytes_of(handle.stream))


def _bytes_of(stream: StreamStateHandle) -> bytes:
    assert isinstance(stream, ByteStreamStateHandle)
    return stream.data


class _Task:
    """A store in files, in the process that wrote them or in a later one."""

    def __init__(self, *, uses_copies: bool) -> None:
        self.fs = MemoryFileSystem()
        self._uses_copies = uses_copies
        self.store = self.new_process()

    def new_process(self) -> LocalStateStore:
        return LocalStateStore(self.fs, _ROOT, lambda what, problem: None, recovery_enabled=self._uses_copies)

    def keep(self, checkpoint_id: int, state: LocalTaskState | None) -> None:
        assert self.store.store(checkpoint_id, state)

    def do(self, op: str, checkpoint_id: Any) -> int | None:
        """One operation; returns its result, if any."""
        match op:
            case "confirm":
                self.store.confirm(checkpoint_id)
            case "abort":
                self.store.abort(checkpoint_id)
            case "prune_all_except":
                self.store.prune(checkpoint_id)
            case "dispose":
                self.store.dispose()
            case "retrieve":
                return _said_by(self.store.retrieve(checkpoint_id))
            case "corrupt_then_retrieve_in_new_process":
                path = f"{self.store.snapshot_directory(checkpoint_id)}/{LOCAL_STATE_FILE_NAME}"
                self.fs.truncate(path, self.fs.size(path) // 2)
                self.store = self.new_process()
                return _said_by(self.store.retrieve(checkpoint_id))
            case "store_null_then_retrieve":
                self.keep(checkpoint_id, None)
                return _said_by(self.store.retrieve(checkpoint_id))
            case other:
                raise MalformedVector(f"unknown op {other!r}")
        return None


def local_state_store(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"stored", "op", "checkpoint", "local_backup", "local_recovery"}, "input")
    # ``local_backup`` decides about further copies; copies that are stored stay.
    task = _Task(uses_copies=given.get("local_recovery", True))
    for checkpoint_id in given["stored"]:
        task.keep(checkpoint_id, _state_of(checkpoint_id))
    task.store = task.new_process() if given["op"] != "store_null_then_retrieve" else task.store
    returned = task.do(given["op"], given["checkpoint"])
    kept = [one for one in given["stored"] if one in task.store.kept]
    directory = _ROOT if given["checkpoint"] is None else task.store.snapshot_directory(given["checkpoint"])
    observed = {
        "kept": kept,
        "discarded": [one for one in given["stored"] if one not in kept],
        "returned": returned,
        "local_directory_exists": task.fs.is_dir(directory),
    }
    for checkpoint_id in given["stored"]:
        exists = task.fs.is_dir(task.store.snapshot_directory(checkpoint_id))
        comparison.field(f"directory of {checkpoint_id} exists", checkpoint_id in kept, exists)
    if isinstance(vector["expect"].get("returned"), str):
        observed["returned"] = _told_like(vector["expect"]["returned"], returned)
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


def _told_like(text: str, returned: int | None) -> str | None:
    """The format leaves open how a state is written; a number in it is that of its checkpoint."""
    if returned is None:
        return None
    numbers = re.findall(r"\d+", text)
    return text if numbers in ([], [str(returned)]) else f"state of checkpoint {returned}"


# --- candidates -------------------------------------------------------------------------------------------------------


def _number(identity: Any, known: list[Any]) -> int:
    if identity not in known:
        known.append(identity)
    return known.index(identity)


def _keyed(name: str, number: int) -> FullKeyedStateHandle:
    stream = ByteStreamStateHandle(name.encode())
    return FullKeyedStateHandle(KeyGroupRange(8 * number, 8 * number + 7), (), stream)


def _operator(name: str, number: int) -> OperatorStateHandle:
    states = {"state": StateOffsets(OperatorStateMode.SPLIT_DISTRIBUTE, (14, 14 + number))}
    return OperatorStateHandle(states, ByteStreamStateHandle(name.encode()))


def _name_of(handle: KeyedStateHandle | OperatorStateHandle) -> str:
    (stream,) = [handle.stream] if isinstance(handle, OperatorStateHandle) else handle.streams()
    return _bytes_of(stream).decode()


def restore_alternatives(vector: Vector) -> list[str]:
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"state_kind", "remote", "ids", "alternatives_high_to_low"}, "input")
    check_fields(vector["expect"], {"options_as_sets"}, "expect")
    known: list[Any] = []
    numbers = {name: _number(identity, known) for name, identity in given["ids"].items()}
    remote, local = given["remote"], given["alternatives_high_to_low"]
    if given["state_kind"] == "keyed":
        keyed = {name: _keyed(name, number) for name, number in numbers.items()}
        mixed = keyed_alternatives([keyed[one] for one in remote], [[keyed[one] for one in some] for some in local])
        found = [[_name_of(handle) for handle in option] for option in mixed]
    elif given["state_kind"] == "operator":
        operator = {name: _operator(name, number) for name, number in numbers.items()}
        found_here = [[operator[one] for one in some] for some in local]
        options = single_alternatives(
            [operator[one] for one in remote], found_here, lambda one, other: one.states == other.states
        )
        found = [[_name_of(handle) for handle in option] for option in options]
    else:
        raise MalformedVector(f"unknown state_kind {given['state_kind']!r}")
    expected = [sorted(option) for option in vector["expect"]["options_as_sets"]]
    comparison.field("options_as_sets", expected, [sorted(option) for option in found])
    return comparison.finish()


# --- trying -----------------------------------------------------------------------------------------------------------

_OUTCOMES = ("works", "fails", "blocks_then_task_cancelled")


class _NoReader:
    def open(self, handle: StreamStateHandle) -> Any:
        raise AssertionError("what a candidate gives is decided by the vector")


def restore_procedure(vector: Vector) -> list[str]:
    """``restore_procedure``: with backends that know how their restore ends."""
    given, comparison = vector["input"], Comparison()
    check_fields(given, {"options"}, "input")
    outcomes = given["options"]
    for outcome in outcomes:
        if outcome not in _OUTCOMES:
            raise MalformedVector(f"unknown outcome {outcome!r}")
    tried: list[int] = []
    closed: list[int] = []
    cancelled: list[bool] = []

    def restore(attempt: int, _candidate: RestoreCandidate[KeyedStateHandle]) -> None:
        tried.append(attempt)
        if outcomes[attempt] == "blocks_then_task_cancelled":
            cancelled.append(True)
            raise OSError("the file was closed")
        if outcomes[attempt] == "fails":
            raise CorruptStateError(f"candidate {attempt}", "is damaged")

    # Only how an attempt ends matters, so candidates have no handles. No candidate means a restore without state.
    candidates: list[RestoreCandidate[KeyedStateHandle]] = [RestoreCandidate((), _NoReader()) for _ in outcomes]
    observed: dict[str, object] = {"tried": tried}
    try:
        observed["restored_from"] = restore_backend(
            candidates, lambda attempt: attempt, restore, closed.append, is_cancelled=lambda: bool(cancelled)
        )
    except RestoreCancelledError:
        observed["error"] = "cancelled"
    except StateBackendError:
        observed["error"] = "could_not_restore"
    failed = [attempt for attempt in tried if attempt != observed.get("restored_from")]
    comparison.field("closed", failed, closed)
    comparison.fields(vector["expect"], observed)
    return comparison.finish()


KINDS = {
    "local_state_store": local_state_store,
    "restore_alternatives": restore_alternatives,
    "restore_procedure": restore_procedure,
}
