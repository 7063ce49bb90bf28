"""Event time at its origin: where timestamps come from and how fast event time advances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch
from engine.elements.errors import ConfigurationError, check_whole
from engine.elements.operator import Operator
from operators.time.periodic_watermarks import PeriodicWatermarks
from operators.time.watermark_generators import (
    IDLENESS,
    BoundedOutOfOrdernessGenerator,
    Idleness,
    NoWatermarksGenerator,
    WatermarkGenerator,
)
from state_backends.base import number, optional, row, whole

DEFAULT_INTERVAL_NS = 200_000
"""Flink's default of 200 ms, scaled by the ratio of the default record cost of 1 µs to a real one."""

TimestampFunction = Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Where event times come from and how fast event time advances (Flink: ``WatermarkStrategy``).

    ``timestamp_fn``     event time of a record in ms; ``None`` keeps the present timestamps of the records;
    ``bound_ms``         how far records may be out of order; ``None`` = no watermarks at all;
    ``idle_timeout_ms``  a split without records for longer than this does not hold back the others; ``None`` = never;
    ``interval_ns``      virtual time between two emissions.

    Use the constructors below rather than the fields.
    """

    timestamp_fn: TimestampFunction | None = None
    bound_ms: int | None = None
    idle_timeout_ms: int | None = None
    interval_ns: int = DEFAULT_INTERVAL_NS

    def __post_init__(self) -> None:
        check_whole("bound_ms", self.bound_ms, 0, or_none=True)
        check_whole("idle_timeout_ms", self.idle_timeout_ms, or_none=True)
        check_whole("interval_ns", self.interval_ns)
        if self.timestamp_fn is not None and not callable(self.timestamp_fn):
            raise ConfigurationError(
                f"timestamp_fn must be callable (record -> event time in ms), got {self.timestamp_fn!r}"
            )

    @classmethod
    def for_bounded_out_of_orderness(
        cls, bound_ms: int, timestamp_fn: TimestampFunction | None = None
    ) -> WatermarkStrategy:
        """Records are at most ``bound_ms`` older than the newest one before them; later ones are late."""
        return cls(timestamp_fn=timestamp_fn, bound_ms=bound_ms)

    @classmethod
    def for_monotonous_timestamps(cls, timestamp_fn: TimestampFunction | None = None) -> WatermarkStrategy:
        """Timestamps never fall within a split."""
        return cls(timestamp_fn=timestamp_fn, bound_ms=0)

    @classmethod
    def no_watermarks(cls, timestamp_fn: TimestampFunction | None = None) -> WatermarkStrategy:
        """Event times without watermarks: windows fire only at the end of a bounded input."""
        return cls(timestamp_fn=timestamp_fn)

    def with_idleness(self, idle_timeout_ms: int) -> WatermarkStrategy:
        """The same with splits excluded from the minimum while they have had no record for that long."""
        return replace(self, idle_timeout_ms=idle_timeout_ms)

    def with_interval_ns(self, interval_ns: int) -> WatermarkStrategy:
        """The same with another emission interval."""
        return replace(self, interval_ns=interval_ns)

    def create_generator(self) -> WatermarkGenerator:
        """A fresh generator for one split."""
        if self.bound_ms is None:
            return NoWatermarksGenerator()
        return BoundedOutOfOrdernessGenerator(self.bound_ms)

    @property
    def emits(self) -> bool:
        """Whether there is anything to emit periodically."""
        return self.bound_ms is not None or self.idle_timeout_ms is not None


def stamp(operator: Operator, timestamp_fn: TimestampFunction, values: list[Any]) -> list[int]:
    """The event times of ``values``. Raises ``UserFunctionError`` when the function fails or gives no int."""
    stamps: list[int] = []
    try:
        stamps.extend(map(timestamp_fn, values))
        if len(stamps) != len(values):
            raise StopIteration("the function let a StopIteration escape")
    except Exception as error:
        raise operator.user_error("timestamp function", values[len(stamps)], error) from error
    if set(map(type, stamps)) - {int}:
        at = next(index for index, one in enumerate(stamps) if type(one) is not int)
        problem = TypeError(f"an event time is an int in ms, got {type(stamps[at]).__name__} {stamps[at]!r}")
        raise operator.user_error("timestamp function", values[at], problem) from problem
    return stamps


def times_for_watermarks(batch: Batch) -> list[int] | None:
    """The event times of a batch for a generator; of columns the newest alone, for an int of each would be slow."""
    if isinstance(batch, ColumnBatch) and batch.timestamp_column is not None and len(batch):
        return [int(batch.timestamp_column.max())]
    return batch.timestamps


class WatermarkEmitter:
    """Drives ``PeriodicWatermarks`` for an operator: registers the requested timers, emits the results."""

    __slots__ = ("_armed", "_operator", "periodic")

    def __init__(self, operator: Operator, strategy: WatermarkStrategy) -> None:
        self._operator = operator
        self._armed: dict[int, None] = {}
        self.periodic = PeriodicWatermarks(
            strategy.create_generator,
            strategy.interval_ns,
            strategy.idle_timeout_ms,
            operator.context.processing_time_ns(),
        )

    def before_records(self, split: str, timestamps: list[int]) -> None:
        """Call this before records are emitted: an idle stream becomes active first."""
        now_ns = self._operator.context.processing_time_ns()
        if self.periodic.on_records(split, timestamps, now_ns):
            self._operator.output.emit_watermark_status(False)

    def arm(self) -> None:
        """Register the next timer, unless it is registered already."""
        due_ns = self.periodic.due_ns
        if due_ns is not None and due_ns not in self._armed:
            self._armed[due_ns] = None
            self._operator.context.register_processing_timer_ns(due_ns)

    def on_time(self, time_ns: int, records_expected_from_ns: int | None) -> None:
        """A timer of the operator is due, perhaps not of this emitter."""
        self._armed.pop(time_ns, None)
        if self.periodic.due_ns is not None and self.periodic.due_ns <= time_ns:
            self._emit(*self.periodic.on_periodic(time_ns))
        if records_expected_from_ns is not None:
            self.periodic.expect_records(records_expected_from_ns)
        self.arm()

    def flush(self) -> None:
        """The input has ended: emit the watermark it has reached, off the grid (Flink does so in ``finish``)."""
        self._emit(*self.periodic.on_periodic(self._operator.context.processing_time_ns()))

    def emit_again(self) -> None:
        """After a restore: repeat the last watermark and idleness, so that downstream has the same as at the cut."""
        if self.periodic.last_emitted_ms > MIN_TIMESTAMP_MS:
            self._operator.output.emit_watermark(self.periodic.last_emitted_ms)
        if self.periodic.idle:
            self._operator.output.emit_watermark_status(True)

    def _emit(self, watermark_ms: int | None, became_idle: bool) -> None:
        if watermark_ms is not None:
            self._operator.output.emit_watermark(watermark_ms)
        if became_idle:
            self._operator.output.emit_watermark_status(True)


_SAVED = row(number, number, whole, optional(IDLENESS))
_INPUT = "input"
_STATE = "watermark-generator"


class TimestampsAndWatermarksOperator(Operator):
    """Gives the records of a stream new event times and watermarks (Flink: the operator of the same name).

    Watermarks and idleness from upstream end here, except for the watermark that ends the stream.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        self._emitter: WatermarkEmitter | None = None
        self._repeat = False
        self._active = True
        self._ended = False
        """Whether the watermark that ends the stream has passed: no other may follow it."""

    def initialize_state(self) -> None:
        self._state = self.context.operator_backend().list_state(_STATE, _SAVED)

    def open(self) -> None:
        if not self._strategy.emits:
            return
        emitter = self._emitter = WatermarkEmitter(self, self._strategy)
        now_ns = self.context.processing_time_ns()
        restored = list(self._state.get())
        if restored:
            # More than one only after a change of parallelism: then take the least.
            emitter.periodic.restore(min(one[1] for one in restored), min(one[2] for one in restored), now_ns)
            self._repeat = True
        generator = min((one[0] for one in restored), default=None)
        emitter.periodic.add_split(_INPUT, now_ns, generator)
        idleness = [None if one[3] is None else Idleness(*one[3]) for one in restored]
        # The input is idle when it was so everywhere.
        emitter.periodic.restore_idleness({_INPUT: _least_idle(idleness)}, now_ns)
        emitter.periodic.expect_records(now_ns)
        emitter.arm()

    def process_batch(self, batch: Batch) -> None:
        if not batch:
            return
        fn = self._strategy.timestamp_fn
        if fn is not None:
            stamped = Batch(batch.values, stamp(self, fn, batch.values))
        elif isinstance(batch, ColumnBatch):
            stamped = batch.with_columns(batch.columns)
        else:
            stamped = Batch(batch.values, batch.timestamps)
        if self._emitter is not None:
            stamps = times_for_watermarks(stamped)
            if stamps is None:
                raise missing_timestamps(self)
            self._repeat_last()
            self._emitter.before_records(_INPUT, stamps)
            self._emitter.arm()
            self._active = True
        self.output.emit(stamped)

    def _repeat_last(self) -> None:
        if self._repeat and self._emitter is not None:
            self._repeat = False
            self._emitter.emit_again()

    def process_watermark(self, timestamp_ms: int) -> None:
        if timestamp_ms == MAX_TIMESTAMP_MS:
            self._ended = True
            self.output.emit_watermark(timestamp_ms)

    def process_watermark_status(self, idle: bool) -> None:
        """Idleness is decided here, not upstream."""

    def on_processing_time_ns(self, time_ns: int) -> None:
        if self._emitter is not None and not self._ended:
            self._repeat_last()
            # After an interval with records, records are expected in the next one.
            self._emitter.on_time(time_ns, time_ns if self._active else None)
            self._active = False

    def snapshot_state(self, checkpoint_id: int) -> None:
        if self._emitter is not None:
            periodic = self._emitter.periodic
            now_ns = self.context.processing_time_ns()
            idleness = periodic.idleness_snapshot(_INPUT, now_ns)
            self._state.update(
                [
                    (
                        periodic.generator_snapshot(_INPUT),
                        periodic.last_emitted_ms,
                        periodic.until_next_ns(now_ns),
                        None if idleness is None else (*idleness,),
                    )
                ]
            )

    def finish(self) -> None:
        if self._emitter is not None and not self._ended:
            self._emitter.flush()

    def fingerprint(self) -> object:
        if self._emitter is None:
            return None
        return self._ended, self._emitter.periodic.fingerprint(self.context.processing_time_ns())


def _least_idle(several: list[Idleness | None]) -> Idleness | None:
    """The one with the most recent record; ``None`` if any of them has no idleness."""
    known = [one for one in several if one is not None]
    if not known or len(known) < len(several):
        return None
    return min(known, key=lambda one: (one.idle, not one.seen, one.inactive_for_ns or 0))


def missing_timestamps(operator: Operator) -> ConfigurationError:
    """The error for records without event times where event times are needed."""
    return ConfigurationError(
        f"operator {operator.context.name!r} works in event time, but its records have no timestamps\n"
        "  give the source a watermark strategy with a timestamp_fn, or call assign_timestamps_and_watermarks "
        "before it"
    )
