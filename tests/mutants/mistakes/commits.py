"""Mistakes of sinks: which rows are committed, when, and under which checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operators.basic import CollectedResults, simple_sinks as sinks
from state_backends.snapshots import CheckpointStorage
from tests.mutants.mutant import replaced, together

_Sink: Any = sinks._TransactionalCollect


@contextmanager
def commit_on_barrier() -> Iterator[None]:
    """A sink commits with its snapshot, before it is known whether the checkpoint completes."""
    snapshot_state = _Sink.snapshot_state

    def committing(sink: Any, checkpoint_id: int) -> None:
        snapshot_state(sink, checkpoint_id)
        sink.notify_checkpoint_complete(checkpoint_id)

    with replaced(_Sink, snapshot_state=committing):
        yield


@contextmanager
def lost_notification_not_redone() -> Iterator[None]:
    """Rows that a restored checkpoint covers count as committed already."""

    def forgetting(sink: Any) -> None:
        sink._state = sink.context.operator_backend().list_state("pending-records")
        if sink.context.restored_checkpoint_id() is None:
            sink._results.begin(sink.context.uid, sink.context.subtask)

    with replaced(_Sink, initialize_state=forgetting):
        yield


@contextmanager
def booked_under_the_wrong_checkpoint() -> Iterator[None]:
    """Records that come behind the barrier are committed with the checkpoint in front of them."""
    notify = _Sink.notify_checkpoint_complete

    def sharing(sink: Any, checkpoint_id: int) -> None:
        if sink._current:
            sink._pending[sink.context.subtask, checkpoint_id] = sink._current
        sink._state.update([(*transaction, list(records)) for transaction, records in sink._pending.items()])

    def notified(sink: Any, checkpoint_id: int) -> None:
        known = sink._pending.get((sink.context.subtask, checkpoint_id))
        notify(sink, checkpoint_id)
        if known is sink._current:
            sink._current = []

    with replaced(_Sink, snapshot_state=sharing, notify_checkpoint_complete=notified):
        yield


@contextmanager
def kept_twice_after_abort() -> Iterator[None]:
    """Rows of an aborted checkpoint go back into the current transaction, and stay pending as well."""

    def aborted(sink: Any, checkpoint_id: int) -> None:
        sink._current = [*sink._pending.get((sink.context.subtask, checkpoint_id), ()), *sink._current]

    with replaced(_Sink, notify_checkpoint_aborted=aborted):
        yield


@contextmanager
def commits_skipped_below_the_newest() -> Iterator[None]:
    """The table takes no commit whose checkpoint is not above the newest that it knows; and a job that goes on from an
    older checkpoint counts on from there."""
    commit = CollectedResults.commit

    def skipping(results: CollectedResults, transaction: tuple[str, int, int], records: list[Any]) -> bool:
        known = [checkpoint for uid, subtask, checkpoint in results._committed if (uid, subtask) == transaction[:2]]
        return transaction[2] > max(known, default=0) and commit(results, transaction, records)

    def reusing(storage: CheckpointStorage) -> int:
        return max(storage.list_checkpoints(), default=0) + 1

    with together(replaced(CollectedResults, commit=skipping), replaced(CheckpointStorage, next_checkpoint_id=reusing)):
        yield
