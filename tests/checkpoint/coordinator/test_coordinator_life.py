"""The coordinator's messages, restores, ends, settings and table, where the recorded sequences have a gap."""

from __future__ import annotations

from typing import Any

import pytest

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointCoordinator,
    CheckpointEdge,
    CheckpointGraph,
    CheckpointStatus,
    CompletedCheckpoint,
    CoordinatorConfig,
    Decline,
    DiscardCheckpoint,
    FailJob,
    IgnoredBecause,
    InitializeLocation,
    JobStatus,
    MessageIgnored,
    SubtaskCheckpointMetrics,
    TaskId,
    TaskStatus,
)
from engine.checkpoint.coordinator.coordinator_config import RetentionPolicy
from engine.elements.errors import ConfigurationError
from engine.elements.events import AlignmentType, CheckpointOptions, SavepointFormat, SnapshotKind, StopMode
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
    assert driver.coordinator.pending.ids == (1,)
    ack(driver, 1, SINK, attempt=2)
    assert driver.coordinator.pending.ids == (1,)


def test_messages_from_the_future_are_a_bug() -> None:
    """No task can send in an attempt that has not begun."""
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
    """Checkpoints pending when the job is restored are aborted with that reason; the id counter does not go back."""
    driver = driver_of(max_concurrent=2)
    trigger(driver)
    ack(driver, 1)
    trigger(driver)

    driver.tell(driver.coordinator.start(driver.now_ns, 2, 1))

    assert driver.log.reasons == {2: "JOB_FAILOVER_REGION"}
    assert driver.coordinator.deployment.attempt == 2
    assert driver.coordinator.next_checkpoint_id == 3
    assert driver.coordinator.statistics.restored == 1


def test_restore_from_an_older_checkpoint_forgets_newer_ones() -> None:
    """A newer checkpoint that could not be read is no restore point any more; tasks do not hear it is complete."""
    driver = driver_of(num_retained=2, tolerable_failures=None)
    for checkpoint_id in (1, 2):
        trigger(driver)
        ack(driver, checkpoint_id)

    driver.tell(driver.coordinator.start(driver.now_ns, 2, 1))
    trigger(driver)
    decline(driver, 3, attempt=2)

    assert driver.coordinator.retained.ids == (1,)
    assert driver.log.aborted[SOURCE] == [[3, 1]]
    assert driver.log.discarded_checkpoints == []


def test_restart_from_nothing_is_no_restore() -> None:
    """An attempt that begins from nothing is not counted as restored."""
    driver = driver_of()
    driver.tell(driver.coordinator.start(driver.now_ns, 2))

    assert driver.coordinator.statistics.restored == 0
    with pytest.raises(AssertionError, match="attempt 1 after 2"):
        driver.coordinator.begin_attempt(1)


def test_shutdown_deletes_by_policy() -> None:
    """With a policy that retains no checkpoint after a finished job the completed checkpoint is deleted."""
    driver = driver_of(retention=RetentionPolicy.RETAIN_ON_FAILURE)
    trigger(driver)
    ack(driver, 1)

    driver.tell(driver.coordinator.shut_down(JobStatus.FINISHED, driver.now_ns))

    assert driver.log.discarded_checkpoints == [1]
    assert driver.coordinator.retained.ids == ()
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
    "name", ["interval_ns", "timeout_ns", "min_pause_ns", "max_concurrent", "num_retained", "tolerable_failures"]
)
def test_senseless_settings_are_refused_by_name(name: str) -> None:
    """A setting below its least value is an error that names it."""
    with pytest.raises(ConfigurationError, match=f"{name} is -1"):
        CoordinatorConfig(**{name: -1})


def test_unaligned_checkpoints_cannot_overlap() -> None:
    """Storing records in flight for two checkpoints at once is refused."""
    with pytest.raises(ConfigurationError, match="max_concurrent is 2"):
        CoordinatorDriver(CoordinatorConfig(max_concurrent=2), GRAPH, CheckpointOptions.configured(unaligned=True))


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
    assert (statistics.triggered, statistics.completed, statistics.failed, statistics.in_progress) == (4, 2, 2, 0)
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


# --- regions ----------------------------------------------------------------------------------------------------------

OTHER: TaskId = (2, 0)
TWO_REGIONS = CheckpointGraph((1, 1, 1), (CheckpointEdge(0, 1),))


def two_regions(**settings: Any) -> CoordinatorDriver:
    """A source with a sink, and a source on its own."""
    return CoordinatorDriver(CoordinatorConfig(**settings), TWO_REGIONS)


