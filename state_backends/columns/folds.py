"""Running folds of grouped columns: for every record the sum, least, greatest or number of its key so far.

Their results are those of the row path, which folds record by record, bit for bit: sums of floats are added in the
order of the records, the first value of a key stays as it is (-0.0 too), and comparisons with NaN are false.

Integers stay within 64 bits. A sum that leaves them raises; it never wraps around.

A sum of integers is one cumulative sum over all groups, with a jump wherever a group begins. It is exact, because
integers modulo 2**64 are. All other folds go by *rank*: one step folds the first records of all groups, the next step
the second ones, and so on. A group with very many records would need as many steps; so after some steps the rest of
such a group is folded along the group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from state_backends.base import StateArgumentError, np
from state_backends.columns.grouping import Grouping, Positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

Column = Any
"""``NDArray[np.int64]`` or ``NDArray[np.float64]``."""

_MAX_STEPS = 32
"""Ranks that are folded across all groups, before long groups are folded one by one."""

_LONG_MAX = 2**63 - 1
_LONG_MIN = -(2**63)


class LongOverflowError(StateArgumentError):
    """A running sum of integers has left 64 bits.

    :ivar position: of the record in the batch
    """

    def __init__(self, position: int, total: int) -> None:
        super().__init__(
            f"the running sum became {total}, which does not fit the 64 bits of a column of integers. Sum smaller "
            "units or floats, or use reduce() on rows, whose ints have no limit."
        )
        self.position = position


class ColumnFold(ABC):
    """One way to fold the values of a key, under a name."""

    name: str

    @abstractmethod
    def fold(
        self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        """The running result of each record, in grouped order and good until the next fold, and that of each group.

        :param values: of the records, in the order of the batch
        :param before: of each group, the result so far
        :param is_new: of each group, whether it has none
        :raises LongOverflowError: when a sum leaves 64 bits
        """

    def totals(self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]) -> Column:
        """The result of each group alone. Arguments and errors as of :meth:`fold`."""
        return self.fold(grouping, values, before, is_new)[1]

    @abstractmethod
    def combine(self, reduced: Any, value: Any) -> Any:
        """The same for one record, as the row path does it."""

    def value_of(self, value: Any) -> Any:
        """What a record adds, for the row path."""
        return value


class _RankedFold(ColumnFold):
    """Folds by rank."""

    def fold(
        self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        # Longest first: the groups that have a record of some rank are always the first ones.
        by_length = np.argsort(-grouping.counts, kind="stable")
        starts, counts = grouping.starts[by_length], grouping.counts[by_length]
        grouped = grouping.grouped(values)
        running = grouping.space.array("running", len(grouping), values.dtype)
        first = grouped[starts]
        results = np.where(is_new[by_length], first, self._step(before[by_length], first))
        running[starts] = results
        steps = min(int(counts[0]), _MAX_STEPS)
        alive = np.searchsorted(-counts, -np.arange(1, steps + 1), side="right")
        for rank in range(1, steps):
            some = int(alive[rank])
            at = starts[:some] + rank
            results = self._step(results[:some], grouped[at])
            running[at] = results
        # ``results`` now is that of the groups with a record of the last rank done.
        for index in range(int(np.searchsorted(-counts, -steps, side="left"))):
            at, end = int(starts[index]) + steps, int(starts[index] + counts[index])
            running[at:end] = self._along(results[index], grouped[at:end])
        return running, running[grouping.starts + grouping.counts - 1]

    @abstractmethod
    def _step(self, reduced: Column, values: Column) -> Column:
        """One more value for each of several groups."""

    @abstractmethod
    def _along(self, reduced: Any, values: Column) -> Column:
        """The running result of further values of one group."""


class _DoubleSums(_RankedFold):
    def _step(self, reduced: Column, values: Column) -> Column:
        with np.errstate(all="ignore"):
            return reduced + values

    def _along(self, reduced: Any, values: Column) -> Column:
        with np.errstate(all="ignore"):
            # accumulate adds one after the other, where a sum would add pairwise.
            return np.add.accumulate(np.concatenate(([reduced], values)))[1:]

    def combine(self, reduced: Any, value: Any) -> Any:
        return reduced + value


class _Extremes(_RankedFold):
    """What min and max share. Of equal values, and 0.0 and -0.0 are, the earlier one stays."""

    @abstractmethod
    def _beats(self, value: Any, reduced: Any) -> Any:
        """Whether a value takes the place of what is there."""

    @abstractmethod
    def _best_so_far(self, values: Column) -> Column:
        """The running extreme of values none of which is NaN, up to the sign of 0.0."""

    def _step(self, reduced: Column, values: Column) -> Column:
        return np.where(self._beats(values, reduced), values, reduced)

    def _along(self, reduced: Any, values: Column) -> Column:
        all_values = np.concatenate((np.asarray([reduced], dtype=values.dtype), values))
        comparable = all_values
        if all_values.dtype == np.float64:
            # NaN never takes the place of anything, and nothing that of a NaN that is there first.
            comparable = np.where(np.isnan(all_values), all_values[0], all_values)
        best = self._best_so_far(comparable)
        records = np.zeros(len(best), dtype=np.intp)
        records[1:] = np.where(self._beats(comparable[1:], best[:-1]), np.arange(1, len(best)), 0)
        return all_values[np.maximum.accumulate(records)][1:]

    def combine(self, reduced: Any, value: Any) -> Any:
        return value if self._beats(value, reduced) else reduced


class MinFold(_Extremes):
    """The least value so far (Python's ``min(reduced, value)``)."""

    name = "min"

    def _beats(self, value: Any, reduced: Any) -> Any:
        return value < reduced

    def _best_so_far(self, values: Column) -> Column:
        return np.minimum.accumulate(values)


class MaxFold(_Extremes):
    """The greatest value so far (Python's ``max(reduced, value)``)."""

    name = "max"

    def _beats(self, value: Any, reduced: Any) -> Any:
        return value > reduced

    def _best_so_far(self, values: Column) -> Column:
        return np.maximum.accumulate(values)


class SumFold(ColumnFold):
    """The sum so far."""

    name = "sum"

    def __init__(self) -> None:
        self._doubles = _DoubleSums()

    def fold(
        self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        if values.dtype == np.float64:
            return self._doubles.fold(grouping, values, before, is_new)
        grouped, after = self._exact(grouping, values, before)
        return _running_sums(grouping, grouped, before, after), after

    def totals(self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]) -> Column:
        if values.dtype == np.float64:
            return self._doubles.totals(grouping, values, before, is_new)
        return self._exact(grouping, values, before)[1]

    def _exact(self, grouping: Grouping, values: Column, before: Column) -> tuple[Column, Column]:
        """Integers in grouped order, and the sum of each group."""
        if _may_overflow(grouping, values, before):
            _find_overflow(grouping, values, before)
        grouped = grouping.grouped(values)
        return grouped, before + _sums(grouping, grouped)

    def combine(self, reduced: Any, value: Any) -> Any:
        return reduced + value


class CountFold(ColumnFold):
    """The number of records so far; their values do not matter."""

    name = "count"

    def fold(
        self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        ones = grouping.space.array("grouped", len(grouping), np.int64)
        ones[:] = 1
        after = before + grouping.counts
        return _running_sums(grouping, ones, before, after), after

    def totals(self, grouping: Grouping, values: Column, before: Column, is_new: NDArray[np.bool_]) -> Column:
        return before + grouping.counts

    def combine(self, reduced: Any, value: Any) -> Any:
        return reduced + value

    def value_of(self, value: Any) -> Any:
        return 1


def _sums(grouping: Grouping, grouped: Column) -> Column:
    """The sum of each group, by the difference of cumulative sums: faster than adding up group by group."""
    running = np.cumsum(grouped, out=grouping.space.array("running", len(grouping), grouped.dtype))
    sums = running[grouping.starts + grouping.counts - 1]
    sums[1:] -= sums[:-1].copy()
    return sums


def _running_sums(grouping: Grouping, grouped: Column, before: Column, after: Column) -> Column:
    """One cumulative sum over all groups, in place. What the first record of a group adds is changed so that it takes
    the sum from where the group before ends to where this one begins."""
    steps = before.copy()
    steps[1:] -= after[:-1]
    grouped[grouping.starts] += steps
    return np.cumsum(grouped, out=grouped)


def _may_overflow(grouping: Grouping, values: Column, before: Column) -> bool:
    """Whether some running sum could leave 64 bits, judged by the extremes alone: false is certain, true is not."""
    most = int(grouping.counts.max())
    highest, lowest = int(before.max()), int(before.min())
    return (
        highest + most * max(0, int(values.max())) > _LONG_MAX or lowest + most * min(0, int(values.min())) < _LONG_MIN
    )


def _find_overflow(grouping: Grouping, values: Column, before: Column) -> None:
    """Raise for the first record of the batch whose running sum leaves 64 bits, if there is one."""
    group_of: Positions = np.empty(len(values), dtype=np.intp)
    group_of[grouping.order] = np.repeat(np.arange(len(grouping.starts)), grouping.counts)
    sums = before.tolist()
    for position, (group, value) in enumerate(zip(group_of.tolist(), values.tolist(), strict=True)):
        sums[group] = total = sums[group] + value
        if not _LONG_MIN <= total <= _LONG_MAX:
            raise LongOverflowError(position, total)
