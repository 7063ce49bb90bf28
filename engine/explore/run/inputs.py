"""Input with records left out: the rest of a source after shrinking has removed records from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.source import Source, SourceContext, SplitReader
from engine.explore.cases import Ranges
from engine.faults.external import CountingReader


class PrunedSource:
    """A source without some records of some splits, by their number in the split (from 0).

    Positions are pairs: the inner one, and how many records of the split were read so far, omitted ones included.
    """

    def __init__(self, source: Source, dropped: Mapping[str, Ranges]) -> None:
        self._source = source
        self._dropped = dropped

    def splits(self, context: SourceContext) -> Sequence[str]:
        return self._source.splits(context)

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        """Open the split at a position of this source."""
        inner, number = (None, 0) if position is None else (position[0], position[1])
        reader = self._source.open_split(split, inner, context)
        return _PrunedReader(reader, number, self._dropped.get(split, ()))


class _PrunedReader(CountingReader):
    def __init__(self, reader: SplitReader, number: int, dropped: Ranges) -> None:
        super().__init__(reader, number)
        self._dropped = dropped

    def read(self, max_records: int) -> Batch | None:
        """The remaining records; an empty batch means, as always, that there are none now."""
        while True:
            first, batch = self.number, super().read(max_records)
            if batch is None or not len(batch):
                return batch
            kept = [at for at in range(len(batch)) if not self._is_dropped(first + at)]
            if kept:
                return batch if len(kept) == len(batch) else batch.take(kept)

    def _is_dropped(self, number: int) -> bool:
        return any(first <= number < end for first, end in self._dropped)
