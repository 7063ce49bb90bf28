"""``WindowedStream``: records of a key grouped by window, not yet computed on (Flink: ``WindowedStream``).

``AllWindowedStream`` is the same for streams without keys (Flink: ``AllWindowedStream``). It sends every record to one
subtask under one key, so that both are the same operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack

from engine.elements.errors import JobGraphError
from engine.graph.options import (
    OperatorOptions,
    TransformDemands,
    check_callable,
    check_count,
    check_instance,
    check_type,
)
from state_backends.base import LONG

if TYPE_CHECKING:
    from engine.graph.keyed_stream import KeyedStream
    from engine.graph.stream import Stream
    from operators.basic import AggregateFunction
    from operators.columns import ColumnAggregate
    from operators.windows import Evictor, ProcessAllWindowFunction, ProcessWindowFunction, Trigger, WindowAssigner


@dataclass(frozen=True, slots=True, eq=False)
class _Windowed:
    """The settings that windows over keyed and over all records share. A value: setters return another one."""

    _stream: KeyedStream
    _assigner: WindowAssigner
    _allowed_lateness_ms: int = 0
    _late_tag: str | None = None
    _trigger: Trigger | None = None
    _evictor: Evictor | None = None

    def allowed_lateness(self, lateness_ms: int) -> Self:
        """Keep a window for ``lateness_ms`` of event time after its end; a late record then fires it again."""
        check_count("allowed_lateness", "lateness_ms", lateness_ms)
        if lateness_ms < 0:
            raise JobGraphError(f"allowed_lateness: lateness_ms={lateness_ms} is negative; give 0 or more ms")
        self._check_event_time("allowed_lateness")
        return replace(self, _allowed_lateness_ms=lateness_ms)

    def side_output_late(self, tag: str) -> Self:
        """Send records that come too late for their window to side output ``tag`` instead of dropping them.

        Read them with ``result.side_output(tag)`` from the stream that the computation returns.
        """
        check_type("side_output_late", "tag", tag, str)
        self._check_event_time("side_output_late")
        return replace(self, _late_tag=tag)

    def trigger(self, trigger: Trigger) -> Self:
        """Compute the windows when ``trigger`` says so, instead of when they end.

        Sessions take triggers that can merge only (Flink: ``WindowOperatorBuilder.trigger``).
        """
        from operators.windows import EventTimeTrigger, Trigger

        check_instance("trigger", "its argument", trigger, Trigger)
        if self._assigner.merges and not trigger.can_merge():
            raise JobGraphError(
                f"trigger: {type(self._assigner).__name__} merges windows, which {type(trigger).__name__} does not "
                "support\n  fix: define can_merge() and on_merge(window, ctx) in the trigger, or take another one"
            )
        if isinstance(trigger, EventTimeTrigger) and not self._assigner.is_event_time:
            raise JobGraphError(
                f"trigger: {type(self._assigner).__name__} end with the virtual clock and are cleaned up then, but "
                "EventTimeTrigger waits for a watermark: they would hardly ever fire\n"
                "  fix: leave the trigger out, or take windows in event time"
            )
        return replace(self, _trigger=trigger)

    def evictor(self, evictor: Evictor) -> Self:
        """Let ``evictor`` say which records a window is computed from. The window then keeps all its records."""
        from operators.windows import Evictor

        check_instance("evictor", "its argument", evictor, Evictor)
        return replace(self, _evictor=evictor)

    def _check_event_time(self, method: str) -> None:
        if not self._assigner.is_event_time:
            raise JobGraphError(
                f"{method}: {type(self._assigner).__name__} take a record's time from the virtual clock, by which "
                f"nothing is late\n  fix: leave {method} out, or take windows in event time"
            )

    def _check_mergeable(self, method: str, aggregate: AggregateFunction) -> None:
        if self._assigner.merges and aggregate.merge is None:
            raise JobGraphError(
                f"{method}: {type(self._assigner).__name__} merge windows, and the aggregate function has no merge\n"
                "  fix: give it merge=(accumulator, accumulator) -> accumulator"
            )

    def _compute(
        self, aggregate: Any, window_function: Any, process_function: Any, kind: str, options: OperatorOptions
    ) -> Stream:
        from operators.windows import (
            EventTimeTrigger,
            ProcessAllWindowFunction,
            ProcessWindowFunction,
            SlidingEventTimeWindows,
            SlidingWindowOperator,
            TriggeredWindowOperator,
            TumblingEventTimeWindows,
            WindowOperator,
        )

        settings = (aggregate, window_function, self._allowed_lateness_ms, self._late_tag)
        function_type = process_function if isinstance(process_function, type) else type(process_function)
        plain = (
            (self._trigger is None or type(self._trigger) is EventTimeTrigger)
            and self._evictor is None
            and not issubclass(function_type, (ProcessWindowFunction, ProcessAllWindowFunction))
        )
        operator: Any = {TumblingEventTimeWindows: WindowOperator, SlidingEventTimeWindows: SlidingWindowOperator}.get(
            type(self._assigner)
        )
        if plain and operator is not None:
            factory = partial(operator, self._assigner, *settings, process_function=process_function)
        else:
            factory = partial(
                TriggeredWindowOperator,
                self._assigner,
                *settings,
                process_function=process_function,
                trigger=self._trigger,
                evictor=self._evictor,
            )
        return self._stream._transform(kind, factory, options, requires_key=True)


class WindowedStream(_Windowed):
    """A keyed stream with a window assigner. A value: the setters return another ``WindowedStream``."""

    __slots__ = ()

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        window_function: Callable[[Any, Any, Any], Any] | None = None,
        *,
        process_function: Callable[[Any, Any, Any], Any]
        | ProcessWindowFunction
        | type[ProcessWindowFunction]
        | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record per key and window, of the reduction of its values: ``fn(reduced, value)``.

        The record is ``window_function(key, window, reduced)``, ``(key, window start, window end, reduced)`` without
        one (``(key, reduced)`` for a global window). With a ``process_function`` it is any number of records, as for
        ``process``. State is one value per key and window.
        """
        check_callable("reduce", "fn", fn)
        self._check_functions("reduce", window_function, process_function)
        return self._compute(fn, window_function, process_function, "window", options)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Callable[[Any, Any, Any], Any] | None = None,
        *,
        process_function: Callable[[Any, Any, Any], Any]
        | ProcessWindowFunction
        | type[ProcessWindowFunction]
        | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record per key and window, of the result of an aggregate function over its values; see ``reduce``.

        Sessions need one with ``merge``.
        """
        from operators.basic import AggregateFunction

        check_type("aggregate", "aggregate_function", aggregate_function, AggregateFunction)
        self._check_mergeable("aggregate", aggregate_function)
        self._check_functions("aggregate", window_function, process_function)
        return self._compute(aggregate_function, window_function, process_function, "window", options)

    def process(
        self,
        function: Callable[[Any, Any, list[Any]], Any] | ProcessWindowFunction | type[ProcessWindowFunction],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The records that ``function(key, window, values)`` returns for each key and window that fires.

        ``function`` may also be a ``ProcessWindowFunction`` (every subtask gets its own copy) or its class, which has
        state and side outputs. State holds all values of a window until it is cleaned up; prefer ``reduce`` or
        ``aggregate``.
        """
        self._check_function("process", "function", function)
        return self._compute(None, None, function, "window", options)

    def sum_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """One record per key and window: its key columns, ``window_start``, ``window_end``, and the sum of a column in
        column ``into``, named like the column itself without.

        Needs ``key_by_column``, and tumbling or sliding event-time windows. Whole batches are folded at once.
        """
        from operators.columns import sum_of

        return self._columns("sum_column", {column if into is None else into: sum_of(column)}, options)

    def min_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """The same with the least value of the column."""
        from operators.columns import min_of

        return self._columns("min_column", {column if into is None else into: min_of(column)}, options)

    def max_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """The same with the greatest value of the column."""
        from operators.columns import max_of

        return self._columns("max_column", {column if into is None else into: max_of(column)}, options)

    def mean_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """The same with the mean of the column."""
        from operators.columns import mean_of

        return self._columns("mean_column", {column if into is None else into: mean_of(column)}, options)

    def count_column(self, into: str = "count", **options: Unpack[OperatorOptions]) -> Stream:
        """The same with the number of records."""
        from operators.columns import record_count

        return self._columns("count_column", {into: record_count()}, options)

    def aggregate_columns(
        self, aggregates: Mapping[str, ColumnAggregate], **options: Unpack[OperatorOptions]
    ) -> Stream:
        """The same with several aggregates, by the column that each goes into::

            windows.aggregate_columns({"spent": sum_of("price"), "orders": record_count(), "mean": mean_of("price")})
        """
        return self._columns("aggregate_columns", aggregates, options)

    def _columns(self, method: str, aggregates: Mapping[str, ColumnAggregate], options: OperatorOptions) -> Stream:
        from engine.graph.windowed_columns import column_windows

        settings = (aggregates, self._allowed_lateness_ms, self._late_tag)
        factory = column_windows(method, self._stream, self._assigner, self._trigger, self._evictor, *settings)
        return self._stream._transform("window-columns", factory, options, requires_key=True)

    def _check_functions(self, method: str, window_function: object, process_function: object) -> None:
        if window_function is not None:
            check_callable(method, "window_function", window_function)
        if process_function is not None:
            self._check_function(method, "process_function", process_function)
        if window_function is not None and process_function is not None:
            raise JobGraphError(
                f"{method}: window_function and process_function both say what comes out of a window\n"
                "  fix: give one of them"
            )

    def _check_function(self, method: str, what: str, function: object) -> None:
        from operators.windows import ProcessAllWindowFunction, ProcessWindowFunction

        _refuse_kind(method, what, function, ProcessAllWindowFunction, "is for window_all")
        if not isinstance(function, ProcessWindowFunction):
            check_callable(method, what, function)


