"""The coordinator's timer, triggers and completions, where the recorded sequences have a gap."""

from __future__ import annotations

import pytest

from engine.checkpoint.coordinator import (
    FINAL_CHECKPOINT,
    Acknowledge,
    ArmTimeout,
    CheckpointGraph,
    CompletedCheckpoint,
    CoordinatorConfig,
    DisarmTimeout,
    DiscardCheckpoint,
    FailJob,
    IgnoredBecause,
    InitializeLocation,
    NotifyAborted,
    NotifyComplete,
    TaskStatus,
    WriteMetadata,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointOptions, SnapshotKind
from tests.checkpoint.coordinator.coordinator_driver import (
    DECLINED,
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

# --- the timer --------------------------------------------------------------------------------------------------------


def test_first_firing_comes_after_one_interval_and_firings_do_not_drift() -> None:
    """Late timers do not push the following ones back."""
    driver = driver_of(interval_ns=100, max_concurrent=10)
    coordinator = driver.coordinator
    driver.tell(coordinator.start(START_NS, 1))
    driver.advance(99)
    assert driver.log.triggered[SOURCE] == []

    driver.tell(coordinator.on_timer(START_NS + 130))
    assert driver.log.triggered[SOURCE] == [1]
    driver.advance(101)

    assert driver.log.triggered[SOURCE] == [1, 2]
    assert driver.log.timestamps[2] == START_NS + 200


def test_outdated_timer_is_ignored() -> None:
    """A timer that fires before its planned time, or after a stop, does not trigger a checkpoint."""
    driver = driver_of(interval_ns=100)
    driver.tell(driver.coordinator.start(START_NS, 1))
    assert driver.coordinator.on_timer(START_NS + 99) == ()
    driver.tell(driver.coordinator.stop(START_NS))

    assert driver.coordinator.on_timer(START_NS + 100) == ()
    assert driver.coordinator.requests.queued == ()


def test_first_delay_is_the_drivers_choice() -> None:
    """The first firing may come earlier; the second comes one interval after it."""
    driver = driver_of(interval_ns=100, max_concurrent=2)
    driver.tell(driver.coordinator.start(START_NS, 1, first_delay_ns=5))
    driver.advance(105)

    assert list(driver.log.timestamps.values()) == [START_NS + 5, START_NS + 105]


def test_pause_without_a_timer_arms_none() -> None:
    """With periodic requests from outside, one that comes too early is dropped and no timer appears."""
    driver = driver_of(min_pause_ns=100)
    driver.tell(driver.coordinator.start(START_NS, 1))
    trigger(driver)
    ack(driver, 1)

    driver.tell(driver.coordinator.trigger_periodic(driver.now_ns))

    assert driver.last == ()
    driver.advance(100)
    driver.tell(driver.coordinator.trigger_periodic(driver.now_ns))
    assert driver.log.triggered[SOURCE] == [1, 2]


def test_the_pause_counts_from_a_savepoint_too() -> None:
    """A periodic request that comes soon after a savepoint has completed is dropped."""
    driver = driver_of(min_pause_ns=100)
    driver.tell(driver.coordinator.start(START_NS, 1))
    driver.tell(driver.coordinator.trigger_savepoint("s", driver.now_ns))
    ack(driver, 1)

    driver.tell(driver.coordinator.trigger_periodic(driver.now_ns))

    assert driver.log.triggered[SOURCE] == [1]


def test_starting_again_aborts_what_is_pending() -> None:
    """A second start is a stop and a start."""
    driver = driver_of(interval_ns=100)
    driver.tell(driver.coordinator.start(START_NS, 1))
    trigger(driver)

    driver.tell(driver.coordinator.start(START_NS + 30, 1))

    assert driver.log.reasons == {1: "CHECKPOINT_COORDINATOR_SUSPEND"}
    assert driver.coordinator.schedule.is_running
    driver.advance(130)
    assert driver.log.timestamps[2] == START_NS + 130


# --- trigger ----------------------------------------------------------------------------------------------------------


def test_timeout_is_armed_before_the_location_exists() -> None:
    """A storage that never answers costs one checkpoint; the coordinator goes on."""
    driver = driver_of(prompt=False, timeout_ns=50)
    trigger(driver)
    assert [type(one) for one in driver.last] == [ArmTimeout, InitializeLocation]
    driver.advance(50)

    assert driver.log.reasons == {1: "CHECKPOINT_EXPIRED"}
    assert driver.log.discarded_locations == []
    assert driver.outstanding == [InitializeLocation(1, SnapshotKind.CHECKPOINT)]


def test_location_that_comes_too_late_is_deleted() -> None:
    """When the location is made after its checkpoint was aborted, it is deleted again and no task is triggered."""
    driver = driver_of(prompt=False, timeout_ns=50)
    trigger(driver)
    driver.advance(50)

    driver.answer(0)
    driver.answer(0)

    assert driver.log.discarded_locations == [1]
    assert driver.log.triggered[SOURCE] == []


def test_a_request_that_waited_is_triggered_with_the_time_of_the_trigger() -> None:
    """The timeout does not include the time in the queue; metadata and barrier carry the time of the trigger."""
    driver = driver_of(timeout_ns=100, tolerable_failures=9)
    trigger(driver)
    trigger(driver)
    driver.advance(100)
    assert driver.log.reasons == {1: "CHECKPOINT_EXPIRED"}
    driver.advance(99)
    assert driver.coordinator.pending.ids == (2,)
    assert driver.log.timestamps[2] == START_NS + 100
    row = driver.coordinator.statistics.rows()[1]
    assert (row.requested_at_ns, row.triggered_at_ns) == (START_NS, START_NS + 100)

    driver.advance(1)

    assert driver.coordinator.pending.ids == ()
    assert driver.coordinator.statistics.rows()[1].end_to_end_ns == 100


def test_outdated_timeout_is_ignored() -> None:
    """A timeout that fires before its time, or for a checkpoint that has ended, has no effect."""
    driver = driver_of(timeout_ns=100)
    trigger(driver)

    assert driver.coordinator.on_timeout(1, START_NS + 99) == ()
    assert driver.coordinator.on_timeout(7, START_NS + 100) == ()
    assert driver.coordinator.pending.ids == (1,)


def test_failing_location_counts_as_io_error() -> None:
    """An I/O error before the trigger uses up the budget; there are no files to delete."""
    driver = driver_of(prompt=False)
    trigger(driver, "r")

    driver.answer(0, fails=True)

    assert driver.log.requests == {"r": "failed:IO_EXCEPTION"}
    assert [FailJob(CheckpointFailureReason.IO_EXCEPTION, 1)] == driver.log.failures
    assert driver.outstanding == []


def test_failed_send_aborts_without_counting() -> None:
    """A trigger that cannot be delivered ends the checkpoint, not the job."""
    driver = driver_of()
    trigger(driver)

    driver.tell(driver.coordinator.on_send_failed(1, SOURCE, driver.now_ns))

    assert driver.log.reasons == {1: "TRIGGER_CHECKPOINT_FAILURE"}
    assert driver.log.failures == []


def test_one_trigger_at_a_time() -> None:
    """The next checkpoint begins only when the triggers of the one before are on their way."""
    driver = driver_of(prompt=False, max_concurrent=2)
    trigger(driver)
    trigger(driver)
    assert driver.coordinator.next_checkpoint_id == 2

    driver.answer(0)

    assert driver.coordinator.next_checkpoint_id == 3


def test_slow_deletions_throttle() -> None:
    """With more than ``max_concurrent`` deletions outstanding no checkpoint is triggered until one ends."""
    driver = driver_of(prompt=False, tolerable_failures=None)
    for checkpoint_id in (1, 2):
        trigger(driver)
        driver.answer(len(driver.outstanding) - 1)
        decline(driver, checkpoint_id)
    trigger(driver)
    assert driver.coordinator.pending.ids == ()

    driver.answer(0)

    assert driver.coordinator.pending.ids == (3,)


def test_nothing_is_triggered_between_two_attempts() -> None:
    """After a failure no task can be triggered until the next attempt runs."""
    driver = driver_of()
    driver.tell(driver.coordinator.on_job_failure(driver.now_ns))
    trigger(driver, "r")
    assert driver.log.requests == {"r": "failed:NOT_ALL_REQUIRED_TASKS_RUNNING"}

    driver.tell(driver.coordinator.start(driver.now_ns, 2))
    trigger(driver, "s")

    assert driver.coordinator.pending.ids == (1,)


def test_unaligned_savepoint_waits_but_overtakes_the_queue() -> None:
    """While records in flight are stored a savepoint is not forced; it runs before queued checkpoints."""
    driver = CoordinatorDriver(
        CoordinatorConfig(tolerable_failures=9), GRAPH, CheckpointOptions.configured(unaligned=True)
    )
    trigger(driver)
    trigger(driver)
    driver.tell(driver.coordinator.trigger_savepoint("sp", driver.now_ns))
    assert driver.coordinator.pending.ids == (1,)

    decline(driver, 1)

    assert driver.log.trigger_kinds[SOURCE] == ["CHECKPOINT", "SAVEPOINT"]
    assert driver.coordinator.pending.ids == (2,)


# --- completion -------------------------------------------------------------------------------------------------------


def test_tasks_hear_of_it_only_when_it_is_durable() -> None:
    """Acknowledgements of all tasks do not yet notify the tasks; the written metadata does."""
    driver = driver_of(prompt=False)
    trigger(driver)
    driver.answer(0)
    ack(driver, 1)
    assert driver.coordinator.pending.finalizing_id == 1
    assert driver.log.completed == {}
    assert driver.coordinator.retained.ids == ()

    driver.answer(0)

    assert driver.log.completed == {SOURCE: [[1, -1]], SINK: [[1, -1]]}
    assert driver.coordinator.retained.ids == (1,)


def test_metadata_lists_the_parts_in_task_order() -> None:
    """The bytes of the metadata do not depend on the order of the acknowledgements."""
    driver = driver_of()
    trigger(driver)
    ack(driver, 1, SINK, SOURCE)

    assert [part.task for part in driver.log.written[1].acknowledgements] == [SOURCE, SINK]


def test_order_of_a_completion() -> None:
    """Older pending ones are aborted, then the tasks are notified, and only then is the old checkpoint deleted."""
    driver = driver_of(max_concurrent=3, prompt=False)
    for checkpoint_id in (1, 2, 3):
        trigger(driver)
        driver.answer(0)
        if checkpoint_id == 1:
            ack(driver, 1)
            driver.answer(0)
    ack(driver, 3)
    assert driver.outstanding == [driver.log.written[3]]

    told = driver.coordinator.on_metadata_written(3, driver.now_ns)

    kinds = [type(instruction) for instruction in told]
    assert kinds.index(NotifyAborted) < kinds.index(NotifyComplete) < kinds.index(DiscardCheckpoint)
    assert NotifyAborted(2, 3, CheckpointFailureReason.CHECKPOINT_SUBSUMED, (SOURCE, SINK)) in told
    assert NotifyComplete(3, 1, (SOURCE, SINK)) in told
    assert told[-1] == DiscardCheckpoint(1)


def test_nothing_aborts_a_checkpoint_that_is_being_made_durable() -> None:
    """Timeout, decline, abort of all, failure and stop do not end it: its metadata may exist already."""
    driver = driver_of(prompt=False, timeout_ns=50)
    coordinator = driver.coordinator
    trigger(driver)
    driver.answer(0)
    ack(driver, 1)

    assert coordinator.on_timeout(1, driver.now_ns + 50) == ()
    decline(driver, 1)
    assert [ignored.why for ignored in driver.log.ignored] == [IgnoredBecause.BEING_FINALIZED]
    driver.tell(coordinator.abort_pending(DECLINED, driver.now_ns))
    driver.tell(coordinator.on_job_failure(driver.now_ns))
    assert coordinator.pending.ids == (1,)
    with pytest.raises(AssertionError, match="outcome of checkpoint 1"):
        coordinator.restore_point()
    with pytest.raises(AssertionError, match="outcome of checkpoint 1"):
        coordinator.restored(None, driver.now_ns, 2)

    driver.answer(0)

    restored = coordinator.restore_point()
    assert restored is not None
    assert restored.checkpoint_id == 1


def test_metadata_is_written_for_one_checkpoint_at_a_time() -> None:
    """The second waits, can still be subsumed or stopped meanwhile, and is written when the first is done."""
    driver = driver_of(prompt=False, max_concurrent=2)
    for _ in range(2):
        trigger(driver)
        driver.answer(0)
    ack(driver, 1)
    assert [type(one) for one in driver.last] == [DisarmTimeout, WriteMetadata]
    ack(driver, 2)
    assert [work.checkpoint_id for work in driver.outstanding if isinstance(work, WriteMetadata)] == [1]

    driver.answer(0)

    assert [work.checkpoint_id for work in driver.outstanding if isinstance(work, WriteMetadata)] == [2]


def test_older_one_that_waits_to_be_written_is_subsumed() -> None:
    """A checkpoint that got all parts while a newer one was written is aborted by the newer one's completion."""
    driver = driver_of(prompt=False, max_concurrent=2)
    for _ in range(2):
        trigger(driver)
        driver.answer(0)
    ack(driver, 2)
    ack(driver, 1)

    driver.answer(0)

    assert driver.log.reasons == {1: "CHECKPOINT_SUBSUMED"}
    assert driver.log.written.keys() == {2}


def test_checkpoint_leaves_an_older_savepoint_alone() -> None:
    """A pending savepoint is never subsumed."""
    driver = driver_of()
    driver.tell(driver.coordinator.trigger_savepoint("sp", driver.now_ns))
    driver.tell(driver.coordinator.trigger_savepoint("stop", driver.now_ns, synchronous=True))
    ack(driver, 2)

    assert driver.coordinator.pending.ids == (1,)
    assert driver.log.completed[SINK] == [[2, -1]]


def test_plain_savepoint_disturbs_nobody() -> None:
    """It notifies no task, subsumes no checkpoint and is not retained: it belongs to the user."""
    driver = driver_of(max_concurrent=2)
    trigger(driver)
    driver.tell(driver.coordinator.trigger_savepoint("sp", driver.now_ns))
    ack(driver, 2)

    assert driver.log.requests == {"sp": "completed"}
    assert driver.log.completed == {}
    assert driver.coordinator.pending.ids == (1,)
    assert driver.coordinator.retained.ids == ()


def test_unclaimed_checkpoint_is_not_told_as_subsumed() -> None:
    """Tasks may drop data they keep for a subsumed checkpoint, so they hear only of those that the job may delete."""
    driver = driver_of()
    driver.tell(driver.coordinator.recover([CompletedCheckpoint(1, is_unclaimed=True)], START_NS))
    trigger(driver)
    ack(driver, 2)
    trigger(driver)
    ack(driver, 3)

    assert driver.log.completed[SINK] == [[2, -1], [3, 2]]
    assert driver.log.discarded_checkpoints == [2]


def test_failed_metadata_deletes_the_parts() -> None:
    """When the metadata surely does not exist, the acknowledged files are deleted and the budget is charged."""
    driver = driver_of(prompt=False)
    trigger(driver)
    driver.answer(0)
    ack(driver, 1, state={"private": ["p"]})

    driver.answer(0, fails=True)
    driver.answer(0)

    assert driver.private_files() == {"p"}
    assert driver.log.reasons == {1: "FINALIZE_CHECKPOINT_FAILURE"}
    assert len(driver.log.failures) == 1


def test_uncertain_metadata_deletes_nothing() -> None:
    """When the metadata may exist, no file that it refers to is deleted."""
    driver = driver_of(prompt=False)
    trigger(driver)
    driver.answer(0)
    ack(driver, 1, state={"private": ["p"]})

    driver.answer(0, fails=True, maybe_written=True)

    assert driver.outstanding == []
    assert driver.log.reasons == {1: "FINALIZE_CHECKPOINT_FAILURE"}


def test_partly_finished_union_state_is_not_made_durable() -> None:
    """A vertex with union list state declines if only some subtasks have finished, before any metadata is written."""
    driver = CoordinatorDriver(CoordinatorConfig(), CheckpointGraph((2,)))
    trigger(driver)
    for subtask in (0, 1):
        message = Acknowledge(1, 1, (0, subtask), operators_finished=subtask == 0, uses_union_state=True)
        driver.tell(driver.coordinator.on_acknowledge(message, driver.now_ns))

    assert driver.log.reasons == {1: "CHECKPOINT_DECLINED_TASK_CLOSING"}
    assert driver.log.written == {}
    assert driver.log.failures == []


def test_finished_tasks_are_recorded() -> None:
    """The metadata says which vertices have finished; their tasks are neither triggered nor waited for."""
    driver = driver_of()
    driver.coordinator.on_task_status(SOURCE, TaskStatus.FINISHED)
    trigger(driver)
    ack(driver, 1, SINK)

    assert driver.log.triggered == {SINK: [1]}
    assert driver.log.written[1].finished.fully_finished_vertices == (0,)
    assert driver.coordinator.retained.ids == (1,)


def test_checkpoint_without_any_task_completes() -> None:
    """When all tasks have finished there is no acknowledgement to wait for."""
    driver = driver_of()
    for task in (SOURCE, SINK):
        driver.coordinator.on_task_status(task, TaskStatus.FINISHED)

    trigger(driver, "r")

    assert driver.log.requests == {"r": "completed"}


def test_final_checkpoint_reports_under_its_label() -> None:
    """The requester of the final checkpoint hears of success and of failure."""
    driver = driver_of(tolerable_failures=None)
    driver.tell(driver.coordinator.trigger_final(driver.now_ns))
    decline(driver, 1)
    assert driver.log.requests == {FINAL_CHECKPOINT: "failed:CHECKPOINT_DECLINED"}

    driver.tell(driver.coordinator.trigger_final(driver.now_ns))
    ack(driver, 2)

    assert driver.log.requests == {FINAL_CHECKPOINT: "completed"}
