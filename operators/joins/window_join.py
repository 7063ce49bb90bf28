"""Window join and co-group: the records of two streams for one key in one window (Flink: ``CoGroupedStreams``).

Rules.

* Both streams go into the same window operator, each record with the number of its side, 1 or 2; all kinds of windows,
  triggers, lateness and side outputs are those of windows. A late record leaves as ``(side, record)``.
* ``co_group``: for each key and window with a record of either side, the function gets both lists; one may be empty, so
  that outer joins can be made of it.
* ``join``: the function gets every pair of the two lists, left by left. A key with one side only gives nothing.
* Results carry the last millisecond of the window. One that fires again for a late record gives all its pairs again.
* In the lists, records of one side are in the order in which they came; what the two sides have to do with each other
  in time does not show.
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
