"""Properties that hold for any sequence of requests, messages, answers, failures and restarts."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import (
    Acknowledge,
    CheckpointEdge,
    CheckpointGraph,
    CoordinatorConfig,
    Decline,
    TaskId,
)
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from tests.checkpoint.coordinator.coordinator_driver import CoordinatorDriver

TASKS: tuple[TaskId, ...] = ((0, 0), (0, 1), (1, 0))
GRAPH = CheckpointGraph((2, 1), (CheckpointEdge(0, 1),))
REASONS = [CheckpointFailureReason.CHECKPOINT_DECLINED, CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION]
EVENTS = ["manual", "manual", "savepoint", "ack", "ack", "ack", "ack", "decline", "answer", "answer", "advance", "fail"]


class Story:
    """One random life of a coordinator."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.driver = CoordinatorDriver(
            CoordinatorConfig(
                interval_ns=data.draw(st.sampled_from([None, 50, 100])),
                timeout_ns=data.draw(st.sampled_from([120, 10_000])),
                min_pause_ns=data.draw(st.sampled_from([0, 30])),
                max_concurrent=data.draw(st.integers(1, 3)),
                num_retained=data.draw(st.integers(1, 2)),
                tolerable_failures=data.draw(st.sampled_from([None, 0, 2])),
            ),
            GRAPH,
            prompt=data.draw(st.booleans()),
            inline=data.draw(st.booleans()),
        )
        self.sent: Counter[object] = Counter()
        self.driver.tell(self.driver.coordinator.start(self.driver.now_ns, 1))

    def step(self) -> None:
        draw, driver = self.data.draw, self.driver
        coordinator, now_ns = driver.coordinator, driver.now_ns
        match draw(st.sampled_from(EVENTS)):
            case "manual":
                driver.tell(coordinator.trigger_manual(None, now_ns))
            case "savepoint":
                driver.tell(coordinator.trigger_savepoint("sp", now_ns, synchronous=draw(st.booleans())))
            case "ack":
                self.acknowledge(draw(st.sampled_from(TASKS)))
            case "decline":
                if coordinator.next_checkpoint_id > 1:
                    checkpoint_id = draw(st.integers(1, coordinator.next_checkpoint_id - 1))
                    reason = draw(st.sampled_from(REASONS))
                    attempt = driver.log.attempts.get(checkpoint_id, coordinator.deployment.attempt)
                    decline = Decline(checkpoint_id, attempt, TASKS[0], reason)
                    driver.tell(coordinator.on_decline(decline, now_ns))
            case "answer":
                if driver.outstanding:
                    position = draw(st.integers(0, len(driver.outstanding) - 1))
                    driver.answer(position, fails=draw(st.integers(0, 4)) == 0)
            case "advance":
                driver.advance(draw(st.integers(1, 60)))
            case _:
                driver.tell(coordinator.on_job_failure(now_ns))
                self.answer_all()
                point = coordinator.restore_point()
                restored_id = None if point is None else point.checkpoint_id
                driver.tell(coordinator.start(now_ns, coordinator.deployment.attempt + 1, restored_id))

    def acknowledge(self, task: TaskId, checkpoint_id: int | None = None) -> None:
        """A part for a triggered checkpoint, sent in its attempt; asked again the same part comes again."""
        attempts = self.driver.log.attempts
        if checkpoint_id is None and attempts:
            checkpoint_id = self.data.draw(st.sampled_from(sorted(attempts)))
        if checkpoint_id is None:
            return
        state = (checkpoint_id, task)
        self.sent[state] += 1
        message = Acknowledge(checkpoint_id, attempts[checkpoint_id], task, state)
        self.driver.tell(self.driver.coordinator.on_acknowledge(message, self.driver.now_ns))

    def answer_all(self) -> None:
        while self.driver.outstanding:
            self.driver.answer(0)

    def finish(self) -> None:
        """All tasks and the storage finish their work."""
        coordinator = self.driver.coordinator
        self.driver.tell(coordinator.stop(self.driver.now_ns))
        self.answer_all()
        self.driver.tell(coordinator.trigger_final(self.driver.now_ns))
        self.answer_all()
        for checkpoint_id in coordinator.pending.ids:
            for task in TASKS:
                self.acknowledge(task, checkpoint_id)
        self.answer_all()


@given(st.data())
def test_any_life_keeps_the_promises(data: st.DataObject) -> None:
    """Every id ends once; every part ends in one retained, or deleted, place; a stopped coordinator goes on at will.

    That nobody is told before the metadata is durable, and that no id is both durable and aborted, is asserted by
    the driver at every step.
    """
    story = Story(data)
    for _ in range(data.draw(st.integers(0, 40))):
        story.step()
    story.finish()

    driver, coordinator = story.driver, story.driver.coordinator
    log = driver.log
    assert coordinator.pending.ids == ()
    assert log.requests["final"] == "completed"
    ids = range(1, coordinator.next_checkpoint_id)
    assert set(ids) == set(log.durable) | log.reasons.keys()
    assert log.durable == sorted(set(log.durable))
    for told in log.completed.values():
        completed = [checkpoint_id for checkpoint_id, _ in told]
        assert completed == sorted(set(completed))

    kept = [part.state for parts in log.retained_states.values() for part in parts]
    deleted = [part.state for part in log.discarded_states]
    assert len(kept) == len(set(kept))
    assert set(kept) | set(deleted) == set(story.sent)
    assert not set(kept) & set(deleted)


@given(st.data())
def test_retained_checkpoints_exist(data: st.DataObject) -> None:
    """At every moment the completed checkpoints are durable and not deleted, and the newest is the restore point."""
    story = Story(data)
    for _ in range(data.draw(st.integers(0, 30))):
        story.step()
        log = story.driver.log
        retained = story.driver.coordinator.retained.ids
        assert set(retained) <= set(log.durable)
        assert not set(retained) & set(log.discarded_checkpoints)
        assert set(retained) <= log.retained_states.keys()