def test_a_region_that_fails_takes_pending_checkpoints_with_it() -> None:
    """The reason is the failover; queued requests stay and fail as long as the region is down; no id is consumed."""
    driver = two_regions(tolerable_failures=0)
    coordinator = driver.coordinator
    driver.tell(coordinator.start(driver.now_ns, 1))
    trigger(driver, "pending")
    trigger(driver, "queued")
    driver.tell(coordinator.on_region_failure((SOURCE, SINK), driver.now_ns))

    assert driver.log.reasons == {1: "JOB_FAILOVER_REGION"}
    assert driver.log.requests == {
        "pending": "failed:JOB_FAILOVER_REGION",
        "queued": "failed:NOT_ALL_REQUIRED_TASKS_RUNNING",
    }
    assert coordinator.schedule.is_running
    assert not driver.log.failures
    driver.tell(coordinator.restored(None, driver.now_ns, 2, tasks=(SOURCE, SINK)))
    trigger(driver, "after")
    assert coordinator.pending.ids == (2,)


def test_attempts_belong_to_tasks() -> None:
    """After the restart of a region its tasks send in the new attempt, the others in theirs; the old one is fenced."""
    driver = two_regions()
    coordinator = driver.coordinator
    driver.tell(coordinator.start(driver.now_ns, 1))
    driver.tell(coordinator.on_region_failure((SOURCE, SINK), driver.now_ns))
    driver.tell(coordinator.restored(None, driver.now_ns, 2, tasks=(SOURCE, SINK)))
    trigger(driver)
    ack(driver, 1, OTHER, attempt=1)
    ack(driver, 1, SOURCE, attempt=1)
    assert [ignored.why for ignored in driver.log.ignored] == [IgnoredBecause.OLDER_ATTEMPT]
    ack(driver, 1, SOURCE, SINK, attempt=2)

    assert driver.log.durable == [1]
    assert [coordinator.deployment.attempt_of(task) for task in (SOURCE, SINK, OTHER)] == [2, 2, 1]
    with pytest.raises(AssertionError, match="future"):
        coordinator.on_acknowledge(Acknowledge(1, 2, OTHER), driver.now_ns)


def test_a_region_that_is_deployed_but_does_not_run_is_waited_for() -> None:
    """Deploying is not running: triggers fail until the last task of the region reports that it runs."""
    driver = two_regions()
    coordinator = driver.coordinator
    driver.tell(coordinator.start(driver.now_ns, 1))
    driver.tell(coordinator.on_region_failure((SOURCE, SINK), driver.now_ns))
    driver.tell(coordinator.restored(None, driver.now_ns, 2, TaskStatus.DEPLOYING, tasks=(SOURCE, SINK)))
    for task in (SOURCE, SINK):
        trigger(driver, f"before {task}")
        coordinator.on_task_status(task, TaskStatus.RUNNING)
    trigger(driver, "now")

    assert set(driver.log.requests.values()) == {"failed:NOT_ALL_REQUIRED_TASKS_RUNNING"}
    assert coordinator.pending.ids == (1,)


# --- backlog ----------------------------------------------------------------------------------------------------------


def backlog(driver: CoordinatorDriver, is_backlog: bool, source: TaskId = SOURCE) -> None:
    driver.tell(driver.coordinator.on_backlog(source, is_backlog, driver.now_ns))


def times(driver: CoordinatorDriver) -> list[int]:
    """When checkpoints were triggered, since the start."""
    return [at_ns - START_NS for at_ns in driver.log.timestamps.values()]


def slow_in_backlog(slow_ns: int | None) -> CoordinatorDriver:
    """A schedule of 100, or ``slow_ns`` during a backlog; checkpoints may pile up."""
    driver = driver_of(interval_ns=100, interval_during_backlog_ns=slow_ns, max_concurrent=50)
    driver.tell(driver.coordinator.start(driver.now_ns, 1))
    return driver


def test_a_backlog_slows_the_schedule_down() -> None:
    """The planned trigger stays; from then on the long interval counts."""
    driver = slow_in_backlog(300)
    driver.advance(150)
    backlog(driver, True)
    driver.advance(750)

    assert times(driver) == [100, 200, 500, 800]


def test_the_end_of_a_backlog_brings_the_next_trigger_forward() -> None:
    """The plan was 500: the short interval puts the next trigger at 250 + 100."""
    driver = slow_in_backlog(300)
    driver.advance(150)
    backlog(driver, True)
    driver.advance(100)
    backlog(driver, False)
    driver.advance(250)

    assert times(driver) == [100, 200, 350, 450]


def test_a_backlog_never_postpones_a_trigger() -> None:
    """180 + 300 is later than the planned 200."""
    driver = slow_in_backlog(300)
    driver.advance(180)
    backlog(driver, True)
    driver.advance(30)

    assert times(driver) == [100, 200]


