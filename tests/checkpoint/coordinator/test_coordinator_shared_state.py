"""Shared state in the coordinator: registered first, deleted last, and the effect of restores on it."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.coordinator import (
    Acknowledge,
    CompletedCheckpoint,
    CoordinatorConfig,
    DiscardCheckpoint,
    DiscardSharedState,
    IgnoredBecause,
    JobStatus,
    NotifyComplete,
    SharedState,
    SharingFilesStrategy,
    TaskId,
)
from engine.checkpoint.coordinator.coordinator_config import RetentionPolicy
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import SnapshotKind
from tests.checkpoint.coordinator.coordinator_driver import (
    GRAPH,
    SINK,
    SOURCE,
    START_NS,
    CoordinatorDriver,
    ack,
    decline,
    driver_of,
    trigger,
)

NO_SHARING = SharingFilesStrategy.NO_SHARING


def deliver(
    driver: CoordinatorDriver,
    checkpoint_id: int,
    *files: str,
    refers_to: tuple[str, ...] = (),
    task: TaskId = SOURCE,
    attempt: int = 1,
    private: str | None = None,
) -> None:
    """A task acknowledges with new shared files, under keys of the same name, and placeholders for earlier ones."""
    shared = (*(SharedState(name, name) for name in files), *(SharedState(name) for name in refers_to))
    state = None if private is None else {"private": [private]}
    message = Acknowledge(checkpoint_id, attempt, task, state, shared=shared)
    driver.tell(driver.coordinator.on_acknowledge(message, driver.now_ns))


def complete(driver: CoordinatorDriver, checkpoint_id: int, *files: str, refers_to: tuple[str, ...] = ()) -> None:
    trigger(driver)
    deliver(driver, checkpoint_id, *files, refers_to=refers_to)
    ack(driver, checkpoint_id, SINK)


def test_placeholders_are_resolved_in_the_metadata() -> None:
    """The metadata names files and contains no placeholder."""
    driver = driver_of()
    complete(driver, 1, "a", "b")
    complete(driver, 2, "c", refers_to=("b",))

    (written, _) = driver.log.written[2].acknowledgements
    assert written.shared == (SharedState("c", "c"), SharedState("b", "b"))
    assert written.is_registered
    assert driver.coordinator.retained.entries[0].shared == written.shared
    assert driver.deleted_files() == {"a"}
    assert driver.coordinator.retained.shared_keys == ("b", "c")


def test_shared_files_are_deleted_after_everything_else() -> None:
    """A crash at any point leaves too many files rather than a checkpoint without its files."""
    driver = driver_of(prompt=False)
    for checkpoint_id in (1, 2):
        trigger(driver)
        driver.answer(0)
        deliver(driver, checkpoint_id, f"file of {checkpoint_id}")
        ack(driver, checkpoint_id, SINK)
        told = driver.coordinator.on_metadata_written(checkpoint_id, driver.now_ns)
        driver.outstanding.clear()

    order = [type(one) for one in told]
    assert order.index(NotifyComplete) < order.index(DiscardCheckpoint) < order.index(DiscardSharedState)


def test_a_message_of_a_stranger_registers_too() -> None:
    """Its uploads stay until the next completion; only its private files are deleted at once."""
    driver = driver_of()
    trigger(driver)
    deliver(driver, 1, "a", task=(9, 9), private="p")

    assert driver.deleted_files() == {"p"}
    assert driver.coordinator.retained.shared_keys == ("a",)


def test_a_late_message_registers_too() -> None:
    """A task may build on a file whose checkpoint is aborted: it learns of the abort only later."""
    driver = driver_of(tolerable_failures=None)
    trigger(driver)
    decline(driver, 1)
    deliver(driver, 1, "a", private="p")

    assert driver.deleted_files() == {"p"}
    complete(driver, 2, refers_to=("a",))
    assert driver.coordinator.retained.ids == (2,)


def test_a_message_that_comes_twice_changes_nothing() -> None:
    """Neither before nor after the completion, and its files stay."""
    driver = driver_of()
    trigger(driver)
    deliver(driver, 1, "a", private="p")
    deliver(driver, 1, "a", private="p")
    ack(driver, 1, SINK)
    before = driver.coordinator.fingerprint(driver.now_ns)
    deliver(driver, 1, "a", private="p")

    assert before == driver.coordinator.fingerprint(driver.now_ns)
    assert driver.deleted_files() == set()


def test_an_older_attempt_registers_too() -> None:
    """The next completion deletes its uploads."""
    driver = driver_of()
    driver.tell(driver.coordinator.start(driver.now_ns, 2))
    trigger(driver)
    deliver(driver, 1, "old", attempt=1)
    assert driver.coordinator.retained.shared_keys == ("old",)

    ack(driver, 1, attempt=2)
    assert driver.deleted_files() == set()
    trigger(driver)
    ack(driver, 2, attempt=2)
    assert driver.deleted_files() == {"old"}


def test_files_of_a_savepoint_are_its_own() -> None:
    """They are not registered, and are deleted with the savepoint when it fails."""
    driver = driver_of(tolerable_failures=None)
    driver.tell(driver.coordinator.trigger_savepoint("s", driver.now_ns))
    deliver(driver, 1, "a", private="p")
    assert driver.coordinator.retained.shared_keys == ()

    decline(driver, 1)
    assert driver.deleted_files() == {"a", "p"}


def test_a_reference_to_nothing_costs_the_checkpoint_not_the_job() -> None:
    """The message does not count, its uploads are registered or deleted, and the checkpoint expires."""
    driver = driver_of(timeout_ns=50, tolerable_failures=None)
    trigger(driver)
    message = Acknowledge(
        1, 1, SOURCE, {"private": ["p"]}, shared=(SharedState("a", "a"), SharedState("gone"), SharedState("b", "b"))
    )
    driver.tell(driver.coordinator.on_acknowledge(message, driver.now_ns))
    ack(driver, 1, SINK)

    assert [one.why for one in driver.log.ignored] == [IgnoredBecause.UNKNOWN_SHARED_STATE]
    assert driver.coordinator.retained.shared_keys == ("a",)
    assert driver.deleted_files() == {"p", "b"}
    driver.advance(50)
    assert driver.log.reasons == {1: "CHECKPOINT_EXPIRED"}
    complete(driver, 2)
    assert driver.deleted_files() == {"a", "b", "p"}


def test_a_late_message_with_a_dead_reference_deletes_nothing_of_a_completed_checkpoint() -> None:
    """Its placeholder is unknown by then, and its private files belong to a checkpoint that is retained."""
    driver = driver_of(num_retained=2)
    complete(driver, 1, "a")
    trigger(driver)
    deliver(driver, 2, refers_to=("a",), private="p")
    ack(driver, 2, SINK)
    complete(driver, 3)
    trigger(driver)
    deliver(driver, 4, private="of 4")
    ack(driver, 4, SINK)
    assert driver.deleted_files() == {"a", "p"}
    complete(driver, 5)

    deliver(driver, 4, refers_to=("a",), private="of 4")
    assert "of 4" not in driver.deleted_files()


def test_another_state_for_a_completed_checkpoint_is_discarded() -> None:
    """No snapshot refers to it. Files of a repeated message, and all files sent for a savepoint, are kept."""
    driver = driver_of(num_retained=2)
    trigger(driver)
    deliver(driver, 1, private="taken")
    ack(driver, 1, SINK)
    deliver(driver, 1, private="taken")
    assert driver.deleted_files() == set()

    deliver(driver, 1, "b", private="other")
    deliver(driver, 1, private="of a task that had no state", task=SINK)
    assert driver.deleted_files() == {"other", "of a task that had no state"}
    assert driver.coordinator.retained.shared_keys == ("b",)

    driver.tell(driver.coordinator.trigger_savepoint("s", driver.now_ns))
    deliver(driver, 2)
    ack(driver, 2, SINK)
    deliver(driver, 2, private="of the user")
    assert "of the user" not in driver.deleted_files()


def test_a_base_may_be_deleted_under_a_task() -> None:
    """The checkpoint that refers to a deleted older copy is lost, and the abort names the base to build on."""
    driver = driver_of(max_concurrent=2, timeout_ns=50, tolerable_failures=None)
    trigger(driver)
    trigger(driver)
    deliver(driver, 1, "g by 1")
    deliver(driver, 2, "g by 2")
    ack(driver, 1, SINK)
    ack(driver, 2, SINK)
    assert driver.deleted_files() == {"g by 1"}

    trigger(driver)
    deliver(driver, 3, refers_to=("g by 1",))
    ack(driver, 3, SINK)
    driver.advance(50)

    assert driver.log.aborted[SOURCE] == [[3, 2]]
    complete(driver, 4, refers_to=("g by 2",))
    assert driver.coordinator.retained.ids == (4,)


# --- restores and ends ------------------------------------------------------------------------------------------------


def recovered(*entries: CompletedCheckpoint, **settings: Any) -> CoordinatorDriver:
    driver = CoordinatorDriver(CoordinatorConfig(**settings), GRAPH)
    driver.tell(driver.coordinator.recover(entries, START_NS))
    return driver


def entry(checkpoint_id: int, *files: str, **fields: Any) -> CompletedCheckpoint:
    return CompletedCheckpoint(checkpoint_id, shared=tuple(SharedState(name, name) for name in files), **fields)


def test_recovered_checkpoints_are_registered_before_anything_is_subsumed() -> None:
    """The first completion may refer to their files, and deletes those that are no longer used."""
    driver = recovered(entry(3, "a", "b"), entry(4, "b", "c"))
    complete(driver, 5, refers_to=("c",))

    assert driver.coordinator.retained.ids == (5,)
    assert driver.deleted_files() == {"a", "b"}
    assert driver.log.discarded_checkpoints == [3, 4]


def test_an_unclaimed_snapshot_is_not_registered() -> None:
    """No checkpoint may refer to it: the first checkpoint is full, and its files are never deleted."""
    driver = recovered(entry(3, "a", is_unclaimed=True))
    assert driver.coordinator.retained.shared_keys == ()
    complete(driver, 4, "b")
    complete(driver, 5)

    assert driver.log.trigger_kinds[SOURCE] == ["FULL_CHECKPOINT", "CHECKPOINT"]
    assert driver.deleted_files() == {"b"}
    assert driver.log.discarded_checkpoints == [4]


def test_a_legacy_savepoint_may_be_referred_to_and_is_never_deleted() -> None:
    """Neither it nor its files, not even once no checkpoint uses them."""
    driver = recovered(entry(3, "a", "b", kind=SnapshotKind.SAVEPOINT))
    complete(driver, 4, "c", refers_to=("a",))
    complete(driver, 5)
    complete(driver, 6)

    assert driver.log.trigger_kinds[SOURCE][0] == "CHECKPOINT"
    assert driver.deleted_files() == {"c"}
    assert driver.log.discarded_checkpoints == [4, 5]


def test_a_claimed_savepoint_stays_whole_until_nothing_uses_it() -> None:
    """The first checkpoint subsumes it; it is discarded when the last of its files is no longer used."""
    driver = recovered(entry(3, "a", "b", restored_sharing=NO_SHARING))
    complete(driver, 4, refers_to=("a",))
    assert driver.coordinator.retained.ids == (4,)
    assert driver.deleted_files() == {"b"}
    assert driver.log.discarded_checkpoints == []

    complete(driver, 5)
    assert driver.deleted_files() == {"a", "b"}
    assert driver.log.discarded_checkpoints == [3, 4]


def test_a_savepoint_in_between_does_not_release_a_claimed_one() -> None:
    """A completed savepoint enters no store, so it does not cause a deletion either."""
    driver = recovered(entry(3, "a", restored_sharing=NO_SHARING))
    complete(driver, 4, refers_to=("a",))
    driver.tell(driver.coordinator.trigger_savepoint("s", driver.now_ns))
    ack(driver, 5)

    assert driver.log.requests == {"s": "completed"}
    assert driver.log.discarded_checkpoints == []


NEVER, ALWAYS = RetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION, RetentionPolicy.RETAIN_ALWAYS


@pytest.mark.parametrize(
    ("completes", "retention", "status", "deleted"),
    [
        (True, NEVER, JobStatus.FINISHED, {"a", "left over"}),
        (True, NEVER, JobStatus.SUSPENDED, {"a", "left over"}),
        (True, ALWAYS, JobStatus.FINISHED, set[str]()),
        (True, RetentionPolicy.RETAIN_ON_FAILURE, JobStatus.FAILED, set[str]()),
        (False, ALWAYS, JobStatus.FINISHED, {"left over"}),
        (False, ALWAYS, JobStatus.SUSPENDED, set[str]()),
    ],
)
def test_the_end_of_the_job_releases_what_nothing_uses(
    completes: bool, retention: RetentionPolicy, status: JobStatus, deleted: set[str]
) -> None:
    """With the last checkpoint all files are deleted, those of aborted ones too; a suspended job keeps its files."""
    driver = driver_of(retention=retention, tolerable_failures=None)
    if completes:
        complete(driver, 1, "a")
    trigger(driver)
    deliver(driver, driver.coordinator.pending.ids[0], "left over")
    driver.tell(driver.coordinator.shut_down(status, driver.now_ns))

    assert driver.deleted_files() == deleted


def test_files_of_somebody_else_do_not_keep_ours() -> None:
    """An unclaimed snapshot that stays has no part in the files that this job shares."""
    driver = recovered(entry(3, "a", is_unclaimed=True), retention=NEVER, num_retained=2)
    complete(driver, 4, "b")
    driver.tell(driver.coordinator.shut_down(JobStatus.FINISHED, driver.now_ns))

    assert driver.coordinator.retained.ids == (3,)
    assert driver.deleted_files() == {"b"}


def test_after_the_end_uploads_go_with_their_message() -> None:
    """The registry is closed: the uploads of a late message are deleted, but never the files it refers to."""
    driver = driver_of()
    complete(driver, 1, "a")
    driver.tell(driver.coordinator.shut_down(JobStatus.FINISHED, driver.now_ns))
    deliver(driver, 2, "b", refers_to=("a",), private="p")

    assert driver.deleted_files() == {"b", "p"}


def test_a_claimed_savepoint_in_use_goes_at_the_end_of_a_job_that_retains_nothing() -> None:
    """It waited for a newer checkpoint and need not wait any more."""
    driver = recovered(entry(3, "a", restored_sharing=NO_SHARING), retention=NEVER)
    complete(driver, 4, refers_to=("a",))
    driver.tell(driver.coordinator.shut_down(JobStatus.FINISHED, driver.now_ns))

    assert driver.log.discarded_checkpoints == [4, 3]
    assert driver.deleted_files() == {"a"}


def test_a_refused_id_costs_one_request_and_no_id() -> None:
    """The source of ids cannot be reached: the next trigger fails, and the one after it gets the id."""
    driver = driver_of()
    before = driver.coordinator.fingerprint(0)
    driver.coordinator.refuse_next_id(CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE)
    assert before != driver.coordinator.fingerprint(0)
    trigger(driver, "first")
    trigger(driver, "second")

    assert driver.log.requests == {"first": "failed:TRIGGER_CHECKPOINT_FAILURE"}
    assert driver.coordinator.pending.ids == (1,)
    assert driver.log.failures == []


def test_a_message_to_a_dead_coordinator_touches_nothing() -> None:
    """Its savepoint may be complete: the successor cannot know, so it neither deletes nor registers a file."""
    driver = CoordinatorDriver(CoordinatorConfig(), GRAPH)
    driver.coordinator = type(driver.coordinator)(GRAPH, CoordinatorConfig())
    driver.tell(driver.coordinator.recover([entry(3, "a")], START_NS, next_id=6))
    driver.tell(driver.coordinator.restored(3, START_NS, 2))
    deliver(driver, 5, "b", private="p", attempt=1)

    assert [one.why for one in driver.log.ignored] == [IgnoredBecause.OLDER_ATTEMPT]
    assert driver.deleted_files() == set()
    assert driver.coordinator.retained.shared_keys == ("a",)
