"""Metrics mean under Flink's names what Flink means by them."""

from __future__ import annotations

from engine.observe.metrics import MetricsSnapshot, job_metrics, operator_metrics

MS = 1_000_000


def test_metrics_of_a_job_have_the_names_and_units_of_flink() -> None:
    """Durations and times are in ms of virtual time; what has no value yet is absent."""
    counts = {"restarts": 1, "triggered": 5, "in_progress": 0, "completed": 3, "failed": 2}
    known = job_metrics(
        **counts, last_completed_id=1, last_duration_ns=2 * MS, last_size_bytes=3, last_full_bytes=5,
        last_processed_bytes=6, last_persisted_bytes=7, last_restore_ns=4 * MS,
    )  # fmt: skip

    assert job_metrics(**counts) == {
        "numRestarts": 1,
        "totalNumberOfCheckpoints": 5,
        "numberOfInProgressCheckpoints": 0,
        "numberOfCompletedCheckpoints": 3,
        "numberOfFailedCheckpoints": 2,
    }
    assert known == job_metrics(**counts) | {
        "lastCompletedCheckpointId": 1,
        "lastCheckpointDuration": 2,
        "lastCheckpointSize": 3,
        "lastCheckpointFullSize": 5,
        "lastCheckpointProcessedData": 6,
        "lastCheckpointPersistedData": 7,
        "lastCheckpointRestoreTimestamp": 4,
    }


def test_counters_of_operators_are_listed_by_uid_and_subtask() -> None:
    """Sorted, and without operators that count nothing."""
    counters = {("window", 1): {"numLateRecordsDropped": 3}, ("window", 0): {"b": 1, "a": 2}, ("map", 0): {}}
    snapshot = MetricsSnapshot({"numRestarts": 0}, {}, operator_metrics(counters))

    assert list(snapshot.operators) == ["window[0]", "window[1]"]
    assert snapshot.total("numLateRecordsDropped") == 3
    assert list(snapshot.as_dict()["operators"]["window[0]"]) == ["a", "b"]
