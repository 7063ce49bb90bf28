"""Interval join: pairs of records of one key whose event times are near each other (Flink: ``IntervalJoinOperator``).

Rules, for a left record at *l* and a right record at *r*.

* They meet iff ``lower <= r - l <= upper``; an exclusive bound is the inclusive one moved by 1 ms.
* A record is late iff its time is below the watermark, not at it. It is not joined: it goes to the side output of its
  side, or is dropped and counted (``numLateRecordsDropped``).
* A pair is emitted once, when its second record comes, with the greater of both times.
* A left record is forgotten when the watermark reaches ``l + upper`` (``l`` if ``upper`` is not above 0), a right one
  at ``r - lower`` (``r`` if ``lower`` is not below 0): a record that could still meet it would be late. State is per
  key, side and millisecond; timers clean it up.
* For each record the operator reads only the milliseconds in its interval. (Flink reads all state of the key.) For this
  it keeps the times of each key in order in memory, at most as many as there are timers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.errors import ConfigurationError
from engine.elements.operator import TwoInputOperator
from operators.basic import SideOutputs, item_in_hand
from operators.time import EventClock, missing_timestamps
from state_backends.api import MapState
from state_backends.base import MapStateDescriptor

_LEFT, _RIGHT = "left", "right"

MAX_BOUND_MS = 2**62
"""With this limit, a time plus a bound fits into 64 bits."""


class Interval(NamedTuple):
    """Where right times lie relative to left ones: from ``lower_ms`` to ``upper_ms``, both included."""

    lower_ms: int
    upper_ms: int

    @classmethod
    def of(
        cls, lower_ms: int, upper_ms: int, *, lower_inclusive: bool = True, upper_inclusive: bool = True
    ) -> Interval:
        """Check the bounds, and make them inclusive. Raises :class:`ConfigurationError` when they leave no time."""
        for bound in (lower_ms, upper_ms):
            if type(bound) is not int:
                raise ConfigurationError(f"interval join: a bound is a whole number of ms, got {bound!r}")
            if abs(bound) > MAX_BOUND_MS:
                raise ConfigurationError(
                    f"interval join: a bound of {bound} ms is further than times reach (at most {MAX_BOUND_MS} ms)\n"
                    "  fix: what shall meet whenever it comes is a regular join, connect(...).key_by(...).join()"
                )
        lowest, highest = lower_ms + (not lower_inclusive), upper_ms - (not upper_inclusive)
        if lowest > highest:
            raise ConfigurationError(
                f"interval join: nothing lies between {lower_ms} ms ({'in' if lower_inclusive else 'ex'}clusive) and "
                f"{upper_ms} ms ({'in' if upper_inclusive else 'ex'}clusive); the lower bound comes first"
            )
        return cls(lowest, highest)


class PairContext:
    """The context of the function over a pair (Flink: ``ProcessJoinFunction.Context``)."""

    __slots__ = ("left_timestamp_ms", "right_timestamp_ms", "side", "timestamp_ms")

    def __init__(self) -> None:
        self.side = SideOutputs()
        self.left_timestamp_ms = self.right_timestamp_ms = self.timestamp_ms = 0

    def side_output(self, tag: str, value: Any) -> None:
        """Send ``value`` to side output ``tag``, with the timestamp of the pair."""
        self.side.add(tag, value, self.timestamp_ms)


class _Buffer:
    """The records of one side, by key and time. The times of a key are read from the state at their first use, and then
    kept in order in memory, because a search in the state would read all of it."""

    __slots__ = ("_state", "_times")

    def __init__(self, state: MapState) -> None:
        self._state = state
        self._times: dict[Any, list[int]] = {}
        """By key; a key without records has no entry."""

    def add(self, key: Any, time_ms: int, value: Any) -> None:
        """Keep a record of the current key."""
        times = self._times_of(key)
        at = bisect_left(times, time_ms)
        if at < len(times) and times[at] == time_ms:
            self._state.put(time_ms, [*self._state.get(time_ms), value])
        else:
            times.insert(at, time_ms)
            self._times[key] = times
            self._state.put(time_ms, [value])

    def between(self, key: Any, first_ms: int, last_ms: int) -> Iterable[tuple[int, list[Any]]]:
        """The records of the current key with times from ``first_ms`` to ``last_ms`` (included), in order."""
        times = self._times_of(key)
        found = times[bisect_left(times, first_ms) : bisect_right(times, last_ms)]
        return [(time_ms, self._state.get(time_ms)) for time_ms in found]

    def forget(self, key: Any, time_ms: int) -> None:
        """Forget the records of the current key at this time."""
        self._state.remove(time_ms)
        times = self._times.get(key)
        if times is not None:
            del times[bisect_left(times, time_ms) : bisect_right(times, time_ms)]
            if not times:
                del self._times[key]

    def _times_of(self, key: Any) -> list[int]:
        times = self._times.get(key)
        if times is None:
            # The encoding of the state does not promise the order of time (mutant "times of a join not read").
            times = sorted(self._state.keys())
            if times:
                self._times[key] = times
        return times


class _Side(NamedTuple):
    """One input: its records, those of the other input, and the interval of the others' times relative to its own."""

    name: str
    own: _Buffer
    other: _Buffer
    lower_ms: int
    upper_ms: int
    late_tag: str | None

    def cleanup_ms(self, timestamp_ms: int) -> int:
        """When a record of this time is forgotten."""
        return timestamp_ms + max(0, self.upper_ms)


