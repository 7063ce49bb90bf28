"""Incremental checkpoints of the heap backend: restore, damage, cancelling and failing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from state_backends.base import LONG, CorruptStateError, KeyGroupRange, MissingStateError, StateSchemaError
from state_backends.codec import StateCodec, TypeRegistry, register_record_type
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.lsm import LsmStateBackend
from state_backends.snapshots import (
    CheckpointStorage,
    FileStateHandle,
    IncrementalKeyedStateHandle,
    SnapshotOptions,
    SnapshotType,
    StateScope,
    run_to_completion,
)
from state_backends.snapshots.contract import SnapshotStatus
from tests.state_backends.heap.incremental_support import (
    GROUPS,
    environment,
    fill,
    groups_of,
    heap,
    job_over,
    put,
    restored,
    strategy_of,
)
from tests.state_backends.rows.support import CHECKPOINT, FULL, SAVEPOINT, Job, files_below

# --- restore ----------------------------------------------------------------------------------------------------------


def checkpointed(file_system: MemoryFileSystem | None = None) -> tuple[HeapKeyedStateBackend, Job, Any]:
    """A backend in two checkpoints, the second of which refers to most files of the first."""
    backend = heap()
    fill(backend)
    job = job_over(backend, file_system=file_system)
    job.checkpoint(1)
    put(backend, 5, "changed")
    return backend, job, job.checkpoint(2)


def test_restored_to_the_same_key_groups_it_carries_on() -> None:
    """I8: identity and base carry over, so the next checkpoint refers to files from before."""
    _, job, handle = checkpointed()
    again = restored([handle], job.storage.reader(2))
    put(again, 7, "changed")
    job.strategy, job.attempt = strategy_of(again), 1
    third = job.checkpoint(3)

    assert third.backend_id == handle.backend_id == "u"
    assert len(groups_of(third, uploaded=True)) == 1
    job.verify()


@pytest.mark.parametrize("change", ["rescaled", "moved", "another form", "savepoint"])
def test_otherwise_it_begins_anew(change: str) -> None:
    """Other key groups, files that are no shared ones of this job, or another form of snapshot: no base."""
    backend, job, handle = checkpointed()
    first = 0
    if change == "rescaled":
        first = 1
    elif change == "moved":
        handle = handle.with_streams(
            lambda stream: FileStateHandle(
                f"{job.storage.job_dir}/{stream.path}" if stream.scope is StateScope.SHARED else stream.path,
                StateScope.EXCLUSIVE,
                stream.size_bytes,
                stream.checksum,
            )
        )
    else:
        job.start(3, SAVEPOINT if change == "savepoint" else CHECKPOINT)
        if change == "another form":
            job.pending[3].task.cancel()
            location = job.storage.initialize_location(4)
            task = backend.async_snapshot(
                backend.sync_prepare_resources(4), location.stream_factory("full"), SnapshotOptions()
            )
            handle = run_to_completion(task).job_manager_state
        else:
            job.upload(3)
            handle = job.pending[3].handle
    number = {"savepoint": 3, "another form": 4}.get(change, 2)
    again = restored([handle], job.storage.reader(number), first)
    job.strategy, job.attempt = strategy_of(again), 1
    job.retained.clear()

    fifth = job.checkpoint(5)
    assert groups_of(fifth, uploaded=False) == []
    assert len(groups_of(fifth, uploaded=True)) == GROUPS - first


def test_a_backend_that_is_not_incremental_reads_it_too() -> None:
    """Switching the setting off, and on again."""
    backend, job, handle = checkpointed()
    plain = restored([handle], job.storage.reader(2), incremental=False)

    assert plain.fingerprint() == backend.fingerprint()
    assert plain.snapshot_strategy(SnapshotOptions()) is plain
    assert plain.history is None


def test_another_backend_says_why_it_cannot_read_it() -> None:
    """The error names the store that wrote it and the way out."""
    _, job, handle = checkpointed()

    with pytest.raises(StateSchemaError, match=r"heap.*canonical"):
        LsmStateBackend().create_keyed_backend(environment()).restore([handle], job.storage.reader(2))


def test_what_does_not_fit_is_refused_before_anything_is_read() -> None:
    """Key type and max parallelism are compared with the meta data, records with those of the program."""
    _, job, handle = checkpointed()
    other = HeapKeyedStateBackend(LONG, GROUPS * 2, KeyGroupRange(0, GROUPS - 1))
    with pytest.raises(StateSchemaError, match="max parallelism"):
        other.restore([handle], job.storage.reader(2))
    assert other.num_entries() == 0

    class Old(tuple[Any, ...]):
        """A record with one field."""

        _fields = ("x",)

    class New(tuple[Any, ...]):
        """The same with another, which has no default."""

        _fields = ("x", "y")

    old, new = TypeRegistry(), TypeRegistry()
    register_record_type(40, Old, registry=old)
    register_record_type(40, New, registry=new)
    backend = heap(codec=StateCodec(old))
    put(backend, 1, "A")
    job = job_over(backend)
    handle = job.checkpoint(1)
    with pytest.raises(StateSchemaError, match="field 'y'"):
        restored([handle], job.storage.reader(1), codec=StateCodec(new))


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    for position in range(len(data)):
        yield f"flip at {position}", data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        yield f"cut at {position}", data[:position]


def test_any_damage_is_noticed() -> None:
    """A flipped bit or a torn end of any file, a missing one, and two that changed places."""
    file_system = MemoryFileSystem()
    backend = heap()
    put(backend, 1, "A")
    put(backend, 2, "B")
    job = job_over(backend, file_system=file_system)
    handle = job.checkpoint(1)
    reader = job.storage.reader(1)
    shared = [path for path in file_system.walk_files("/storage") if "/shared/" in path]
    assert len(shared) == 2

    def write(path: str, data: bytes) -> None:
        with file_system.open_write(path) as file:
            file.write(data)

    def is_noticed(what: str) -> None:
        try:
            restored([handle], reader)
        except (CorruptStateError, MissingStateError):
            return
        pytest.fail(f"not noticed: {what}")

    content = {path: file_system.open_read(path).read() for path in (*shared, meta_path(job, handle))}
    for path, data in content.items():
        for what, other in damaged(data):
            write(path, other)
            is_noticed(f"{path}: {what}")
        file_system.delete(path)
        is_noticed(f"{path} missing")
        write(path, data)
    write(shared[0], content[shared[1]])
    write(shared[1], content[shared[0]])
    is_noticed("swapped")
    for path, data in content.items():
        write(path, data)
    assert restored([handle], reader).fingerprint() == backend.fingerprint()


def test_a_file_of_another_checkpoint_is_noticed() -> None:
    """A key group's older file, sound in itself and of the same size, is not that of the checkpoint restored."""
    backend = heap()
    put(backend, 1, "A")
    job = job_over(backend, retain=2)
    job.checkpoint(1)
    put(backend, 1, "B")
    handle = job.checkpoint(2)
    first, second = (job.retained[number].shared_files[0].stream for number in (1, 2))  # type: ignore[union-attr]
    old, new = (job.storage.location(1).full_path(one) for one in (first, second))
    data = job.file_system.open_read(old).read()
    with job.file_system.open_write(new) as file:
        file.write(data)

    with pytest.raises(CorruptStateError, match="checksum"):
        restored([handle], job.storage.reader(2))


