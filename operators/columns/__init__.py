"""Batches as columns: ``column_sources`` give arrays, ``stateless_columns`` operators call a function once per batch,
``keyed_columns`` folds running aggregates; ``window_columns`` aggregates event-time windows, which it keeps in
``open_windows`` and at snapshots in ``window_state``. Needs numpy at its first use.
"""

from __future__ import annotations

from operators.columns.column_sources import (
    ColumnGeneratorSource as ColumnGeneratorSource,
    ColumnSource as ColumnSource,
)
from operators.columns.keyed_columns import (
    REDUCED_STATE as REDUCED_STATE,
    ColumnAggregate as ColumnAggregate,
    ColumnAggregateOperator as ColumnAggregateOperator,
    check_aggregates as check_aggregates,
    max_of as max_of,
    mean_of as mean_of,
    min_of as min_of,
    record_count as record_count,
    sum_of as sum_of,
)
from operators.columns.stateless_columns import (
    COLUMN_TYPES as COLUMN_TYPES,
    FilterColumnsOperator as FilterColumnsOperator,
    MapColumnsOperator as MapColumnsOperator,
    ToColumnsOperator as ToColumnsOperator,
    ToRowsOperator as ToRowsOperator,
    check_declared as check_declared,
    column_operator as column_operator,
)
from operators.columns.window_columns import ColumnWindowOperator as ColumnWindowOperator