class AllWindowedStream(_Windowed):
    """All records of a stream with a window assigner: not parallel. A value, as ``WindowedStream`` is."""

    __slots__ = ()

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        window_function: Callable[[Any, Any], Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record per window, of the reduction of its values: ``fn(reduced, value)``.

        The record is ``window_function(window, reduced)``, ``(window start, window end, reduced)`` without one
        (``reduced`` for a global window).
        """
        check_callable("reduce", "fn", fn)
        return self._compute_all(fn, window_function, options)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Callable[[Any, Any], Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record per window, of the result of an aggregate function over its values; see ``reduce``."""
        from operators.basic import AggregateFunction

        check_type("aggregate", "aggregate_function", aggregate_function, AggregateFunction)
        self._check_mergeable("aggregate", aggregate_function)
        return self._compute_all(aggregate_function, window_function, options)

    def process(
        self,
        function: Callable[[Any, list[Any]], Any] | ProcessAllWindowFunction | type[ProcessAllWindowFunction],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The records that ``function(window, values)``, or a ``ProcessAllWindowFunction``, returns for each window."""
        from operators.windows import ProcessAllWindowFunction, ProcessWindowFunction

        _refuse_kind("process", "function", function, ProcessWindowFunction, "is for windows after key_by")
        if isinstance(function, ProcessAllWindowFunction) or (
            isinstance(function, type) and issubclass(function, ProcessAllWindowFunction)
        ):
            return self._compute(None, None, function, "window-all", self._only_one(options))
        check_callable("process", "function", function)
        return self._compute(None, None, partial(_without_key, function), "window-all", self._only_one(options))

    def _compute_all(self, aggregate: Any, window_function: Any, options: OperatorOptions) -> Stream:
        if window_function is not None:
            check_callable("window_all", "window_function", window_function)
        function = partial(_without_key, window_function or _record)
        return self._compute(aggregate, function, None, "window-all", self._only_one(options))

    def _only_one(self, options: OperatorOptions) -> OperatorOptions:
        """All records meet in one subtask (Flink: ``forceNonParallel``)."""
        return TransformDemands(_NotParallel).merged_into(options, "window_all", "a window over all records")


class _NotParallel:
    parallelism = 1
    max_parallelism = 1


def _without_key(function: Callable[[Any, Any], Any], key: Any, window: Any, contents: Any) -> Any:
    return function(window, contents)


def _record(window: Any, result: Any) -> Any:
    start = getattr(window, "start", None)
    return result if start is None else (start, window.end, result)


def _refuse_kind(method: str, what: str, function: object, kind: type, why: str) -> None:
    if isinstance(function, kind) or (isinstance(function, type) and issubclass(function, kind)):
        raise JobGraphError(f"{method}: {what} is a {kind.__name__}, which {why}")


def the_only_key(record: Any) -> int:
    """The key of every record, when all records belong together."""
    return 0


def window_all(stream: Stream, assigner: WindowAssigner) -> AllWindowedStream:
    """See ``Stream.window_all``."""
    from operators.windows import WindowAssigner

    check_instance("window_all", "assigner", assigner, WindowAssigner)
    return AllWindowedStream(stream.key_by(the_only_key, key_type=LONG), assigner)
