"""A sink that hands each record to a function (Flink: ``SinkFunction``), which may buffer if it has operator state."""

from __future__ import annotations

from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import NO_RECORD
from engine.elements.operator import Operator
from operators.basic.function_state import operator_of
from operators.basic.functions import UserFunction, own_instance
from operators.basic.simple_sinks import SinkOperator


class SinkFunctionContext:
    """The record in hand, and the times."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.timestamp_ms: int | None = None
        """Event time of the record in hand."""
        self.current_watermark_ms = -(2**63)
        """Event time reached by the sink."""

    @property
    def subtask(self) -> int:
        """Which of the subtasks this is."""
        return self._operator.context.subtask

    def processing_time_ms(self) -> int:
        """The virtual clock. Never the wall clock."""
        return self._operator.context.processing_time_ms()


class SinkFunction(UserFunction):
    """Writes records to the outside. They come again after a failure, unless it can tell that it wrote them before."""

    def open(self, ctx: SinkFunctionContext) -> None:
        """Called once before the first record."""

    def invoke(self, value: Any, ctx: SinkFunctionContext) -> None:
        """Write one record."""
        raise TypeError(f"{type(self).__name__} does not define invoke(value, ctx)")

    def finish(self, ctx: SinkFunctionContext) -> None:
        """All input has ended: write what is still held back."""


class FunctionSink:
    """Describes a sink of a :class:`SinkFunction`, or of its class. Each subtask has its own copy."""

    name = "function-sink"
    delivery = "at-least-once"

    def __init__(self, function: SinkFunction | type[SinkFunction]) -> None:
        self._factory = operator_of(FunctionSinkOperator, function)

    def create_operator(self) -> Operator:
        return self._factory()


class FunctionSinkOperator(SinkOperator):
    """Calls the function."""

    def __init__(self, function: SinkFunction | type[SinkFunction]) -> None:
        self.function = own_instance(function)

    def open(self) -> None:
        self._ctx = SinkFunctionContext(self)
        self.function.open(self._ctx)

    def process_batch(self, batch: Batch) -> None:
        ctx, stamps = self._ctx, batch.timestamps
        for index, value in enumerate(batch.values):
            ctx.timestamp_ms = None if stamps is None else stamps[index]
            try:
                self.function.invoke(value, ctx)
            except Exception as error:
                raise self.user_error("sink function", value, error) from error

    def process_watermark(self, timestamp_ms: int) -> None:
        self._ctx.current_watermark_ms = timestamp_ms

    def finish(self) -> None:
        try:
            self.function.finish(self._ctx)
        except Exception as error:
            raise self.user_error("finish of sink function", NO_RECORD, error) from error

    def close(self) -> None:
        self.function.close()

    def fingerprint(self) -> object:
        return self._ctx.current_watermark_ms
