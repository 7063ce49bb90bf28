"""V17: readers of files see the rows of completed checkpoints, and whole checkpoints where a sink says so."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from engine.cli.cases import load_subject
from engine.explore.cases import FIFO, Case, parse_savepoint
from engine.explore.invariants import invariants_for
from engine.explore.invariants.visible_rows import CoveredRows
from engine.explore.run import FinishedCase, Subject, run_case
from engine.faults.fault import parse_fault
from engine.observe.trace_events import AttemptStarted, CheckpointCompleted, Receive, SnapshotTaken, TaskState
from tests.explore.invariants.support import found
from tests.mutants.mistakes.announcing import not_all_subtasks_awaited

COMMITTERS = Path(__file__).parents[3] / "examples/scenarios/committers.py"


@cache
def _subject() -> Subject:
    subject = load_subject(str(COMMITTERS), {})
    subject.reference()
    return subject


def _carried_out(case: Case) -> FinishedCase:
    return run_case(_subject(), case, invariants_for("exactly-once", only=("V17",)))


def test_half_of_a_checkpoint_is_a_violation() -> None:
    """A global committer that does not wait for all subtasks shows the rows of one of them."""
    case = Case(config={"batch_size": 3, "checkpoint_interval": "7rec"}, scheduler=FIFO)
    assert _carried_out(case).violations == []
    with not_all_subtasks_awaited():
        text, *_ = found(_carried_out(case), "V17")
    assert text.startswith("readers of sink 'documents' see ")
    assert text.endswith("rows, which is a part of a checkpoint: they must see all of it at once")


@pytest.mark.parametrize("checkpoint_ns", [1_000, 2_000, 5_000])
def test_a_checkpoint_that_was_given_up_is_committed_ahead_of_the_next(checkpoint_ns: int) -> None:
    """A savepoint that stops the job ends the checkpoint before it: readers see its rows first, then the others."""
    settings = {"batch_size": 1, "cost.storage_latency_ns": 8_000, "inline_state_bytes": 0}
    case = Case(
        config=settings,
        checkpoints=(checkpoint_ns,),
        savepoints=(parse_savepoint(f"stop@{checkpoint_ns + 1_000}ns->no-claim"),),
        scheduler=FIFO,
    )
    assert _carried_out(case).violations == []


def test_the_records_of_a_zombie_are_not_counted() -> None:
    """A task that was declared dead takes records that no checkpoint covers."""
    settings = {"batch_size": 1, "heartbeat_timeout_ns": 10_001, "parallelism": 1}
    pause = parse_fault("pause:documents[0]@before:user.process#1~12us")
    finished = _carried_out(Case(config=settings, faults=(pause,), checkpoints=(), scheduler=FIFO))
    assert len(finished.faults) == 1
    assert finished.violations == []


def test_the_rest_of_a_writer_belongs_to_the_checkpoint_after_its_last() -> None:
    """A writer that has ended hands out its rest before the next barrier, whose checkpoint may be aborted."""
    view = _carried_out(Case(scheduler=FIFO)).view
    (invariant,) = invariants_for(only=["V17"])
    assert isinstance(invariant, CoveredRows)
    invariant.process_started(view)
    handlers = invariant.handlers()
    channels = {task: channel for channel, task in invariant._writers.items()}
    ended, other = invariant._tasks["documents"]
    for event in (
        AttemptStarted(1, 1, None),
        Receive(2, 1, channels[ended], 1, "records", 3, None, 0),
        Receive(2, 1, channels[other], 1, "records", 5, None, 0),
        TaskState(3, 1, ended, "end_of_data", None),
        SnapshotTaken(4, 1, 1, other, 0, 0),
        Receive(5, 1, channels[other], 2, "records", 7, None, 0),
        SnapshotTaken(6, 1, 2, other, 0, 0),
        SnapshotTaken(6, 1, 2, ended, 0, 0),
        CheckpointCompleted(7, 1, 2, 0),
    ):
        handlers[type(event)](event)
    assert invariant._whole["documents"] == {0, 3 + 5, 3 + 5 + 7}
