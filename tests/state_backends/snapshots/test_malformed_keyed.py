"""Keyed and operator state that is well framed and malformed inside: refused with an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from state_backends.api import OperatorStateBackend
from state_backends.codec import default_codec
from state_backends.snapshots import (
    ByteStreamStateHandle,
    OperatorStateHandle,
    SnapshotOptions,
    SnapshotType,
    run_to_completion,
)
from state_backends.store.meta import StoreMeta
from tests.malformed import framed_variants
from tests.state_backends.differential.backends import World
from tests.state_backends.differential.test_snapshots import fill
from tests.state_backends.snapshots.test_channel_state import Substitute
from tests.state_backends.snapshots.test_malformed import tried
from tests.state_backends.support import location


def framed_streams(world: World, name: str, type_: SnapshotType) -> Iterator[tuple[Any, ...]]:
    """A snapshot of a backend with an entry or two in state of each kind: by file, the handle and the bytes."""
    backend = fill(world.backend(name, max_parallelism=2), keys=2)
    taken = world.snapshot(backend, SnapshotOptions(type_))
    (handle,) = taken.handles
    for stream in handle.streams():
        with taken.reader.open(stream) as file:
            data = file.read()
        if data.startswith(b"WEIR") and not data.startswith(b"WEIRLSM"):
            yield handle, taken.reader, stream, data


@pytest.mark.parametrize(
    ("name", "type_", "every"),
    [
        ("heap", SnapshotType.CHECKPOINT, 1),
        ("heap, incremental", SnapshotType.CHECKPOINT, 2),
        ("changelog", SnapshotType.CHECKPOINT, 5),
        pytest.param("lsm", SnapshotType.CANONICAL_SAVEPOINT, 1, marks=pytest.mark.slow),
        pytest.param("lsm", SnapshotType.CHECKPOINT, 1, marks=pytest.mark.slow),
        pytest.param("changelog over lsm", SnapshotType.CHECKPOINT, 1, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_keyed_state_that_is_malformed_inside_is_refused(name: str, type_: SnapshotType, every: int) -> None:
    """With any node of a file replaced, the state is restored with it, or refused by an error of ours."""
    world, seen = World(), 0
    for handle, reader, stream, data in framed_streams(world, name, type_):
        seen += 1

        def read(other: bytes, handle: Any = handle, reader: Any = reader, stream: Any = stream) -> None:
            changed = handle.with_streams(lambda one: ByteStreamStateHandle(other) if one == stream else one)
            backend = world.backend(name, max_parallelism=2)
            try:
                backend.restore([changed], reader)
                backend.fingerprint()
            finally:
                backend.dispose()

        files = list(framed_variants(data))[::every]
        assert tried(read, files, "") > 0.3 * len(files)
    assert seen


def test_what_the_rows_of_a_store_mean_is_checked() -> None:
    """Key type, key groups, states and schema."""
    world = World()
    (data,) = (one[3] for one in framed_streams(world, "lsm, incremental", SnapshotType.CHECKPOINT))
    files = list(framed_variants(data))
    refused = tried(lambda other: StoreMeta.from_bytes(other, "meta", default_codec()), files, "meta")
    assert refused > 0.7 * len(files)


def test_operator_state_that_is_malformed_inside_is_refused() -> None:
    """List, union list and broadcast state."""
    backend = OperatorStateBackend()
    backend.list_state("split").update([1, "two"])
    backend.union_list_state("union").update([(3, 4)])
    backend.broadcast_state("broadcast").put("key", [5])
    where = location()
    resources = backend.sync_prepare_resources(1)
    task = backend.async_snapshot(resources, where.stream_factory("s"), SnapshotOptions())
    handle = run_to_completion(task).job_manager_state
    assert isinstance(handle, OperatorStateHandle)
    with where.reader().open(handle.stream) as file:
        data = file.read()

    def read(other: bytes) -> None:
        again = OperatorStateBackend()
        again.restore([handle], Substitute(other))
        again.fingerprint()

    files = list(framed_variants(data))
    assert tried(read, files, "") > 0.3 * len(files)
