"""Running reductions and aggregates of a keyed stream: one result for every record.

The state handles walk a whole batch in one loop; the only call per record is the user's function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import Operator
from engine.elements.simple_functions import in_c
from operators.basic.functions import AggregateFunction
from state_backends.base import AggregatingStateDescriptor, ReducingStateDescriptor


def has_none(values: list[Any]) -> bool:
    """Whether ``None`` is among the values. A truth test is the fastest in C, and records are rarely false."""
    return not all(values) and None in values


def refuse_none(operator: Operator, values: list[Any]) -> None:
    """Raise ``UserFunctionError`` if a record is ``None``: in folding state that would mean "clear"."""
    if has_none(values):
        error = TypeError(
            "None cannot be reduced, aggregated or put into a window. Does key_by(..., value=...) select None? "
            "Then keep the whole record and select inside the aggregate, which skips None"
        )
        raise operator.user_error("value selector", None, error) from error


class ReduceOperator(Operator):
    """Emits, for every record, the reduction of its key so far (Flink: ``StreamGroupedReduceOperator``)."""

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self._fn = fn

    def initialize_state(self) -> None:
        descriptor = ReducingStateDescriptor("reduced", in_c(self._fn))
        self._state = self.context.keyed_backend().reducing_state(descriptor)

    def process_batch(self, batch: Batch) -> None:
        keys, values = batch.keys, batch.values
        assert keys is not None, "a reduce operator needs key_by before it"
        out: list[Any] = []
        try:
            self._state.add_many(keys, values, out)
        except Exception as error:
            # One output per record, so their number is the index of the failing one.
            raise self.user_error("reduce function", values[len(out)], error) from error
        if has_none(out):
            refuse_none(self, values)
            problem = TypeError("the reduction became None")
            raise self.user_error("reduce function", values[out.index(None)], problem) from problem
        if out:
            self.output.emit(Batch(out, batch.timestamps))


class KeyedAggregateOperator(Operator):
    """Emits, for every record, ``(key, result so far)`` of an aggregate."""

    def __init__(self, aggregate_function: AggregateFunction) -> None:
        self._function = aggregate_function

    def initialize_state(self) -> None:
        function = self._function
        descriptor = AggregatingStateDescriptor(
            "aggregated", function.create, function.add, function.get_result, function.merge
        )
        self._state = self.context.keyed_backend().aggregating_state(descriptor)

    def process_batch(self, batch: Batch) -> None:
        keys, values = batch.keys, batch.values
        assert keys is not None, "an aggregate operator needs key_by before it"
        refuse_none(self, values)
        results: list[Any] = []
        try:
            self._state.add_many(keys, None, values, results)
        except Exception as error:
            raise self.user_error("aggregate function", values[len(results)], error) from error
        if results:
            self.output.emit(Batch(list(zip(keys, results, strict=True)), batch.timestamps))
