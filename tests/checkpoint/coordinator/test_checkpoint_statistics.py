"""The checkpoint table: its values for each checkpoint, and for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import (
    CheckpointRow,
    CheckpointStatistics,
    CheckpointStatus,
    RestoreRow,
    Spread,
    SubtaskCheckpointMetrics,
    TaskId,
    spreads,
)
from engine.checkpoint.coordinator.checkpoint_statistics import SUBTASK_COLUMNS, SUMMARY_COLUMNS, CheckpointType
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import SnapshotKind

EXPIRED = CheckpointFailureReason.CHECKPOINT_EXPIRED
CHECKPOINT, SAVEPOINT = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT


def completed(statistics: CheckpointStatistics, checkpoint_id: int, kind: SnapshotKind = CHECKPOINT) -> None:
    """A checkpoint without any task, from trigger to end."""
    statistics.on_triggered(checkpoint_id, kind, 0, 0)
    statistics.on_completed(checkpoint_id, 1)


# --- rows ---


def test_a_completed_row() -> None:
    """The duration runs to the last acknowledgement, also meanwhile; sizes are sums over the subtasks."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, CHECKPOINT, 100, 2)
    (row,) = statistics.rows()
    assert (row.end_to_end_ns, row.latest_acknowledgement_ns) == (None, None)

    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(checkpointed_bytes=5, full_bytes=6), 120)
    assert (row.status, row.end_to_end_ns) == (CheckpointStatus.IN_PROGRESS, 20)

    metrics = SubtaskCheckpointMetrics(checkpointed_bytes=7, processed_bytes=1, persisted_bytes=2)
    statistics.on_acknowledged(1, (1, 0), metrics, 150)
    statistics.on_completed(1, 170, external_path="/state/chk-1")

    assert row.status is CheckpointStatus.COMPLETED
    assert (row.acknowledged, row.task_count) == (2, 2)
    assert (row.latest_acknowledgement_ns, row.end_to_end_ns, row.ended_at_ns) == (150, 50, 170)
    assert (row.checkpointed_bytes, row.full_bytes, row.processed_bytes, row.persisted_bytes) == (12, 6, 1, 2)
    assert [(one.task, one.end_to_end_ns, one.metrics) for one in row.subtasks][1] == ((1, 0), 50, metrics)
    assert row.external_path == "/state/chk-1"
    assert (statistics.triggered, statistics.in_progress, statistics.completed) == (1, 0, 1)


def test_a_failed_row() -> None:
    """A failed checkpoint lasts until its failure and gives the reason in words."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, CHECKPOINT, 100, 2)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(), 150)
    statistics.on_failed(1, EXPIRED, 400, "slow disk")
    statistics.on_failed_without_id()

    (row,) = statistics.rows()
    assert (row.end_to_end_ns, row.failure_reason, row.latest_acknowledgement_ns) == (300, EXPIRED, 150)
    assert row.failure_message == "the checkpoint did not complete within its timeout: slow disk"
    assert (statistics.triggered, statistics.in_progress, statistics.failed) == (2, 0, 2)
    assert statistics.latest_failed is row
    assert statistics.latest_completed is None


def test_a_failure_without_cause_names_its_reason_only() -> None:
    """And a row that has not failed has no message."""
    row = CheckpointRow(1, CHECKPOINT, 0, 0, 1)
    assert row.failure_message is None

    row.failure_reason = EXPIRED
    assert row.failure_message == EXPIRED.value


def test_a_subtask_reports_once() -> None:
    """A second report of a subtask changes nothing."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, CHECKPOINT, 0, 2)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(full_bytes=5), 10)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(full_bytes=7), 20)

    (row,) = statistics.rows()
    assert (row.acknowledged, row.full_bytes, row.latest_acknowledgement_ns) == (1, 5, 10)


