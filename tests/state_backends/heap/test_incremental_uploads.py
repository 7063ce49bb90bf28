"""Incremental checkpoints of the heap backend: which key groups are uploaded, and which are referred to."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import initialize, invariant, rule

from state_backends.files import MemoryFileSystem
from state_backends.snapshots import (
    CheckpointStorage,
    FileStateHandle,
    FullKeyedStateHandle,
    FullSnapshotTask,
    SnapshotOptions,
    SnapshotType,
    StateScope,
    run_to_completion,
)
from state_backends.snapshots.keyed_handles import keyed_handle_from_state
from tests.state_backends.heap.incremental_support import (
    CANONICAL,
    GROUPS,
    VALUE,
    fill,
    groups_of,
    heap,
    job_over,
    put,
    restored,
    strategy_of,
)
from tests.state_backends.rows.life import LifeOfCheckpoints
from tests.state_backends.rows.support import CHECKPOINT, FULL, SAVEPOINT

# --- what is uploaded -------------------------------------------------------------------------------------------------


def test_the_first_checkpoint_uploads_every_key_group_with_entries() -> None:
    """One shared file for each, whole in itself, beside the meta data of the checkpoint."""
    backend = heap()
    put(backend, 1, "one")
    put(backend, 2, "two")
    job = job_over(backend)
    handle = job.checkpoint(1)

    assert (handle.store, handle.backend_id, handle.private_files) == ("heap", "u", ())
    assert len(groups_of(handle, uploaded=True)) == len({file.name for file in handle.shared_files}) == 2
    assert all(one.is_new for one in handle.shared())
    assert len(job.shared_files()) == 2
    assert isinstance(handle.meta, FileStateHandle)
    assert handle.meta.scope is StateScope.EXCLUSIVE
    assert keyed_handle_from_state(handle.to_state()) == handle
    job.verify()


def test_the_next_checkpoint_uploads_what_has_changed() -> None:
    """Other key groups are referred to; a key group without entries any more is gone; reading changes nothing."""
    backend = heap()
    fill(backend)
    job = job_over(backend)
    job.checkpoint(1)
    for key in range(60):
        backend.set_current_key(key)
        backend.value_state(VALUE).get()
    put(backend, 5, "changed")

    second = job.checkpoint(2)
    assert len(groups_of(second, uploaded=True)) == 1
    assert len(groups_of(second, uploaded=False)) == GROUPS - 1
    assert second.persisted_bytes < second.size_bytes
    assert groups_of(job.checkpoint(3), uploaded=True) == []
    job.verify()
    assert restored([job.retained[3]], job.storage.reader(3)).fingerprint() == backend.fingerprint()  # type: ignore[list-item]


def test_a_key_group_without_entries_is_left_out() -> None:
    """Its file belongs to no later checkpoint and is deleted with the last that has it."""
    backend = heap()
    put(backend, 1, "one")
    put(backend, 2, "two")
    job = job_over(backend)
    job.checkpoint(1)
    put(backend, 1, None)

    handle = job.checkpoint(2)
    assert len(handle.shared_files) == len(job.shared_files()) == 1
    job.verify()


def test_without_entries_there_is_no_file_and_no_base() -> None:
    """S6; checkpoints after an empty one do not refer to files from before it."""
    backend = heap()
    put(backend, 1, "one")
    job = job_over(backend)
    job.checkpoint(1)
    put(backend, 1, None)
    job.start(2)
    job.upload(2)
    assert job.pending[2].handle is None
    job.acknowledge(2)
    job.complete(2)
    job.deliver_all()
    assert job.shared_files() == []
    put(backend, 1, "one")

    assert len(groups_of(job.checkpoint(3), uploaded=True)) == 1
    job.verify()


def test_a_full_checkpoint_uploads_everything_and_is_a_base() -> None:
    """I2: it refers to nothing, and the next checkpoint refers to its copies."""
    backend = heap()
    fill(backend)
    job = job_over(backend)
    job.checkpoint(1)
    full = job.checkpoint(2, FULL)
    third = job.checkpoint(3)

    assert len(groups_of(full, uploaded=True)) == GROUPS
    assert [one.stream for one in third.shared_files] == [one.stream for one in full.shared_files]
    assert groups_of(third, uploaded=True) == []
    assert len(job.shared_files()) == GROUPS


def test_a_native_savepoint_shares_nothing() -> None:
    """I2: everything of it is exclusive and uploaded, and it changes nothing for the checkpoints around it."""
    backend = heap()
    fill(backend)
    job = job_over(backend)
    job.checkpoint(1)
    job.start(2, SAVEPOINT)
    job.upload(2)
    savepoint = job.pending.pop(2).handle
    assert savepoint is not None
    job.strategy.history.complete(2)

    assert list(savepoint.shared()) == []
    assert len(groups_of(savepoint, uploaded=True)) == GROUPS
    assert restored([savepoint], job.storage.reader(2)).fingerprint() == backend.fingerprint()
    assert groups_of(job.checkpoint(3), uploaded=True) == []


def test_a_canonical_savepoint_is_in_the_full_format() -> None:
    """The same bytes as from a backend that is not incremental."""
    found = []
    for incremental in (False, True):
        backend = heap(incremental=incremental)
        fill(backend)
        options = SnapshotOptions(CANONICAL)
        strategy = backend.snapshot_strategy(options)
        storage = CheckpointStorage(MemoryFileSystem(), "/storage", "job")
        streams = storage.initialize_location(1).stream_factory("s")
        task = strategy.async_snapshot(strategy.sync_prepare_resources(1), streams, options)
        assert isinstance(task, FullSnapshotTask)
        handle = run_to_completion(task).job_manager_state
        assert isinstance(handle, FullKeyedStateHandle)
        with storage.reader(1).open(handle.stream) as file:
            found.append(file.read())
    assert found[0] == found[1]


def test_other_compression_is_other_bytes() -> None:
    """A key group written with another compression is no base for this one."""
    backend = heap()
    fill(backend)
    job = job_over(backend)
    job.checkpoint(1)
    location = job.storage.initialize_location(2)
    options = SnapshotOptions(CHECKPOINT, compression="zlib")
    strategy = strategy_of(backend)
    task = strategy.async_snapshot(strategy.sync_prepare_resources(2), location.stream_factory("z"), options)
    handle = run_to_completion(task).job_manager_state

    assert len(groups_of(handle, uploaded=True)) == GROUPS
    assert restored([handle], location.reader()).fingerprint() == backend.fingerprint()


# --- confirmations ----------------------------------------------------------------------------------------------------


def test_what_is_not_confirmed_is_uploaded_again() -> None:
    """I4: two concurrent checkpoints hold two copies of each key group."""
    backend = heap()
    fill(backend)
    job = job_over(backend)
    for number in (1, 2):
        job.start(number)
    for number in (1, 2):
        job.upload(number)

    assert groups_of(job.pending[2].handle, uploaded=True) == list(range(GROUPS))  # type: ignore[arg-type]
    assert len(job.shared_files()) == 2 * GROUPS


def test_content_that_comes_back_is_no_reference_to_a_deleted_file() -> None:
    """A, then B, then A again, and the confirmation of B is lost: the copy of the first A was deleted with it."""
    backend = heap()
    job = job_over(backend)
    put(backend, 1, "A")
    job.checkpoint(1)
    put(backend, 1, "B")
    job.start(2)
    job.rest_of(2)
    job.deliver_all(lost=True)
    put(backend, 1, "A")

    assert len(groups_of(job.checkpoint(3), uploaded=True)) == 1
    job.verify()


def test_content_that_came_back_after_a_failed_checkpoint_is_referred_to() -> None:
    """The checkpoint between has failed, so it cannot have deleted anything."""
    backend = heap()
    job = job_over(backend)
    put(backend, 1, "A")
    job.checkpoint(1)
    put(backend, 1, "B")
    job.start(2)
    job.upload(2)
    job.abort(2)
    job.deliver_all()
    put(backend, 1, "A")

    assert groups_of(job.checkpoint(3), uploaded=True) == []
    job.verify()


def test_a_checkpoint_that_fails_meanwhile_does_not_count() -> None:
    """Begun between base and this one, and aborted before this one looks at its key groups: no harm any more."""
    backend = heap()
    job = job_over(backend)
    put(backend, 1, "A")
    job.checkpoint(1)
    job.start(2)
    job.start(3)
    job.abort(2)
    job.deliver_all()
    job.upload(3)

    assert groups_of(job.pending[3].handle, uploaded=True) == []  # type: ignore[arg-type]
    assert [one.checkpoint_id for one in strategy_of(backend).history._begun] == [3]


def test_a_checkpoint_still_under_way_may_be_the_end_of_a_copy() -> None:
    """It may turn out to hold anything: a later one that overtakes it does not rely on the copy of the base."""
    backend = heap()
    job = job_over(backend)
    put(backend, 1, "A")
    job.checkpoint(1)
    put(backend, 1, "B")
    job.start(2)
    put(backend, 1, "A")
    job.start(3)
    job.upload(3)
    assert len(groups_of(job.pending[3].handle, uploaded=True)) == 1  # type: ignore[arg-type]
    for number in (2, 3):
        if number == 2:
            job.upload(2)
        job.acknowledge(number)
    job.complete(2)
    job.complete(3)
    job.verify()


def test_the_hazard_of_two_copies_does_not_exist_here() -> None:
    """H1: a key group's copy that an unconfirmed checkpoint deletes is not referred to by the next one."""
    backend = heap()
    put(backend, 1, "g")
    job = job_over(backend)
    for number in (1, 2):
        job.start(number)
        job.upload(number)
        job.acknowledge(number)
    job.complete(1)
    job.deliver_all()
    job.complete(2)

    job.start(3)
    job.rest_of(3)
    job.verify()
    assert len(groups_of(job.retained[3], uploaded=True)) == 1  # type: ignore[arg-type]


