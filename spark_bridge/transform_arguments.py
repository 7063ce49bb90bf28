"""What ``spark_transform`` refuses at once: it would fail in the middle of a run, or silently never end a batch."""

from __future__ import annotations

from engine.elements.errors import shorten
from spark_bridge.cuts import Cut, EventTimeCut, RowsCut
from spark_bridge.errors import SparkBridgeError
from spark_bridge.waiting import KeyColumn


def check_arguments(
    fn: object, schema: str, cut: object, *, cost_ns: object, period_column: object, by: str | None
) -> None:
    """Raises :class:`SparkBridgeError` for an argument of the wrong kind; the message names it."""
    _check("fn", callable(fn), fn, "a function from DataFrame to DataFrame")
    _check("schema", _is_text(schema), schema, "a DDL string, e.g. 'carrier string, delay int'")
    _check("cut", isinstance(cut, Cut), cut, "event_time_cut(...), rows_cut(...) or barrier_cut()")
    if period_column is not None:
        _check("period_column", _is_name(period_column), period_column, "the name of a column")
        only_times = "left out: only event_time_cut(...) has periods"
        _check("period_column", isinstance(cut, EventTimeCut), period_column, only_times)
    if by is not None:
        _check("by", isinstance(by, str), by, "the name of the column with the key")
        _check("by", not isinstance(cut, RowsCut), by, "left out: rows_cut(...) counts the rows of all keys")
        KeyColumn.of(by, schema)
    _check("cost_ns", callable(cost_ns) or is_duration(cost_ns), cost_ns, "whole ns, or a function that gives them")


def _check(argument: str, good: bool, value: object, wanted: str) -> None:
    if not good:
        raise SparkBridgeError(f"spark_transform: {argument}= must be {wanted}, not {shorten(value)}")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isidentifier()


def is_duration(value: object) -> bool:
    """Whether this is a number of ns."""
    return type(value) is int and value >= 0
