"""Fencing: messages of an older attempt change nothing in the current one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.checkpoint.coordinator import Acknowledge, Decline
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.restore import FixedDelayRestart
from engine.elements.batch import Batch
from engine.graph.job import Job
from engine.observe.trace_events import AttemptStarted, CheckpointTriggered, Send, TraceEvent
from engine.runtime.config import CostModel
from engine.runtime.execution import Execution
from engine.runtime.job import JobManager
from operators.basic import CollectedResults
from operators.sources import SequenceSource
from tests.runtime.support import US, RecordingSink, Trace, every, execution, expected_counts, run, running_count

RECORDS = 60


class InTheMiddle:
    """An instrument that acts once, when the second attempt has triggered its first checkpoint."""

    def __init__(self, act: Callable[[JobManager, int], None]) -> None:
        self.act = act
        self.acted = False
        self.made: Execution

    def __call__(self, event: TraceEvent) -> None:
        if isinstance(event, CheckpointTriggered) and event.attempt == 2 and not self.acted:
            self.acted = True
            self.made.kernel.schedule(self.made.kernel.now_ns, "strike", self, event.checkpoint_id)

    name = "zombie"

    def strike(self, checkpoint_id: int) -> None:
        self.act(self.made.manager, checkpoint_id)


def restarted_run(act: Callable[[JobManager, int], None]) -> tuple[list[Any], Any]:
    """A run whose second attempt is struck by ``act``; its committed output and its result."""
    results, zombie = CollectedResults(), InTheMiddle(act)
    zombie.made = execution(
        running_count(Job("fenced"), RECORDS, results),
        kills=[("count", 25 * US)],
        instruments=[zombie],
        batch_size=4,
        checkpoint_interval=every(ns=10 * US),
        restart=FixedDelayRestart(None, 0),
        cost=CostModel(storage_latency_ns=2 * US),
        inline_state_bytes=0,
    )
    result = zombie.made.run().raise_on_failure()
    assert zombie.acted
    return results.records, result


def late_acknowledge(manager: JobManager, checkpoint_id: int) -> None:
    """Every task of attempt 1 acknowledges a checkpoint of attempt 2."""
    for task in manager.tasks:
        manager.receive_acknowledge(Acknowledge(checkpoint_id, 1, task))


def late_decline(manager: JobManager, checkpoint_id: int) -> None:
    task = next(iter(manager.tasks))
    manager.receive_decline(Decline(checkpoint_id, 1, task, CheckpointFailureReason.CHECKPOINT_DECLINED))


def late_failure(manager: JobManager, _checkpoint_id: int) -> None:
    """A task of attempt 1 reports its death again."""
    manager.task_failed((1, "count[0]", RuntimeError("died long ago")))


def late_end_of_input(manager: JobManager, _checkpoint_id: int) -> None:
    manager.all_input_ended(1)


def late_end_of_job(manager: JobManager, _checkpoint_id: int) -> None:
    """The last checkpoint of attempt 1 was confirmed."""
    manager.all_parts_confirmed(1)


def late_interval(manager: JobManager, _checkpoint_id: int) -> None:
    """The sources of attempt 1 have emitted enough for a checkpoint."""
    manager.records_interval_over(1)


def nothing(_manager: JobManager, _checkpoint_id: int) -> None:
    """The run to compare with."""


ZOMBIES = [late_acknowledge, late_decline, late_failure, late_end_of_input, late_end_of_job, late_interval]


@pytest.mark.parametrize("act", ZOMBIES, ids=lambda act: act.__name__)
def test_late_messages_change_nothing(act: Callable[[JobManager, int], None]) -> None:
    """A message of an older attempt leaves the run exactly as it would have been without it."""
    undisturbed, expected = restarted_run(nothing)

    output, result = restarted_run(act)

    assert output == undisturbed
    assert Counter(output) == expected_counts(RECORDS)
    assert result.attempts == 2
    for count in ("triggered", "completed", "failed"):
        assert getattr(result.checkpoints, count) == getattr(expected.checkpoints, count), count
    assert (result.ended_ns, result.source_records) == (expected.ended_ns, expected.source_records)


def test_the_same_messages_with_the_current_attempt_do_count() -> None:
    """The messages above are refused for their attempt, not for being nonsense."""

    def decline(manager: JobManager, checkpoint_id: int) -> None:
        task = next(iter(manager.tasks))
        manager.receive_decline(Decline(checkpoint_id, 2, task, CheckpointFailureReason.CHECKPOINT_DECLINED))

    def failure(manager: JobManager, _checkpoint_id: int) -> None:
        manager.task_failed((2, "count[0]", RuntimeError("dies now")))

    _, undisturbed = restarted_run(nothing)
    _, declined = restarted_run(decline)
    _, failed = restarted_run(failure)

    assert declined.checkpoints.failed > undisturbed.checkpoints.failed
    assert failed.attempts == 3


def test_a_dead_task_takes_nothing_that_is_under_way() -> None:
    """Records on a slow link reach no task of the attempt that was killed, and are not processed."""
    sink, trace = RecordingSink(), Trace()
    job = Job("under-way").source(SequenceSource(0, 100), name="numbers").sink(sink, name="out", chain=False)

    result = run(
        job,
        kills=[("numbers", 50 * US)],
        instruments=[trace],
        batch_size=5,
        channel_capacity=1_000,
        checkpoint_interval=None,
        restart=FixedDelayRestart(None, 0),
        cost=CostModel(link_latency_ns=20 * US),
    )

    assert result.attempts == 2
    sent = sum(send.records for send in trace.of(Send) if send.attempt == 1)
    assert sent == 50
    assert sink.records_of_attempt(1) == list(range(30))
    assert sink.records_of_attempt(2) == list(range(100))


def test_a_cancelled_task_ignores_its_mail() -> None:
    """A zombie that was cancelled in the middle of a batch does nothing more, whatever mail arrives."""
    sink = RecordingSink()
    tasks: list[Any] = []

    def act(event: TraceEvent) -> None:
        if isinstance(event, AttemptStarted) and event.attempt == 2:
            tasks.extend(made.manager.tasks.values())

    job = Job("zombies").source(SequenceSource(0, 50), name="numbers").sink(sink, name="out", chain=False)
    made = execution(
        job,
        kills=[("numbers", 20 * US)],
        instruments=[act],
        batch_size=10,
        checkpoint_interval=every(ns=8 * US),
        restart=FixedDelayRestart(None, 0),
        cost=CostModel(record_ns=3 * US),
    )
    made.run().raise_on_failure()

    before = list(sink.calls)
    assert {task.life.state for task in tasks} <= {"failed", "canceled"}
    assert any(task._slice_records for task in tasks)
    for task in tasks:
        task.receive_mail(("notify_checkpoint_complete", (99, -1)))
        task.receive_mail(("fire_timers", (made.kernel.now_ns,)))
        task.receive_mail(("kill", (RuntimeError("again"),)))
        if task.inputs:
            task.inputs[0].put_batch(Batch(["late"]))
        task.run()
        task.end_slice(task._slice_number)
        task.life.fail(RuntimeError("again"))
        task.life.cancel()

    assert sink.calls == before
    assert {task.life.state for task in tasks} <= {"failed", "canceled"}