def test_resources_that_never_became_a_task_do_not_count() -> None:
    """S3: the caller releases them, and later checkpoints have the base that they had."""
    backend = heap()
    put(backend, 1, "A")
    job = job_over(backend)
    job.checkpoint(1)
    strategy_of(backend).sync_prepare_resources(2).release()

    assert groups_of(job.checkpoint(3), uploaded=True) == []
    strategy_of(backend).history.validate()


class Life(LifeOfCheckpoints):
    """State that changes back and forth."""

    @initialize(retain=st.integers(1, 2))
    def begin(self, retain: int) -> None:
        self.backend = heap()
        self.begin_with(job_over(self.backend, retain))
        self.states: dict[int, bytes] = {}

    @rule(key=st.integers(0, 1), value=st.sampled_from(["A", "B", None]))
    def write(self, key: int, value: str | None) -> None:
        put(self.backend, key, value)

    @rule(snapshot_type=st.sampled_from([CHECKPOINT, CHECKPOINT, CHECKPOINT, FULL]))
    def start(self, snapshot_type: SnapshotType) -> None:
        state = self.backend.fingerprint()
        self.states[self.start_one(snapshot_type)] = state

    @rule(value=st.sampled_from(["A", "B"]), is_lost=st.booleans())
    def whole_checkpoint(self, value: str, is_lost: bool) -> None:
        """One from beginning to end; its notices arrive at once, or never."""
        self.write(1, value)
        number = self.next_id
        self.start(CHECKPOINT)
        self.job.rest_of(number)
        self.job.deliver_all(lost=is_lost)

    @invariant()
    def what_is_retained_is_whole(self) -> None:
        if not self.has_begun:
            return
        strategy_of(self.backend).history.validate()
        for number, handle in self.job.retained.items():
            handles = [] if handle is None else [handle]
            again = restored(handles, self.job.storage.reader(number))
            assert again.fingerprint() == self.states[number]


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
