"""The checkpoint table: counts, history, per-subtask rows and summaries (Flink: ``CheckpointStatsTracker``).

It only listens and decides nothing, so it is no part of any fingerprint. The counts and the summary cover the
whole run; the history is bounded, and so are the subtask rows in it: the oldest are dropped first.

Rules (Flink: ``PendingCheckpointStats``, ``TaskStateStats``, ``StatsSummary``, ``CheckpointStatsHistory``):

* A subtask reports once for a checkpoint; sizes of a checkpoint are sums over the reports.
* A subtask that had finished before the trigger counts as acknowledged, with zeros.
* A subtask whose checkpoint was aborted may still report its measurements until then (Flink:
  ``reportIncompleteStats``). It counts like the others and its row says that it was aborted. A completed checkpoint
  takes no such report.
* Times count from the trigger. A request may have waited before it; the time of the request has its own column.
* End to end: from the trigger to the latest report; of a failed checkpoint, to the failure.
* A completed savepoint is the latest *savepoint*, never the latest completed checkpoint; the summary has both.
* ``engine.checkpoint.coordinator.spread`` defines averages and percentiles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.checkpoint.coordinator.coordinator_messages import SubtaskCheckpointMetrics, TaskId
from engine.checkpoint.coordinator.spread import Spread
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import SnapshotKind
from state_backends.base import value_class

DEFAULT_HISTORY_SIZE = 10_000
"""Checkpoints whose rows are kept."""
DEFAULT_SUBTASK_ROWS = 50_000
"""Subtask rows kept of all checkpoints that have ended."""
SUMMARY_WINDOW = 10_000
"""Completed checkpoints that the percentiles of the summary are estimated from (Flink:
``CompletedCheckpointStatsSummary.HISTOGRAM_WINDOW_SIZE``)."""
SUBTASK_COLUMNS = (
    "end_to_end_ns",
    "checkpointed_bytes",
    "full_bytes",
    "sync_ns",
    "async_ns",
    "processed_bytes",
    "persisted_bytes",
    "alignment_ns",
    "start_delay_ns",
)
"""The numbers of a :class:`SubtaskRow`."""
SUMMARY_COLUMNS = ("end_to_end_ns", "checkpointed_bytes", "full_bytes", "processed_bytes", "persisted_bytes")
"""The numbers of a :class:`CheckpointRow`, which the summary is over."""


# --- rows ---------------------------------------------------------------------------------------------------------


class CheckpointStatus(Enum):
    """A row's status, by Flink's names."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class CheckpointType(Enum):
    """The table's name for a snapshot (Flink: ``RestAPICheckpointType``)."""

    CHECKPOINT = "CHECKPOINT"
    UNALIGNED_CHECKPOINT = "UNALIGNED_CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    SYNC_SAVEPOINT = "SYNC_SAVEPOINT"


@value_class
class SubtaskRow:
    """The report of one subtask.

    ``end_to_end_ns``  from the trigger to the report;
    ``is_finished``    the subtask had finished before the trigger: it had nothing to measure;
    ``is_aborted``     it did not complete its part, and reports its measurements.
    """

    task: TaskId
    acknowledged_at_ns: int
    end_to_end_ns: int
    metrics: SubtaskCheckpointMetrics
    is_finished: bool = False
    is_aborted: bool = False

    def number(self, column: str) -> int:
        """The number in one of ``SUBTASK_COLUMNS``."""
        value = self.end_to_end_ns if column == "end_to_end_ns" else getattr(self.metrics, column)
        assert isinstance(value, int), column
        return value


def spreads(rows: Sequence[SubtaskRow]) -> dict[str, Spread | None]:
    """The spread of each of ``SUBTASK_COLUMNS`` over these rows: a task's, or a whole checkpoint's."""
    return {column: Spread.of([row.number(column) for row in rows]) for column in SUBTASK_COLUMNS}


