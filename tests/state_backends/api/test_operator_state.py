"""Operator state: lists and broadcast maps by name and mode, copied at the sync point, each element with its offset."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from state_backends.api import OperatorStateBackend
from state_backends.api.operator_state import OperatorSnapshotTask
from state_backends.base import StateArgumentError, StateSchemaError, StateSerializationError
from state_backends.codec import LARGE_BYTES, frame, frame_parts
from state_backends.snapshots import (
    OperatorStateHandle,
    OperatorStateMode,
    SnapshotOptions,
    SnapshotResult,
    StateOffsets,
    StateReader,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.support import location, same, values, vectors

Vector = dict[str, Any]

GETTERS = {"get_list": "list_state", "get_union": "union_list_state", "get_broadcast": "broadcast_state"}
MODES = {
    "list_state": OperatorStateMode.SPLIT_DISTRIBUTE,
    "union_list_state": OperatorStateMode.UNION,
    "broadcast_state": OperatorStateMode.BROADCAST,
}


def start(backend: OperatorStateBackend, where: Any) -> OperatorSnapshotTask:
    resources = backend.sync_prepare_resources(1)
    return backend.async_snapshot(resources, where.stream_factory("o"), SnapshotOptions())


def take(backend: OperatorStateBackend) -> tuple[OperatorStateHandle, StateReader]:
    where = location()
    handle = run_to_completion(start(backend, where)).job_manager_state
    assert handle is not None
    return handle, where.reader()


@pytest.mark.parametrize("vector", vectors("operator_state_backend"))
def test_states_are_those_of_flink(vector: Vector) -> None:
    """Flink's scenarios: modes, order, isolation of the snapshot from what lists and maps go through meanwhile."""
    backend, where = OperatorStateBackend(), location()
    task: OperatorSnapshotTask | None = None
    result: Any = None
    for op in vector["input"]["ops"]:
        name = op.get("name")
        if op["op"] in GETTERS:
            get = getattr(backend, GETTERS[op["op"]])
            if "expect_error" in op:
                with pytest.raises(StateSchemaError, match=f"{name!r} is .* cannot be"):
                    get(name)
            else:
                get(name)
        elif op["op"] == "add":
            _any(backend, name).add_all(op["values"])
        elif op["op"] == "mutate_each":
            _any(backend, name).update([one + op["plus"] for one in _any(backend, name).get()])
        elif op["op"] == "put_all":
            _any(backend, name).put_all(op["values"])
        elif op["op"] == "clear":
            _any(backend, name).clear()
        elif op["op"] == "snapshot_sync_part":
            task = start(backend, where)
        elif op["op"] == "snapshot_async_part":
            assert task is not None
            result = run_to_completion(task).job_manager_state
        else:
            assert op["op"] == "restore_from_snapshot"
            backend = OperatorStateBackend()
            backend.restore([result], where.reader())

    expect = vector["expect"]
    broadcast = {name: backend.broadcast_state(name) for name in backend.broadcast_state_names()}
    assert expect["values"] == {name: _any(backend, name).get() for name in backend.state_names()}
    assert expect["registered_names"] == len(backend.state_names())
    assert expect.get("broadcast", {}) == {name: dict(state.entries()) for name, state in broadcast.items()}
    assert expect.get("registered_broadcast_names", 0) == len(broadcast)


def _any(backend: OperatorStateBackend, name: str) -> Any:
    return backend._states[name]


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=3),
        st.tuples(st.booleans(), st.lists(values.filter(lambda value: value is not None), max_size=5)),
        max_size=4,
    )
)
def test_everything_comes_back(states: dict[str, tuple[bool, list[Any]]]) -> None:
    """Elements of any kind are restored exactly, in order, under their mode."""
    backend = OperatorStateBackend()
    for name, (union, elements) in states.items():
        (backend.union_list_state if union else backend.list_state)(name).add_all(elements)
    if not states:
        assert start(backend, location()).step() == SnapshotResult(None)
        return
    again = OperatorStateBackend()
    handle, reader = take(backend)
    again.restore([OperatorStateHandle.from_state(handle.to_state())], reader)

    assert again.state_names() == sorted(states)
    assert all(same(elements, _any(again, name).get()) for name, (_, elements) in states.items())
    assert again.fingerprint() == backend.fingerprint()


