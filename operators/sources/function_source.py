"""A source made of a function; its position is the function's operator state (Flink: ``SourceFunction`` with
``CheckpointedFunction``).

Each subtask reads with its own copy of the function, so a function divides the input by ``ctx.subtask`` and
``ctx.parallelism``, or by the elements of its list state. For the engine the subtask reads one split, without turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import NO_RECORD, ConfigurationError, check_whole
from engine.elements.operator import Operator, OperatorFactory
from engine.elements.source import SourceContext, SplitReader
from operators.basic import FunctionState, UserFunction, has_state, own_instance
from operators.sources.source_operator import SourceOperator
from operators.sources.source_splits import RunningSplit, SavedSplit
from operators.time import WatermarkStrategy

_RETRY_NS = 1_000_000


class SourceFunctionContext:
    """The place of a source function, and its clock."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.subtask = operator.context.subtask
        self.parallelism = operator.context.parallelism

    def processing_time_ms(self) -> int:
        """The virtual clock. Never the wall clock."""
        return self._operator.context.processing_time_ms()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of the source."""
        self._operator.context.metrics.count(name, amount)


class SourceFunction(UserFunction):
    """Gives out records. With :class:`operators.basic.CheckpointedFunction` as a second base it has a position: the
    state after a snapshot says which record comes next."""

    def open(self, ctx: SourceFunctionContext) -> None:
        """Called once before the first record; state is restored already."""

    def read(self, max_records: int, ctx: SourceFunctionContext) -> list[Any] | None:
        """Up to ``max_records`` (>= 1) further records; an empty list when there are none right now (it is asked again
        after a millisecond); ``None`` after the last one. The same records must come for any ``max_records``."""
        raise TypeError(f"{type(self).__name__} does not define read(max_records, ctx)")


class FunctionSource:
    """Describes the source of a :class:`SourceFunction` with operator state."""

    def __init__(self, function: SourceFunction | type[SourceFunction]) -> None:
        if not has_state(function):
            raise ConfigurationError(
                f"source function {function!r} has no state, so that a restart would read its input again\n"
                "  derive it from CheckpointedFunction or ListCheckpointed too, and keep its position there"
            )
        self.function = function

    def operator_factory(self, watermarks: WatermarkStrategy | None) -> OperatorFactory:
        """Makes the operators, which are not those of a source with splits."""
        return partial(FunctionSourceOperator, self, watermarks)

    def splits(self, context: SourceContext) -> Sequence[str]:
        raise AssertionError("its operator asks for no splits")

    def open_split(self, split: str, position: Any, context: SourceContext) -> SplitReader:
        raise AssertionError("its operator opens no splits")


class _FunctionReader:
    """The function as the reader of the one split of its subtask."""

    def __init__(self, operator: FunctionSourceOperator, function: SourceFunction) -> None:
        self._operator = operator
        self._function = function
        self._ctx = SourceFunctionContext(operator)
        function.open(self._ctx)

    def read(self, max_records: int) -> Batch | None:
        check_whole("max_records", max_records)
        try:
            records: Any = self._function.read(max_records, self._ctx)
            if records is not None and (not isinstance(records, list) or len(records) > max_records):
                raise ValueError(f"read() must return a list of up to {max_records} records, or None; got {records!r}")
        except Exception as error:
            raise self._operator.user_error("source function", NO_RECORD, error) from error
        return None if records is None else Batch(records)

    def position(self) -> None:
        """It is in the function's state."""

    def available_at_ns(self, now_ns: int) -> int:
        return now_ns + _RETRY_NS

    def close(self) -> None:
        self._function.close()


class FunctionSourceOperator(SourceOperator):
    """Reads from the function."""

    takes_turns = False
    opens_splits = False

    def __init__(self, source: FunctionSource, watermark_strategy: WatermarkStrategy | None = None) -> None:
        super().__init__(source, watermark_strategy)
        self.function = own_instance(source.function)
        self._held = FunctionState(self, self.function)

    def initialize_state(self) -> None:
        super().initialize_state()
        self._held.initialize()

    def open(self) -> None:
        self._begin_source()
        name = f"function-{self.context.subtask}"
        # Event time of several old subtasks: the least.
        known = sorted([SavedSplit(*one) for one in self._state.get()], key=lambda one: one.last_watermark_ms)[:1]
        self._splits = [RunningSplit(name, reader=_FunctionReader(self, self.function))]
        self._unfinished = list(self._splits)
        if self._strategy is not None and self._strategy.emits:
            self._open_watermarks(self._strategy, [one._replace(id=name, finished=False) for one in known])

    def snapshot_state(self, checkpoint_id: int) -> None:
        super().snapshot_state(checkpoint_id)
        self._held.snapshot(checkpoint_id)

    def fingerprint(self) -> object:
        return super().fingerprint(), self._held.fingerprint()
