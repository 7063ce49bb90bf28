"""Rows handed to a committer for all subtasks: what was committed together tells which checkpoint it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import Batch, Job, SequenceSource
from engine.elements.operator import OperatorContext
from operators.sinks import CollectedResults
from operators.transactions.committables import CommitRequest
from operators.transactions.committer_machine import Committer
from operators.transactions.committing_sink import CommittingSink, SinkWriter

SCENARIO = {
    "batch_size": 2,
    "channel_capacity": 8,
    "checkpoint_interval": "9rec",
    "cost.record_ns": 300,
    "modes": ["aligned", "unaligned", "aligned-timeout"],
}
SUBTASKS = 2


class Listing(CommittingSink):
    """Each checkpoint is published in one piece, once; a piece that lacks a subtask is marked as torn."""

    name = "listing"

    def __init__(self, rows: CollectedResults | None = None) -> None:
        self.published: dict[int, list[str]] = {}

    def fresh(self) -> Listing:
        """Another one, with nothing in it."""
        return Listing()

    def committed_rows(self) -> list[str]:
        """Row by row, in the order of checkpoints."""
        return [row for _, rows in sorted(self.published.items()) for row in rows]

    def create_writer(self, context: OperatorContext, restored: list[Any]) -> SinkWriter:
        """One per subtask."""
        return _Writer(context)

    def create_global_committer(self, context: OperatorContext) -> Committer:
        """The one that publishes."""
        return _Publishing(self)


class _Writer(SinkWriter):
    def __init__(self, context: OperatorContext) -> None:
        self._subtask = context.subtask
        self._rows: list[Any] = []

    def write(self, batch: Batch) -> None:
        self._rows += batch.values

    def prepare_commit(self, end_of_input: bool) -> list[Any]:
        rows, self._rows = self._rows, []
        return [[self._subtask, rows]]


class _Publishing:
    def __init__(self, sink: Listing) -> None:
        self._sink = sink

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in requests:
            _, rows = request.committable
            known = [row for published in self._sink.published.values() for row in published]
            new = [repr(row) for row in rows if repr(row) not in known]
            self._sink.published.setdefault(len(self._sink.published), []).extend(new)


def job(parallelism: int | None = None) -> Job:
    """Numbers."""
    made = Job("listed", parallelism=SUBTASKS, max_parallelism=8)
    numbers = made.source(SequenceSource(0, 40, splits=2), name="numbers", uid="numbers", parallelism=2)
    return numbers.rebalance().sink(Listing(), name="out", uid="out")