def test_no_checkpoints_during_a_backlog() -> None:
    """0: the planned trigger still comes, then none until the backlog is worked off; requests are served."""
    driver = slow_in_backlog(0)
    driver.advance(150)
    backlog(driver, True)
    driver.advance(650)
    trigger(driver, "asked for")
    backlog(driver, False)
    driver.advance(150)

    assert times(driver) == [100, 200, 800, 900]


def test_a_backlog_lasts_until_the_last_source_has_worked_it_off() -> None:
    """One of two sources is not enough."""
    driver = two_regions(interval_ns=100, interval_during_backlog_ns=0, max_concurrent=50)
    driver.tell(driver.coordinator.start(driver.now_ns, 1))
    backlog(driver, True)
    backlog(driver, True, OTHER)
    backlog(driver, False)
    driver.advance(500)
    assert times(driver) == [100]
    backlog(driver, False, OTHER)
    driver.advance(100)

    assert times(driver) == [100, 600]


def test_a_backlog_ends_with_the_attempt() -> None:
    """A source that is deployed anew has no backlog until it reports one."""
    driver = slow_in_backlog(0)
    backlog(driver, True)
    driver.tell(driver.coordinator.on_job_failure(driver.now_ns))
    driver.tell(driver.coordinator.start(driver.now_ns, 2))
    driver.advance(250)

    assert times(driver) == [100, 200]


def test_without_a_setting_a_backlog_changes_nothing() -> None:
    """The interval is the interval."""
    driver = slow_in_backlog(None)
    backlog(driver, True)
    driver.advance(350)

    assert times(driver) == [100, 200, 300]


def test_the_pause_raises_the_backlog_interval_too() -> None:
    """Neither interval is below it; 0 stays none."""
    config = CoordinatorConfig(interval_ns=5, interval_during_backlog_ns=7, min_pause_ns=9)

    assert config.effective_backlog_interval_ns == 9
    assert CoordinatorConfig(interval_ns=5, interval_during_backlog_ns=0).effective_backlog_interval_ns is None
    assert CoordinatorConfig(interval_during_backlog_ns=7).effective_backlog_interval_ns is None


# --- savepoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [None, *StopMode])
def test_barriers_of_a_savepoint_say_what_it_is(stop: StopMode | None) -> None:
    """Its format, and how the job stops with it; the barriers of a checkpoint carry neither."""
    driver = CoordinatorDriver(CoordinatorConfig(), GRAPH, CheckpointOptions.configured(unaligned=True))
    driver.tell(
        driver.coordinator.trigger_savepoint("saved", driver.now_ns, stop=stop, savepoint_format=SavepointFormat.NATIVE)
    )
    options = driver.log.barriers[1].options

    assert (options.kind, options.stop, options.savepoint_format) == (
        SnapshotKind.SAVEPOINT, stop, SavepointFormat.NATIVE,
    )  # fmt: skip
    assert (options.alignment, options.aligned_timeout_ns) == (AlignmentType.ALIGNED, None)
    ack(driver, 1)
    assert driver.log.written[1].options == options
    trigger(driver)
    assert driver.log.barriers[2].options == CheckpointOptions(AlignmentType.UNALIGNED)


def test_locations_are_asked_for_under_the_label() -> None:
    """The driver looks up under the label where the requester wants the savepoint."""
    driver = driver_of(prompt=False)
    driver.tell(driver.coordinator.trigger_savepoint("mine", driver.now_ns))

    assert InitializeLocation(1, SnapshotKind.SAVEPOINT, "mine") in driver.last
    assert driver.coordinator.waiting_labels == ("mine",)


def test_a_coordinator_goes_on_with_the_table_of_a_dead_one() -> None:
    """Counts and rows are those of the run; all other state begins anew."""
    driver = driver_of()
    trigger(driver)
    ack(driver, 1)
    successor = CheckpointCoordinator(GRAPH, CoordinatorConfig(), statistics=driver.coordinator.statistics)
    successor.recover([CompletedCheckpoint(1)], driver.now_ns, next_id=2)

    assert successor.statistics.completed == 1
    assert (successor.deployment.attempt, successor.pending.ids, successor.retained.ids) == (0, (), (1,))


# --- what a decline measured ------------------------------------------------------------------------------------------


def test_a_decline_may_bring_numbers() -> None:
    """A task that aborted reports how far it had come: its row says that it was aborted."""
    driver = driver_of(tolerable_failures=None)
    trigger(driver)
    metrics = SubtaskCheckpointMetrics(sync_ns=7)
    message = Decline(1, 1, SINK, DECLINED, metrics=metrics)
    driver.tell(driver.coordinator.on_decline(message, driver.now_ns))

    (row,) = driver.coordinator.statistics.rows()[0].subtasks
    assert (row.task, row.metrics.sync_ns, row.is_aborted) == (SINK, 7, True)
