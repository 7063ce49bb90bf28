"""Window join and co-group: the records of two streams for one key in one window (Flink: ``CoGroupedStreams``).

Rules.

* Both streams go into one window operator, each record with the number of its side, 1 or 2. So window kinds, triggers,
  lateness and side outputs work as for windows. A late record is emitted as ``(side, record)``.
* ``co_group``: for each key and window with a record of either side, the function gets both lists; one may be empty. So
  outer joins are possible.
* ``join``: the function gets every pair of the two lists, left by left. A key with one side only has no result.
* Results carry the last millisecond of the window. If it fires again for a late record, it emits all its pairs again.
* In each list, records are in the order of their arrival. The order between the two sides is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

FIRST, SECOND = 1, 2


def tag_first(value: Any) -> tuple[int, Any]:
    """A record of the first stream on its way into the window."""
    return FIRST, value


def tag_second(value: Any) -> tuple[int, Any]:
    """A record of the second stream on its way into the window."""
    return SECOND, value


def split_sides(values: Sequence[tuple[int, Any]]) -> tuple[list[Any], list[Any]]:
    """The records of both sides."""
    return ([value for side, value in values if side == FIRST], [value for side, value in values if side == SECOND])


class CoGroup:
    """``function(lefts, rights)`` returns the records of a key and window, or ``None``."""

    def __init__(self, function: Callable[[list[Any], list[Any]], Iterable[Any] | None]) -> None:
        self._function = function

    def __call__(self, key: Any, window: Any, values: Sequence[tuple[int, Any]]) -> Iterable[Any] | None:
        """The argument of a window function."""
        return self._function(*split_sides(values))


class JoinPairs:
    """``function(left, right)`` returns the record of a pair."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function

    def __call__(self, key: Any, window: Any, values: Sequence[tuple[int, Any]]) -> list[Any]:
        """The argument of a window function."""
        lefts, rights = split_sides(values)
        function = self._function
        return [function(left, right) for left in lefts for right in rights]
