"""The registry of shared state, rule by rule, and the cleaner of subsumed checkpoints."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import RestoreMode, SharedState, SharingFilesStrategy
from engine.checkpoint.coordinator.retained_checkpoints import CheckpointsCleaner, CompletedCheckpoint
from engine.checkpoint.coordinator.shared_state_registry import (
    HandleMismatchError,
    RegistryClosedError,
    SharedStateRegistry,
    UnknownPlaceholderError,
)
from engine.elements.errors import StateError

CLAIM, NO_CLAIM, LEGACY = RestoreMode.CLAIM, RestoreMode.NO_CLAIM, RestoreMode.LEGACY
BOTH, NO_SHARING = SharingFilesStrategy.FORWARD_BACKWARD, SharingFilesStrategy.NO_SHARING


def upload(key: str, *, keeps_creator: bool = False) -> SharedState:
    return SharedState(key, f"file of {key}", keeps_creator=keeps_creator)


def placeholder(key: str) -> SharedState:
    return SharedState(key)


def marker(key: str) -> SharedState:
    return SharedState(key, is_marker=True)


def registry_with(checkpoint_id: int, *states: SharedState) -> SharedStateRegistry:
    registry = SharedStateRegistry()
    registry.register_all(states, checkpoint_id)
    return registry


def deleted(registry: SharedStateRegistry, lowest_id: int | None) -> list[object]:
    registry.validate()
    return list(registry.unregister_unused(lowest_id).handles)


def test_worked_example_with_one_retained_checkpoint() -> None:
    """A file lives as long as some retained checkpoint uses it, by upload or by placeholder."""
    registry = registry_with(1, upload("a"), upload("b"))
    assert deleted(registry, 1) == []
    registry.register_all([placeholder("b"), upload("c")], 2)
    assert deleted(registry, 2) == ["file of a"]
    registry.register(placeholder("c"), 3)
    assert deleted(registry, 3) == ["file of b"]


def test_worked_example_of_an_aborted_upload() -> None:
    """The uploads of a declined checkpoint are deleted with the next completion, not before."""
    registry = registry_with(1, upload("s1"))
    registry.register(upload("s2"), 2)

    assert registry.keys == ("s1", "s2")
    assert deleted(registry, 2) == ["file of s1"]
    assert registry.keys == ("s2",)


def test_a_placeholder_becomes_the_registered_file() -> None:
    """The returned state can be written into the metadata."""
    registry = registry_with(1, upload("a"))

    assert registry.register(placeholder("a"), 2) == upload("a")


def test_a_placeholder_for_nothing_is_refused() -> None:
    """The message names the file and the consequence; the registry is unchanged."""
    registry = registry_with(1, upload("a"))
    before = registry.fingerprint()
    message = "checkpoint 2 refers to shared state 'b', which is not registered"

    with pytest.raises(UnknownPlaceholderError, match=f"^{re.escape(message)}"):
        registry.register(placeholder("b"), 2)
    assert before == registry.fingerprint()


def test_an_equal_file_may_come_again() -> None:
    """Two messages with one upload are one file."""
    registry = registry_with(1, upload("a"))

    assert registry.register(upload("a"), 2) == upload("a")
    assert deleted(registry, 2) == []


def test_another_file_under_a_known_key_is_refused() -> None:
    """A key names one file for ever; the registry stays unchanged, and the error tells both names."""
    registry = registry_with(1, upload("a"))
    before = registry.fingerprint()

    with pytest.raises(HandleMismatchError, match=r"'other'.*'file of a'"):
        registry.register(SharedState("a", "other"), 2)
    assert before == registry.fingerprint()
    with pytest.raises(HandleMismatchError):
        registry.register(marker("a"), 2)


def test_a_marker_gives_way_to_a_file() -> None:
    """It has no file to delete itself; the file that replaces it has."""
    registry = registry_with(1, marker("whole"))
    assert registry.register(marker("whole"), 2) == marker("whole")
    assert registry.register(placeholder("whole"), 2) == marker("whole")

    assert registry.register(SharedState("whole", "f"), 3) == SharedState("whole", "f")
    assert deleted(registry, 4) == ["f"]
    assert deleted(registry_with(1, marker("whole")), 2) == []


def test_last_used_never_goes_back() -> None:
    """A late message of an older checkpoint does not shorten a file's life."""
    registry = registry_with(5, upload("a"))
    registry.register(placeholder("a"), 3)

    assert deleted(registry, 5) == []
    assert deleted(registry, 6) == ["file of a"]


