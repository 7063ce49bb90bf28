"""Which transactions of a partition are open, and which were aborted: a fold over its batches, in order."""

from __future__ import annotations

from typing import Any

from operators.log.disk.record_batches import RecordBatch
from operators.log.port import ABORT_MARKER, DATA, Producer


class PartitionTransactions:
    """``open``: by producer, the offset of its first record and how many there are, in the order of offsets;
    ``aborted``: by producer, the offsets of its first record and of its marker."""

    __slots__ = ("aborted", "open")

    def __init__(self) -> None:
        self.open: dict[Producer, tuple[int, int]] = {}
        self.aborted: dict[Producer, tuple[int, int]] = {}

    def take(self, batch: RecordBatch) -> None:
        """Take the next batch."""
        if batch.producer is not None:
            self.took(batch.kind, batch.producer, batch.first_offset, batch.length)

    def took(self, kind: str, producer: Producer, offset: int, count: int) -> None:
        """Take the next records of a transaction, or its marker."""
        if kind == DATA:
            first, before = self.open.get(producer, (offset, 0))
            self.open[producer] = (first, before + count)
            return
        first, _ = self.open.pop(producer, (offset, 0))
        if kind == ABORT_MARKER:
            self.aborted[producer] = (first, offset)

    def stable_offset(self, end_offset: int) -> int:
        """The offset of the first record that is still undecided, or the end."""
        for first, _ in self.open.values():
            return first
        return end_offset

    def forget_before(self, offset: int) -> None:
        """Everything below ``offset`` is deleted."""
        self.aborted = {producer: range_ for producer, range_ in self.aborted.items() if range_[1] >= offset}

    def plain(self) -> tuple[Any, ...]:
        """As plain values."""
        return (
            [(*producer, *place) for producer, place in self.open.items()],
            [(*producer, *place) for producer, place in self.aborted.items()],
        )

    @classmethod
    def of(cls, plain: tuple[Any, ...]) -> PartitionTransactions:
        """The inverse of :meth:`plain`."""
        made = cls()
        made.open = {Producer(name, epoch): (first, count) for name, epoch, first, count in plain[0]}
        made.aborted = {Producer(name, epoch): (first, marker) for name, epoch, first, marker in plain[1]}
        return made
