"""``WindowedStream``: records of a key grouped by window, not yet computed on (Flink: ``WindowedStream``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from engine.elements.errors import JobGraphError
from engine.graph.options import OperatorOptions, check_callable, check_count, check_type

if TYPE_CHECKING:
    from engine.graph.keyed_stream import KeyedStream
    from engine.graph.stream import Stream
    from operators.functions import AggregateFunction
    from operators.windows import TimeWindow, TumblingEventTimeWindows


class WindowedStream:
    """A keyed stream with a window assigner. A value: the setters return another ``WindowedStream``."""

    __slots__ = ("_allowed_lateness_ms", "_assigner", "_late_tag", "_stream")

    def __init__(
        self,
        stream: KeyedStream,
        assigner: TumblingEventTimeWindows,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        self._stream = stream
        self._assigner = assigner
        self._allowed_lateness_ms = allowed_lateness_ms
        self._late_tag = late_tag

    def allowed_lateness(self, lateness_ms: int) -> WindowedStream:
        """Keep a window for ``lateness_ms`` of event time after its end; a late record then fires it again."""
        check_count("allowed_lateness", "lateness_ms", lateness_ms)
        if lateness_ms < 0:
            raise JobGraphError(f"allowed_lateness: lateness_ms={lateness_ms} is negative; give 0 or more ms")
        return WindowedStream(self._stream, self._assigner, lateness_ms, self._late_tag)

    def side_output_late(self, tag: str) -> WindowedStream:
        """Send records that come too late for their window to side output ``tag`` instead of dropping them.

        Read them with ``result.side_output(tag)`` from the stream that the computation returns.
        """
        check_type("side_output_late", "tag", tag, str)
        return WindowedStream(self._stream, self._assigner, self._allowed_lateness_ms, tag)

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        window_function: Callable[[Any, TimeWindow, Any], Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record per key and window, of the reduction of its values: ``fn(reduced, value)``.

        The record is ``window_function(key, window, reduced)``, ``(key, window start, window end, reduced)``
        without one. State is one value per key and window.
        """
        check_callable("reduce", "fn", fn)
        return self._compute(fn, window_function, None, options)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Callable[[Any, TimeWindow, Any], Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """One record per key and window, of the result of an aggregate function over its values; see ``reduce``."""
        from operators.functions import AggregateFunction

        check_type("aggregate", "aggregate_function", aggregate_function, AggregateFunction)
        return self._compute(aggregate_function, window_function, None, options)

    def process(
        self, function: Callable[[Any, TimeWindow, list[Any]], Any], **options: Unpack[OperatorOptions]
    ) -> Stream:
        """The records that ``function(key, window, values)`` returns for each key and window.

        State holds all values of a window until it is cleaned up; prefer ``reduce`` or ``aggregate``.
        """
        check_callable("process", "function", function)
        return self._compute(None, None, function, options)

    def _compute(self, aggregate: Any, window_function: Any, process_function: Any, options: OperatorOptions) -> Stream:
        from operators.window_operator import WindowOperator

        if window_function is not None:
            check_callable("window", "window_function", window_function)
        factory = partial(
            WindowOperator,
            self._assigner,
            aggregate,
            window_function,
            self._allowed_lateness_ms,
            self._late_tag,
            process_function=process_function,
        )
        return self._stream._transform("window", factory, options, requires_key=True)
