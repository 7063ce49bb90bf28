"""Sinks that need no files: collect into a list, print, count; and the base of all sinks.

A sink is described by an object with ``name`` and ``create_operator()``. Records that a sink collects in memory are not
state: they are outside of the job, and the exactly-once rules are those of files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from state_backends.base import row, values, whole


class Sink(Protocol):
    """Describes a sink; makes one operator per subtask and attempt."""

    name: str

    def create_operator(self) -> Operator:
        """A fresh operator."""


_IN_MEMORY = "keeps its rows in the memory of one process: use a CollectSink with transactions, or files"


class SinkOperator(Operator):
    """Base of sinks: takes records and has no output."""

    def uncommitted(self) -> list[tuple[str, str]] | None:
        """For people: what readers do not see yet, as a name and an amount; ``None`` = the sink has no words for it."""
        return None

    def process_watermark(self, timestamp_ms: int) -> None:
        """Event time ends here."""

    def process_watermark_status(self, idle: bool) -> None:
        """And so does idleness."""


class CollectedResults:
    """The results of a job: ``records``, in the order in which they were committed.

    With ``transactional`` (the default) records appear when a checkpoint that covers them completes, each exactly once
    despite failures; without checkpoints they appear at the end of the job. Without ``transactional`` they appear as
    they arrive, and again after a failure (at least once).

    If a job goes back to an older checkpoint because the newer ones cannot be read, it takes back the records that
    those had committed, as the file sink does; they will come again. (Not from a list that other code has changed.)
    """

    def __init__(self, into: list[Any] | None = None, *, transactional: bool = True) -> None:
        self.records: list[Any] = [] if into is None else into
        self.transactional = transactional
        self._committed: dict[tuple[str, int, int], None] = {}
        self._not_ours = len(self.records)
        self._pieces: list[tuple[tuple[str, int, int] | None, int]] = []
        """The parts of ``records`` after the initial ones: transactions and their numbers of records."""

    def commit(self, transaction: tuple[str, int, int], records: list[Any]) -> bool:
        """Append ``records`` unless ``transaction`` (uid, subtask, checkpoint) was committed before."""
        if transaction in self._committed:
            return False
        self._committed[transaction] = None
        self._pieces.append((transaction, len(records)))
        self.records.extend(records)
        return True

    def retract(self, uid: str, subtask: int, parallelism: int, behind: int) -> int:
        """Take back the records that ``subtask`` (of ``parallelism`` now; also for removed subtasks) has committed with
        checkpoints after this one. Returns their number."""
        gone = dict.fromkeys(
            one for one in self._committed if one[0] == uid and one[1] % parallelism == subtask and one[2] > behind
        )
        if not gone or len(self.records) != self._not_ours + sum(count for _, count in self._pieces):
            return 0
        kept: list[Any] = self.records[: self._not_ours]
        at = self._not_ours
        for transaction, count in self._pieces:
            if transaction not in gone:
                kept.extend(self.records[at : at + count])
            at += count
        retracted = len(self.records) - len(kept)
        self.records[:] = kept
        self._pieces = [piece for piece in self._pieces if piece[0] not in gone]
        for transaction in gone:
            del self._committed[transaction]
        return retracted

    def begin(self, uid: str, subtask: int) -> None:
        """A subtask starts without state: no transaction of its run has been committed yet (the same job may be run
        twice)."""
        for transaction in [one for one in self._committed if one[:2] == (uid, subtask)]:
            del self._committed[transaction]

    def transactions(self) -> list[tuple[int, int]]:
        """``(subtask, checkpoint)`` of each transaction, in the order of commits."""
        return [(subtask, checkpoint) for _, subtask, checkpoint in self._committed]

    def append(self, records: list[Any]) -> None:
        """Append ``records`` without a transaction."""
        self._pieces.append((None, len(records)))
        self.records.extend(records)

    def fingerprint(self) -> object:
        return sorted(map(repr, self.records)), tuple(sorted(self._committed))


class CollectSink:
    """Collects into a list or a ``CollectedResults``."""

    name = "collect"

    def __init__(self, into: CollectedResults | list[Any]) -> None:
        self._results = into if isinstance(into, CollectedResults) else CollectedResults(into)

    def create_operator(self) -> Operator:
        if self._results.transactional:
            return _TransactionalCollect(self._results)
        return _PlainCollect(self._results)

    def fingerprint(self) -> object:
        return self._results.fingerprint()

    def fresh(self) -> CollectSink:
        """A copy without collected records."""
        return CollectSink(CollectedResults(transactional=self._results.transactional))

    @property
    def records(self) -> list[Any]:
        """The collected records, in the order of commits."""
        return self._results.records

    @property
    def delivery(self) -> str:
        """The best guarantee that it offers: without transactions, records come again after a failure."""
        return "exactly-once" if self._results.transactional else "at-least-once"

    def committed_rows(self) -> list[str]:
        """The collected records as text, in the order of commits."""
        return [repr(record) for record in self._results.records]

    def transactions(self) -> list[tuple[int, int]]:
        """``(subtask, checkpoint)`` of each transaction, in the order of commits."""
        return self._results.transactions()


class _PlainCollect(SinkOperator):
    one_process = _IN_MEMORY

    def __init__(self, results: CollectedResults) -> None:
        self._results = results

    def process_batch(self, batch: Batch) -> None:
        self._results.append(batch.values)


class _TransactionalCollect(SinkOperator):
    """Records wait in state, per checkpoint, until that checkpoint or a later one has completed.

    A transaction keeps the subtask that opened it: after a change of parallelism another subtask may commit it.
    """

    can_publish_at_once = True

    def __init__(self, results: CollectedResults) -> None:
        self._results = results
        self._current: list[Any] = []
        self._pending: dict[tuple[int, int], list[Any]] = {}

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state("pending-records", row(whole, whole, values))
        context, restored_id = self.context, self.context.restored_checkpoint_id()
        if restored_id is None:
            self._results.begin(context.uid, context.subtask)
        else:
            retracted = self._results.retract(context.uid, context.subtask, context.parallelism, restored_id)
            if retracted:
                context.metrics.count("numCommittedRecordsRetracted", retracted)
        for subtask, checkpoint_id, records in self._state.get():
            # In the state of a completed checkpoint, so committed, whether or not the notification arrived
            # (mutant "lost notification not redone").
            self._results.commit((self.context.uid, subtask, checkpoint_id), records)

    def process_batch(self, batch: Batch) -> None:
        if self.context.publish_at_once:
            self._results.append(batch.values)
        else:
            self._current.extend(batch.values)

    def snapshot_state(self, checkpoint_id: int) -> None:
        # No commit here: a checkpoint that never completes covers nothing (mutant "commit on barrier").
        if self._current:
            self._pending[self.context.subtask, checkpoint_id] = self._current
            # A snapshot closes the transaction: later records belong to the next checkpoint
            # (mutant "booked under the wrong checkpoint").
            self._current = []
        self._state.update([(*transaction, records) for transaction, records in self._pending.items()])

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        for subtask, pending_id in sorted(self._pending):
            if pending_id <= checkpoint_id:
                records = self._pending.pop((subtask, pending_id))
                self._results.commit((self.context.uid, subtask, pending_id), records)

    def finish(self) -> None:
        if not self.context.checkpointing_enabled:
            self._results.append(self._current)
            self._current = []

    def uncommitted(self) -> list[tuple[str, str]]:
        waiting = [(f"for checkpoint {number}", records) for (_, number), records in self._pending.items()]
        open_ones = [("open", self._current)] if self._current else []
        counts = [(name, len(records)) for name, records in [*waiting, *open_ones]]
        return [(name, f"{count:,} record{'' if count == 1 else 's'}") for name, count in counts]

    def fingerprint(self) -> object:
        return sorted(map(repr, self._current)), repr(sorted(self._pending.items()))


class PrintSink:
    """Writes ``repr(record)``, one per line; with parallelism, each line begins with ``subtask> `` counted from 1 (as
    Flink does).

    Printed lines cannot be taken back, so after a failure records appear again. ``identifier`` is put before each line.
    """

    name = "print"

    def __init__(self, write: Callable[[str], Any] | None = None, *, identifier: str = "") -> None:
        self._write, self._identifier = write, identifier

    def create_operator(self) -> Operator:
        return _Print(self._write, self._identifier)


class _Print(SinkOperator):
    one_process = _IN_MEMORY

    def __init__(self, write: Callable[[str], Any] | None, identifier: str) -> None:
        self._write, self._identifier = write, identifier

    def process_batch(self, batch: Batch) -> None:
        context = self.context
        parts = [self._identifier, str(context.subtask + 1) if context.parallelism > 1 else ""]
        prefix = f"{':'.join(filter(None, parts))}> " if any(parts) else ""
        # Looked up each time: a copy of an operator cannot contain a stream, and the caller of the job may replace it.
        write = self._write or sys.stdout.write
        write("".join([f"{prefix}{value!r}\n" for value in batch.values]))


class DiscardSink:
    """Takes records and does nothing with them (Flink: ``DiscardingSink``)."""

    name = "discard"

    def create_operator(self) -> Operator:
        return _Discard()


class _Discard(SinkOperator):
    def process_batch(self, batch: Batch) -> None:
        pass


class CountedRecords:
    """How many records a ``CountingSink`` has seen; after the run, the exact number in exactly-once mode."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._attempt = (0, 0)

    @property
    def total(self) -> int:
        """All subtasks together."""
        return sum(self._counts.values())

    def report(self, attempt: tuple[int, int], subtask: int, count: int) -> None:
        """``subtask`` has counted to ``count``; numbers of earlier attempts are forgotten."""
        if attempt != self._attempt:
            self._attempt = attempt
            self._counts = {}
        self._counts[subtask] = count


class CountingSink:
    """Counts records. The count is operator state, so a restore sets it back to the checkpoint, too."""

    name = "count"

    def __init__(self, into: CountedRecords | None = None) -> None:
        self._into = CountedRecords() if into is None else into

    def create_operator(self) -> Operator:
        return _Count(self._into)


class _Count(SinkOperator):
    one_process = _IN_MEMORY

    def __init__(self, into: CountedRecords) -> None:
        self._into = into
        self._count = 0

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state("count", whole)
        self._count = sum(self._state.get())

    def open(self) -> None:
        context = self.context
        self._attempt, self._subtask = (context.incarnation, context.attempt), context.subtask
        self._into.report(self._attempt, self._subtask, self._count)

    def process_batch(self, batch: Batch) -> None:
        self._count += batch.size
        self._into.report(self._attempt, self._subtask, self._count)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._state.update([self._count])

    def fingerprint(self) -> object:
        return self._count
