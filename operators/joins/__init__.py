"""Joins of two streams: within a window, within an interval of event time, and of all that either side has ever had.
"""

from __future__ import annotations

from operators.joins.interval_join import Interval, IntervalJoinOperator, PairContext
from operators.joins.regular_join import RegularJoinOperator
from operators.joins.window_join import CoGroup, JoinPairs, tag_first, tag_second

__all__ = [
    "CoGroup",
    "Interval",
    "IntervalJoinOperator",
    "JoinPairs",
    "PairContext",
    "RegularJoinOperator",
    "tag_first",
    "tag_second",
]