@dataclass(slots=True)
class CheckpointRow:
    """One line of the history.

    ``triggered_at_ns``      when it was triggered;
    ``requested_at_ns``      when it was requested: earlier, if it had to wait for others;
    ``task_count``           subtasks it has, finished ones included;
    ``savepoint_format``     of a savepoint: ``CANONICAL`` or ``NATIVE``;
    ``ended_at_ns``          when it became durable, or failed;
    ``is_discarded``         it had completed and is not retained any more;
    ``are_details_dropped``  its subtask rows were forgotten; the sums are not.

    Sizes are sums over the subtasks that reported.
    """

    checkpoint_id: int
    kind: SnapshotKind
    triggered_at_ns: int
    requested_at_ns: int
    task_count: int
    is_synchronous: bool = False
    savepoint_format: str | None = None
    status: CheckpointStatus = CheckpointStatus.IN_PROGRESS
    ended_at_ns: int | None = None
    failure_reason: CheckpointFailureReason | None = None
    failure_cause: str = ""
    external_path: str | None = None
    is_discarded: bool = False
    are_details_dropped: bool = False
    acknowledged: int = 0
    latest_acknowledgement_ns: int | None = None
    checkpointed_bytes: int = 0
    full_bytes: int = 0
    processed_bytes: int = 0
    persisted_bytes: int = 0
    _reported: dict[TaskId, SubtaskRow] = field(default_factory=dict)

    @property
    def subtasks(self) -> tuple[SubtaskRow, ...]:
        """The reports of subtasks, in their order; empty once the details are dropped."""
        return tuple(self._reported.values())

    @property
    def is_savepoint(self) -> bool:
        """Whether the user owns it."""
        return self.kind is SnapshotKind.SAVEPOINT

    @property
    def is_retained(self) -> bool:
        """Whether it completed and is still there."""
        return self.status is CheckpointStatus.COMPLETED and not self.is_discarded

    @property
    def is_unaligned(self) -> bool:
        """Whether records in flight are part of it, whatever form its barriers had."""
        return self.persisted_bytes > 0

    @property
    def type(self) -> CheckpointType:
        """Unaligned once a subtask has persisted records in flight (Flink: ``CheckpointMetricsBuilder``)."""
        if self.is_savepoint:
            return CheckpointType.SYNC_SAVEPOINT if self.is_synchronous else CheckpointType.SAVEPOINT
        return CheckpointType.UNALIGNED_CHECKPOINT if self.is_unaligned else CheckpointType.CHECKPOINT

    @property
    def end_to_end_ns(self) -> int | None:
        """Trigger to the latest report, or to the failure; ``None`` while no subtask has reported."""
        end = self.ended_at_ns if self.status is CheckpointStatus.FAILED else self.latest_acknowledgement_ns
        return None if end is None else max(0, end - self.triggered_at_ns)

    @property
    def failure_message(self) -> str | None:
        """Why it failed, in words."""
        if self.failure_reason is None:
            return None
        return ": ".join(text for text in (self.failure_reason.value, self.failure_cause) if text)

    def by_vertex(self) -> dict[int, list[SubtaskRow]]:
        """The subtask rows by vertex, each in the order of subtasks."""
        found: dict[int, list[SubtaskRow]] = {}
        for row in sorted(self._reported.values(), key=lambda one: one.task):
            found.setdefault(row.task[0], []).append(row)
        return found

    def report(self, row: SubtaskRow) -> bool:
        """Take in a subtask's report; ``False`` if it has reported already, or the details were dropped."""
        if self.are_details_dropped or row.task in self._reported:
            return False
        self._reported[row.task] = row
        self.acknowledged += 1
        self.latest_acknowledgement_ns = row.acknowledged_at_ns
        self.checkpointed_bytes += row.metrics.checkpointed_bytes
        self.full_bytes += row.metrics.full_bytes
        self.processed_bytes += row.metrics.processed_bytes
        self.persisted_bytes += row.metrics.persisted_bytes
        return True

    def drop_details(self) -> int:
        """Forget the subtask rows, and return how many there were."""
        dropped = len(self._reported)
        self._reported.clear()
        self.are_details_dropped = True
        return dropped


@dataclass(frozen=True, slots=True)
class RestoreRow:
    """One restore. ``external_path``: where the state came from, if the driver gave it."""

    checkpoint_id: int
    restored_at_ns: int
    attempt: int
    is_savepoint: bool = False
    external_path: str | None = None


