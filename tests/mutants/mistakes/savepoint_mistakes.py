"""Mistakes about savepoints: what a savepoint may commit, subsume or end, and who owns a restored one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.checkpoint.coordinator import NONE_SUBSUMED, CompletedCheckpoint, NotifyComplete
from engine.checkpoint.coordinator.checkpoint_ending import CheckpointEnding
from engine.runtime.tasks import SourceTask
from tests.mutants.mutant import replaced


@contextmanager
def savepoint_notifies() -> Iterator[None]:
    """The completion of a savepoint is told to all tasks, as that of a checkpoint is."""
    complete = CheckpointEnding.complete

    def telling(ending: Any, pending: Any, pointer: object, now_ns: int, out: list[Any]) -> None:
        complete(ending, pending, pointer, now_ns, out)
        if pending.is_savepoint and not pending.request.is_synchronous:
            out.append(NotifyComplete(pending.checkpoint_id, NONE_SUBSUMED, pending.plan.wait))

    with replaced(CheckpointEnding, complete=telling):
        yield


@contextmanager
def savepoint_retained() -> Iterator[None]:
    """A savepoint counts among the retained checkpoints, and subsumes older ones."""
    complete = CheckpointEnding.complete

    def retaining(ending: Any, pending: Any, *more: Any) -> None:
        pending.is_savepoint = False
        complete(ending, pending, *more)

    with replaced(CheckpointEnding, complete=retaining):
        yield


@contextmanager
def claim_mode_ignored() -> Iterator[None]:
    """A snapshot from which a job was started is always deleted once it is subsumed."""
    with replaced(CompletedCheckpoint, may_be_deleted=property(lambda entry: True)):
        yield


@contextmanager
def suspended_job_drains() -> Iterator[None]:
    """A stop without drain ends event time, too."""
    trigger_checkpoint = SourceTask.trigger_checkpoint

    def draining(task: Any, barrier: Any) -> None:
        if barrier.options.stop is not None and not task.end.input_ended:
            task.end_stream()
        trigger_checkpoint(task, barrier)

    with replaced(SourceTask, trigger_checkpoint=draining):
        yield
