"""Joins of two streams: within a window, within an interval of event time, and over all records of both sides."""

from __future__ import annotations

from operators.joins.interval_join import (
    Interval as Interval,
    IntervalJoinOperator as IntervalJoinOperator,
    PairContext as PairContext,
)
from operators.joins.regular_join import RegularJoinOperator as RegularJoinOperator
from operators.joins.window_join import (
    CoGroup as CoGroup,
    JoinPairs as JoinPairs,
    tag_first as tag_first,
    tag_second as tag_second,
)
