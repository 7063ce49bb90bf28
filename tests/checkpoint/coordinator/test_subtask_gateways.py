"""Operator coordinators: events around the barrier, and their part in a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from engine.checkpoint.coordinator import (
    CoordinatorConfig,
    CoordinatorGateways,
    CoordinatorInstruction,
    NotifyAborted,
    NotifyComplete,
    NotifyCoordinatorsAborted,
    NotifyCoordinatorsComplete,
    SendTrigger,
    SnapshotOperatorCoordinators,
    TriggerRequest,
    WriteMetadata,
)
from engine.checkpoint.coordinator.coordinator_messages import CallMasterHooks, CoordinatorInstructions
from engine.checkpoint.coordinator.deployment import CheckpointPlan
from engine.checkpoint.coordinator.pending import PendingCheckpoint
from engine.checkpoint.coordinator.subtask_gateways import SubtaskGateway
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import CheckpointBarrier
from tests.checkpoint.coordinator.coordinator_driver import GRAPH, SINK, SOURCE, CoordinatorDriver, ack, trigger

IO_ERROR = CheckpointFailureReason.IO_EXCEPTION
TRIGGER_FAILED = CheckpointFailureReason.TRIGGER_CHECKPOINT_FAILURE


def closed_for(*checkpoint_ids: int) -> SubtaskGateway[str]:
    gateway: SubtaskGateway[str] = SubtaskGateway()
    for checkpoint_id in checkpoint_ids:
        gateway.mark(checkpoint_id)
        assert gateway.close(checkpoint_id)
    return gateway


# --- gateways ---------------------------------------------------------------------------------------------------------


def test_events_pass_until_the_state_is_taken() -> None:
    """Events sent between the request and the state belong to the checkpoint and pass at once."""
    gateway: SubtaskGateway[str] = SubtaskGateway()
    gateway.mark(1)

    assert gateway.send("a") == ("a",)
    assert not gateway.is_closed


def test_events_behind_the_state_wait_for_the_barrier() -> None:
    """They are kept in order and delivered when the subtask has processed the barrier."""
    gateway = closed_for(1)

    assert gateway.send("a") == ()
    assert gateway.send("b") == ()
    assert gateway.open(1) == ("a", "b")
    assert gateway.send("c") == ("c",)


def test_opening_twice_delivers_once() -> None:
    """The barrier may be reported after an abort has opened the gateway already."""
    gateway = closed_for(1)
    gateway.send("a")

    assert gateway.open(1) == ("a",)
    assert gateway.open(1) == ()


def test_an_abort_before_the_state_closes_nothing() -> None:
    """State that comes for a checkpoint that is over must be discarded, and events go on passing."""
    gateway: SubtaskGateway[str] = SubtaskGateway()
    gateway.mark(1)
    gateway.open(1)

    assert not gateway.close(1)
    assert gateway.send("a") == ("a",)


def test_an_event_waits_for_all_checkpoints_that_were_closed_when_it_was_sent() -> None:
    """Opening the newer checkpoint first moves its events to the older one, after that one's own events."""
    gateway = closed_for(1)
    gateway.send("a")
    gateway.mark(2)
    gateway.close(2)
    gateway.send("b")

    assert gateway.open(2) == ()
    assert gateway.open(1) == ("a", "b")


def test_opening_the_older_one_first_keeps_what_the_newer_one_keeps() -> None:
    """The barrier of the older one delivers only events sent before the newer state."""
    gateway = closed_for(1)
    gateway.send("a")
    gateway.mark(2)
    gateway.close(2)
    gateway.send("b")

    assert gateway.open(1) == ("a",)
    assert gateway.open(2) == ("b",)


def test_an_old_id_is_not_marked_again() -> None:
    """A checkpoint that is not newer than the newest one seen has been decided."""
    gateway = closed_for(2)
    gateway.open(2)
    gateway.mark(1)
    gateway.mark(2)

    assert not gateway.close(1)
    assert not gateway.close(2)


def test_a_checkpoint_that_never_began_is_not_opened() -> None:
    """Opening for an id from the future is a bug."""
    with pytest.raises(AssertionError, match="never began"):
        closed_for(1).open(2)


def test_a_failed_task_loses_what_was_kept_for_it() -> None:
    """Only events for that subtask; the others get their events when they report the barrier."""
    gateways: CoordinatorGateways[str] = CoordinatorGateways(2)
    gateways.begin(1)
    assert gateways.on_state_taken(1)
    gateways.send(0, "a")
    gateways.send(1, "b")

    assert gateways.on_task_failed(0) == ("a",)
    assert gateways.on_barrier_processed(1, 0) == ()
    assert gateways.send(0, "c") == ("c",)
    assert gateways.on_barrier_processed(1, 1) == ("b",)