@pytest.mark.parametrize("mode", [NO_CLAIM, LEGACY])
def test_files_of_an_unclaimed_snapshot_are_never_deleted(mode: RestoreMode) -> None:
    """Nor are those of older ones; files created later are ours."""
    registry = SharedStateRegistry()
    registry.register_restored([upload("a")], 3, mode, BOTH)
    registry.register(upload("b"), 4)

    assert deleted(registry, 9) == ["file of b"]


def test_files_of_a_claimed_snapshot_are_deleted_when_unused() -> None:
    """A claimed snapshot is the job's to delete."""
    registry = SharedStateRegistry()
    registry.register_restored([upload("a"), upload("b")], 3, CLAIM, BOTH)
    registry.register(placeholder("b"), 4)

    assert deleted(registry, 4) == ["file of a"]


def test_the_highest_unclaimed_snapshot_counts() -> None:
    """Registering an older one afterwards does not release the newer one."""
    registry = SharedStateRegistry()
    registry.register_restored([upload("a")], 5, LEGACY, BOTH)
    registry.register_restored([upload("b")], 3, LEGACY, BOTH)

    assert deleted(registry, 9) == []


def test_a_claimed_savepoint_is_in_use_while_anything_of_it_is() -> None:
    """Its directory holds shared and private files alike, so it must stay whole."""
    registry = SharedStateRegistry()
    registry.register_restored([upload("a"), marker("whole")], 1, CLAIM, NO_SHARING)
    registry.register(placeholder("a"), 2)

    assert registry.unregister_unused(2).in_use == (1,)
    registry.register(placeholder("a"), 3)
    assert registry.unregister_unused(3) == ((), (1,))
    assert registry.unregister_unused(4) == (("file of a",), ())


def test_a_restored_checkpoint_is_in_use_only_when_asked_for() -> None:
    """A checkpoint shares its files, so its private ones may be deleted, unless a message says that they are used."""
    registry = SharedStateRegistry()
    registry.register_restored([upload("a"), upload("b", keeps_creator=True)], 1, CLAIM, BOTH)
    registry.register_all([placeholder("a"), placeholder("b")], 2)
    assert registry.unregister_unused(2).in_use == ()

    registry.register(SharedState("b", keeps_creator=True), 3)
    assert registry.unregister_unused(2).in_use == (1,)
    registry.register(placeholder("b"), 4)
    assert registry.unregister_unused(4).in_use == (1,)


def test_own_checkpoints_are_never_in_use() -> None:
    """The flag is about restored snapshots only."""
    registry = registry_with(1, upload("a"))
    registry.register(SharedState("a", keeps_creator=True), 2)

    assert registry.unregister_unused(2).in_use == ()


def test_nothing_left_means_everything_goes() -> None:
    """Without any retained checkpoint all files of ours are deleted."""
    assert deleted(registry_with(7, upload("a"), upload("b")), None) == ["file of a", "file of b"]


def test_a_closed_registry_refuses() -> None:
    """A registration after the end of the job is refused; registered files can still be released."""
    registry = registry_with(1, upload("a"))
    registry.close()

    with pytest.raises(RegistryClosedError, match="'b' of checkpoint 2"):
        registry.register(upload("b"), 2)
    assert issubclass(RegistryClosedError, StateError)
    assert deleted(registry, None) == ["file of a"]


