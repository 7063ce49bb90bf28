"""Metrics mean under Flink's names what Flink means by them."""

from __future__ import annotations

from engine.observe.events import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Receive,
    RunStarted,
    Send,
    SnapshotAcknowledged,
    SnapshotTaken,
    TimerFired,
    TraceEvent,
)
from engine.observe.metrics import (
    JOB_METRICS,
    TASK_METRICS,
    MetricsCollector,
    MetricsSnapshot,
    job_metrics,
    operator_metrics,
)

MS = 1_000_000
CHANNELS = {0: ("map[0]", "count[0]"), 1: ("map[0]", "count[1]")}


def collect(*events: TraceEvent) -> MetricsSnapshot:
    """The metrics after a run that began with one attempt and saw these events."""
    collector = MetricsCollector(CHANNELS)
    for event in (RunStarted(0, "job", "f", "aligned", "0", 1), AttemptStarted(0, 1, None), *events):
        collector(event)
    return collector.snapshot()


def test_records_are_counted_where_they_leave_and_where_they_arrive() -> None:
    """A sender counts over its channels; records under way are out but not in; events are no records."""
    metrics = collect(
        Send(1, 1, 0, 1, "records", 5, None, 5),
        Send(1, 1, 1, 1, "records", 2, None, 2),
        Send(1, 1, 1, 2, "Watermark", 0, 9, 2),
        Receive(2, 1, 0, 1, "records", 3, None, 2),
        Receive(3, 1, 0, 1, "records", 2, None, 0),
        Receive(3, 1, 1, 2, "Watermark", 0, 9, 0),
    )

    assert metrics.tasks["map[0]"] == {"numRecordsIn": 0, "numRecordsOut": 7}
    assert metrics.tasks["count[0]"]["numRecordsIn"] == 5
    assert metrics.tasks["count[1]"]["numRecordsIn"] == 0
    assert metrics.total("numRecordsOut") == 7


def test_checkpoints_are_counted_by_how_they_end() -> None:
    """Triggered ones are in progress until they complete or fail; the latest completed one sets last…"""
    metrics = collect(
        CheckpointTriggered(10 * MS, 1, 1),
        CheckpointCompleted(13 * MS, 1, 1, 500),
        CheckpointTriggered(20 * MS, 1, 2),
        CheckpointAborted(21 * MS, 1, 2, "EXPIRED"),
        CheckpointTriggered(30 * MS, 1, 3),
    )

    assert metrics.job == {
        "numRestarts": 0,
        "totalNumberOfCheckpoints": 3,
        "numberOfInProgressCheckpoints": 1,
        "numberOfCompletedCheckpoints": 1,
        "numberOfFailedCheckpoints": 1,
        "lastCompletedCheckpointId": 1,
        "lastCheckpointSize": 500,
        "lastCheckpointDuration": 3,
    }


def test_the_duration_ends_with_the_last_acknowledgement() -> None:
    """Making it durable comes after that; acknowledgements of other checkpoints, or of no pending one, do not count."""
    metrics = collect(
        CheckpointTriggered(10 * MS, 1, 1),
        CheckpointTriggered(11 * MS, 1, 2),
        SnapshotAcknowledged(12 * MS, 1, 1, "map[0]", 100),
        SnapshotAcknowledged(15 * MS, 1, 1, "count[0]", 100),
        SnapshotAcknowledged(17 * MS, 1, 2, "map[0]", 100),
        CheckpointCompleted(19 * MS, 1, 1, 200),
        SnapshotAcknowledged(25 * MS, 1, 1, "count[1]", 100),
    )
    without = collect(
        SnapshotAcknowledged(9 * MS, 1, 1, "map[0]", 100),
        CheckpointTriggered(10 * MS, 1, 1),
        CheckpointCompleted(14 * MS, 1, 1, 200),
    )

    assert metrics.job["lastCheckpointDuration"] == 5
    assert without.job["lastCheckpointDuration"] == 4


def test_acknowledgements_of_an_ended_attempt_are_forgotten() -> None:
    """An id that the next attempt uses again begins anew."""
    metrics = collect(
        CheckpointTriggered(10 * MS, 1, 1),
        SnapshotAcknowledged(12 * MS, 1, 1, "map[0]", 100),
        AttemptStarted(20 * MS, 2, None),
        CheckpointTriggered(30 * MS, 2, 1),
        CheckpointCompleted(34 * MS, 2, 1, 200),
    )

    assert metrics.job["lastCheckpointDuration"] == 4


