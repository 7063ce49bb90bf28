"""Windows of keyed columns: which of them can be computed on arrays, and the operator that does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from engine.elements.errors import JobGraphError
from engine.elements.operator import OperatorFactory
from engine.graph.column_partitioner import ColumnHashPartitioner
from engine.graph.options import check_names

if TYPE_CHECKING:
    from engine.graph.keyed_stream import KeyedStream
    from operators.columns import ColumnAggregate
    from operators.windows import Evictor, Trigger, WindowAssigner


def column_windows(
    method: str,
    stream: KeyedStream,
    assigner: WindowAssigner,
    trigger: Trigger | None,
    evictor: Evictor | None,
    aggregates: Mapping[str, ColumnAggregate],
    allowed_lateness_ms: int,
    late_tag: str | None,
) -> OperatorFactory:
    """The factory of the operator. Raises ``JobGraphError`` where rows are needed."""
    from operators.columns import ColumnWindowOperator, check_aggregates, column_operator
    from operators.windows import EventTimeTrigger, SlidingEventTimeWindows, TumblingEventTimeWindows

    if type(assigner) not in (TumblingEventTimeWindows, SlidingEventTimeWindows):
        raise _only_rows(method, f"tumbling and sliding event-time windows, not {type(assigner).__name__}")
    if trigger is not None and type(trigger) is not EventTimeTrigger:
        raise _only_rows(method, f"windows that fire when they end, without {type(trigger).__name__}")
    if evictor is not None:
        raise _only_rows(method, f"windows without an evictor; {type(evictor).__name__} needs all records")
    check_aggregates(method, aggregates, of_windows=True)
    check_names(method, (*aggregates, *(one.column for one in aggregates.values() if one.column is not None)))
    factory = column_operator(
        ColumnWindowOperator, assigner, dict(aggregates), _key_fields(method, stream), allowed_lateness_ms, late_tag
    )
    factory()  # A wrong argument fails here, where the job is built.
    return factory


def _only_rows(method: str, what: str) -> JobGraphError:
    return JobGraphError(f"{method} takes {what}\n  fix: use reduce, aggregate or process, which work on rows")


def _key_fields(method: str, stream: KeyedStream) -> tuple[str, ...]:
    """The names of the columns that the key is made of; results have them."""
    found = [outlet.partitioner for outlet in stream._outlets]
    fields = {one.fields: None for one in found if isinstance(one, ColumnHashPartitioner)}
    if len(fields) != 1 or not all(isinstance(one, ColumnHashPartitioner) for one in found):
        raise JobGraphError(
            f"{method}: results of windows have the columns of the key, and {stream!r} has no names for them\n"
            "  fix: use key_by_column(...) instead of key_by(...)"
        )
    (names,) = fields
    return names
