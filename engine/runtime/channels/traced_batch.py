"""Records that travel with the cause of each, in a run that keeps a ledger (:mod:`engine.observe.provenance`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.observe.provenance import Cause


class TracedBatch(Batch):
    """Records with the cause of each."""

    __slots__ = ("causes",)

    def __init__(
        self, values: list[Any], timestamps: list[int] | None, keys: list[Any] | None, causes: list[Cause]
    ) -> None:
        self.values, self.timestamps, self.keys, self.causes = values, timestamps, keys, causes
        self.size = size = len(values)
        assert len(causes) == size, (len(causes), size)

    @classmethod
    def of(cls, batch: Batch, causes: list[Cause]) -> TracedBatch:
        """The records of ``batch``, as rows."""
        return cls(batch.values, batch.timestamps, batch.keys, causes)

    def split(self, at: int) -> tuple[Batch, Batch]:
        """The records before and from position ``at``."""
        first, rest = super().split(at)
        return TracedBatch.of(first, self.causes[:at]), TracedBatch.of(rest, self.causes[at:])

    def take(self, positions: Sequence[int]) -> Batch:
        """The records at ``positions``, in that order."""
        return TracedBatch.of(super().take(positions), list(map(self.causes.__getitem__, positions)))

    def by_cause(self) -> Iterator[tuple[Cause, Batch]]:
        """The records in order, in pieces of one cause each."""
        causes, start = self.causes, 0
        if len(causes) == 1:
            yield causes[0], self
            return
        for end in range(1, len(causes) + 1):
            if end == len(causes) or causes[end] != causes[start]:
                whole = start == 0 and end == len(causes)
                yield causes[start], self if whole else Batch.take(self, range(start, end))
                start = end
