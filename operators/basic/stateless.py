"""Operators without state: map, flat_map, filter, process, and the head of an iteration.

The hot path of every job. A batch is handled in C as far as Python allows: the only call per record is the user's
function. After an error, the position of the output or the input iterator shows the failing record, so the good path
has no bookkeeping. One trap: a ``StopIteration`` from a user's function would silently end ``map`` and lose the rest of
the batch; the length check finds this.

Timestamps travel with the records. Keys do not, because the function may have changed the values that gave them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, repeat
from operator import length_hint
from typing import Any

from engine.elements.batch import MIN_TIMESTAMP_MS, Batch
from engine.elements.operator import Operator
from operators.basic.functions import ProcessFunction, private_copy
from operators.basic.side_output import SideOutputs


def item_in_hand(values: list[Any], iterator: Iterator[Any]) -> Any:
    """The item of ``values`` at the last position of a list iterator over the same number of items."""
    return values[len(values) - length_hint(iterator) - 1]


def apply_to_all(operator: Operator, what: str, fn: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """``fn`` of each value. Raises ``UserFunctionError`` that names the value it failed on."""
    results: list[Any] = []
    try:
        results.extend(map(fn, values))
        if len(results) != len(values):
            raise StopIteration("the function let a StopIteration escape")
    except Exception as error:
        # ``results`` holds the results before the failure: its length is the index of the failing record.
        raise operator.user_error(what, values[len(results)], error) from error
    return results


def map_batch(operator: Operator, what: str, fn: Callable[[Any], Any], batch: Batch) -> None:
    """Emit one record for each record of ``batch``."""
    out = apply_to_all(operator, what, fn, batch.values)
    if out:
        operator.output.emit(Batch(out, batch.timestamps))


def flat_map_batch(operator: Operator, what: str, fn: Callable[[Any], Any], batch: Batch) -> None:
    """Emit any number of records for each record of ``batch``, all with its timestamp."""
    values, stamps = batch.values, batch.timestamps
    produced = apply_to_all(operator, what, fn, values)
    iterator = iter(produced)
    out_stamps: list[int] | None = None
    try:
        if stamps is None:
            out = list(chain.from_iterable(iterator))
        else:
            # A function may return a generator, whose length is unknown.
            lists = [one if isinstance(one, (list, tuple)) else list(one) for one in iterator]
            out = list(chain.from_iterable(lists))
            out_stamps = list(chain.from_iterable(map(repeat, stamps, map(len, lists))))
    except Exception as error:
        raise operator.user_error(what, item_in_hand(values, iterator), error) from error
    if out:
        operator.output.emit(Batch(out, out_stamps))


class _FunctionOperator(Operator):
    """Applies one function to every record."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.function = fn


class MapOperator(_FunctionOperator):
    """One record out for each record in."""

    def process_batch(self, batch: Batch) -> None:
        map_batch(self, "map function", self.function, batch)


class FlatMapOperator(_FunctionOperator):
    """Any number of records out for each record in, all with its timestamp."""

    def process_batch(self, batch: Batch) -> None:
        flat_map_batch(self, "flat_map function", self.function, batch)


class FilterOperator(_FunctionOperator):
    """The records for which the predicate is true."""

    def process_batch(self, batch: Batch) -> None:
        values, stamps = batch.values, batch.timestamps
        mask = apply_to_all(self, "filter function", self.function, values)
        out = list(compress(values, mask))
        if out:
            self.output.emit(Batch(out, None if stamps is None else list(compress(stamps, mask))))


class IterationHeadOperator(Operator):
    """Passes every record on (Flink: ``IterationHead``). Keys of its input end here, as after any operator."""

    def process_batch(self, batch: Batch) -> None:
        self.output.emit(batch if batch.keys is None else Batch(batch.values, batch.timestamps))


class RecordContext:
    """The ``ProcessContext`` of one operator; the operator sets its fields before each call."""

    __slots__ = ("_operator", "current_watermark_ms", "side", "timestamp_ms")

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.side = SideOutputs()
        self.timestamp_ms: int | None = None
        self.current_watermark_ms = MIN_TIMESTAMP_MS

    def processing_time_ms(self) -> int:
        return self._operator.context.processing_time_ms()

    def side_output(self, tag: str, value: Any) -> None:
        self.side.add(tag, value, self.timestamp_ms)


def process_each(
    operator: Operator, what: str, process: Callable[[Any, Any], Iterable[Any] | None], ctx: RecordContext, batch: Batch
) -> None:
    """Emit the results of ``process(value, ctx)`` for each record of ``batch``, and its side outputs before it."""
    stamps = batch.timestamps
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
        raise operator.user_error(what, item_in_hand(batch.values, iterator), error) from error
    ctx.side.flush(operator.output)
    if out:
        operator.output.emit(Batch(out, out_stamps))


class FunctionOperator(Operator):
    """The common part of operators with a function and without keyed state: a context, event time, an end."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def _make_context(self) -> RecordContext:
        return RecordContext(self)

    def open(self) -> None:
        self._ctx = self._make_context()
        self.function.open(self._ctx)

    def process_watermark(self, timestamp_ms: int) -> None:
        self._ctx.current_watermark_ms = timestamp_ms
        self.output.emit_watermark(timestamp_ms)

    def close(self) -> None:
        self.function.close()

    def fingerprint(self) -> object:
        return self._ctx.current_watermark_ms


class ProcessOperator(FunctionOperator):
    """A process function (or a callable ``(value, ctx)``) over a stream without keys."""

    def __init__(
        self, function: ProcessFunction | type[ProcessFunction] | Callable[[Any, Any], Iterable[Any] | None]
    ) -> None:
        super().__init__(private_copy(function))

    def process_batch(self, batch: Batch) -> None:
        process_each(self, "process function", self.function.process_element, self._ctx, batch)
