"""A task that only has a snapshot left to write: it closes once that is written, and not before."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.checkpoint.coordinator import CheckpointStatus
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.restore import FixedDelayRestart
from engine.graph.job import Job
from engine.observe.trace_events import CheckpointCompleted, SnapshotAcknowledged, SnapshotTaken, TaskState
from engine.runtime.config import CheckpointInterval, CostModel
from engine.runtime.execution import ExecutionResult
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from state_backends.files import FaultInjectingFileSystem, FaultRule, FileFault, MemoryFileSystem
from tests.runtime.support import US, Trace, execution

MODES = ("aligned", "unaligned", "at-least-once")
WRITE_NS, LINK_NS = 9 * US, 2 * US


def short_and_long(results: CollectedResults) -> Job:
    """One pipeline ends long before the other. Its sink takes longer to write a snapshot than its source takes from a
    barrier to the end of its input."""
    job = Job("short and long")
    for name, records in (("short", 10), ("long", 90)):
        numbers = job.source(SequenceSource(0, records), name=name)
        numbers.rebalance().collect(results, name=f"{name} out", chain=False)
    return job


def ran(mode: str, *rules: FaultRule, **settings: Any) -> tuple[ExecutionResult, Trace, list[Any]]:
    """Checkpoints follow one another without a pause."""
    trace, results = Trace(), CollectedResults()
    made = execution(
        short_and_long(results),
        file_system=FaultInjectingFileSystem(MemoryFileSystem(), rules),
        instruments=[trace],
        mode=mode,
        batch_size=4,
        checkpoint_interval=CheckpointInterval(time_ns=4 * US),
        checkpoint_timeout_ns=200 * US,
        tolerable_failures=100,
        retained=100,
        restart=FixedDelayRestart(None, 0),
        cost=CostModel(storage_latency_ns=WRITE_NS, link_latency_ns=LINK_NS),
        inline_state_bytes=0,
        **settings,
    )
    return made.run().raise_on_failure(), trace, results.records


@pytest.mark.parametrize("mode", MODES)
def test_every_snapshot_that_was_taken_is_acknowledged(mode: str) -> None:
    """The checkpoint that the sink has begun completes in time, instead of waiting for a task that is gone."""
    result, trace, records = ran(mode)

    taken = {(event.task, event.checkpoint_id) for event in trace.of(SnapshotTaken)}
    acknowledged = {(event.task, event.checkpoint_id) for event in trace.of(SnapshotAcknowledged)}
    reasons = {row.checkpoint_id: row.failure_reason for row in result.checkpoints.rows()}
    assert CheckpointFailureReason.CHECKPOINT_EXPIRED not in reasons.values()
    assert all(reasons[number] is not None for _, number in taken - acknowledged)
    assert Counter(records) == Counter([*range(10), *range(90)])


@pytest.mark.parametrize("mode", MODES)
def test_a_task_closes_behind_its_last_acknowledgement(mode: str) -> None:
    """It does not close while it writes the snapshot, which is part of a checkpoint."""
    _, trace, _ = ran(mode)

    closed_ns = {event.task: event.time_ns for event in trace.of(TaskState) if event.state == "finished"}
    last_ns = {event.task: event.time_ns for event in trace.of(SnapshotAcknowledged)}
    assert all(last_ns[task] <= closed_ns[task] for task in closed_ns)
    assert last_ns["short out[0]"] == closed_ns["short out[0]"]


def test_a_write_that_fails_lets_it_close_as_well() -> None:
    """The checkpoint is declined; the task has nothing to wait for any more."""
    _, trace, _ = ran("aligned")
    last = max(event.checkpoint_id for event in trace.of(SnapshotAcknowledged) if event.task == "short out[0]")
    rule = FaultRule(FileFault.ERROR_BEFORE, "open_write", f"*/chk-{last}/short-out-*")

    result, _, records = ran("aligned", rule)

    assert result.checkpoints.history[last].status is CheckpointStatus.FAILED
    assert result.attempts == 1
    assert result.checkpoints.history[last].failure_reason is CheckpointFailureReason.IO_EXCEPTION
    assert Counter(records) == Counter([*range(10), *range(90)])


def test_a_task_that_closes_takes_no_part_in_what_begins_meanwhile() -> None:
    """It declines, and goes when the checkpoints it had begun before its end was confirmed are written."""
    result, trace, _ = ran("aligned", max_concurrent=3)

    state_ns = {event.state: event.time_ns for event in trace.of(TaskState) if event.task == "short[0]"}
    taken = [event for event in trace.of(SnapshotTaken) if event.task == "short[0]"]
    confirming = next(event.checkpoint_id for event in taken if event.time_ns > state_ns["end_of_data"])
    completed_ns = {event.checkpoint_id: event.time_ns for event in trace.of(CheckpointCompleted)}
    assert all(event.time_ns < completed_ns[confirming] for event in taken)
    written = [event for event in trace.of(SnapshotAcknowledged) if event.task == "short[0]"]
    assert [event.checkpoint_id for event in written] == [event.checkpoint_id for event in taken]
    assert completed_ns[confirming] < state_ns["finished"] == written[-1].time_ns
    reasons = [row.failure_reason for row in result.checkpoints.rows()]
    assert CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING in reasons
