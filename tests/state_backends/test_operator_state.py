"""Operator state: lists by name and mode, copied at the sync point, each element with its offset."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state_backends.errors import StateArgumentError, StateSchemaError, StateSerializationError
from state_backends.handles import OperatorStateHandle, OperatorStateMode, StateOffsets
from state_backends.operator_state import OperatorSnapshotTask, OperatorStateBackend
from state_backends.snapshot import SnapshotOptions, SnapshotResult, StateReader, run_to_completion

from .support import location, same, values, vectors

Vector = dict[str, Any]


def start(backend: OperatorStateBackend, where: Any) -> OperatorSnapshotTask:
    """The task of a new snapshot."""
    resources = backend.sync_prepare_resources(1)
    return backend.async_snapshot(resources, 1, 0, where.stream_factory("o"), SnapshotOptions())


def take(backend: OperatorStateBackend) -> tuple[OperatorStateHandle, StateReader]:
    """Snapshot in one go."""
    where = location()
    handle = run_to_completion(start(backend, where)).job_manager_state
    assert handle is not None
    return handle, where.reader()


@pytest.mark.parametrize("vector", vectors("operator_state_backend"))
def test_list_states_are_those_of_flink(vector: Vector) -> None:
    """The list part of Flink's scenarios: modes, order, isolation of the snapshot."""
    backend, where = OperatorStateBackend(), location()
    task: OperatorSnapshotTask | None = None
    broadcast = {op["name"] for op in vector["input"]["ops"] if op["op"] == "get_broadcast"}
    result: Any = None
    for op in vector["input"]["ops"]:
        name = op.get("name")
        if name in broadcast:
            continue
        if op["op"] in ("get_list", "get_union"):
            get = backend.list_state if op["op"] == "get_list" else backend.union_list_state
            if "expect_error" in op:
                with pytest.raises(StateSchemaError, match=f"{name!r} is .* cannot be"):
                    get(name)
            else:
                get(name)
        elif op["op"] == "add":
            _any(backend, name).add_all(op["values"])
        elif op["op"] == "mutate_each":
            _any(backend, name).update([one + op["plus"] for one in _any(backend, name).get()])
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

    assert vector["expect"]["values"] == {name: _any(backend, name).get() for name in backend.state_names()}
    assert vector["expect"]["registered_names"] == len(backend.state_names())


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


@pytest.mark.parametrize("vector", vectors("empty_snapshot"))
def test_a_declared_but_empty_state_has_a_handle(vector: Vector) -> None:
    """No declared state gives no handle; a declared empty one gives a real handle with the name in it."""
    assert vector["expect"] == {"handle": "present", "restored_entries": 0}
    backend = OperatorStateBackend()
    backend.list_state("l")
    handle, reader = take(backend)
    again = OperatorStateBackend()
    again.restore([handle], reader)

    assert handle.states == {"l": StateOffsets(OperatorStateMode.SPLIT_DISTRIBUTE, ())}
    assert again.state_names() == ["l"]


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


def test_restoring_under_another_mode_is_refused() -> None:
    """A name declared as union cannot take over split elements."""
    backend = OperatorStateBackend()
    backend.list_state("l").add(1)
    handle, reader = take(backend)
    target = OperatorStateBackend()
    target.union_list_state("l")
    with pytest.raises(StateSchemaError, match="'l' is union state and cannot be split state"):
        target.restore([handle], reader)


def test_none_is_refused_before_any_change() -> None:
    """A None element leaves the list as it was; what was got is a copy."""
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
    """Cancelling between lists deletes the file and releases the copy."""
    backend, where = OperatorStateBackend(), location(inline_threshold_bytes=0)
    backend.list_state("a").add(1)
    backend.list_state("b").add(2)
    resources = backend.sync_prepare_resources(1)
    task = backend.async_snapshot(resources, 1, 0, where.stream_factory("o"), SnapshotOptions())
    assert task.step() is None
    assert len(list(where._fs.walk_files("/"))) == 1
    task.cancel()

    assert resources.released
    assert list(where._fs.walk_files("/")) == []
    assert task.fingerprint() == ("cancelled", 1)