def test_an_abort_opens_towards_all_subtasks() -> None:
    """Each gets the events held back for it; subtasks without such events are not named."""
    gateways: CoordinatorGateways[str] = CoordinatorGateways(3)
    gateways.begin(1)
    gateways.on_state_taken(1)
    gateways.send(2, "a")
    gateways.send(0, "b")

    assert gateways.on_aborted(1) == ((0, ("b",)), (2, ("a",)))
    assert gateways.send(0, "c") == ("c",)


def test_state_after_the_failure_of_a_subtask_is_refused() -> None:
    """The cut towards that subtask is lost."""
    gateways: CoordinatorGateways[str] = CoordinatorGateways(2)
    gateways.begin(1)
    gateways.on_task_failed(1)

    assert not gateways.on_state_taken(1)


@given(st.lists(st.tuples(st.sampled_from(["mark", "close", "open", "send", "drop"]), st.integers(1, 5)), max_size=40))
def test_any_sequence_keeps_order_and_epochs(steps: list[tuple[str, int]]) -> None:
    """Events are delivered in order, once, and never before every checkpoint that was closed when they were sent."""
    gateway: SubtaskGateway[int] = SubtaskGateway()
    newest, closed = 0, dict[int, None]()
    waits_for: dict[int, list[int]] = {}
    delivered: list[int] = []
    lost: list[int] = []
    for step, checkpoint_id in steps:
        out: tuple[int, ...] = ()
        match step:
            case "mark":
                gateway.mark(checkpoint_id)
                newest = max(newest, checkpoint_id)
            case "close" if checkpoint_id >= max(closed, default=0):
                if gateway.close(checkpoint_id):
                    closed[checkpoint_id] = None
            case "open" if checkpoint_id <= newest:
                closed.pop(checkpoint_id, None)
                out = gateway.open(checkpoint_id)
            case "send":
                waits_for[len(waits_for)] = list(closed)
                out = gateway.send(len(waits_for) - 1)
            case "drop":
                lost += gateway.drop()
                closed.clear()
            case _:
                continue
        gateway.validate()
        hash(gateway.fingerprint())
        for event in out:
            assert not any(one in closed for one in waits_for[event]), (event, tuple(closed))
        delivered += out
        assert gateway.is_closed == bool(closed)

    assert delivered == sorted(delivered)
    kept = [event for event in waits_for if event not in delivered and event not in lost]
    assert len(delivered) + len(lost) + len(kept) == len(waits_for)
    assert not kept or closed


# --- their part in a checkpoint ---------------------------------------------------------------------------------------


class Helpers(CoordinatorDriver):
    """A driver that records the coordinator's requests to operator coordinators and hooks instead of serving them."""

    def __init__(self, coordinators: tuple[str, ...] = ("enumerator", "committer"), hooks: tuple[str, ...] = ("hook",)):
        super().__init__(CoordinatorConfig(tolerable_failures=None, max_concurrent=2), GRAPH)
        self.coordinator = type(self.coordinator)(
            GRAPH, self.coordinator.config, operator_coordinators=coordinators, master_hooks=hooks
        )
        self.coordinator.begin_attempt(1)
        self.told: list[CoordinatorInstruction] = []

    def _carry_out(self, instructions: CoordinatorInstructions) -> None:
        self.told += instructions
        helpers = (
            SnapshotOperatorCoordinators | CallMasterHooks | NotifyCoordinatorsAborted | NotifyCoordinatorsComplete
        )
        super()._carry_out(tuple(one for one in instructions if not isinstance(one, helpers)))

    def deliver(self, name: str, checkpoint_id: int = 1) -> None:
        answer = (
            self.coordinator.on_master_hook_state if name == "hook" else self.coordinator.on_operator_coordinator_state
        )
        self.tell(answer(checkpoint_id, name, f"state of {name}", self.now_ns))

    def seen(self, *kinds: type[Any]) -> list[Any]:
        return [one for one in self.told if isinstance(one, kinds)]


def test_coordinators_then_hooks_then_tasks() -> None:
    """No hook is called before all operator coordinators have answered, no task is triggered before all hooks have."""
    driver = Helpers()
    trigger(driver)
    assert driver.seen(SnapshotOperatorCoordinators) == [SnapshotOperatorCoordinators(1, ("enumerator", "committer"))]

    driver.deliver("committer")
    assert not driver.seen(CallMasterHooks, SendTrigger)
    driver.deliver("enumerator")
    assert driver.seen(CallMasterHooks) == [CallMasterHooks(1, ("hook",))]
    assert not driver.seen(SendTrigger)
    driver.deliver("hook")
    assert len(driver.seen(SendTrigger)) == 1


