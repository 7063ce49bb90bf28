"""Operators without state: map, flat_map, filter and process.

The hot path of every job. A batch is handled in C as far as Python allows: no method call per record but the
user's function. Which record a function failed on is found afterwards, from how far the output or the input
iterator got, so that the good path carries no bookkeeping. One trap comes with that: a ``StopIteration`` out
of a user's function would end ``map`` quietly and lose the rest of the batch, hence the length check.

Timestamps travel with the records; keys do not, for the function may have changed what they were taken from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, repeat
from operator import length_hint
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.operator import Operator
from operators.functions import ProcessFunction, private_copy
from operators.side_output import SideOutputs


def item_in_hand(values: list[Any], iterator: Iterator[Any]) -> Any:
    """The item of ``values`` that a list iterator over as many items has handed out last."""
    return values[len(values) - length_hint(iterator) - 1]


class _FunctionOperator(Operator):
    """Applies one function to every record."""

    what = "function"

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def _apply(self, values: list[Any]) -> list[Any]:
        results: list[Any] = []
        try:
            results.extend(map(self._fn, values))
            if len(results) != len(values):
                raise StopIteration("the function let a StopIteration escape")
        except Exception as error:
            # What came before the failure is in ``results``: its length is the index of the failing record.
            raise self.user_error(self.what, values[len(results)], error) from error
        return results


class MapOperator(_FunctionOperator):
    """One record out for each record in."""

    what = "map function"

    def process_batch(self, batch: Batch) -> None:
        out = self._apply(batch.values)
        if out:
            self.output.emit(Batch(out, batch.timestamps))


class FlatMapOperator(_FunctionOperator):
    """Any number of records out for each record in, all with its timestamp."""

    what = "flat_map function"

    def process_batch(self, batch: Batch) -> None:
        values, stamps = batch.values, batch.timestamps
        produced = self._apply(values)
        iterator = iter(produced)
        out_stamps: list[int] | None = None
        try:
            if stamps is None:
                out = list(chain.from_iterable(iterator))
            else:
                # A function may return a generator, whose length nobody knows.
                lists = [one if isinstance(one, (list, tuple)) else list(one) for one in iterator]
                out = list(chain.from_iterable(lists))
                out_stamps = list(chain.from_iterable(map(repeat, stamps, map(len, lists))))
        except Exception as error:
            raise self.user_error(self.what, item_in_hand(values, iterator), error) from error
        if out:
            self.output.emit(Batch(out, out_stamps))


class FilterOperator(_FunctionOperator):
    """The records for which the predicate is true."""

    what = "filter function"

    def process_batch(self, batch: Batch) -> None:
        values, stamps = batch.values, batch.timestamps
        mask = self._apply(values)
        out = list(compress(values, mask))
        if out:
            self.output.emit(Batch(out, None if stamps is None else list(compress(stamps, mask))))


class _Context:
    """The ``ProcessContext`` of one operator; its fields are set by the operator before each call."""

    __slots__ = ("_operator", "_side", "current_watermark_ms", "timestamp_ms")

    def __init__(self, operator: Operator, side: SideOutputs) -> None:
        self._operator = operator
        self._side = side
        self.timestamp_ms: int | None = None
        self.current_watermark_ms = MIN_TIMESTAMP_MS

    def processing_time_ms(self) -> int:
        return self._operator.context.processing_time_ms()

    def side_output(self, tag: str, value: Any) -> None:
        self._side.add(tag, value, self.timestamp_ms)


class ProcessOperator(Operator):
    """A process function (or a callable ``(value, ctx)``) over a stream without keys."""

    def __init__(
        self,
        function: ProcessFunction | type[ProcessFunction] | Callable[[Any, Any], Iterable[Any] | None],
    ) -> None:
        self._function = private_copy(function)

    def open(self) -> None:
        self._side = SideOutputs()
        self._ctx = _Context(self, self._side)
        self._function.open(self._ctx)

    def process_batch(self, batch: Batch) -> None:
        process, ctx, stamps = self._function.process_element, self._ctx, batch.timestamps
        out: list[Any] = []
        out_stamps: list[int] | None = None if stamps is None else []
        iterator = iter(batch.values)
        try:
            for stamp, value in zip(repeat(None) if stamps is None else stamps, iterator, strict=False):
                ctx.timestamp_ms = stamp
                produced = process(value, ctx)
                if produced is not None:
                    before = len(out)
                    out.extend(produced)
                    if out_stamps is not None:
                        out_stamps.extend(repeat(stamp, len(out) - before))  # type: ignore[arg-type]
        except Exception as error:
            raise self.user_error("process function", item_in_hand(batch.values, iterator), error) from error
        self._side.flush(self.output)
        if out:
            self.output.emit(Batch(out, out_stamps))

    def process_watermark(self, timestamp_ms: int) -> None:
        self._ctx.current_watermark_ms = timestamp_ms
        self.output.emit_watermark(timestamp_ms)

    def close(self) -> None:
        self._function.close()

    def fingerprint(self) -> object:
        return self._ctx.current_watermark_ms
