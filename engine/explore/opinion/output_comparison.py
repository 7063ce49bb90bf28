"""The reference run: compare committed output of a run with faults to the output of the same job without faults.

Exactly-once means: the same rows, each as often (compared as multisets, because parallel subtasks may commit in another
order). Lost rows, duplicated rows and rows that the reference run never produced are distinguished,
because they have different causes. *Never* judge by "no duplicates" alone: lost output has none.

Pure functions over ``{partition: rows}``, the form in which sinks return their committed output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CommittedOutput = Mapping[str, Sequence[str]]
"""The committed rows of each partition (bucket, table or file), in any order."""


@dataclass(frozen=True, slots=True)
class CountDifference:
    """A row that is committed more or less often than in the reference run."""

    partition: str
    row: str
    expected: int
    actual: int

    @property
    def lost(self) -> int:
        """How many copies of this row are missing."""
        return max(0, self.expected - self.actual)

    @property
    def duplicated(self) -> int:
        """How many copies too many there are of an expected row."""
        return max(0, self.actual - self.expected) if self.expected else 0

    @property
    def unexpected(self) -> int:
        """How many copies there are of a row that is not expected at all."""
        return 0 if self.expected else self.actual


@dataclass(frozen=True, slots=True)
class DifferenceCounts:
    """Sums of differences."""

    lost: int = 0
    duplicated: int = 0
    unexpected: int = 0

    @classmethod
    def of(cls, differences: Sequence[CountDifference]) -> DifferenceCounts:
        return cls(
            sum(one.lost for one in differences),
            sum(one.duplicated for one in differences),
            sum(one.unexpected for one in differences),
        )

    def __str__(self) -> str:
        return f"{self.lost} lost, {self.duplicated} duplicated, {self.unexpected} unexpected"


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """What :func:`compare_outputs` found. ``differences`` are ordered by partition and row."""

    rows_expected: int
    rows_actual: int
    differences: tuple[CountDifference, ...]

    @property
    def equal(self) -> bool:
        """Whether both runs committed the same rows, each as often: exactly-once."""
        return not self.differences

    @property
    def counts(self) -> DifferenceCounts:
        return DifferenceCounts.of(self.differences)

    def __repr__(self) -> str:
        return f"<OutputComparison {self.describe(limit=0).partition(chr(10))[0]}>"

    def describe(self, limit: int = 5) -> str:
        """For people: the sums, then the first ``limit`` rows that differ."""
        if self.equal:
            return f"same output: {self.rows_actual} rows"
        lines = [f"output differs: {self.counts} ({self.rows_expected} rows expected, {self.rows_actual} found)"]
        for one in self.differences[:limit]:
            lines.append(f"  {one.partition or '.'}: {one.row}  expected {one.expected}x, found {one.actual}x")
        if len(self.differences) > limit:
            lines.append(f"  … and {len(self.differences) - limit} further rows")
        return "\n".join(lines)


def compare_outputs(expected: CommittedOutput, actual: CommittedOutput) -> OutputComparison:
    """Compare the committed rows of a run with those of the reference run, as a multiset per partition.

    A partition without rows equals a missing partition.
    """
    differences: list[CountDifference] = []
    for partition in sorted({**expected, **actual}):
        expected_rows = Counter(expected.get(partition, ()))
        actual_rows = Counter(actual.get(partition, ()))
        if dict.__eq__(expected_rows, actual_rows):
            # Nearly always, and seen without a look at each row.
            continue
        for row in sorted(expected_rows | actual_rows):
            if expected_rows[row] != actual_rows[row]:
                differences.append(CountDifference(partition, row, expected_rows[row], actual_rows[row]))
    return OutputComparison(_rows(expected), _rows(actual), tuple(differences))


def _rows(output: CommittedOutput) -> int:
    return sum(len(rows) for rows in output.values())