def test_their_states_are_part_of_the_metadata() -> None:
    """In the order of the job, whatever the order of arrival."""
    driver = Helpers()
    trigger(driver)
    for name in ("committer", "enumerator", "hook"):
        driver.deliver(name)
    ack(driver, 1)

    (write,) = driver.seen(WriteMetadata)
    assert write.coordinator_states == (("enumerator", "state of enumerator"), ("committer", "state of committer"))
    assert write.hook_states == (("hook", "state of hook"),)


def test_without_hooks_the_tasks_follow_the_coordinators() -> None:
    """Hooks are optional, and so are operator coordinators."""
    driver = Helpers(("enumerator",), ())
    trigger(driver)
    driver.deliver("enumerator")
    assert len(driver.seen(SendTrigger)) == 1
    only_hooks = Helpers((), ("hook",))
    trigger(only_hooks)
    assert only_hooks.seen(CallMasterHooks) == [CallMasterHooks(1, ("hook",))]


@pytest.mark.parametrize("reason", [IO_ERROR, TRIGGER_FAILED])
def test_a_failing_part_aborts_before_any_task_is_triggered(reason: CheckpointFailureReason) -> None:
    """The id is spent, the location is deleted, and late answers of the others are ignored."""
    driver = Helpers()
    trigger(driver)
    driver.tell(driver.coordinator.on_preparation_failed(1, "committer", reason, driver.now_ns, "no leader"))
    driver.deliver("enumerator")

    assert not driver.seen(SendTrigger, CallMasterHooks)
    assert driver.log.reasons == {1: reason.name}
    assert driver.log.discarded_locations == [1]
    (row,) = driver.coordinator.statistics.rows()
    assert row.failure_cause == "committer: no leader"
    trigger(driver)
    assert driver.coordinator.pending.ids == (2,)
    assert driver.coordinator.on_preparation_failed(1, "committer", reason, driver.now_ns) == ()


def test_a_failure_that_comes_after_the_trigger_is_late() -> None:
    """All answers were there by then: the checkpoint goes on."""
    driver = Helpers(("enumerator",), ())
    trigger(driver)
    driver.deliver("enumerator")

    assert driver.coordinator.on_preparation_failed(1, "enumerator", IO_ERROR, driver.now_ns) == ()
    assert driver.coordinator.pending.ids == (1,)


def test_a_slow_coordinator_runs_into_the_timeout() -> None:
    """The timeout runs from the registration, and no other checkpoint is triggered meanwhile."""
    driver = Helpers()
    trigger(driver)
    trigger(driver)
    assert driver.coordinator.pending.ids == (1,)

    driver.advance(driver.coordinator.config.timeout_ns)

    assert driver.log.reasons == {1: "CHECKPOINT_EXPIRED"}
    assert driver.coordinator.pending.ids == (2,)


def test_coordinators_see_the_abort_before_the_completion_that_caused_it() -> None:
    """They hear of the older one's abort before all else, and of the newer one's completion after the tasks."""
    driver = Helpers(("enumerator",), ())
    for checkpoint_id in (1, 2):
        trigger(driver)
        driver.deliver("enumerator", checkpoint_id)
    driver.told.clear()
    ack(driver, 2, SOURCE, SINK)

    kinds = (NotifyCoordinatorsAborted, NotifyCoordinatorsComplete, NotifyAborted, NotifyComplete)
    order = [(type(one), one.checkpoint_id) for one in driver.seen(*kinds)]
    assert order == [
        (NotifyCoordinatorsAborted, 1),
        (NotifyAborted, 1),
        (NotifyComplete, 2),
        (NotifyCoordinatorsComplete, 2),
    ]


def test_a_plain_savepoint_tells_coordinators_nothing() -> None:
    """No component is notified of it."""
    driver = Helpers(("enumerator",), ())
    driver.tell(driver.coordinator.trigger_savepoint("s", driver.now_ns))
    driver.deliver("enumerator")
    ack(driver, 1)

    assert driver.log.requests == {"s": "completed"}
    assert not driver.seen(NotifyCoordinatorsComplete, NotifyComplete)


def test_a_checkpoint_refuses_what_it_does_not_wait_for() -> None:
    """A part that comes twice, from an unknown task or too early is a bug of the driver."""
    plan = CheckpointPlan((SOURCE,), (SOURCE,))
    pending = PendingCheckpoint(CheckpointBarrier(1, 0), TriggerRequest(0, 0), plan, ("a",), ("h",))
    with pytest.raises(AssertionError):
        pending.on_hook_state("h", None)
    with pytest.raises(AssertionError):
        pending.on_coordinator_state("b", None)
    pending.on_coordinator_state("a", None)
    with pytest.raises(AssertionError):
        pending.on_coordinator_state("a", None)
    assert pending.waiting_hooks == ("h",)
    pending.on_hook_state("h", None)
    assert pending.waiting_hooks == ()
