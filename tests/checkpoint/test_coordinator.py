"""The coordinator, rule by rule where the recorded sequences leave a gap."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.completed_store import CompletedCheckpoint, JobStatus, RetentionPolicy
from engine.checkpoint.coordinator import FINAL_CHECKPOINT
from engine.checkpoint.coordinator_config import CoordinatorConfig
from engine.checkpoint.coordinator_state import CoordinatorState
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import (
    Acknowledge,
    Decline,
    DiscardCheckpoint,
    FailJob,
    IgnoredBecause,
    InitializeLocation,
    MessageIgnored,
    NotifyAborted,
    NotifyComplete,
    SubtaskCheckpointMetrics,
    TaskId,
    WriteMetadata,
)
from engine.checkpoint.options import configured_options
from engine.checkpoint.plan import CheckpointEdge, CheckpointGraph, TaskStatus
from engine.checkpoint.statistics import CheckpointStatus
from engine.elements.errors import ConfigurationError
from engine.elements.events import SnapshotKind
from tests.checkpoint.coordinator_driver import START_NS, CoordinatorDriver

SOURCE: TaskId = (0, 0)
SINK: TaskId = (1, 0)
GRAPH = CheckpointGraph((1, 1), (CheckpointEdge(0, 1),))
DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED


def driver_of(*, prompt: bool = True, **settings: Any) -> CoordinatorDriver:
    return CoordinatorDriver(CoordinatorConfig(**settings), GRAPH, prompt=prompt)


def trigger(driver: CoordinatorDriver, label: str | None = None) -> None:
    driver.tell(driver.coordinator.trigger_manual(label, driver.now_ns))


def ack(
    driver: CoordinatorDriver, checkpoint_id: int, *tasks: TaskId, state: object = None, attempt: int = 1
) -> None:
    for task in tasks or (SOURCE, SINK):
        message = Acknowledge(checkpoint_id, attempt, task, state)
        driver.tell(driver.coordinator.on_acknowledge(message, driver.now_ns))


def decline(driver: CoordinatorDriver, checkpoint_id: int, attempt: int = 1) -> None:
    message = Decline(checkpoint_id, attempt, SINK, DECLINED, "disk full")
    driver.tell(driver.coordinator.on_decline(message, driver.now_ns))


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
    """A timer that fires before its plan, or after a stop, triggers nothing."""
    driver = driver_of(interval_ns=100)
    driver.tell(driver.coordinator.start(START_NS, 1))
    assert driver.coordinator.on_timer(START_NS + 99) == ()
    driver.tell(driver.coordinator.stop(START_NS))

    assert driver.coordinator.on_timer(START_NS + 100) == ()
    assert driver.coordinator.queued == ()


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


def test_starting_again_aborts_what_is_pending() -> None:
    """A second start is a stop and a start."""
    driver = driver_of(interval_ns=100)
    driver.tell(driver.coordinator.start(START_NS, 1))
    trigger(driver)

    driver.tell(driver.coordinator.start(START_NS + 30, 1))

    assert driver.log.reasons == {1: "CHECKPOINT_COORDINATOR_SUSPEND"}
    assert driver.coordinator.state is CoordinatorState.SCHEDULING
    driver.advance(130)
    assert driver.log.timestamps[2] == START_NS + 130


# --- trigger ----------------------------------------------------------------------------------------------------------


def test_timeout_is_armed_before_the_location_exists() -> None:
    """A storage that never answers costs one checkpoint, not the coordinator."""
    driver = driver_of(prompt=False, timeout_ns=50)
    trigger(driver)
    driver.advance(50)

    assert driver.log.reasons == {1: "CHECKPOINT_EXPIRED"}
    assert driver.log.discarded_locations == []
    assert driver.outstanding == [InitializeLocation(1, SnapshotKind.CHECKPOINT)]


def test_location_that_comes_too_late_is_deleted() -> None:
    """When the location is made after its checkpoint was aborted, it is deleted again and nobody is triggered."""
    driver = driver_of(prompt=False, timeout_ns=50)
    trigger(driver)
    driver.advance(50)

    driver.answer(0)
    driver.answer(0)

    assert driver.log.discarded_locations == [1]
    assert driver.log.triggered[SOURCE] == []


def test_timeout_counts_from_the_registration() -> None:
    """Time in the queue does not count; the barrier still carries the time of the request."""
    driver = driver_of(timeout_ns=100, tolerable_failures=9)
    trigger(driver)
    trigger(driver)
    driver.advance(100)
    assert driver.log.reasons == {1: "CHECKPOINT_EXPIRED"}
    driver.advance(99)
    assert driver.coordinator.pending_ids == (2,)
    assert driver.log.timestamps[2] == START_NS

    driver.advance(1)

    assert driver.coordinator.pending_ids == ()


def test_outdated_timeout_is_ignored() -> None:
    """A timeout that fires before its time, or for a checkpoint that has ended, does nothing."""
    driver = driver_of(timeout_ns=100)
    trigger(driver)

    assert driver.coordinator.on_timeout(1, START_NS + 99) == ()
    assert driver.coordinator.on_timeout(7, START_NS + 100) == ()
    assert driver.coordinator.pending_ids == (1,)


def test_failing_location_counts_as_io_error() -> None:
    """An I/O error before the trigger uses up the budget; nothing is left to delete."""
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
    """With more than ``max_concurrent`` deletions outstanding nothing new is triggered until one ends."""
    driver = driver_of(prompt=False, tolerable_failures=None)
    for checkpoint_id in (1, 2):
        trigger(driver)
        driver.answer(len(driver.outstanding) - 1)
        decline(driver, checkpoint_id)
    trigger(driver)
    assert driver.coordinator.pending_ids == ()

    driver.answer(0)

    assert driver.coordinator.pending_ids == (3,)


def test_nothing_is_triggered_between_two_attempts() -> None:
    """After a failure no task can be triggered until the next attempt runs."""
    driver = driver_of()
    driver.tell(driver.coordinator.on_job_failure(driver.now_ns))
    trigger(driver, "r")
    assert driver.log.requests == {"r": "failed:NOT_ALL_REQUIRED_TASKS_RUNNING"}

    driver.tell(driver.coordinator.start(driver.now_ns, 2))
    trigger(driver, "s")

    assert driver.coordinator.pending_ids == (1,)


def test_unaligned_savepoint_waits_but_overtakes_the_queue() -> None:
    """While records in flight are stored a savepoint is not forced; it runs before queued checkpoints."""
    driver = CoordinatorDriver(
        CoordinatorConfig(tolerable_failures=9), GRAPH, configured_options(unaligned=True)
    )
    trigger(driver)
    trigger(driver)
    driver.tell(driver.coordinator.trigger_savepoint("sp", driver.now_ns))
    assert driver.coordinator.pending_ids == (1,)

    decline(driver, 1)

    assert driver.log.trigger_kinds[SOURCE] == ["CHECKPOINT", "SAVEPOINT"]
    assert driver.coordinator.pending_ids == (2,)


# --- completion -------------------------------------------------------------------------------------------------------


def test_tasks_hear_of_it_only_when_it_is_durable() -> None:
    """All acknowledgements alone notify nobody; the written metadata does."""
    driver = driver_of(prompt=False)
    trigger(driver)
    driver.answer(0)
    ack(driver, 1)
    assert driver.coordinator.finalizing_id == 1
    assert driver.log.completed == {}
    assert driver.coordinator.completed_ids == ()

    driver.answer(0)

    assert driver.log.completed == {SOURCE: [[1, -1]], SINK: [[1, -1]]}
    assert driver.coordinator.completed_ids == (1,)


def test_metadata_lists_the_parts_in_task_order() -> None:
    """The bytes of the metadata do not depend on who acknowledged first."""
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
    """Neither timeout, decline, abort of all, failure nor stop end it: its metadata may exist already."""
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
    assert coordinator.pending_ids == (1,)
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

    assert driver.coordinator.pending_ids == (1,)
    assert driver.log.completed[SINK] == [[2, -1]]


def test_plain_savepoint_disturbs_nobody() -> None:
    """It notifies no task, subsumes nothing and is not retained: it belongs to the user."""
    driver = driver_of(max_concurrent=2)
    trigger(driver)
    driver.tell(driver.coordinator.trigger_savepoint("sp", driver.now_ns))
    ack(driver, 2)

    assert driver.log.requests == {"sp": "completed"}
    assert driver.log.completed == {}
    assert driver.coordinator.pending_ids == (1,)
    assert driver.coordinator.completed_ids == ()


def test_unclaimed_checkpoint_is_not_told_as_subsumed() -> None:
    """Tasks may drop what they keep for a subsumed checkpoint, so they only hear of those that are ours to delete."""
    driver = driver_of()
    driver.tell(driver.coordinator.recover([CompletedCheckpoint(1, is_unclaimed=True)], START_NS))
    trigger(driver)
    ack(driver, 2)
    trigger(driver)
    ack(driver, 3)

    assert driver.log.completed[SINK] == [[2, -1], [3, 2]]
    assert driver.log.discarded_checkpoints == [2]


def test_failed_metadata_deletes_the_parts() -> None:
    """When the metadata surely does not exist, what was acknowledged is deleted and the budget is charged."""
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
    """When the metadata may exist, no file that it refers to is touched."""
    driver = driver_of(prompt=False)
    trigger(driver)
    driver.answer(0)
    ack(driver, 1, state={"private": ["p"]})

    driver.answer(0, fails=True, maybe_written=True)

    assert driver.outstanding == []
    assert driver.log.reasons == {1: "FINALIZE_CHECKPOINT_FAILURE"}


def test_partly_finished_union_state_is_not_made_durable() -> None:
    """A vertex with union list state of which some subtasks have finished declines, before anything is written."""
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
    assert driver.coordinator.completed_ids == (1,)


def test_checkpoint_without_any_task_completes() -> None:
    """When all tasks have finished there is nothing to wait for."""
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


# --- messages ---------------------------------------------------------------------------------------------------------


def test_acknowledgement_of_an_older_attempt_is_fenced() -> None:
    """It is recorded, its state is deleted, and it does not count, even for an id that is pending."""
    driver = driver_of()
    driver.tell(driver.coordinator.start(driver.now_ns, 2))
    trigger(driver)
    ack(driver, 1, SOURCE, state={"private": ["old"]}, attempt=1)
    decline(driver, 1, attempt=1)

    assert [ignored.why for ignored in driver.log.ignored] == [IgnoredBecause.OLDER_ATTEMPT] * 2
    assert driver.private_files() == {"old"}
    assert driver.coordinator.pending_ids == (1,)
    ack(driver, 1, SINK, attempt=2)
    assert driver.coordinator.pending_ids == (1,)


def test_messages_from_the_future_are_a_bug() -> None:
    """Nobody can send in an attempt that has not begun."""
    driver = driver_of()

    with pytest.raises(AssertionError, match="future"):
        driver.coordinator.on_acknowledge(Acknowledge(1, 7, SOURCE), driver.now_ns)


def test_acknowledgement_of_an_expired_checkpoint_is_told_apart() -> None:
    """A late part of an expired checkpoint is deleted and recorded as such."""
    driver = driver_of(timeout_ns=50, tolerable_failures=9)
    trigger(driver)
    driver.advance(50)

    ack(driver, 1, SINK, state={"private": ["late"]})

    assert [ignored.why for ignored in driver.log.ignored] == [IgnoredBecause.EXPIRED]
    assert driver.private_files() == {"late"}


def test_ignored_message_without_state_deletes_nothing() -> None:
    """A stateless late part leads to the record only."""
    driver = driver_of()
    message = Acknowledge(9, 1, SINK)

    told = driver.coordinator.on_acknowledge(message, driver.now_ns)

    assert (MessageIgnored(message, IgnoredBecause.NOT_PENDING),) == told


def test_decline_carries_task_and_cause_to_where_they_are_read() -> None:
    """The failing task is named to the driver, the cause is in the table."""
    driver = driver_of()
    trigger(driver)
    decline(driver, 1)

    assert [FailJob(DECLINED, 1, SINK)] == driver.log.failures
    (row,) = driver.coordinator.statistics.rows()
    assert (row.failure_reason, row.failure_cause) == (DECLINED, "disk full")


# --- restore and end --------------------------------------------------------------------------------------------------


def test_ids_are_never_used_twice() -> None:
    """Aborted ids leave gaps, and a new process begins above every id that storage has seen."""
    driver = driver_of(tolerable_failures=None)
    trigger(driver)
    decline(driver, 1)
    trigger(driver)
    assert driver.log.triggered[SOURCE] == [1, 2]

    revived = driver_of()
    revived.tell(revived.coordinator.recover([CompletedCheckpoint(3)], START_NS, next_id=6))
    trigger(revived)

    assert revived.log.triggered[SOURCE] == [6]
    plain = driver_of()
    plain.tell(plain.coordinator.recover([CompletedCheckpoint(3)], START_NS))
    assert plain.coordinator.next_checkpoint_id == 4


def test_restore_aborts_leftovers_and_goes_on_with_the_ids() -> None:
    """What is pending when the job is restored dies with that reason; the id counter does not go back."""
    driver = driver_of(max_concurrent=2)
    trigger(driver)
    ack(driver, 1)
    trigger(driver)

    driver.tell(driver.coordinator.start(driver.now_ns, 2, 1))

    assert driver.log.reasons == {2: "JOB_FAILOVER_REGION"}
    assert driver.coordinator.attempt == 2
    assert driver.coordinator.next_checkpoint_id == 3
    assert driver.coordinator.statistics.restored == 1


def test_restore_from_an_older_checkpoint_forgets_newer_ones() -> None:
    """A newer checkpoint that could not be read is no restore point any more, and is not told to tasks as complete."""
    driver = driver_of(num_retained=2, tolerable_failures=None)
    for checkpoint_id in (1, 2):
        trigger(driver)
        ack(driver, checkpoint_id)

    driver.tell(driver.coordinator.start(driver.now_ns, 2, 1))
    trigger(driver)
    decline(driver, 3, attempt=2)

    assert driver.coordinator.completed_ids == (1,)
    assert driver.log.aborted[SOURCE] == [[3, 1]]
    assert driver.log.discarded_checkpoints == []


def test_restart_from_nothing_is_no_restore() -> None:
    """An attempt that begins anew is not counted as restored."""
    driver = driver_of()
    driver.tell(driver.coordinator.start(driver.now_ns, 2))

    assert driver.coordinator.statistics.restored == 0
    with pytest.raises(AssertionError, match="attempt 1 after 2"):
        driver.coordinator.begin_attempt(1)


def test_shutdown_deletes_by_policy() -> None:
    """With a policy that keeps nothing after a finished job the completed checkpoint goes."""
    driver = driver_of(retention=RetentionPolicy.RETAIN_ON_FAILURE)
    trigger(driver)
    ack(driver, 1)

    driver.tell(driver.coordinator.shut_down(JobStatus.FINISHED, driver.now_ns))

    assert driver.log.discarded_checkpoints == [1]
    assert driver.coordinator.completed_ids == ()
    assert driver.coordinator.shut_down(JobStatus.FAILED, driver.now_ns) == ()
    assert driver.coordinator.start(driver.now_ns, 1) == ()


def test_shutdown_waits_for_the_metadata_being_written() -> None:
    """The policy is applied when the outcome of the last write is known, not before."""
    driver = driver_of(prompt=False, num_retained=2, retention=RetentionPolicy.NEVER_RETAIN_AFTER_TERMINATION)
    for checkpoint_id in (1, 2):
        trigger(driver)
        driver.answer(0)
        ack(driver, checkpoint_id)
        if checkpoint_id == 1:
            driver.answer(0)
    driver.tell(driver.coordinator.shut_down(JobStatus.FAILED, driver.now_ns))
    assert driver.outstanding == [driver.log.written[2]]

    driver.answer(0)

    assert driver.outstanding == [DiscardCheckpoint(1), DiscardCheckpoint(2)]


def test_shutdown_fails_later_requests() -> None:
    """After the end every request fails at once."""
    driver = driver_of()
    driver.tell(driver.coordinator.shut_down(JobStatus.FINISHED, driver.now_ns))
    trigger(driver, "r")

    assert driver.log.requests == {"r": "failed:CHECKPOINT_COORDINATOR_SHUTDOWN"}


# --- settings and table -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["interval_ns", "timeout_ns", "min_pause_ns", "max_concurrent", "num_retained", "tolerable_failures"],
)
def test_senseless_settings_are_refused_by_name(name: str) -> None:
    """A setting below its least value is an error that names it."""
    with pytest.raises(ConfigurationError, match=f"{name} is -1"):
        CoordinatorConfig(**{name: -1})


def test_unaligned_checkpoints_cannot_overlap() -> None:
    """Storing records in flight for two checkpoints at once is refused."""
    with pytest.raises(ConfigurationError, match="max_concurrent is 2"):
        CoordinatorDriver(CoordinatorConfig(max_concurrent=2), GRAPH, configured_options(unaligned=True))


def test_pause_raises_the_interval_and_is_at_most_a_year() -> None:
    """The effective interval is never below the pause, and an absurd pause is cut."""
    year_ns = 365 * 24 * 3600 * 10**9

    assert CoordinatorConfig(interval_ns=5, min_pause_ns=7).effective_interval_ns == 7
    assert CoordinatorConfig(interval_ns=9, min_pause_ns=7).effective_interval_ns == 9
    assert CoordinatorConfig(interval_ns=5, min_pause_ns=10 * year_ns).effective_interval_ns == year_ns
    assert CoordinatorConfig(min_pause_ns=7).effective_interval_ns is None


def test_the_table_is_filled() -> None:
    """Triggers, acknowledgements, completions, failures, deletions and the request time are in the statistics."""
    driver = driver_of(max_concurrent=2, tolerable_failures=None)
    coordinator = driver.coordinator
    for _ in range(2):
        trigger(driver)
    driver.now_ns += 10
    metrics = SubtaskCheckpointMetrics(checkpointed_bytes=4)
    for checkpoint_id in (1, 2):
        for task in (SOURCE, SINK):
            message = Acknowledge(checkpoint_id, 1, task, metrics=metrics)
            driver.tell(coordinator.on_acknowledge(message, driver.now_ns))
    trigger(driver)
    decline(driver, 3)
    coordinator.on_task_status(SINK, TaskStatus.DEPLOYING)
    trigger(driver)

    statistics = coordinator.statistics
    assert [row.is_discarded for row in statistics.rows()] == [True, False, False]
    assert [row.end_to_end_ns for row in statistics.rows()] == [10, 10, 0]
    assert [row.checkpointed_bytes for row in statistics.rows()] == [8, 8, 0]
    assert (statistics.triggered, statistics.completed, statistics.failed, statistics.in_progress) == (
        4,
        2,
        2,
        0,
    )
    assert statistics.rows()[2].status is CheckpointStatus.FAILED


def test_fingerprint_is_relative_to_now() -> None:
    """Two coordinators in the same situation at different times have one fingerprint."""
    prints = []
    for delay_ns in (0, 12345):
        driver = driver_of(interval_ns=100)
        driver.now_ns += delay_ns
        driver.tell(driver.coordinator.start(driver.now_ns, 1))
        driver.advance(100)
        prints.append(driver.coordinator.fingerprint(driver.now_ns))
        assert driver.coordinator.fingerprint(driver.now_ns + 1) != prints[-1]

    assert prints[0] == prints[1]
