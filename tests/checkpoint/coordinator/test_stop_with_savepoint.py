"""Stopping with a savepoint: the order of the steps and the meaning of a partial failure."""

from __future__ import annotations

import itertools

import pytest

from engine.checkpoint.coordinator import (
    FailGlobally,
    StartScheduler,
    StopFailed,
    StopScheduler,
    StopSucceeded,
    StopWithSavepoint,
    TaskId,
    TaskTermination,
    TriggerSynchronousSavepoint,
)
from engine.checkpoint.coordinator.stop_with_savepoint import StopInstructions, StopPhase
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.elements.events import StopMode

FINISHED = {(0, 0): TaskTermination.FINISHED, (1, 0): TaskTermination.FINISHED}
BROKEN = {(1, 0): TaskTermination.FAILED, (0, 0): TaskTermination.FINISHED, (0, 1): TaskTermination.CANCELED}
DECLINED = CheckpointFailureReason.CHECKPOINT_DECLINED


def begun(stop: StopMode = StopMode.SUSPEND) -> StopWithSavepoint:
    machine = StopWithSavepoint(stop)
    machine.begin()
    return machine


@pytest.mark.parametrize("stop", StopMode)
def test_the_scheduler_stops_before_the_savepoint_is_triggered(stop: StopMode) -> None:
    """No periodic checkpoint may come between the savepoint and the end of the tasks."""
    assert StopWithSavepoint(stop).begin() == (StopScheduler(), TriggerSynchronousSavepoint(stop))


def test_a_blocking_output_refuses() -> None:
    """The request fails before any task is affected."""
    machine = StopWithSavepoint(StopMode.SUSPEND)

    (told,) = machine.begin(has_blocking_output=True)

    assert isinstance(told, StopFailed)
    assert told.reason is CheckpointFailureReason.BLOCKING_OUTPUT_EXIST
    assert machine.phase is StopPhase.OVER


def test_success_is_the_path_once_all_tasks_have_finished() -> None:
    """A complete savepoint alone is not success: the tasks commit and end after it."""
    machine = begun()

    assert machine.on_savepoint_completed(7, "/sp") == ()
    assert machine.on_tasks_terminated(FINISHED) == (StopSucceeded(7, "/sp"),)


def test_a_failed_savepoint_lets_the_job_go_on() -> None:
    """The scheduler starts again, the requester hears the reason, and later ends of tasks have no effect."""
    machine = begun()

    told = machine.on_savepoint_failed(DECLINED, "disk full")

    message = "the savepoint failed: a task declined the checkpoint (disk full); the job goes on"
    assert told == (StartScheduler(), StopFailed(message, DECLINED))
    assert machine.on_tasks_terminated(BROKEN) == ()


def test_a_task_that_does_not_finish_fails_the_job_and_keeps_the_savepoint() -> None:
    """Global failover and an error that names the tasks and the savepoint."""
    machine = begun()
    machine.on_savepoint_completed(7, "/sp")

    failover, answer = machine.on_tasks_terminated(BROKEN)

    cause = "savepoint 7 is complete, but the job did not stop properly: task 0/1 canceled, task 1/0 failed"
    assert failover == FailGlobally(cause)
    assert answer == StopFailed(f"{cause}; the savepoint is kept", None, "/sp")


def answers(order: tuple[str, ...], savepoint: bool, ends: dict[TaskId, TaskTermination]) -> StopInstructions:
    machine = begun()
    out: StopInstructions = ()
    for event in order:
        if event == "tasks":
            out += machine.on_tasks_terminated(ends)
        elif savepoint:
            out += machine.on_savepoint_completed(7, "/sp")
        else:
            out += machine.on_savepoint_failed(DECLINED)
        machine.validate()
        hash(machine.fingerprint())
    return out


@pytest.mark.parametrize("savepoint", [True, False])
@pytest.mark.parametrize("ends", [FINISHED, BROKEN])
def test_the_order_of_the_outcomes_does_not_matter(savepoint: bool, ends: dict[TaskId, TaskTermination]) -> None:
    """Tasks may end before the savepoint is known to be complete; the answer is the same, and comes once."""
    first, second = (answers(order, savepoint, ends) for order in itertools.permutations(("tasks", "savepoint")))

    assert first == second
    assert sum(isinstance(one, (StopSucceeded, StopFailed)) for one in first) == 1


def test_an_answered_request_answers_no_more() -> None:
    """A second report of the tasks has no effect; a second outcome of the savepoint is a bug."""
    machine = begun()
    machine.on_savepoint_completed(7, "/sp")
    machine.on_tasks_terminated(FINISHED)

    assert machine.on_tasks_terminated(BROKEN) == ()
    with pytest.raises(AssertionError):
        machine.on_savepoint_failed(DECLINED)


def test_nothing_is_reported_to_a_request_that_has_not_begun() -> None:
    """Outcomes before the request was taken up are a bug."""
    with pytest.raises(AssertionError):
        StopWithSavepoint(StopMode.SUSPEND).on_tasks_terminated(FINISHED)
    with pytest.raises(AssertionError):
        StopWithSavepoint(StopMode.SUSPEND).on_savepoint_completed(1, "")


def test_fingerprints_tell_states_apart() -> None:
    """All state that determines future behaviour is in the fingerprint."""
    machines = [StopWithSavepoint(StopMode.SUSPEND), begun(), begun(StopMode.TERMINATE), begun(), begun(), begun()]
    machines[3].on_savepoint_completed(7, "")
    machines[4].on_tasks_terminated(FINISHED)
    machines[5].on_tasks_terminated(BROKEN)

    assert len({machine.fingerprint() for machine in machines}) == len(machines)
