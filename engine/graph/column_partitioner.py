"""Hash partitioning of columnar batches: the keys of a whole column are checked, hashed and spread at once.

It gives every record the channel that :class:`engine.graph.partitioner.HashPartitioner` gives it as a row. To the
graph, and to a restore that deals records in flight out anew, it is one of these. Batches that come as rows take
the row path, with the same fields as keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from engine.elements.batch import Batch
from engine.elements.columns import Column, ColumnBatch, ColumnError, key_column_of
from engine.elements.errors import KeyTypeMismatchError, UserFunctionError, shorten
from engine.graph.partitioner import HashPartitioner, Routed, Router, RouterContext, spread_columns
from state_backends.base import KeyType, KeyTypeError, np
from state_backends.columns import check_key_column, is_long_column, key_groups_of


@dataclass(frozen=True, slots=True)
class ColumnHashPartitioner(HashPartitioner):
    """By key group of one column, or of several together (a TUPLE key). Make it with :func:`by_columns`."""

    fields: tuple[str, ...] = field(default=(), kw_only=True)

    def router(self, context: RouterContext) -> Router:
        """See ``Partitioner``."""
        return _ColumnHashRouter(self, HashPartitioner.router(self, context), context)


def by_columns(fields: tuple[str, ...], key_type: KeyType | None) -> ColumnHashPartitioner:
    """A partitioner by the named columns."""
    return ColumnHashPartitioner(itemgetter(*fields), None, key_type, fields=fields)


class _ColumnHashRouter(Router):
    __slots__ = ("_context", "_key_type", "_rows", "_spec")

    def __init__(self, spec: ColumnHashPartitioner, rows: Router, context: RouterContext) -> None:
        self._spec = spec
        self._rows = rows
        self._context = context
        self._key_type = spec.key_type

    def route(self, batch: Batch) -> Routed:
        if not isinstance(batch, ColumnBatch):
            return self._rows.route(batch)
        if not len(batch):
            return []
        keys = self._keys(batch)
        self._check(keys, batch)
        keyed = batch.with_keys(keys)
        channels = self._context.channels
        if channels == 1:
            return [(0, keyed)]
        return spread_columns(keyed, self._targets(keys, batch), channels)

    def _keys(self, batch: ColumnBatch) -> Column:
        fields = self._spec.fields
        for name in fields:
            if name not in batch.columns:
                error = ColumnError(f"there is no column {name!r}; there are {', '.join(batch.columns)}")
                context = self._context
                raise UserFunctionError(
                    context.operator, "key_by_column", batch.between(0, 1).values[0], context.attempt, error
                ) from error
        if len(fields) == 1:
            return batch.columns[fields[0]]
        return key_column_of(list(zip(*(batch.columns[name].tolist() for name in fields), strict=True)))

    def _check(self, keys: Column, batch: ColumnBatch) -> None:
        try:
            if self._key_type is None:
                self._key_type = self._context.key_type_agreement.settle(keys[:1].tolist()[0])
            check_key_column(keys, self._key_type)
        except KeyTypeError as error:
            raise self._key_error(batch, error) from error

    def _targets(self, keys: Column, batch: ColumnBatch) -> Any:
        key_type, context = self._key_type, self._context
        assert key_type is not None
        if is_long_column(keys):
            groups = key_groups_of(keys, key_type, context.receiver_max_parallelism)
            return groups * context.channels // context.receiver_max_parallelism
        cache = self._spec.key_to_channel(key_type, context.receiver_max_parallelism, context.channels)
        try:
            return np.fromiter(map(cache.__getitem__, keys.tolist()), dtype=np.intp, count=len(keys))
        except KeyTypeError as error:  # an int inside a tuple that is too wide for its type
            raise self._key_error(batch, error) from error

    def _key_error(self, batch: ColumnBatch, error: KeyTypeError) -> KeyTypeMismatchError:
        names = ", ".join(map(repr, self._spec.fields))
        return KeyTypeMismatchError(
            f"key_by_column({names}) after {self._context.operator!r} got a key of the wrong type: {error}\n"
            f"  first record of the batch  {shorten(batch.between(0, 1).values[0])}\n"
            f"  attempt {self._context.attempt}\n"
            "  convert the column before, or declare the type with key_by_column(..., key_type=...)"
        )