class StatsSummary:
    """The spread of a column that grows for ever, in bounded memory (Flink: ``StatsSummary``): percentiles are those of
    the latest ``window`` values; minimum, average and maximum are over all of them."""

    __slots__ = ("_count", "_latest", "_maximum", "_minimum", "_total")

    def __init__(self, window: int = SUMMARY_WINDOW) -> None:
        self._count = 0
        self._minimum = 0
        self._maximum = 0
        self._total = 0
        self._latest: deque[int] = deque(maxlen=window)

    def add(self, value: int) -> None:
        """One more value."""
        self._minimum = min(self._minimum, value) if self._count else value
        self._maximum = max(self._maximum, value) if self._count else value
        self._total += value
        self._count += 1
        self._latest.append(value)

    def spread(self) -> Spread | None:
        """The spread so far; ``None`` before the first value."""
        if not self._count:
            return None
        return Spread.over(sorted(self._latest), self._minimum, self._total // self._count, self._maximum)


# --- the tracker --------------------------------------------------------------------------------------------------


class CheckpointStatistics:
    """Collects what the coordinator reports. Times in virtual ns.

    ``history_size``  rows kept, oldest forgotten first;
    ``subtask_rows``  subtask rows kept of all checkpoints that have ended, the latest one excepted.

    ``triggered``, ``in_progress``, ``completed``, ``failed``, ``restored`` are Flink's overview line;
    ``latest_completed``, ``latest_savepoint`` and ``latest_failed`` the newest rows of their sort.
    """

    def __init__(self, history_size: int = DEFAULT_HISTORY_SIZE, subtask_rows: int = DEFAULT_SUBTASK_ROWS) -> None:
        assert history_size >= 1, history_size
        self.triggered = 0
        self.in_progress = 0
        self.completed = 0
        self.failed = 0
        self.restored = 0
        self.history: dict[int, CheckpointRow] = {}
        self.restores: list[RestoreRow] = []
        self.latest_completed: CheckpointRow | None = None
        self.latest_savepoint: CheckpointRow | None = None
        self.latest_failed: CheckpointRow | None = None
        self._history_size = history_size
        self._subtask_rows = subtask_rows
        self._summary = {column: StatsSummary() for column in SUMMARY_COLUMNS}
        # Rows that may still change, also when the history has forgotten them.
        self._pending: dict[int, CheckpointRow] = {}
        # Rows that have ended and still have their details, and how many subtask rows these are.
        self._detailed: dict[int, CheckpointRow] = {}
        self._details = 0

    # --- events ---------------------------------------------------------------------------------------------------

    def on_triggered(
        self,
        checkpoint_id: int,
        kind: SnapshotKind,
        now_ns: int,
        task_count: int,
        *,
        requested_ns: int | None = None,
        finished: Iterable[TaskId] = (),
        is_synchronous: bool = False,
        savepoint_format: str | None = None,
    ) -> None:
        """The checkpoint got its id.

        ``now_ns``          when it was triggered; ``requested_ns`` when it was asked for, by default the same;
        ``task_count``      subtasks it waits for; ``finished`` those that had finished and are not waited for;
        ``is_synchronous``  the job stops with this savepoint.
        """
        assert checkpoint_id not in self._pending, checkpoint_id
        self.triggered += 1
        self.in_progress += 1
        requested_ns = now_ns if requested_ns is None else requested_ns
        row = CheckpointRow(
            checkpoint_id, kind, now_ns, requested_ns, task_count, is_synchronous, savepoint_format=savepoint_format
        )
        self.history[checkpoint_id] = self._pending[checkpoint_id] = row
        if len(self.history) > self._history_size:
            self._drop_details(self.history.pop(next(iter(self.history))))
        for task in finished:
            row.task_count += 1
            self._report(row, task, SubtaskCheckpointMetrics(), now_ns, is_finished=True)

    def on_acknowledged(self, checkpoint_id: int, task: TaskId, metrics: SubtaskCheckpointMetrics, now_ns: int) -> None:
        """A subtask has delivered its part."""
        row = self._pending.get(checkpoint_id)
        if row is not None:
            self._report(row, task, metrics, now_ns)

    def on_incomplete(self, checkpoint_id: int, task: TaskId, metrics: SubtaskCheckpointMetrics, now_ns: int) -> None:
        """A subtask reports its measurements of a checkpoint that was aborted, or is about to be."""
        row = self._pending.get(checkpoint_id) or self.history.get(checkpoint_id)
        if row is not None and row.status is not CheckpointStatus.COMPLETED:
            self._report(row, task, metrics, now_ns, is_aborted=True)

    def on_completed(self, checkpoint_id: int, now_ns: int, *, external_path: str | None = None) -> None:
        """The checkpoint is durable, at ``external_path``."""
        row = self._end(checkpoint_id, CheckpointStatus.COMPLETED, now_ns)
        self.completed += 1
        row.external_path = external_path
        if row.is_savepoint:
            self.latest_savepoint = _newer(self.latest_savepoint, row)
        else:
            self.latest_completed = _newer(self.latest_completed, row)
        for column, summary in self._summary.items():
            # Flink would add -1 for a checkpoint without any acknowledgement, and then leave it out.
            value = row.end_to_end_ns if column == "end_to_end_ns" else getattr(row, column)
            if value is not None:
                summary.add(value)

    def on_failed(self, checkpoint_id: int, reason: CheckpointFailureReason, now_ns: int, cause: str = "") -> None:
        """The checkpoint was aborted."""
        row = self._end(checkpoint_id, CheckpointStatus.FAILED, now_ns)
        self.failed += 1
        row.failure_reason, row.failure_cause = reason, cause
        self.latest_failed = _newer(self.latest_failed, row)

    def on_failed_without_id(self) -> None:
        """A trigger failed before it got an id (Flink counts it as triggered and failed)."""
        self.triggered += 1
        self.failed += 1

    def on_discarded(self, checkpoint_id: int) -> None:
        """A completed checkpoint is no longer retained."""
        row = self.history.get(checkpoint_id)
        if row is not None:
            row.is_discarded = True

    def on_restored(
        self,
        checkpoint_id: int,
        now_ns: int,
        attempt: int,
        *,
        is_savepoint: bool = False,
        external_path: str | None = None,
    ) -> None:
        """The job was started from a checkpoint."""
        self.restores.append(RestoreRow(checkpoint_id, now_ns, attempt, is_savepoint, external_path))
        self.restored += 1

    def _report(
        self,
        row: CheckpointRow,
        task: TaskId,
        metrics: SubtaskCheckpointMetrics,
        now_ns: int,
        *,
        is_finished: bool = False,
        is_aborted: bool = False,
    ) -> None:
        end_to_end_ns = max(0, now_ns - row.triggered_at_ns)
        reported = row.report(SubtaskRow(task, now_ns, end_to_end_ns, metrics, is_finished, is_aborted))
        if reported and row.checkpoint_id in self._detailed:
            self._details += 1
            self._bound_details(row)

    def _end(self, checkpoint_id: int, status: CheckpointStatus, now_ns: int) -> CheckpointRow:
        row = self._pending.pop(checkpoint_id)
        self.in_progress -= 1
        row.status, row.ended_at_ns = status, now_ns
        if checkpoint_id in self.history:
            self._detailed[checkpoint_id] = row
            self._details += len(row.subtasks)
            self._bound_details(row)
        return row

    def _bound_details(self, latest: CheckpointRow) -> None:
        while self._details > self._subtask_rows:
            oldest = next(iter(self._detailed.values()))
            if oldest is latest:
                return
            self._drop_details(oldest)

    def _drop_details(self, row: CheckpointRow) -> None:
        # A row that is still pending keeps them until its end: it must know whether a subtask has reported.
        if self._detailed.pop(row.checkpoint_id, None) is not None:
            self._details -= row.drop_details()

    # --- queries --------------------------------------------------------------------------------------------------

    def rows(self) -> tuple[CheckpointRow, ...]:
        """The history, oldest first."""
        return tuple(self.history.values())

    def summary(self) -> dict[str, Spread | None]:
        """Flink's Summary tab: the spread of each of ``SUMMARY_COLUMNS`` over all completed checkpoints."""
        return {column: summary.spread() for column, summary in self._summary.items()}

    def validate(self) -> None:
        """Assert that counts, history and details agree."""
        assert self.triggered == self.in_progress + self.completed + self.failed, vars(self)
        assert self.in_progress == len(self._pending), self._pending.keys()
        assert len(self.history) <= self._history_size, len(self.history)
        assert self._detailed.keys() <= self.history.keys(), self._detailed.keys()
        assert self._details == sum(len(row.subtasks) for row in self._detailed.values()), self._details
        for row in self._known():
            in_progress = row.status is CheckpointStatus.IN_PROGRESS
            assert in_progress == (row.checkpoint_id in self._pending), row
            assert in_progress == (row.ended_at_ns is None), row
            assert (row.failure_reason is not None) == (row.status is CheckpointStatus.FAILED), row
            assert not row.is_discarded or row.status is CheckpointStatus.COMPLETED, row
            assert row.are_details_dropped or row.acknowledged == len(row.subtasks), row
            assert row.acknowledged <= row.task_count, row

    def _known(self) -> Iterator[CheckpointRow]:
        yield from self.history.values()
        yield from (row for id_, row in self._pending.items() if id_ not in self.history)


def _newer(known: CheckpointRow | None, row: CheckpointRow) -> CheckpointRow:
    return row if known is None or row.checkpoint_id > known.checkpoint_id else known
