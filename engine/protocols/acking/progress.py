"""How far a spout may commit a split: up to the lowest record that is not acknowledged.

Records are acknowledged in any order, but a position says "everything before": one record that is pending holds back
all positions behind it, and what was acknowledged behind it comes again after a restart.
"""

from __future__ import annotations

from collections import deque
from typing import Any


class SplitProgress:
    """The records of one split that were read and are not covered by the committed position yet.

    ``position``: where reading begins; opaque, ``None`` = at the beginning.
    """

    __slots__ = ("_done", "_first", "_positions", "position")

    def __init__(self, position: Any = None) -> None:
        self.position = position
        self._first = 0
        """Number of the oldest record that is not covered."""
        self._positions: deque[Any] = deque()
        """Behind each record from that one on."""
        self._done: dict[int, None] = {}
        """Numbers that were acknowledged, of those."""

    def read(self, position_behind: Any) -> int:
        """The next record was read, and the split stands at ``position_behind``. Returns the record's number."""
        self._positions.append(position_behind)
        return self._first + len(self._positions) - 1

    def acked(self, number: int) -> None:
        """A record is behind us. What was acknowledged before may be again: it changes nothing."""
        assert number < self._first + len(self._positions), (number, self._first, len(self._positions))
        if number < self._first:
            return
        self._done[number] = None
        # A position says that everything before it was acknowledged (mutant "offsets beyond pending records").
        while self._positions and self._first in self._done:
            del self._done[self._first]
            self.position = self._positions.popleft()
            self._first += 1

    @property
    def covered_records(self) -> int:
        """Records that were read and are covered by the position: nobody reads them again."""
        return self._first

    @property
    def open_records(self) -> int:
        """Records that were read and are not covered by the position: a restart reads them again."""
        return len(self._positions)

    def fingerprint(self) -> object:
        """What is covered, and what is acknowledged behind it."""
        return repr(self.position), len(self._positions), tuple(sorted(one - self._first for one in self._done))