def test_fingerprints_tell_states_apart() -> None:
    """All state that determines future behaviour is in the fingerprint."""
    restored = SharedStateRegistry()
    restored.register_restored([upload("a")], 1, CLAIM, BOTH)
    legacy = SharedStateRegistry()
    legacy.register_restored([upload("a")], 1, LEGACY, BOTH)
    closed = registry_with(1, upload("a"))
    closed.close()
    used_again = registry_with(1, upload("a"))
    used_again.register(placeholder("a"), 2)
    flagged = registry_with(1, upload("a"))
    flagged.register(SharedState("a", keeps_creator=True), 1)
    marked = registry_with(1, marker("a"))
    all_of_them = [SharedStateRegistry(), registry_with(1, upload("a")), restored, legacy]
    all_of_them += [closed, used_again, flagged, marked]

    assert len({registry.fingerprint() for registry in all_of_them}) == len(all_of_them)


@given(st.lists(st.tuples(st.sets(st.integers(0, 5)), st.booleans()), max_size=12), st.integers(1, 3))
def test_files_of_retained_checkpoints_exist(checkpoints: list[tuple[set[int], bool]], num_retained: int) -> None:
    """Whatever completes and whatever is declined: each file in use exists, each file falls once, none leaks."""
    registry = SharedStateRegistry()
    uploads: dict[int, str] = {}  # content -> its newest physical file that is still registered
    used: dict[int, set[str]] = {}
    retained: list[int] = []
    gone: list[object] = []
    for checkpoint_id, (contents, completes) in enumerate(checkpoints, start=1):
        files = set()
        for content in sorted(contents):
            if uploads.get(content) not in registry.keys:
                uploads[content] = f"{content} by {checkpoint_id}"
                registry.register(SharedState(uploads[content], uploads[content]), checkpoint_id)
            else:
                registry.register(SharedState(uploads[content]), checkpoint_id)
            files.add(uploads[content])
        used[checkpoint_id] = files
        if completes:
            retained = [*retained, checkpoint_id][-num_retained:]
            gone += deleted(registry, retained[0])
        hash(registry.fingerprint())
        for one in retained:
            assert not used[one] & set(gone)
            assert used[one] <= set(registry.keys)
    assert len(gone) == len(set(gone))
    gone += deleted(registry, None)
    assert set(gone) == set().union(*used.values())
    assert registry.keys == ()


# --- the cleaner ------------------------------------------------------------------------------------------------------


def cleaner_with(*entries: CompletedCheckpoint) -> CheckpointsCleaner:
    cleaner = CheckpointsCleaner()
    cleaner.add(entries)
    return cleaner


def test_only_what_is_below_and_unused_is_deleted() -> None:
    """Snapshots that are still in use are checked again the next time."""
    cleaner = cleaner_with(CompletedCheckpoint(1), CompletedCheckpoint(2), CompletedCheckpoint(3))

    assert cleaner.clean(3, in_use=[1]) == (2,)
    assert cleaner.waiting_ids == (1, 3)
    assert cleaner.clean(4) == (1, 3)
    assert cleaner.waiting_ids == ()


def test_what_is_not_ours_leaves_undeleted() -> None:
    """It is not checked twice either."""
    cleaner = cleaner_with(CompletedCheckpoint(1, is_unclaimed=True), CompletedCheckpoint(2))

    assert cleaner.clean(9) == (2,)
    assert cleaner.waiting_ids == ()


def test_everything_goes_without_a_bound() -> None:
    """At the end of the job no newer checkpoint will come."""
    assert cleaner_with(CompletedCheckpoint(1), CompletedCheckpoint(9)).clean(None, in_use=[1]) == (9,)


def test_an_entry_may_be_taken_back() -> None:
    """It was needed after all: it is not deleted, and the others stay as before."""
    cleaner = cleaner_with(CompletedCheckpoint(1), CompletedCheckpoint(2))

    assert cleaner.take_back(1) == CompletedCheckpoint(1)
    assert cleaner.take_back(1) is None
    assert cleaner.fingerprint() == (2,)