def test_a_restart_counts_and_starts_the_tasks_anew() -> None:
    """Task metrics belong to an attempt, metrics of the job to the job; a pending checkpoint ends with the attempt."""
    metrics = collect(
        Send(1, 1, 0, 1, "records", 5, None, 5),
        CheckpointTriggered(2, 1, 1),
        AttemptStarted(40 * MS, 2, 7),
        Send(1, 2, 0, 1, "records", 1, None, 1),
    )

    assert metrics.job["numRestarts"] == 1
    assert metrics.job["lastCheckpointRestoreTimestamp"] == 40
    assert metrics.job["numberOfInProgressCheckpoints"] == 0
    assert metrics.tasks["map[0]"]["numRecordsOut"] == 1


def test_a_checkpoint_that_ends_after_its_attempt_is_not_in_progress_twice() -> None:
    """An abort that comes late takes nothing below zero."""
    metrics = collect(
        CheckpointTriggered(2, 1, 1), AttemptStarted(3, 2, None), CheckpointAborted(4, 2, 1, "SUSPENDED")
    )

    assert metrics.job["numberOfInProgressCheckpoints"] == 0
    assert metrics.job["numberOfFailedCheckpoints"] == 1


def test_the_latest_snapshot_sets_alignment_and_start_delay() -> None:
    """Both are values of the latest checkpoint, not sums; timers are counted."""
    metrics = collect(
        SnapshotTaken(1, 1, 1, "count[0]", 900, 40),
        SnapshotTaken(2, 1, 2, "count[0]", 30, 5),
        TimerFired(3, 1, "count[0]", "window", 3),
        TimerFired(4, 1, "count[0]", "window", 4),
    )
    task = metrics.tasks["count[0]"]

    assert (task["checkpointAlignmentTime"], task["checkpointStartDelayNanos"], task["numFiredTimers"]) == (30, 5, 2)


def test_a_snapshot_of_metrics_stays_as_it_was() -> None:
    """Later events do not reach into a snapshot taken before."""
    collector = MetricsCollector(CHANNELS)
    collector(AttemptStarted(0, 1, None))
    before = collector.snapshot()
    collector(Send(1, 1, 0, 1, "records", 5, None, 5))

    assert before.tasks["map[0]"]["numRecordsOut"] == 0
    assert collector.snapshot().tasks["map[0]"]["numRecordsOut"] == 5


def test_every_metric_is_explained() -> None:
    """No name is reported that the tables do not explain."""
    everything = job_metrics(
        restarts=1, triggered=1, in_progress=0, completed=1, failed=0,
        last_completed_id=1, last_duration_ns=2 * MS, last_size_bytes=3, last_restore_ns=4 * MS,
        last_full_bytes=5, last_processed_bytes=6, last_persisted_bytes=7,
    )  # fmt: skip
    metrics = collect(SnapshotTaken(1, 1, 1, "count[0]", 1, 1), TimerFired(1, 1, "count[0]", "w", 1))

    assert set(everything) == set(JOB_METRICS)
    sizes = [everything[f"lastCheckpoint{what}"] for what in ("Size", "FullSize", "ProcessedData", "PersistedData")]
    assert (everything["lastCheckpointDuration"], sizes) == (2, [3, 5, 6, 7])
    assert set(metrics.tasks["count[0]"]) == set(TASK_METRICS)


def test_counters_of_operators_are_listed_by_uid_and_subtask() -> None:
    """Sorted, and without operators that count nothing."""
    counters = {("window", 1): {"numLateRecordsDropped": 3}, ("window", 0): {"b": 1, "a": 2}, ("map", 0): {}}
    snapshot = MetricsSnapshot({"numRestarts": 0}, {}, operator_metrics(counters))

    assert list(snapshot.operators) == ["window[0]", "window[1]"]
    assert snapshot.total("numLateRecordsDropped") == 3
    assert list(snapshot.as_dict()["operators"]["window[0]"]) == ["a", "b"]
