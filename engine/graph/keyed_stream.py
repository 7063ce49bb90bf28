"""``KeyedStream``: the methods for records that have a key (Flink: ``KeyedStream``).

Operators directly after ``key_by`` own keyed state and timers. Methods that route the records anew would lose
the key, so they refuse; put an operator in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, cast

from engine.elements.errors import JobGraphError
from engine.graph.options import (
    OperatorOptions,
    check_callable,
    check_callable_or_methods,
    check_count,
    check_instance,
    check_names,
    check_type,
)
from engine.graph.stream import Stream
from engine.graph.windowed_stream import WindowedStream

if TYPE_CHECKING:
    from engine.graph.joined_streams import IntervalJoin
    from operators.basic import AckingFunction, AggregateFunction, KeyedProcessFunction, ProcessFunction
    from operators.columns import ColumnAggregate
    from operators.patterns import Pattern
    from operators.windows import WindowAssigner


class KeyedStream(Stream):
    """A stream partitioned by key."""

    __slots__ = ()

    def reduce(self, fn: Callable[[Any, Any], Any], **options: Unpack[OperatorOptions]) -> Stream:
        """For every record the reduction so far of its key: ``fn(reduced, value)``, the first value as it is."""
        from operators.basic import ReduceOperator

        check_callable("reduce", "fn", fn)
        return self._transform("reduce", partial(ReduceOperator, fn), options, requires_key=True)

    def aggregate(self, aggregate_function: AggregateFunction, **options: Unpack[OperatorOptions]) -> Stream:
        """For every record ``(key, result so far)`` of an aggregate function."""
        from operators.basic import AggregateFunction, KeyedAggregateOperator

        check_type("aggregate", "aggregate_function", aggregate_function, AggregateFunction)
        factory = partial(KeyedAggregateOperator, aggregate_function)
        return self._transform("aggregate", factory, options, requires_key=True)

    def sum_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """Every record with the sum so far of its key in column ``into``; in ``column`` itself without.

        Whole batches are folded at once. The state is that of ``reduce``, which may take its place.
        """
        from operators.columns import sum_of

        return self._column_aggregate("sum_column", column, into, sum_of, options)

    def min_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """Every record with the least value so far of its key; see ``sum_column``."""
        from operators.columns import min_of

        return self._column_aggregate("min_column", column, into, min_of, options)

    def max_column(self, column: str, into: str | None = None, **options: Unpack[OperatorOptions]) -> Stream:
        """Every record with the greatest value so far of its key; see ``sum_column``."""
        from operators.columns import max_of

        return self._column_aggregate("max_column", column, into, max_of, options)

    def count_column(self, into: str = "count", **options: Unpack[OperatorOptions]) -> Stream:
        """Every record with the number so far of records of its key in column ``into``."""
        from operators.columns import record_count

        return self._column_aggregate("count_column", into, into, lambda _: record_count(), options)

    def aggregate_columns(
        self, aggregates: Mapping[str, ColumnAggregate], **options: Unpack[OperatorOptions]
    ) -> Stream:
        """Every record with several aggregates of its key so far, by the column that each goes into::

            stream.key_by_column("user").aggregate_columns({"spent": sum_of("price"), "orders": record_count()})

        Each has reducing state of its own, which is named like its column.
        """
        from operators.columns import ColumnAggregateOperator, check_aggregates, column_operator

        check_aggregates("aggregate_columns", aggregates)
        factory = column_operator(ColumnAggregateOperator, dict(aggregates), tuple(aggregates))
        return self._transform("aggregate-columns", factory, options, requires_key=True)

    def _column_aggregate(
        self,
        method: str,
        column: str,
        into: str | None,
        make: Callable[[str], ColumnAggregate],
        options: OperatorOptions,
    ) -> Stream:
        from operators.columns import REDUCED_STATE, ColumnAggregateOperator, column_operator

        target = column if into is None else into
        check_names(method, (column, target))
        factory = column_operator(ColumnAggregateOperator, {target: make(column)}, (REDUCED_STATE,))
        return self._transform(method.replace("_", "-"), factory, options, requires_key=True)

    def interval_join(self, other: KeyedStream) -> IntervalJoin:
        """Pairs of records of one key whose event times are near each other::

            orders.key_by(order_id).interval_join(payments.key_by(order_of)).between(-1_000, 60_000).apply(fn)

        (Flink: ``KeyedStream.intervalJoin``.)
        """
        from engine.graph.joined_streams import interval_join

        return interval_join(self, other)

    def deduplicate(
        self,
        keep: str = "first",
        *,
        time: str = "processing",
        append_only: bool = False,
        ttl_ms: int | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record for each key: the ``first`` or the ``last`` by ``processing`` or ``event`` time.

        The first by processing time is emitted as it is. Records that may still be replaced are emitted as changes
        ``(kind, record)``; with ``append_only`` the first by event time waits for the watermark, and is emitted as it
        is. Keys are forgotten ``ttl_ms`` of processing time after their last write, if that is given.
        """
        from operators.ranking import deduplicator

        return self._transform("deduplicate", deduplicator(keep, time, append_only, ttl_ms), options, requires_key=True)

    def top_n(
        self,
        n: int,
        by: Callable[[Any], Any],
        *,
        ascending: bool = False,
        with_rank: bool = True,
        changes: bool = False,
        ttl_ms: int | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The ``n`` greatest records of each key by ``by(record)`` (the least ones if ``ascending``), as changes.

        A change is ``(kind, (rank, record))``, without ``with_rank`` ``(kind, record)``. With ``changes`` the input is
        changes itself, and all records are kept; otherwise ``n`` are.
        """
        from operators.ranking import TopNOperator

        check_callable("top_n", "by", by)
        factory = partial(TopNOperator, n, by, ascending=ascending, with_rank=with_rank, changes=changes, ttl_ms=ttl_ms)
        factory()  # A wrong argument fails here, where the job is built.
        return self._transform("top-n", factory, options, requires_key=True)

    def pattern(
        self,
        pattern: Pattern,
        *,
        event_time: bool = True,
        order_by: Callable[[Any], Any] | None = None,
        late_tag: str | None = None,
        timeout_tag: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The matches of a pattern in the records of each key: a dict from stage to list of records each (Flink: CEP).

        Records are taken in the order of event time, as the watermark passes them, those of the same time by
        ``order_by(record)`` or as they came; without ``event_time`` as they come. Late ones go to ``late_tag``, matches
        that were begun and have timed out to ``timeout_tag``.
        """
        from operators.patterns import Pattern, pattern_operator

        check_type("pattern", "its argument", pattern, Pattern)
        factory = pattern_operator(pattern, event_time, order_by, late_tag, timeout_tag)
        return self._transform("pattern", factory, options, requires_key=True)

    def process(
        self,
        function: KeyedProcessFunction
        | type[KeyedProcessFunction]
        | ProcessFunction
        | type[ProcessFunction]
        | AckingFunction
        | type[AckingFunction]
        | Callable[[Any, Any], Any],
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """The records that a process function emits; it may keep state per key and set timers.

        ``function`` is a ``KeyedProcessFunction`` (every subtask gets its own copy), its class, or a plain
        ``function(value, context)`` that returns the records or ``None``. An ``AckingFunction`` gets all records of a
        key in one subtask, and has no state per key.
        """
        from operators.basic import KeyedProcessOperator, is_acking, operator_of

        check_callable_or_methods("process", "function", function, "process_element")
        if is_acking(function):
            return super().process(cast("AckingFunction", function), **options)
        factory = operator_of(KeyedProcessOperator, function)
        return self._transform("process", factory, options, requires_key=True)

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Group the records of each key by window; then ``reduce``, ``aggregate`` or ``process`` them."""
        from engine.graph.windowed_stream import WindowedStream
        from operators.windows import WindowAssigner

        check_instance("window", "assigner", assigner, WindowAssigner)
        return WindowedStream(self, assigner)

    def count_window(self, size: int, slide: int | None = None) -> WindowedStream:
        """Windows of ``size`` records of a key, however long that takes; incomplete ones never fire.

        With ``slide``, after every ``slide`` records a window of the last ``size`` ones (Flink:
        ``KeyedStream.countWindow``).
        """
        from engine.graph.windowed_stream import WindowedStream
        from operators.windows import CountEvictor, CountTrigger, GlobalWindows, PurgingTrigger

        for keyword, count in (("size", size), ("slide", size if slide is None else slide)):
            check_count("count_window", keyword, count)
            if count < 1:
                raise JobGraphError(f"count_window: {keyword}={count} is no number of records; give at least 1")
        windows = WindowedStream(self, GlobalWindows.create())
        if slide is None:
            return windows.trigger(PurgingTrigger.of(CountTrigger.of(size)))
        return windows.evictor(CountEvictor.of(size)).trigger(CountTrigger.of(slide))