def test_finished_subtasks_count_as_acknowledged() -> None:
    """They are part of the checkpoint, with zeros, from the moment of the trigger."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, CHECKPOINT, 130, 1, requested_ns=100, finished=[(0, 0), (0, 1)])
    statistics.on_acknowledged(1, (1, 0), SubtaskCheckpointMetrics(full_bytes=5), 150)

    (row,) = statistics.rows()
    assert (row.acknowledged, row.task_count, row.full_bytes) == (3, 3, 5)
    assert (row.requested_at_ns, row.triggered_at_ns, row.end_to_end_ns) == (100, 130, 20)
    assert [(one.task, one.is_finished, one.end_to_end_ns) for one in row.subtasks] == [
        ((0, 0), True, 0), ((0, 1), True, 0), ((1, 0), False, 20),
    ]  # fmt: skip
    statistics.validate()


@pytest.mark.parametrize("fails_first", [True, False])
def test_a_subtask_of_an_aborted_checkpoint_tells_what_it_measured(fails_first: bool) -> None:
    """Before or after the failure is known; its row says that it was aborted."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, CHECKPOINT, 0, 2)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(), 5)
    if fails_first:
        statistics.on_failed(1, EXPIRED, 10)
    statistics.on_incomplete(1, (1, 0), SubtaskCheckpointMetrics(alignment_ns=9), 12)
    if not fails_first:
        statistics.on_failed(1, EXPIRED, 10)

    (row,) = statistics.rows()
    assert [(one.task, one.is_aborted) for one in row.subtasks] == [((0, 0), False), ((1, 0), True)]
    assert (row.acknowledged, row.end_to_end_ns) == (2, 10)
    statistics.validate()


def test_a_completed_checkpoint_takes_no_report_of_an_abort() -> None:
    """A checkpoint that the table does not know takes none either."""
    statistics = CheckpointStatistics()
    completed(statistics, 1)
    statistics.on_incomplete(1, (0, 0), SubtaskCheckpointMetrics(full_bytes=1), 5)
    statistics.on_incomplete(9, (0, 0), SubtaskCheckpointMetrics(full_bytes=1), 5)

    assert statistics.rows()[0].subtasks == ()


