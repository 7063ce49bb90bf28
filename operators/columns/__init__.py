"""Batches as columns: ``column_sources`` give arrays, ``stateless`` operators call a function once for a batch of
them, ``keyed`` folds running aggregates. Needs numpy at its first use.
"""

from __future__ import annotations

from operators.columns.column_sources import ColumnGeneratorSource, ColumnSource
from operators.columns.keyed import (
    REDUCED_STATE,
    ColumnAggregate,
    ColumnAggregateOperator,
    check_aggregates,
    max_of,
    min_of,
    record_count,
    sum_of,
)
from operators.columns.stateless import (
    COLUMN_TYPES,
    FilterColumnsOperator,
    MapColumnsOperator,
    ToColumnsOperator,
    ToRowsOperator,
    check_declared,
    column_operator,
)

__all__ = [
    "COLUMN_TYPES",
    "ColumnAggregate",
    "ColumnAggregateOperator",
    "ColumnGeneratorSource",
    "ColumnSource",
    "FilterColumnsOperator",
    "MapColumnsOperator",
    "REDUCED_STATE",
    "ToColumnsOperator",
    "ToRowsOperator",
    "check_aggregates",
    "check_declared",
    "column_operator",
    "max_of",
    "min_of",
    "record_count",
    "sum_of",
]
