"""Sets and multisets of record numbers, compressed to ranges.

Records come in order, so those with an effect are mostly a few long ranges per split. A single number takes 16 bytes.
Everything here is plain data: it can be copied, compared and pickled in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
"""``(first, last + 1)``."""


class RangeSet:
    """A set of numbers of at least 0, as ranges that are ascending and not adjacent."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        """``ranges``: in any order; they may overlap."""
        self._starts = array("q")
        self._ends = array("q")
        for first, end in sorted(ranges):
            self._append(first, end)

    def _append(self, first: int, end: int) -> None:
        """Add a range that has no number before the last range."""
        if first >= end:
            return
        if self._ends and first <= self._ends[-1]:
            self._ends[-1] = max(self._ends[-1], end)
        else:
            self._starts.append(first)
            self._ends.append(end)

    def add(self, number: int) -> bool:
        """Add a number; returns whether it is new."""
        starts, ends = self._starts, self._ends
        if not ends or number > ends[-1]:
            starts.append(number)
            ends.append(number + 1)
            return True
        if number == ends[-1]:
            ends[-1] = number + 1
            return True
        at = bisect_right(starts, number)
        if at and number < ends[at - 1]:
            return False
        joins_left = at > 0 and ends[at - 1] == number
        joins_right = at < len(starts) and starts[at] == number + 1
        if joins_left and joins_right:
            ends[at - 1] = ends[at]
            del starts[at], ends[at]
        elif joins_left:
            ends[at - 1] = number + 1
        elif joins_right:
            starts[at] = number
        else:
            starts.insert(at, number)
            ends.insert(at, number + 1)
        return True

    def ranges(self) -> list[Range]:
        """The ranges, ascending and not adjacent."""
        return list(zip(self._starts, self._ends, strict=True))

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number)
        return at > 0 and number < self._ends[at - 1]

    def __iter__(self) -> Iterator[int]:
        for first, end in zip(self._starts, self._ends, strict=True):
            yield from range(first, end)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({self.ranges()})"

    def copy(self) -> RangeSet:
        other = RangeSet()
        other._starts, other._ends = self._starts[:], self._ends[:]
        return other

    def __or__(self, other: RangeSet) -> RangeSet:
        return RangeSet([*self.ranges(), *other.ranges()])

    def __and__(self, other: RangeSet) -> RangeSet:
        found = RangeSet()
        mine, theirs = self.ranges(), other.ranges()
        at = there = 0
        while at < len(mine) and there < len(theirs):
            first, end = max(mine[at][0], theirs[there][0]), min(mine[at][1], theirs[there][1])
            found._append(first, end)
            if mine[at][1] < theirs[there][1]:
                at += 1
            else:
                there += 1
        return found

    def __sub__(self, other: RangeSet) -> RangeSet:
        left = RangeSet()
        theirs = other.ranges()
        there = 0
        for first, end in self.ranges():
            while there < len(theirs) and theirs[there][1] <= first:
                there += 1
            at = there
            while at < len(theirs) and theirs[at][0] < end:
                left._append(first, theirs[at][0])
                first = max(first, theirs[at][1])
                at += 1
            left._append(first, end)
        return left

    def below(self, bound: int) -> RangeSet:
        return self & RangeSet([(0, bound)]) if bound > 0 else RangeSet()


class Effects:
    """How often each record had an effect: a multiset of ``(split, number)``, the split as a number.

    Layer ``n`` of a split holds the records with more than ``n`` effects, so the usual multiset is one range.
    """

    __slots__ = ("splits",)

    def __init__(self) -> None:
        self.splits: dict[int, list[RangeSet]] = {}

    def add(self, split: int, number: int) -> None:
        layers = self.splits.get(split)
        if layers is None:
            layers = self.splits[split] = []
        for layer in layers:
            if layer.add(number):
                return
        layers.append(RangeSet([(number, number + 1)]))

    @classmethod
    def sum(cls, parts: Iterable[Effects]) -> Effects:
        by_split: dict[int, list[list[RangeSet]]] = {}
        for part in parts:
            for split, layers in part.splits.items():
                by_split.setdefault(split, []).append(layers)
        total = cls()
        total.splits = {split: _summed(several) for split, several in by_split.items()}
        return total

    def layer(self, split: int, effects: int) -> RangeSet:
        """The records of a split with at least that many effects (one or more)."""
        layers = self.splits.get(split, [])
        return layers[effects - 1] if effects <= len(layers) else RangeSet()

    def total(self) -> int:
        return sum(len(layer) for layers in self.splits.values() for layer in layers)

    def copy(self) -> Effects:
        other = Effects()
        other.splits = {split: [layer.copy() for layer in layers] for split, layers in self.splits.items()}
        return other

    def __bool__(self) -> bool:
        return any(self.splits.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Effects):
            return NotImplemented
        return self._known() == other._known()

    __hash__ = None  # type: ignore[assignment]

    def _known(self) -> dict[int, list[RangeSet]]:
        return {split: layers for split, layers in self.splits.items() if layers}


def _summed(several: list[list[RangeSet]]) -> list[RangeSet]:
    """The layers of a sum. One sweep over all ends of ranges: there may be thousands of layers, one range in each."""
    if len(several) == 1:
        return [layer.copy() for layer in several[0]]
    changes: dict[int, int] = {}
    for layers in several:
        for layer in layers:
            for first, end in layer.ranges():
                changes[first] = changes.get(first, 0) + 1
                changes[end] = changes.get(end, 0) - 1
    ranges: list[list[Range]] = []
    # The beginnings of the open ranges, the lowest layer first.
    begun: list[int] = []
    for number in sorted(changes):
        change = changes[number]
        for _ in range(change):
            begun.append(number)
        for _ in range(-change):
            depth = len(begun) - 1
            while len(ranges) <= depth:
                ranges.append([])
            ranges[depth].append((begun.pop(), number))
    return [RangeSet(layer) for layer in ranges]