@pytest.mark.parametrize(
    ("kind", "is_synchronous", "persisted", "expected"),
    [
        (CHECKPOINT, False, 0, CheckpointType.CHECKPOINT),
        (SnapshotKind.FULL_CHECKPOINT, False, 0, CheckpointType.CHECKPOINT),
        (CHECKPOINT, False, 1, CheckpointType.UNALIGNED_CHECKPOINT),
        (SAVEPOINT, False, 0, CheckpointType.SAVEPOINT),
        (SAVEPOINT, True, 1, CheckpointType.SYNC_SAVEPOINT),
    ],
)
def test_types(kind: SnapshotKind, is_synchronous: bool, persisted: int, expected: CheckpointType) -> None:
    """Flink's names; one subtask that persists a byte in flight makes a checkpoint unaligned."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, kind, 0, 2, is_synchronous=is_synchronous)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(persisted_bytes=persisted), 1)
    statistics.on_acknowledged(1, (0, 1), SubtaskCheckpointMetrics(), 1)

    assert statistics.rows()[0].type is expected


def test_rows_by_vertex_are_in_order() -> None:
    """Whatever the order in which the subtasks report."""
    statistics = CheckpointStatistics()
    statistics.on_triggered(1, CHECKPOINT, 0, 4)
    for task in ((1, 1), (0, 0), (1, 0), (0, 1)):
        statistics.on_acknowledged(1, task, SubtaskCheckpointMetrics(), 1)

    by_vertex = statistics.rows()[0].by_vertex()
    assert {vertex: [row.task for row in rows] for vertex, rows in by_vertex.items()} == {
        0: [(0, 0), (0, 1)], 1: [(1, 0), (1, 1)],
    }  # fmt: skip


# --- history, latest, restores ---


def test_history_is_bounded_but_counts_and_summary_are_not() -> None:
    """The oldest row is dropped; its later events still count, and late reports about it do no harm."""
    statistics = CheckpointStatistics(history_size=2)
    for checkpoint_id in (1, 2, 3):
        statistics.on_triggered(checkpoint_id, CHECKPOINT, 0, 1)
    statistics.on_acknowledged(1, (0, 0), SubtaskCheckpointMetrics(full_bytes=4), 5)
    statistics.on_completed(1, 5)
    statistics.on_discarded(1)
    statistics.on_acknowledged(2, (0, 0), SubtaskCheckpointMetrics(full_bytes=6), 5)
    statistics.on_completed(2, 6)
    statistics.on_discarded(2)
    statistics.validate()

    assert [row.checkpoint_id for row in statistics.rows()] == [2, 3]
    assert statistics.completed == 2
    assert [(row.is_discarded, row.is_retained) for row in statistics.rows()] == [(True, False), (False, False)]
    full = statistics.summary()["full_bytes"]
    assert full is not None
    assert (full.minimum, full.maximum) == (4, 6)


def test_a_forgotten_checkpoint_takes_reports_until_its_end() -> None:
    """Also of subtasks that did not complete their part; its failure is the latest one, with all that was reported."""
    statistics = CheckpointStatistics(history_size=1)
    for checkpoint_id in (1, 2):
        statistics.on_triggered(checkpoint_id, CHECKPOINT, 0, 2)
    statistics.on_incomplete(1, (0, 0), SubtaskCheckpointMetrics(full_bytes=3), 4)
    statistics.on_failed(1, EXPIRED, 5)
    statistics.validate()

    assert statistics.latest_failed is not None
    assert (statistics.latest_failed.acknowledged, statistics.latest_failed.full_bytes) == (1, 3)


def test_old_subtask_rows_are_dropped_but_their_sums_stay() -> None:
    """The checkpoints that ended first lose their details first; one in progress keeps them all."""
    statistics = CheckpointStatistics(subtask_rows=3)
    for checkpoint_id in (1, 2, 3):
        statistics.on_triggered(checkpoint_id, CHECKPOINT, 0, 2)
        for subtask in (0, 1):
            statistics.on_acknowledged(checkpoint_id, (0, subtask), SubtaskCheckpointMetrics(full_bytes=1), 5)
    statistics.on_completed(2, 6)
    assert [len(row.subtasks) for row in statistics.rows()] == [2, 2, 2]

    statistics.on_completed(1, 7)
    statistics.validate()

    rows = statistics.rows()
    assert [(row.are_details_dropped, len(row.subtasks)) for row in rows] == [(False, 2), (True, 0), (False, 2)]
    assert [(row.full_bytes, row.acknowledged) for row in rows] == [(2, 2)] * 3


def test_a_checkpoint_larger_than_the_bound_keeps_its_details() -> None:
    """The bound drops older checkpoints, never the latest; a report after the failure counts towards it."""
    statistics = CheckpointStatistics(subtask_rows=1)
    completed(statistics, 1)
    statistics.on_triggered(2, CHECKPOINT, 0, 3)
    for subtask in range(2):
        statistics.on_acknowledged(2, (0, subtask), SubtaskCheckpointMetrics(), 5)
    statistics.on_failed(2, EXPIRED, 6)
    statistics.on_incomplete(2, (0, 2), SubtaskCheckpointMetrics(), 7)
    statistics.validate()

    assert [len(row.subtasks) for row in statistics.rows()] == [0, 3]


def test_a_row_without_details_takes_no_reports() -> None:
    """The table no longer records whether the subtask has reported already."""
    statistics = CheckpointStatistics(subtask_rows=1)
    for checkpoint_id in (1, 2):
        statistics.on_triggered(checkpoint_id, CHECKPOINT, 0, 1)
        statistics.on_acknowledged(checkpoint_id, (0, 0), SubtaskCheckpointMetrics(full_bytes=1), 5)
        statistics.on_failed(checkpoint_id, EXPIRED, 6)
    statistics.on_incomplete(1, (0, 0), SubtaskCheckpointMetrics(full_bytes=1), 7)
    statistics.validate()

    first = statistics.rows()[0]
    assert (first.are_details_dropped, first.acknowledged, first.full_bytes) == (True, 1, 1)


def test_the_latest_of_each_sort() -> None:
    """By id, not by the order of completion; a savepoint is never the latest checkpoint, and outlives the history."""
    statistics = CheckpointStatistics(history_size=1)
    for checkpoint_id, kind in ((1, SAVEPOINT), (2, CHECKPOINT), (3, CHECKPOINT), (4, CHECKPOINT)):
        statistics.on_triggered(checkpoint_id, kind, 0, 0)
    statistics.on_completed(3, 1)
    statistics.on_completed(2, 1)
    statistics.on_completed(1, 1)
    statistics.on_failed(4, EXPIRED, 1)

    latest = (statistics.latest_completed, statistics.latest_savepoint, statistics.latest_failed)
    assert [row and row.checkpoint_id for row in latest] == [3, 1, 4]


def test_restores_are_counted() -> None:
    """Each restore is one line with its checkpoint and attempt, and where the state came from."""
    statistics = CheckpointStatistics()
    statistics.on_restored(4, 10, 2)
    statistics.on_restored(6, 20, 3, is_savepoint=True, external_path="/sp")

    assert statistics.restored == 2
    assert statistics.restores == [RestoreRow(4, 10, 2), RestoreRow(6, 20, 3, True, "/sp")]


# --- spreads and summary ---


def test_the_summary_covers_completed_checkpoints_only() -> None:
    """Failed ones do not count, nor do those that no task had to acknowledge; savepoints count."""
    statistics = CheckpointStatistics()
    for checkpoint_id, size, kind in ((1, 10, CHECKPOINT), (2, 30, SAVEPOINT)):
        statistics.on_triggered(checkpoint_id, kind, 0, 1)
        metrics = SubtaskCheckpointMetrics(checkpointed_bytes=size)
        statistics.on_acknowledged(checkpoint_id, (0, 0), metrics, size)
        statistics.on_completed(checkpoint_id, 99)
    statistics.on_triggered(3, CHECKPOINT, 0, 1)
    statistics.on_failed(3, EXPIRED, 1000)

    summary = statistics.summary()

    expected = Spread(10, 20, 30, p50=20, p90=30, p95=30, p99=30, p999=30)
    assert summary["checkpointed_bytes"] == expected
    assert summary["end_to_end_ns"] == expected
    assert CheckpointStatistics().summary()["full_bytes"] is None

    completed(statistics, 4)
    assert statistics.summary()["end_to_end_ns"] == expected


# --- any sequence of events, against the naive computation ---

METRICS = st.builds(
    SubtaskCheckpointMetrics, **{name: st.integers(0, 1000) for name in SUBTASK_COLUMNS if name != "end_to_end_ns"}
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("trigger", "ack", "ack", "ack", "incomplete", "complete", "fail", "discard", "early")),
        st.integers(0, 5),
        st.integers(0, 3),
        METRICS,
    ),
    max_size=80,
)


@dataclass
class Naive:
    """All reports about one checkpoint, as they came."""

    trigger_ns: int
    kind: SnapshotKind
    reports: dict[TaskId, tuple[int, SubtaskCheckpointMetrics]] = field(default_factory=dict)
    status: str = "IN_PROGRESS"
    ended_ns: int = 0

    def numbers(self, column: str) -> list[int]:
        """That column of every report, computed from scratch."""
        if column == "end_to_end_ns":
            return [now - self.trigger_ns for now, _ in self.reports.values()]
        return [getattr(metrics, column) for _, metrics in self.reports.values()]

    def total(self, column: str) -> int | None:
        """That column of the checkpoint, computed from scratch."""
        if column != "end_to_end_ns":
            return sum(self.numbers(column))
        if self.status == "FAILED":
            return self.ended_ns - self.trigger_ns
        return max(self.numbers(column), default=None)


@given(EVENTS)
def test_any_run_agrees_with_the_naive_computation(
    events: list[tuple[str, int, int, SubtaskCheckpointMetrics]],
) -> None:
    """After any sequence of events: counts, rows, spreads of tasks and checkpoints, and the summary."""
    statistics, known, early = CheckpointStatistics(), dict[int, Naive](), 0
    for now, (event, which, subtask, metrics) in enumerate(events, start=1):
        early += play(statistics, known, now, event, which, (subtask % 2, subtask), metrics)
        statistics.validate()

    statuses = [naive.status for naive in known.values()]
    assert statistics.triggered == len(known) + early
    assert statistics.in_progress == statuses.count("IN_PROGRESS")
    assert statistics.completed == statuses.count("COMPLETED")
    assert statistics.failed == statuses.count("FAILED") + early
    for row in statistics.rows():
        naive = known[row.checkpoint_id]
        assert {column: getattr(row, column) for column in SUMMARY_COLUMNS} == {
            column: naive.total(column) for column in SUMMARY_COLUMNS
        }
        assert spreads(row.subtasks) == {column: Spread.of(naive.numbers(column)) for column in SUBTASK_COLUMNS}
        for vertex, rows in row.by_vertex().items():
            own = [report for task, report in naive.reports.items() if task[0] == vertex]
            assert spreads(rows)["full_bytes"] == Spread.of([metrics.full_bytes for _, metrics in own])
    ended = [naive for naive in known.values() if naive.status == "COMPLETED"]
    for column, spread in statistics.summary().items():
        assert spread == Spread.of([total for naive in ended if (total := naive.total(column)) is not None])


def play(
    statistics: CheckpointStatistics,
    known: dict[int, Naive],
    now: int,
    event: str,
    which: int,
    task: TaskId,
    metrics: SubtaskCheckpointMetrics,
) -> int:
    """One event, given to both; returns how many triggers failed before they got an id."""
    if event == "trigger":
        kind = SAVEPOINT if which == 0 else CHECKPOINT
        known[len(known) + 1] = Naive(now, kind)
        statistics.on_triggered(len(known), kind, now, 4)
        return 0
    if event == "early":
        statistics.on_failed_without_id()
        return 1
    checkpoint_id = 1 + which % max(1, len(known))
    naive = known.get(checkpoint_id)
    if naive is None:
        return 0
    if event == "ack":
        statistics.on_acknowledged(checkpoint_id, task, metrics, now)
        if naive.status == "IN_PROGRESS":
            naive.reports.setdefault(task, (now, metrics))
    elif event == "incomplete":
        statistics.on_incomplete(checkpoint_id, task, metrics, now)
        if naive.status != "COMPLETED":
            naive.reports.setdefault(task, (now, metrics))
    elif event == "discard":
        if naive.status == "COMPLETED":
            statistics.on_discarded(checkpoint_id)
    elif naive.status == "IN_PROGRESS":
        naive.status, naive.ended_ns = ("COMPLETED" if event == "complete" else "FAILED"), now
        if event == "complete":
            statistics.on_completed(checkpoint_id, now)
        else:
            statistics.on_failed(checkpoint_id, EXPIRED, now)
    return 0


@given(EVENTS, st.integers(1, 3), st.integers(1, 5))
def test_bounds_hold_whatever_happens(
    events: list[tuple[str, int, int, SubtaskCheckpointMetrics]], history_size: int, subtask_rows: int
) -> None:
    """History and details never grow beyond their bounds (one checkpoint may), and nothing else changes by that."""
    bounded, whole = CheckpointStatistics(history_size, subtask_rows), CheckpointStatistics()
    for statistics in (bounded, whole):
        known: dict[int, Naive] = {}
        for now, (event, which, subtask, metrics) in enumerate(events, start=1):
            play(statistics, known, now, event, which, (subtask % 2, subtask), metrics)
            statistics.validate()

    newest = {row.checkpoint_id: row for row in whole.rows()[-history_size:]}
    assert [row.checkpoint_id for row in bounded.rows()] == list(newest)
    ended = [row for row in bounded.rows() if row.status is not CheckpointStatus.IN_PROGRESS]
    details = sorted(len(row.subtasks) for row in ended)
    assert sum(details[:-1]) <= subtask_rows
    counts = ("triggered", "in_progress", "completed", "failed")
    assert [getattr(bounded, name) for name in counts] == [getattr(whole, name) for name in counts]