class IntervalJoinOperator(TwoInputOperator):
    """``process(left, right, ctx)`` returns the records of a pair, or ``None``."""

    def __init__(
        self,
        interval: Interval,
        process: Callable[[Any, Any, PairContext], Iterable[Any] | None],
        late_left_tag: str | None = None,
        late_right_tag: str | None = None,
    ) -> None:
        self._interval = interval
        self._process = process
        self._late_tags = (late_left_tag, late_right_tag)

    def initialize_state(self) -> None:
        self._backend = backend = self.context.keyed_backend()
        left = _Buffer(backend.map_state(MapStateDescriptor("left-buffer")))
        right = _Buffer(backend.map_state(MapStateDescriptor("right-buffer")))
        self._timers = backend.timer_service("cleanup-timers")
        self._clock = EventClock(self.context)
        self._ctx = PairContext()
        lower_ms, upper_ms = self._interval
        late_left, late_right = self._late_tags
        self._left = _Side(_LEFT, left, right, lower_ms, upper_ms, late_left)
        self._right = _Side(_RIGHT, right, left, -upper_ms, -lower_ms, late_right)

    def process_batch_1(self, batch: Batch) -> None:
        self._join(self._left, batch)

    def process_batch_2(self, batch: Batch) -> None:
        self._join(self._right, batch)

    def _join(self, side: _Side, batch: Batch) -> None:
        keys, stamps = batch.keys, batch.timestamps
        if not batch:
            return
        assert keys is not None, "an interval join needs key_by before it"
        if stamps is None:
            raise missing_timestamps(self)
        watermark_ms = self._clock.watermark_ms
        out: list[Any] = []
        out_stamps: list[int] = []
        late: list[int] = []
        cleanup: list[tuple[Any, int]] = []
        iterator = iter(batch.values)
        try:
            for position, (key, stamp, value) in enumerate(zip(keys, stamps, iterator, strict=False)):
                if stamp < watermark_ms and watermark_ms != MIN_TIMESTAMP_MS:
                    late.append(position)
                    continue
                self._backend.set_current_key(key)
                side.own.add(key, stamp, value)
                cleanup.append((key, side.cleanup_ms(stamp)))
                self._pairs_of(side, key, stamp, value, out, out_stamps)
        except Exception as error:
            raise self.user_error("join function", item_in_hand(batch.values, iterator), error) from error
        if cleanup:
            timer_keys, times = zip(*cleanup, strict=True)
            self._timers.event_time.register(timer_keys, [side.name] * len(times), times)
        if late:
            self._drop(side, batch.take(late))
        self._ctx.side.flush(self.output)
        if out:
            self.output.emit(Batch(out, out_stamps))

    def _pairs_of(self, side: _Side, key: Any, stamp: int, value: Any, out: list[Any], out_stamps: list[int]) -> None:
        first_ms, last_ms = stamp + side.lower_ms, stamp + side.upper_ms
        ctx, process, is_left = self._ctx, self._process, side.name == _LEFT
        for other_ms, others in side.other.between(key, first_ms, last_ms):
            ctx.left_timestamp_ms, ctx.right_timestamp_ms = (stamp, other_ms) if is_left else (other_ms, stamp)
            ctx.timestamp_ms = result_ms = max(stamp, other_ms)
            for other in others:
                produced = process(value, other, ctx) if is_left else process(other, value, ctx)
                if produced is not None:
                    before = len(out)
                    out.extend(produced)
                    out_stamps.extend([result_ms] * (len(out) - before))

    def _drop(self, side: _Side, late: Batch) -> None:
        if side.late_tag is None:
            self.context.metrics.count("numLateRecordsDropped", len(late))
        else:
            self.output.emit_side(side.late_tag, Batch(late.values, late.timestamps))

    def process_watermark(self, timestamp_ms: int) -> None:
        self._clock.advance(timestamp_ms)
        sides = {_LEFT: self._left, _RIGHT: self._right}
        for time_ms, key, name in self._timers.event_time.pop_due(self._clock.watermark_ms):
            side = sides[name]
            self._backend.set_current_key(key)
            side.own.forget(key, time_ms - max(0, side.upper_ms))
        self.output.emit_watermark(self._clock.watermark_ms)

    def snapshot_state(self, checkpoint_id: int) -> None:
        self._clock.snapshot()

    def fingerprint(self) -> object:
        return self._clock.watermark_ms
