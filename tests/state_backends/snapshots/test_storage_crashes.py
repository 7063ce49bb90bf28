"""A checkpoint exists whole or not at all, whichever call the process dies at and whatever the disk kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from state_backends.base import KeyGroupRange
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, FileSystem, MemoryFileSystem
from state_backends.files.faulty import SimulatedCrashError
from state_backends.snapshots import (
    CheckpointMetadata,
    CheckpointStorage,
    FullKeyedStateHandle,
    OperatorSnapshot,
    StateScope,
    SubtaskSnapshot,
)


def storage(fs: FileSystem) -> CheckpointStorage:
    """Storage in which every piece of state is a file."""
    return CheckpointStorage(fs, "/base", "job", inline_threshold_bytes=0)


def run_once(fs: FileSystem) -> CheckpointStorage:
    """One start: the incarnation, then the next checkpoint with an exclusive and a shared file."""
    of = storage(fs)
    incarnation = of.next_incarnation()
    of.discard_leftovers()
    checkpoint_id = of.highest_checkpoint_id() + 1
    where = of.initialize_location(checkpoint_id)
    factory = where.stream_factory(f"op-0-{incarnation}")
    subtasks = {}
    for index, scope in enumerate((StateScope.EXCLUSIVE, StateScope.SHARED)):
        stream = factory.create_stream(scope)
        stream.write(f"state {incarnation}".encode())
        handle = stream.close_and_get_handle()
        assert handle is not None
        subtasks[index] = SubtaskSnapshot(FullKeyedStateHandle(KeyGroupRange(index, index), (), handle))
    operators = (OperatorSnapshot("op", "op", 2, 2, subtasks),)
    where.write_metadata(CheckpointMetadata(checkpoint_id, 0, incarnation, {}, operators))
    return of


def all_crash_points() -> list[tuple[int, FileFault]]:
    """Before and after every call of the second of two runs."""
    memory = MemoryFileSystem()
    run_once(memory)
    undisturbed = FaultInjectingFileSystem(memory)
    run_once(undisturbed)
    calls = range(1, len(undisturbed.calls) + 1)
    return [(at_call, kind) for at_call in calls for kind in (FileFault.CRASH_BEFORE, FileFault.CRASH_AFTER)]


CRASH_POINTS = all_crash_points()


def crash_in_second_run(
    at_call: int, kind: FileFault, survives: Callable[[str], bool] | None
) -> tuple[MemoryFileSystem, int]:
    """Two runs, the second of which dies; how many checkpoints are there afterwards."""
    memory = MemoryFileSystem()
    run_once(memory)
    with pytest.raises(SimulatedCrashError):
        run_once(FaultInjectingFileSystem(memory, [FaultRule(kind, at_call=at_call)]))
    memory.crash(survives)
    of = storage(memory)
    for checkpoint_id in of.list_checkpoints():
        of.verify(checkpoint_id)
    assert of.list_checkpoints() in ([1], [1, 2])
    usable = of.latest_usable()
    assert usable.problems == []
    return memory, len(of.list_checkpoints())


@pytest.mark.parametrize(
    "survives",
    [None, lambda path: True, lambda path: "_metadata" in path],
    ids=["nothing", "everything", "only the metadata"],
)
def test_a_checkpoint_is_whole_or_absent(survives: Callable[[str], bool] | None) -> None:
    """At every call, before and after, with the disk keeping nothing, everything or just the metadata."""
    outcomes = [crash_in_second_run(*point, survives)[1] for point in CRASH_POINTS]

    # It comes into existence at one point and stays.
    assert outcomes == sorted(outcomes)
    assert outcomes[0] == 1
    assert outcomes[-1] == 2


@given(st.sampled_from(CRASH_POINTS), st.randoms(use_true_random=False))
def test_a_checkpoint_is_whole_or_absent_whatever_the_disk_kept(point: tuple[int, FileFault], random: object) -> None:
    """The disk may keep any subset of what was not made durable."""
    crash_in_second_run(*point, lambda path: random.random() < 0.5)  # type: ignore[attr-defined]


@given(st.sampled_from(CRASH_POINTS), st.booleans())
def test_after_a_crash_the_next_run_goes_on(point: tuple[int, FileFault], everything_survives: bool) -> None:
    """The next run gets a fresh incarnation, uses no name twice, and completes its checkpoint."""
    memory, before = crash_in_second_run(*point, (lambda path: True) if everything_survives else None)
    seen = storage(memory).incarnation()
    of = run_once(memory)
    assert of.incarnation() == seen + 1

    newest = of.latest_usable().metadata
    assert newest is not None
    assert newest.incarnation == seen + 1
    assert len(of.list_checkpoints()) == before + 1
    orphans = [path for path in memory.walk_files("/base/job") if path.endswith(".inprogress")]
    assert orphans == []


@pytest.mark.parametrize("kind", [FileFault.ERROR_BEFORE, FileFault.ERROR_AFTER, FileFault.DISK_FULL])
def test_an_io_error_at_any_call_never_leaves_a_broken_checkpoint(kind: FileFault) -> None:
    """When any one call fails, what is listed afterwards can be verified."""
    calls = max(at_call for at_call, _ in CRASH_POINTS)
    failures = 0
    for at_call in range(1, calls + 1):
        memory = MemoryFileSystem()
        run_once(memory)
        try:
            run_once(FaultInjectingFileSystem(memory, [FaultRule(kind, at_call=at_call)]))
        except Exception:
            failures += 1
        memory.crash(lambda path: True)
        of = storage(memory)
        for checkpoint_id in of.list_checkpoints():
            of.verify(checkpoint_id)
        assert of.latest_usable().problems == []

    assert failures > calls / 3