def test_elements_changed_in_place_after_the_sync_part_are_not_in_the_snapshot() -> None:
    """The synchronous part copies deeply."""
    backend, where = OperatorStateBackend(), location()
    element = {"offset": [1]}
    backend.list_state("l").add(element)
    task = start(backend, where)
    element["offset"].append(2)
    handle = run_to_completion(task).job_manager_state
    again = OperatorStateBackend()
    again.restore([handle], where.reader())  # type: ignore[list-item]

    assert again.list_state("l").get() == [{"offset": [1]}]


@pytest.mark.parametrize("inline_threshold_bytes", [0, 20 * 1024, 1 << 20])
def test_large_elements_come_back(inline_threshold_bytes: int) -> None:
    """Written by themselves, among small ones; the checksum of the file is that of its bytes."""
    large = bytes(range(256)) * (LARGE_BYTES // 256)
    elements = [b"first", large, large[1:], [large], b"last"]
    backend, again = OperatorStateBackend(), OperatorStateBackend()
    backend.list_state("l").add_all(elements)
    where = location(inline_threshold_bytes=inline_threshold_bytes)
    handle = run_to_completion(start(backend, where)).job_manager_state
    assert handle is not None
    where.reader().verify(handle.stream)
    again.restore([handle], where.reader())

    assert again.list_state("l").get() == elements


def test_a_large_element_is_not_copied_into_its_frame() -> None:
    """Its parts are the bytes of the frame."""
    for payload in (b"", b"small", bytes(LARGE_BYTES - 1), bytes(LARGE_BYTES)):
        parts = frame_parts(2, 0, payload)
        assert b"".join(parts) == frame(2, 0, payload)
        assert (parts[-1] is payload) == (len(payload) == LARGE_BYTES)


@pytest.mark.parametrize("vector", vectors("empty_snapshot"))
def test_a_declared_but_empty_state_has_a_handle(vector: Vector) -> None:
    """No declared state gives no handle; a declared empty one gives a real handle with the name in it."""
    declared = [f"list {number}" for number in range(vector["input"].get("registered_states", 0))]
    backend, where = OperatorStateBackend(), location()
    for name in declared:
        backend.list_state(name)
    handle = run_to_completion(start(backend, where)).job_manager_state

    assert (handle is not None) is bool(declared) is (vector["expect"]["handle"] == "present")
    if handle is None:
        return
    assert vector["expect"]["restored_entries"] == 0
    again = OperatorStateBackend()
    again.restore([handle], where.reader())
    assert handle.states == dict.fromkeys(declared, StateOffsets(OperatorStateMode.SPLIT_DISTRIBUTE, ()))
    assert again.state_names() == declared


def test_a_handle_can_be_cut_and_dealt_out() -> None:
    """Handles with some of the offsets restore those elements only, in the order given, from several files."""
    parts = []
    for start_at in (0, 10):
        backend = OperatorStateBackend()
        backend.list_state("l").add_all(range(start_at, start_at + 3))
        backend.union_list_state("u").add(start_at)
        parts.append(take(backend))

    def cut(which: int, *elements: int) -> OperatorStateHandle:
        handle = parts[which][0]
        offsets = handle.states["l"].offsets
        kept = StateOffsets(OperatorStateMode.SPLIT_DISTRIBUTE, tuple(offsets[one] for one in elements))
        return handle.with_states({"u": handle.states["u"], "l": kept})

    target = OperatorStateBackend()
    target.restore([cut(0, 2)], parts[0][1])
    target.restore([cut(1, 0, 2)], parts[1][1])

    assert target.list_state("l").get() == [2, 10, 12]
    assert target.union_list_state("u").get() == [0, 10]


@pytest.mark.parametrize("declared", MODES)
@pytest.mark.parametrize("written", MODES)
def test_a_name_keeps_its_mode(declared: str, written: str) -> None:
    """A name declared in one mode takes over no state of another, neither from the program nor from a snapshot."""
    backend = OperatorStateBackend()
    getattr(backend, written)("l")
    handle, reader = take(backend)
    target = OperatorStateBackend()
    getattr(target, declared)("l")
    if declared == written:
        target.restore([handle], reader)
        return
    refused = f"'l' is {MODES[declared].value} state and cannot be {MODES[written].value} state"
    with pytest.raises(StateSchemaError, match=refused):
        target.restore([handle], reader)
    with pytest.raises(StateSchemaError, match=refused):
        getattr(target, written)("l")


def test_broadcast_state_is_a_map() -> None:
    """Every operation of a map; iteration is by encoded key, whatever the order of insertion."""
    state = OperatorStateBackend().broadcast_state("b")
    assert (state.is_empty(), state.get("x"), state.contains("x"), state.entries()) == (True, None, False, [])
    state.put("x", 1)
    state.put_all({"b": 2, "a": 3})
    state.put("x", 4)
    state.remove("b")
    state.remove("nothing")

    assert state.entries() == [("a", 3), ("x", 4)]
    assert (state.keys(), state.values()) == (["a", "x"], [3, 4])
    assert (state.is_empty(), state.get("x"), state.contains("x")) == (False, 4, True)
    state.clear()
    assert (state.is_empty(), state.keys()) == (True, [])


def test_broadcast_state_is_one_element_behind_the_lists() -> None:
    """The file holds the lists first, whatever the names; a broadcast state has one offset, even without entries."""
    backend, where = OperatorStateBackend(), location()
    backend.broadcast_state("a").put_all({(1, "t"): [1], (0, "t"): [2]})
    backend.broadcast_state("b")
    backend.list_state("z").add_all([1, 2])
    task = start(backend, where)
    backend.broadcast_state("a").get((1, "t")).append("later")
    handle = run_to_completion(task).job_manager_state
    assert handle is not None
    offsets = {name: one.offsets for name, one in handle.states.items()}

    assert [len(offsets[name]) for name in ("z", "a", "b")] == [2, 1, 1]
    assert [*offsets["z"], *offsets["a"], *offsets["b"]] == sorted(at for one in offsets.values() for at in one)
    again = OperatorStateBackend()
    again.restore([handle], where.reader())
    assert again.broadcast_state("a").entries() == [((0, "t"), [2]), ((1, "t"), [1])]
    assert again.broadcast_state_names() == ["a", "b"]
    assert again.state_names() == ["z"]


def test_the_bytes_of_a_broadcast_state_do_not_depend_on_the_order_of_insertion() -> None:
    """Equal maps give equal fingerprints and equal files."""
    digests, files = [], []
    for order in ([3, 1, 2], [2, 3, 1]):
        backend = OperatorStateBackend()
        backend.broadcast_state("b").put_all({key: str(key) for key in order})
        digests.append(backend.fingerprint())
        files.append(take(backend)[0].stream)

    assert digests[0] == digests[1]
    assert files[0] == files[1]
    backend.broadcast_state("b").put(4, "4")
    assert backend.fingerprint() != digests[0]


def test_none_is_refused_before_any_change() -> None:
    """A None element leaves the list as it was; a list that was read is a copy."""
    state = OperatorStateBackend().list_state("l")
    state.add(1)
    state.get().append(2)
    for change in (lambda: state.add(None), lambda: state.update([5, None])):
        with pytest.raises(StateArgumentError, match="element that is None"):
            change()

    assert state.get() == [1]


def test_an_element_that_cannot_be_written_fails_the_sync_part() -> None:
    """The error names state, index and path."""
    backend = OperatorStateBackend()
    backend.list_state("l").add_all([0, {"a": {1}}])
    with pytest.raises(StateSerializationError, match=r"^operator state 'l'\[1\]\['a'\] cannot be written"):
        backend.sync_prepare_resources(1)


def test_a_cancelled_snapshot_leaves_nothing() -> None:
    """Cancelling between states deletes the file and releases the copy."""
    backend, where = OperatorStateBackend(), location(inline_threshold_bytes=0)
    backend.list_state("a").add(1)
    backend.list_state("b").add(2)
    resources = backend.sync_prepare_resources(1)
    task = backend.async_snapshot(resources, where.stream_factory("o"), SnapshotOptions())
    assert task.step() is None
    assert len(list(where.file_system.walk_files("/"))) == 1
    task.cancel()

    assert resources.released
    assert list(where.file_system.walk_files("/")) == []
    assert task.status is SnapshotStatus.CANCELLED
