"""Shared pieces of the state backend tests: conformance vectors, backends, snapshots in one call."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from state_backends.api import KeyedStateBackend, SnapshotHistory
from state_backends.base import (
    LONG,
    AggregatingStateDescriptor,
    BackgroundWork,
    KeyGroupRange,
    KeyType,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from state_backends.files import MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.snapshots import (
    CheckpointLocation,
    CheckpointStorage,
    KeyedStateHandle,
    SnapshotOptions,
    StateReader,
    run_to_completion,
)

VECTOR_FILE = Path(__file__).parent.parent / "conformance" / "data" / "coordinator.json"

VALUE = ValueStateDescriptor("value")
LIST = ListStateDescriptor("list")
MAP = MapStateDescriptor("map")
SUM = ReducingStateDescriptor("sum", lambda total, value: total + value)


def _append(accumulator: list[Any], value: Any) -> list[Any]:
    accumulator.append(value)
    return accumulator


COLLECT = AggregatingStateDescriptor("collect", list, _append, tuple, lambda a, b: a + b)
"""Aggregates in place, so that a snapshot that shares accumulators is found out."""


@functools.cache
def _all_vectors() -> list[dict[str, Any]]:
    with VECTOR_FILE.open() as file:
        vectors: list[dict[str, Any]] = json.load(file)["vectors"]
    return vectors


def vectors(kind: str) -> list[Any]:
    """The conformance vectors of one kind, as pytest parameters; there is at least one."""
    import pytest

    found = [pytest.param(one, id=one["name"]) for one in _all_vectors() if one["kind"] == kind]
    assert found, f"no conformance vector of kind {kind}"
    return found


def heap(
    key_type: KeyType | None = LONG, max_parallelism: int = 8, first: int = 0, last: int | None = None, **options: Any
) -> HeapKeyedStateBackend:
    groups = KeyGroupRange(first, max_parallelism - 1 if last is None else last)
    return HeapKeyedStateBackend(key_type, max_parallelism, groups, **options)


class _Untold:
    """For backends without a history: their tasks tell them of no checkpoint."""

    def complete(self, checkpoint_id: int) -> None: ...

    def abort(self, checkpoint_id: int) -> None: ...

    def subsumed(self, checkpoint_id: int) -> None: ...


def told(backend: KeyedStateBackend) -> SnapshotHistory:
    """The part of a backend that its task notifies of the ends of checkpoints."""
    return backend.history or _Untold()


def location(checkpoint_id: int = 1, inline_threshold_bytes: int = 20 * 1024) -> CheckpointLocation:
    """A checkpoint location in a fresh memory file system."""
    storage = CheckpointStorage(MemoryFileSystem(), "/storage", "job", inline_threshold_bytes=inline_threshold_bytes)
    return storage.initialize_location(checkpoint_id)


def take_snapshot(
    backend: HeapKeyedStateBackend, options: SnapshotOptions | None = None, inline_threshold_bytes: int = 1 << 20
) -> tuple[KeyedStateHandle | None, StateReader]:
    where = location(inline_threshold_bytes=inline_threshold_bytes)
    task = backend.async_snapshot(
        backend.sync_prepare_resources(1), where.stream_factory("state"), options or SnapshotOptions()
    )
    return run_to_completion(task).job_manager_state, where.reader()


def snapshot_bytes(backend: HeapKeyedStateBackend, options: SnapshotOptions | None = None) -> bytes:
    """The bytes that a snapshot writes; empty without state."""
    handle, reader = take_snapshot(backend, options)
    if handle is None:
        return b""
    with reader.open(handle.stream) as file:
        return file.read()


def restored(
    handle: KeyedStateHandle | None, reader: StateReader, like: HeapKeyedStateBackend
) -> HeapKeyedStateBackend:
    """A fresh backend like another, with the state of a snapshot."""
    backend = HeapKeyedStateBackend(like.key_type, like.max_parallelism, like.key_group_range)
    backend.restore([] if handle is None else [handle], reader)
    return backend


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
)

map_keys = st.recursive(
    st.one_of(st.integers(-(1 << 63), (1 << 64) - 1), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.tuples(inner, inner),
    max_leaves=4,
)

values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(map_keys, inner, max_size=4),
    ),
    max_leaves=12,
)
"""Any value that may stand in state."""


class DeferredExecutor:
    """An executor that keeps its work until it is asked to do some."""

    def __init__(self) -> None:
        self.waiting: list[BackgroundWork] = []

    def submit(self, work: BackgroundWork) -> None:
        self.waiting.append(work)

    def step(self) -> None:
        if self.waiting and self.waiting[0].step() is None:
            del self.waiting[0]

    def run(self) -> None:
        while self.waiting:
            self.step()

    def cancel(self) -> None:
        """Give everything up, as at the end of a task."""
        for work in self.waiting:
            work.cancel()
        self.waiting.clear()


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal including the types of all their parts and the order of dicts."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, float):
        return left.hex() == right.hex()
    equal: bool = left == right
    return equal
