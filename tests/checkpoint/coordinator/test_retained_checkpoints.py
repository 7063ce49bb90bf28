"""Completed checkpoints: retention, deletion, the end of the job."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import CompletedCheckpoint, JobStatus
from engine.checkpoint.coordinator.coordinator_config import RetentionPolicy
from engine.checkpoint.coordinator.retained_checkpoints import CompletedCheckpointStore
from engine.elements.events import SnapshotKind


def entry(
    checkpoint_id: int, *, savepoint: bool = False, sync: bool = False, unclaimed: bool = False
) -> CompletedCheckpoint:
    kind = SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT
    return CompletedCheckpoint(checkpoint_id, kind, is_synchronous=sync, is_unclaimed=unclaimed)


def ids(entries: tuple[CompletedCheckpoint, ...]) -> list[int]:
    return [one.checkpoint_id for one in entries]


@pytest.mark.parametrize(
    ("policy", "deleted_when"),
    [
        (RetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION, ["FINISHED", "CANCELED", "FAILED", "SUSPENDED"]),
        (RetentionPolicy.RETAIN_ON_FAILURE, ["FINISHED", "CANCELED", "SUSPENDED"]),
        (RetentionPolicy.RETAIN_ON_CANCELLATION, ["FINISHED"]),
        (RetentionPolicy.RETAIN_ALWAYS, []),
    ],
)
def test_policies_at_the_end_of_the_job(policy: RetentionPolicy, deleted_when: list[str]) -> None:
    """Each policy deletes after exactly these ends of a job."""
    for status in JobStatus:
        store = CompletedCheckpointStore(2)
        store.add(entry(1))
        store.add(entry(2))
        gone = status.name in deleted_when
        assert store.shut_down(policy, status) == ((1, 2) if gone else ())
        assert ids(store.entries) == ([] if gone else [1, 2])


def test_unclaimed_checkpoint_is_subsumed_but_never_deleted() -> None:
    """Files of another owner are not deleted."""
    store = CompletedCheckpointStore(1)
    store.recover([entry(4, unclaimed=True)])

    assert ids(store.add(entry(5))) == [4]
    assert store.take_deletable() == ()


def test_recovered_entries_are_sorted_and_not_subsumed() -> None:
    """All checkpoints of an earlier process are taken over; the next completion deletes what is too old."""
    store = CompletedCheckpointStore(1)
    store.recover([entry(3), entry(1)])

    assert ids(store.entries) == [1, 3]
    assert store.latest_id == 3
    assert ids(store.add(entry(4))) == [1, 3]
    assert store.take_deletable() == (1, 3)


def test_rewinding_forgets_what_could_not_be_restored() -> None:
    """Entries above the restored one are dropped without being deleted."""
    store = CompletedCheckpointStore(3)
    for checkpoint_id in (1, 2, 3):
        store.add(entry(checkpoint_id))

    store.rewind_to(2)

    assert ids(store.entries) == [1, 2]
    assert store.take_deletable() == ()
    store.rewind_to(None)
    assert store.latest is None
    assert store.latest_id == 0


def test_rewinding_to_a_subsumed_checkpoint_takes_it_back() -> None:
    """A checkpoint that was about to be deleted and served as restore point is retained again."""
    store = CompletedCheckpointStore(1)
    store.add(entry(1))
    store.add(entry(2))

    store.rewind_to(1)

    assert ids(store.entries) == [1]
    store.validate()
    assert store.take_deletable() == ()


@given(st.integers(1, 3), st.lists(st.sampled_from(["checkpoint", "savepoint"]), max_size=12))
def test_one_real_checkpoint_always_remains(num_retained: int, kinds: list[str]) -> None:
    """The newest real checkpoint is retained, nothing is deleted twice, and retained ones are never deleted."""
    store = CompletedCheckpointStore(num_retained)
    deleted: list[int] = []
    newest_real = None
    for checkpoint_id, kind in enumerate(kinds, start=1):
        if kind == "checkpoint":
            newest_real = checkpoint_id
        store.add(entry(checkpoint_id, savepoint=kind == "savepoint"))
        deleted += store.take_deletable()
        store.validate()
        hash(store.fingerprint())
        assert newest_real is None or newest_real in ids(store.entries)
        assert store.latest_id == checkpoint_id
        assert not set(deleted) & set(ids(store.entries))
        assert len(deleted) == len(set(deleted))
        assert all(kinds[one - 1] == "checkpoint" for one in deleted)
        assert len(store.entries) <= num_retained + 1
