"""Uploads of a changelog between checkpoints: full segments and materialised snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from state_backends.snapshots import SnapshotOptions, run_to_completion
from tests.state_backends.changelog.support import FULL, World, again, complete, filled
from tests.state_backends.support import VALUE, DeferredExecutor, told


def test_full_segments_are_uploaded_before_the_checkpoint() -> None:
    """The asynchronous part has only the tail left to do: one step for that, one for the result."""
    world = World()
    queue = DeferredExecutor()
    backend = world.backend(executor=queue, segment_bytes=500)
    state = backend.value_state(VALUE)
    for number in range(100):
        state.update_many([number], ["x" * 50])
    queue.run()
    uploaded = len(world.shared_files())
    assert uploaded >= 10
    task = world.begin(backend, 1)
    assert task.step() is None
    result = task.step()
    assert result is not None
    assert len(world.shared_files()) == uploaded + 1
    assert again(world, backend).fingerprint() == backend.fingerprint()


def test_without_streams_segments_wait_for_the_checkpoint() -> None:
    """The checkpoint also makes the materialisation."""
    world = World()
    backend = world.backend(shared=False, segment_bytes=100)
    backend.value_state(VALUE).update_many(list(range(50)), list(range(50)))
    assert world.shared_files() == []
    assert backend.materialize() is None
    handle = world.checkpoint(backend, 1)
    assert handle.materialized_is_new
    assert handle.log == ()


def test_a_background_upload_that_fails_is_done_by_the_checkpoint() -> None:
    """The disk's refusal does not matter until the checkpoint meets it too."""
    world = World()
    queue = DeferredExecutor()
    backend = world.backend(executor=queue, segment_bytes=100)
    backend.value_state(VALUE).update_many(list(range(50)), list(range(50)))
    directory = f"{world.storage.job_dir}/shared"
    world.file_system.delete_tree(directory)
    queue.run()
    world.file_system.make_dirs(directory)
    assert again(world, backend).fingerprint() == backend.fingerprint()


def test_uploads_that_nobody_needs_any_more_are_not_made() -> None:
    """A segment is not uploaded if it was truncated while its upload waited."""
    world = World()
    queue = DeferredExecutor()
    backend = world.backend(executor=queue, segment_bytes=100)
    backend.value_state(VALUE).update_many(list(range(50)), list(range(50)))
    (upload,) = queue.waiting
    handle = world.checkpoint(backend, 1, FULL)
    complete(world, backend, 1, handle)
    assert upload.step() is None
    assert len(world.shared_files()) == 1


def test_materialisation_is_due_by_the_clock() -> None:
    """Each interval once; not while one is under way, not when nothing was changed, and never without an interval."""
    world = World()
    backend = filled(world, executor=DeferredExecutor(), materialization_interval_ms=100)
    assert backend.materialization_due_ms == 100
    assert backend.materialize_if_due(99) is None
    work = backend.materialize_if_due(100)
    assert work is not None
    assert work.name == "materialisation 1"
    assert backend.materialization_due_ms is None
    assert backend.materialize_if_due(200) is None
    while work.step() is not None:
        pass
    assert backend.materialization_due_ms == 200
    assert backend.materialize_if_due(250) is None
    assert backend.materialization_due_ms == 350
    never = filled(world, materialization_interval_ms=None)
    assert never.materialization_due_ms is None
    assert never.materialize_if_due(1 << 60) is None


def test_a_materialisation_given_up_is_due_at_once() -> None:
    """The log is long again after the checkpoints with that materialisation were aborted."""
    world = World()
    backend = filled(world, materialization_interval_ms=100)
    work = backend.materialize()
    assert work is not None
    while work.step() is not None:
        pass
    first = world.checkpoint(backend, 1)
    assert first.materialization_id == 1
    world.clock_ms = 5
    told(backend).abort(1)
    assert backend.materialization_due_ms == 5
    assert world.checkpoint(backend, 2).materialization_id == 0


def test_failed_materialisations_are_put_up_with_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """They leave no files, checkpoints go on, a success resets the count, and too many in a row fail the task."""
    world = World()
    backend = filled(world, executor=DeferredExecutor(), max_materialization_failures=2)

    def refuse(path: str, *, exclusive: bool = False) -> Any:
        raise PermissionError(path)

    def fail() -> int | None:
        work = backend.materialize()
        assert work is not None
        with monkeypatch.context() as patch:
            patch.setattr(world.file_system, "open_write", refuse)
            return work.step()

    assert fail() is None
    work = backend.materialize()
    assert work is not None
    while work.step() is not None:
        pass
    backend.value_state(VALUE).update_many([1], [1])
    assert fail() is None
    assert again(world, backend).fingerprint() == backend.fingerprint()
    with pytest.raises(PermissionError) as caught:
        fail()
    assert caught.value.__notes__ == ["the state could not be materialised 2 times in a row"]


def test_a_full_checkpoint_gives_up_a_running_materialisation() -> None:
    """The materialisation builds upon files that a full checkpoint must not use; all its files are deleted."""
    world = World()
    backend = filled(world, executor=DeferredExecutor())
    world.checkpoint(backend, 1, SnapshotOptions(entries_per_step=1))
    work = backend.materialize()
    assert work is not None
    work.step()
    before = len(world.shared_files())
    handle = world.checkpoint(backend, 2, FULL)
    assert (handle.materialization_id, handle.materialized_is_new) == (2, True)
    assert work.step() is None
    assert len(world.shared_files()) == before
    assert world.restored([handle], world.backend()).fingerprint() == backend.fingerprint()


def test_a_cancelled_materialisation_leaves_nothing() -> None:
    """At any step, and it does not count as a failure."""
    for steps in range(2):
        world = World()
        backend = filled(world, executor=DeferredExecutor(), max_materialization_failures=1)
        run_to_completion(world.begin(backend, 1, SnapshotOptions(entries_per_step=1)))
        files = world.shared_files()
        work = backend.materialize()
        assert work is not None
        for _ in range(steps):
            assert work.step() is not None
        work.cancel()
        work.cancel()
        assert work.step() is None
        assert world.shared_files() == files


def test_dispose_deletes_what_no_snapshot_has() -> None:
    """Segments uploaded in the background, a finished and a running materialisation; a second call does nothing."""
    world = World()
    queue = DeferredExecutor()
    backend = world.backend(executor=queue, segment_bytes=100)
    state = backend.value_state(VALUE)
    state.update_many(list(range(50)), list(range(50)))
    queue.run()
    handle = world.checkpoint(backend, 1)
    state.update_many(list(range(50)), list(range(50)))
    queue.run()
    for steps in (10, 1):
        work = backend.materialize()
        assert work is not None
        for _ in range(steps):
            work.step()
        state.update_many([1], [1])
    backend.dispose()
    backend.dispose()
    root = f"{world.storage.job_dir}/"
    assert [path.removeprefix(root) for path in world.shared_files()] == [file.path for file, _ in handle.shared()]


def test_files_are_deleted_by_the_registry_when_materialised_and_subsumed() -> None:
    """The log's files are deleted when the first checkpoint without them completes."""
    world = World()
    backend = filled(world)
    complete(world, backend, 1, world.checkpoint(backend, 1))
    assert len(world.shared_files()) == 1
    work = backend.materialize()
    assert work is not None
    while work.step() is not None:
        pass
    handle = world.checkpoint(backend, 2)
    assert len(world.shared_files()) == 2
    complete(world, backend, 2, handle)
    assert len(world.shared_files()) == 1
    assert world.restored([handle], world.backend()).fingerprint() == backend.fingerprint()
