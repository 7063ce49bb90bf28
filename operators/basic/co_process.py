"""Operators over two streams: map, flat_map and process functions with one method per stream.

(Flink: ``CoStreamMap``, ``CoStreamFlatMap``, ``CoProcessOperator``, ``KeyedCoProcessOperator``.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.elements.batch import Batch
from engine.elements.operator import TwoInputOperator
from operators.basic.functions import own_instance
from operators.basic.keyed_process import KeyedFunctionOperator
from operators.basic.stateless import FunctionOperator, flat_map_batch, map_batch, process_each
from operators.basic.two_input_functions import CoProcessFunction, KeyedCoProcessFunction


class _CoFunctionOperator(TwoInputOperator):
    """``fn1`` takes the records of the first stream, ``fn2`` those of the second."""

    def __init__(self, fn1: Callable[[Any], Any], fn2: Callable[[Any], Any]) -> None:
        self._fn1 = fn1
        self._fn2 = fn2


class CoMapOperator(_CoFunctionOperator):
    """One record out for each record in."""

    def process_batch_1(self, batch: Batch) -> None:
        map_batch(self, "first map function", self._fn1, batch)

    def process_batch_2(self, batch: Batch) -> None:
        map_batch(self, "second map function", self._fn2, batch)


class CoFlatMapOperator(_CoFunctionOperator):
    """Any number of records out for each record in, all with its timestamp."""

    def process_batch_1(self, batch: Batch) -> None:
        flat_map_batch(self, "first flat_map function", self._fn1, batch)

    def process_batch_2(self, batch: Batch) -> None:
        flat_map_batch(self, "second flat_map function", self._fn2, batch)


class CoProcessOperator(FunctionOperator, TwoInputOperator):
    """A co-process function without keyed state."""

    def __init__(self, function: CoProcessFunction | type[CoProcessFunction]) -> None:
        super().__init__(own_instance(function))

    def process_batch_1(self, batch: Batch) -> None:
        process_each(self, "process_element1 of co-process function", self.function.process_element1, self._ctx, batch)

    def process_batch_2(self, batch: Batch) -> None:
        process_each(self, "process_element2 of co-process function", self.function.process_element2, self._ctx, batch)


class KeyedCoProcessOperator(KeyedFunctionOperator, TwoInputOperator):
    """A co-process function with state and timers per key, which both streams share."""

    _what = "keyed co-process function"

    def __init__(self, function: KeyedCoProcessFunction | type[KeyedCoProcessFunction]) -> None:
        super().__init__(own_instance(function))

    def process_batch_1(self, batch: Batch) -> None:
        self._process_keyed(self.function.process_element1, batch)

    def process_batch_2(self, batch: Batch) -> None:
        self._process_keyed(self.function.process_element2, batch)
