"""Mistakes of sinks into files, tables, logs and databases: rows shown too early, lost, or there twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from operators.databases.database_sink import DatabaseSinkOperator
from operators.files.bucketing.bucketing_parts import BucketingParts
from operators.files.sinks import FileSinkOperator
from operators.files.writing import Buckets
from operators.log.connectors import TransactionalLogSink
from operators.table.partitions.streaming_file_writer import StreamingFileWriterOperator
from operators.table.staging import staged_sink
from operators.transactions.committer_machine import CommitterMachine
from tests.mutants.mutant import replaced

_Finalizer: Any = staged_sink._FinalizerOperator


@contextmanager
def files_committed_on_barrier() -> Iterator[None]:
    """Parts get their names with the snapshot."""
    snapshot_state = FileSinkOperator.snapshot_state

    def committing(sink: Any, checkpoint_id: int) -> None:
        snapshot_state(sink, checkpoint_id)
        sink._buckets.commit_up_to(checkpoint_id)

    with replaced(FileSinkOperator, snapshot_state=committing):
        yield


@contextmanager
def part_counter_lost() -> Iterator[None]:
    """A restored sink numbers its parts from 0 again."""
    initialize = Buckets.initialize

    def forgetting(buckets: Any, states: Any, counters: Any = ()) -> Any:
        return initialize(buckets, states)

    with replaced(Buckets, initialize=forgetting):
        yield


@contextmanager
def committed_on_arrival() -> Iterator[None]:
    """A committer commits each complete set of files, and does not wait for a notification."""
    add = CommitterMachine.add

    def committing(machine: Any, message: Any) -> Any:
        done = add(machine, message)
        machine.completed_id = max(machine.completed_id, message[1])
        return [*done, *machine.commit_covered()]

    with replaced(CommitterMachine, add=committing):
        yield


@contextmanager
def last_file_not_handed_out() -> Iterator[None]:
    """At the end of its input a writer hands out one file less than it has closed."""
    hand_out = Buckets.hand_out

    def forgetting(buckets: Any, *, flush: bool) -> Any:
        handed_out = hand_out(buckets, flush=flush)
        return handed_out[1:] if flush else handed_out

    with replaced(Buckets, hand_out=forgetting):
        yield


@contextmanager
def valid_length_of_the_whole_file() -> Iterator[None]:
    """A file that cannot be cut is declared valid as long as it is."""
    mark_valid: Any = BucketingParts._mark_valid

    def marking(parts: Any, bucket: str, part: str, length_bytes: int) -> None:
        names = parts._names
        for name in (names.pending(part), names.in_progress(part), part):
            path = parts._path(bucket, name)
            if parts._fs.exists(path):
                mark_valid(parts, bucket, part, parts._fs.size(path))
                return

    with replaced(BucketingParts, _mark_valid=marking):
        yield


@contextmanager
def announced_before_visible() -> Iterator[None]:
    """A writer announces its partitions with the snapshot, while their files are hidden."""
    snapshot_state = StreamingFileWriterOperator.snapshot_state

    def announcing(writer: Any, checkpoint_id: int) -> None:
        snapshot_state(writer, checkpoint_id)
        writer._announce(checkpoint_id, writer._books.on_committed(checkpoint_id) or [])

    with replaced(StreamingFileWriterOperator, snapshot_state=announcing):
        yield


@contextmanager
def moved_at_the_end_of_the_input() -> Iterator[None]:
    """Staged files are moved when the input has ended, before the checkpoint that holds the plan."""
    finish = _Finalizer.finish

    def moving(finalizer: Any) -> None:
        finish(finalizer)
        finalizer._carry_out(finalizer._plan)

    with replaced(_Finalizer, finish=moving):
        yield


@contextmanager
def prepared_rows_taken_for_committed() -> Iterator[None]:
    """A restored sink takes the rows that its checkpoint covers to be committed, and does not ask the database."""
    with replaced(DatabaseSinkOperator, recover_and_commit=lambda sink, transaction, checkpoint_id: None):
        yield


@contextmanager
def log_committed_on_barrier() -> Iterator[None]:
    """A transaction is committed as soon as it is pre-committed."""
    pre_commit = TransactionalLogSink.pre_commit

    def committing(sink: Any, transaction: Any, checkpoint_id: int | None) -> None:
        pre_commit(sink, transaction, checkpoint_id)
        sink.commit(transaction, checkpoint_id)

    with replaced(TransactionalLogSink, pre_commit=committing):
        yield
