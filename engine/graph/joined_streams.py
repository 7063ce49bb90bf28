"""Two streams on their way into a join: their keys, windows or interval, and function.

(Flink: ``JoinedStreams``, ``CoGroupedStreams``, ``KeyedStream.IntervalJoin``.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from engine.elements.errors import ConfigurationError, JobGraphError
from engine.graph.connected_streams import add_two_input
from engine.graph.keyed_stream import KeyedStream
from engine.graph.options import OperatorOptions, check_callable, check_type
from engine.graph.stream import Stream
from engine.graph.windowed_stream import WindowedStream
from state_backends.base import KeyType

if TYPE_CHECKING:
    from operators.joins import PairContext
    from operators.windows import Trigger, WindowAssigner


class JoinedStreams:
    """Two streams without keys yet. ``is_join``: whether pairs are wanted, or else both lists."""

    __slots__ = ("_first", "_is_join", "_second")

    def __init__(self, first: Stream, second: Stream, *, is_join: bool) -> None:
        method = "join" if is_join else "co_group"
        for stream in (first, second):
            check_type(method, "its argument", stream, Stream)
            if isinstance(stream, KeyedStream):
                raise JobGraphError(
                    f"{method}: {stream!r} has a key already\n"
                    "  fix: leave key_by out; where(...) and equal_to(...) name the keys"
                )
        first._check_same_job(method, second)
        self._first = first
        self._second = second
        self._is_join = is_join

    def where(self, key: Callable[[Any], Any], *, key_type: KeyType | None = None) -> JoinedWhere:
        """The key of the first stream."""
        check_callable("where", "key", key)
        return JoinedWhere(self._first, self._second, key, key_type, self._is_join)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedWhere:
    """The first stream has its key."""

    _first: Stream
    _second: Stream
    _key: Callable[[Any], Any]
    _key_type: KeyType | None
    _is_join: bool

    def equal_to(self, key: Callable[[Any], Any]) -> JoinedKeys:
        """The key of the second stream; records whose keys are equal belong together."""
        from operators.joins import tag_first, tag_second

        check_callable("equal_to", "key", key)
        first = self._first.key_by(self._key, value=tag_first, key_type=self._key_type)
        second = self._second.key_by(key, value=tag_second, key_type=self._key_type)
        # One input with edges from both: to the window operator the sides are records like any others.
        return JoinedKeys(KeyedStream(first._job, (*first._outlets, *second._outlets)), self._is_join)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedKeys:
    """Both streams have their keys."""

    _both: KeyedStream
    _is_join: bool

    def window(self, assigner: WindowAssigner) -> JoinedWindows:
        """The windows in which records meet."""
        return JoinedWindows(self._both.window(assigner), self._is_join)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedWindows:
    """Both streams have keys and windows. A value: setters return another one."""

    _windows: WindowedStream
    _is_join: bool

    def allowed_lateness(self, lateness_ms: int) -> JoinedWindows:
        """See ``WindowedStream.allowed_lateness``: a late record gives all pairs of its window again."""
        return JoinedWindows(self._windows.allowed_lateness(lateness_ms), self._is_join)

    def side_output_late(self, tag: str) -> JoinedWindows:
        """Send records that are too late to side output ``tag``, as ``(1 or 2, record)`` by their stream."""
        return JoinedWindows(self._windows.side_output_late(tag), self._is_join)

    def trigger(self, trigger: Trigger) -> JoinedWindows:
        """Compute the windows when ``trigger`` says so."""
        return JoinedWindows(self._windows.trigger(trigger), self._is_join)

    def apply(self, fn: Callable[[Any, Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """Of a join one record ``fn(left, right)`` for each pair; of a co-group the records that ``fn(lefts, rights)``
        returns for each key and window."""
        from operators.joins import CoGroup, JoinPairs

        check_callable("apply", "fn", fn)
        return self._windows.process(JoinPairs(fn) if self._is_join else CoGroup(fn), **options)


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """Two keyed streams whose records meet when their event times are near. A value: setters return another one."""

    _first: KeyedStream
    _second: KeyedStream
    _bounds: tuple[int, int] | None = None
    _lower_inclusive: bool = True
    _upper_inclusive: bool = True
    _late_left_tag: str | None = None
    _late_right_tag: str | None = None

    def between(self, lower_ms: int, upper_ms: int) -> IntervalJoin:
        """A right record meets a left one when its time minus that of the left one is from ``lower_ms`` to
        ``upper_ms``, both included."""
        return replace(self, _bounds=(lower_ms, upper_ms))

    def lower_bound_exclusive(self) -> IntervalJoin:
        """Leave out the lower bound itself."""
        return replace(self, _lower_inclusive=False)

    def upper_bound_exclusive(self) -> IntervalJoin:
        """Leave out the upper bound itself."""
        return replace(self, _upper_inclusive=False)

    def side_output_late_left(self, tag: str) -> IntervalJoin:
        """Send late records of the first stream to side output ``tag`` instead of dropping them."""
        check_type("side_output_late_left", "tag", tag, str)
        return replace(self, _late_left_tag=tag)

    def side_output_late_right(self, tag: str) -> IntervalJoin:
        """Send late records of the second stream to side output ``tag`` instead of dropping them."""
        check_type("side_output_late_right", "tag", tag, str)
        return replace(self, _late_right_tag=tag)

    def apply(self, fn: Callable[[Any, Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """One record ``fn(left, right)`` for each pair."""
        check_callable("apply", "fn", fn)
        return self.process(partial(_one_record, fn), **options)

    def process(self, fn: Callable[[Any, Any, PairContext], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """The records that ``fn(left, right, ctx)`` returns for each pair; ``ctx`` has the times of both, and side
        outputs."""
        from operators.joins import Interval, IntervalJoinOperator

        check_callable("process", "fn", fn)
        if self._bounds is None:
            raise JobGraphError("interval_join: say how near the records are: .between(lower_ms, upper_ms)")
        try:
            interval = Interval.of(
                *self._bounds, lower_inclusive=self._lower_inclusive, upper_inclusive=self._upper_inclusive
            )
        except ConfigurationError as error:
            raise JobGraphError(str(error)) from error
        factory = partial(IntervalJoinOperator, interval, fn, self._late_left_tag, self._late_right_tag)
        return add_two_input(self._first, self._second, "interval-join", factory, options, requires_key=True)


def _one_record(fn: Callable[[Any, Any], Any], left: Any, right: Any, ctx: PairContext) -> tuple[Any]:
    return (fn(left, right),)


def interval_join(first: KeyedStream, second: KeyedStream) -> IntervalJoin:
    """See ``KeyedStream.interval_join``."""
    if not isinstance(second, KeyedStream):
        raise JobGraphError(
            f"interval_join: records meet by key, but {second!r} has no key\n"
            "  fix: call .key_by(...) on the second stream as well"
        )
    first._check_same_job("interval_join", second)
    return IntervalJoin(first, second)
