"""The checkpoint table."""

from __future__ import annotations

from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.messages import SubtaskCheckpointMetrics
from engine.checkpoint.statistics import CheckpointStatistics, CheckpointStatus, Spread
from engine.elements.events import SnapshotKind

EXPIRED = CheckpointFailureReason.CHECKPOINT_EXPIRED
KIND = SnapshotKind.CHECKPOINT


def test_a_completed_row() -> None:
    """Duration runs to the last acknowledgement, sizes are sums over the subtasks."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, KIND, 100, 2)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(checkpointed_bytes=5, full_bytes=6), 120)
    statistics.on_acknowledged(
        1, (1, 0), SubtaskCheckpointMetrics(checkpointed_bytes=7, processed_bytes=1, persisted_bytes=2), 150
    )
    (row,) = statistics.rows()
    assert row.end_to_end_ns is None
    assert statistics.in_progress == 1

    statistics.on_completed(1, 170)

    assert row.status is CheckpointStatus.COMPLETED
    assert (row.acknowledged, row.task_count) == (2, 2)
    assert (row.latest_acknowledgement_ns, row.end_to_end_ns, row.ended_at_ns) == (150, 50, 170)
    assert (row.checkpointed_bytes, row.full_bytes, row.processed_bytes, row.persisted_bytes) == (12, 6, 1, 2)
    assert [subtask.end_to_end_ns for subtask in row.subtasks] == [20, 50]
    assert (statistics.triggered, statistics.in_progress, statistics.completed) == (1, 0, 1)


def test_a_failed_row() -> None:
    """A failed checkpoint lasts until its failure and says why."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, KIND, 100, 2)
    statistics.on_failed(1, EXPIRED, 400, "slow disk")
    statistics.on_failed_without_id()

    (row,) = statistics.rows()
    assert (row.end_to_end_ns, row.failure_reason, row.failure_cause) == (300, EXPIRED, "slow disk")
    assert (statistics.triggered, statistics.in_progress, statistics.failed) == (2, 0, 2)
    assert statistics.latest(CheckpointStatus.FAILED) is row
    assert statistics.latest(CheckpointStatus.COMPLETED) is None


def test_history_is_bounded_but_counts_are_not() -> None:
    """The oldest row is forgotten; late news about it do no harm."""
    statistics = CheckpointStatistics(history_size=2)
    for checkpoint_id in (1, 2, 3):
        statistics.on_triggered(checkpoint_id, KIND, 0, 1)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(), 5)
    statistics.on_completed(1, 5)
    statistics.on_discarded(1)
    statistics.on_discarded(2)

    assert [row.checkpoint_id for row in statistics.rows()] == [2, 3]
    assert statistics.completed == 1
    assert [row.is_discarded for row in statistics.rows()] == [True, False]


def test_restores_are_counted() -> None:
    """Each restore is one line with its checkpoint and attempt."""
    statistics = CheckpointStatistics()
    statistics.on_restored(4, 10, 2)

    assert statistics.restored == 1
    assert [(row.checkpoint_id, row.restored_at_ns, row.attempt) for row in statistics.restores] == [
        (4, 10, 2)
    ]


def test_summary_covers_completed_rows_only() -> None:
    """Failed checkpoints do not blur the summary."""
    statistics = CheckpointStatistics()
    for checkpoint_id, size in ((1, 10), (2, 30)):
        statistics.on_triggered(checkpoint_id, KIND, 0, 1)
        metrics = SubtaskCheckpointMetrics(checkpointed_bytes=size)
        statistics.on_acknowledged(checkpoint_id, (0, 0), metrics, size)
        statistics.on_completed(checkpoint_id, 99)
    statistics.on_triggered(3, KIND, 0, 1)
    statistics.on_failed(3, EXPIRED, 1000)

    summary = statistics.summary()

    expected = Spread(10, 20.0, 30, p50=10, p90=30, p99=30, p999=30)
    assert summary["checkpointed_bytes"] == expected
    assert summary["end_to_end_ns"] == expected
    assert CheckpointStatistics().summary()["full_bytes"] is None


def test_percentiles_are_by_nearest_rank() -> None:
    """Of one to a thousand the percentiles are what one expects."""
    spread = Spread.of(list(range(1000, 0, -1)))

    assert spread is not None
    assert (spread.minimum, spread.maximum) == (1, 1000)
    assert (spread.p50, spread.p90, spread.p99, spread.p999) == (500, 900, 990, 999)
