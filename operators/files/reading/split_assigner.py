"""Who gets which split: the order in which an enumerator hands splits out (Flink: ``FileSplitAssigner``).

Pure. Nothing here knows of readers, and none has a better claim to a split than another: there is no locality.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

from operators.files.reading.splits import FileSourceSplit


class SplitAssigner(Protocol):
    """Keeps the splits that nobody has."""

    def next_split(self) -> FileSourceSplit | None:
        """The next split to hand out, which it keeps no longer; ``None`` when it has none."""

    def add_splits(self, splits: Iterable[FileSourceSplit]) -> None:
        """Take splits, new ones or ones that came back from a reader."""

    def remaining(self) -> list[FileSourceSplit]:
        """All splits, in the order in which they were added: what :meth:`add_splits` of another one needs."""


class SimpleSplitAssigner:
    """Hands out first what was added last (Flink: ``SimpleSplitAssigner``)."""

    def __init__(self) -> None:
        self._splits: list[FileSourceSplit] = []

    def next_split(self) -> FileSourceSplit | None:
        return self._splits.pop() if self._splits else None

    def add_splits(self, splits: Iterable[FileSourceSplit]) -> None:
        self._splits.extend(splits)

    def remaining(self) -> list[FileSourceSplit]:
        return list(self._splits)


class FifoSplitAssigner:
    """Hands out first what was added first: files in the order of their paths, later ones behind them."""

    def __init__(self) -> None:
        self._splits: deque[FileSourceSplit] = deque()

    def next_split(self) -> FileSourceSplit | None:
        return self._splits.popleft() if self._splits else None

    def add_splits(self, splits: Iterable[FileSourceSplit]) -> None:
        self._splits.extend(splits)

    def remaining(self) -> list[FileSourceSplit]:
        return list(self._splits)


ASSIGNERS: dict[str, type[SimpleSplitAssigner] | type[FifoSplitAssigner]] = {
    "lifo": SimpleSplitAssigner,
    "fifo": FifoSplitAssigner,
}
"""By the names that users choose them by."""