def meta_path(job: Job, handle: IncrementalKeyedStateHandle) -> str:
    assert isinstance(handle.meta, FileStateHandle)
    return job.storage.location(1).full_path(handle.meta)


# --- cancel and failure -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot_type", [CHECKPOINT, FULL, SAVEPOINT])
def test_cancelled_at_any_step_it_leaves_no_file(snapshot_type: SnapshotType) -> None:
    """S3, S5, I7: what it has uploaded is deleted, the base stays, and the next checkpoint builds on it."""
    steps = 0
    while True:
        file_system = MemoryFileSystem()
        backend, job, _ = checkpointed(file_system)
        put(backend, 6, "changed too")
        before = files_below(file_system, "/")
        strategy = strategy_of(backend)
        options = SnapshotOptions(snapshot_type, entries_per_step=1)
        streams = job.storage.initialize_location(3).stream_factory("third")
        task = strategy.async_snapshot(strategy.sync_prepare_resources(3), streams, options)
        if any(task.step() is not None for _ in range(steps)):
            break
        task.cancel()
        assert task.status is SnapshotStatus.CANCELLED
        assert task._resources.released
        assert [one for one in files_below(file_system, "/") if one not in before] == []
        assert len(groups_of(job.checkpoint(4), uploaded=True)) == 1
        job.verify()
        steps += 1
    assert steps == GROUPS


@pytest.mark.parametrize("operation", ["open_write", "write", "fsync", "close"])
def test_failing_at_any_call_it_leaves_no_file(operation: str) -> None:
    """I7: an upload that fails deletes everything the attempt has uploaded, and nothing of the base."""
    failures = 0
    for at_call in range(1, 40):
        file_system = MemoryFileSystem()
        backend, job, _ = checkpointed(file_system)
        job.storage.initialize_location(3)
        before = files_below(file_system, "/")
        faulty = FaultInjectingFileSystem(file_system, [FaultRule(FileFault.ERROR_AFTER, operation, at_call=at_call)])
        streams = CheckpointStorage(faulty, "/storage", "job", inline_threshold_bytes=0).location(3)
        strategy = strategy_of(backend)
        task = strategy.async_snapshot(
            strategy.sync_prepare_resources(3), streams.stream_factory("third"), SnapshotOptions(FULL)
        )
        try:
            run_to_completion(task)
        except OSError:
            failures += 1
            assert task.status is SnapshotStatus.FAILED
            assert task._resources.released
            assert files_below(file_system, "/") == before
            assert groups_of(job.checkpoint(4), uploaded=True) == []
        else:
            break
    assert failures >= GROUPS
