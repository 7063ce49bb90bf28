"""Mistakes about barriers: where the cut goes through a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.checkpoint.barriers import BlockChannel, ResumeChannels, SingleCheckpointHandler
from engine.checkpoint.barriers.alignment import BarrierAlignment
from engine.checkpoint.failure_reasons import CheckpointFailureReason
from engine.checkpoint.subtask import TaskCheckpointProtocol
from engine.runtime.tasks import AsyncSnapshot
from operators.sources import SourceOperator
from tests.mutants.mutant import replaced, together


@contextmanager
def alignment_skipped() -> Iterator[None]:
    """A channel that has delivered its barrier goes on at once."""

    def block(alignment: Any, channel: int, out: list[Any]) -> None:
        out += [BlockChannel(channel), ResumeChannels((channel,))]

    with replaced(BarrierAlignment, block=block):
        yield


@contextmanager
def barrier_before_state() -> Iterator[None]:
    """The barrier goes on, and the state is captured at the next occasion."""
    start = AsyncSnapshot.start

    def later(snapshot: AsyncSnapshot) -> None:
        snapshot.place.kernel.schedule(snapshot.place.kernel.now_ns, "captured_late", snapshot)

    def captured_late(snapshot: AsyncSnapshot, _payload: object = None) -> None:
        if not snapshot.cancelled and snapshot.task.life.is_running:
            start(snapshot)

    with replaced(AsyncSnapshot, start=later, captured_late=captured_late):
        yield


@contextmanager
def offset_one_late() -> Iterator[None]:
    """A source puts the position into the snapshot that it had before it read its last batch."""
    emit_next, snapshot_state = SourceOperator.emit_next, SourceOperator.snapshot_state

    def remembering(operator: Any, max_records: int) -> int | None:
        operator.before_last = [tuple(operator._save(split)) for split in operator._splits]
        return emit_next(operator, max_records)

    def stale(operator: Any, checkpoint_id: int) -> None:
        snapshot_state(operator, checkpoint_id)
        before = getattr(operator, "before_last", None)
        if before is not None:
            operator._state.update(before)

    with replaced(SourceOperator, emit_next=remembering, snapshot_state=stale):
        yield


@contextmanager
def older_snapshot_after_newer() -> Iterator[None]:
    """A task obeys the trigger of an older checkpoint after that of a newer one."""
    on_snapshot_due = TaskCheckpointProtocol.on_snapshot_due

    def is_obsolete(alignment: Any, checkpoint_id: int) -> bool:
        return bool(checkpoint_id == alignment.current and alignment.barrier is None)

    def due(protocol: Any, barrier: Any, metrics: Any) -> Any:
        protocol._last_id = min(protocol._last_id, barrier.checkpoint_id - 1)
        return on_snapshot_due(protocol, barrier, metrics)

    with together(
        replaced(BarrierAlignment, is_obsolete=is_obsolete),
        replaced(TaskCheckpointProtocol, on_snapshot_due=due),
    ):
        yield


@contextmanager
def late_cancel_obeyed() -> Iterator[None]:
    """The cancel marker of an older checkpoint ends the one that is being aligned."""
    on_cancel = SingleCheckpointHandler.on_cancel

    def obeyed(handler: Any, channel: int, marker: Any, now_ns: int) -> Any:
        alignment = handler._alignment
        if alignment.barrier is not None and marker.checkpoint_id < alignment.current:
            out: list[Any] = []
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
            alignment.abort(alignment.current, reason, out)
            return tuple(out)
        return on_cancel(handler, channel, marker, now_ns)

    with replaced(SingleCheckpointHandler, on_cancel=obeyed):
        yield
