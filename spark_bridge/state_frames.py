"""Compares the keyed state of two checkpoints or savepoints, as DataFrames; and makes state from a DataFrame.

A registered ``weir.state`` source (:func:`spark_bridge.register`) reads a checkpoint as a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows
from spark_bridge.errors import SparkBridgeError
from state_backends.base import StateDescriptor, ValueStateDescriptor, check_keys
from state_backends.heap import HeapKeyedStateBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_PUT = 10_000


def compare_state(before: DataFrame, after: DataFrame) -> DataFrame:
    """The entries of keyed state that differ between two snapshots, whatever parallelisms and backends wrote them.

    Both come from ``weir.state``, without a schema of your own. Columns: ``change`` (added, removed,
    changed), ``operator``, ``state``, ``key``, ``namespace``, ``value_before``,
    ``value_after``.
    """
    from pyspark.sql import functions as F

    # For a timer its time is part of the name: there may be several per key.
    name = ["operator", "state", "key_bytes", "namespace_bytes", "time_bytes"]

    def side(frame: DataFrame, which: str) -> DataFrame:
        time = F.when(F.col("kind") == "timers", F.col("value_bytes")).otherwise(F.lit(b""))
        kept = {"key": "key", "namespace": "namespace", "value": "value", "value_bytes": "bytes"}
        columns = [F.col(column).alias(f"{short}_{which}") for column, short in kept.items()]
        # Nulls, of entries without a namespace, would equal nothing.
        namespace = F.coalesce("namespace_bytes", F.lit(b""))
        named = frame.where(F.col("part") == "keyed").withColumns({"time_bytes": time, "namespace_bytes": namespace})
        return named.select(*name, *columns)

    joined = side(before, "before").join(side(after, "after"), name, "full_outer")
    is_added, is_removed = F.col("bytes_before").isNull(), F.col("bytes_after").isNull()
    change = F.when(is_added, "added").when(is_removed, "removed").otherwise("changed")
    differs = is_added | is_removed | (F.col("bytes_before") != F.col("bytes_after"))
    return joined.where(differs).select(
        change.alias("change"),
        "operator",
        "state",
        F.coalesce("key_before", "key_after").alias("key"),
        F.coalesce("namespace_before", "namespace_after").alias("namespace"),
        "value_before",
        "value_after",
    )


def put_state(
    frame: DataFrame,
    backend: HeapKeyedStateBackend,
    descriptor: StateDescriptor,
    *,
    key: str | Sequence[str],
    value: str | Callable[[dict[str, Any]], Any],
) -> int:
    """Put one value per row into a value state, as of :class:`state_backends.offline.SnapshotWriter`.

    Args:
        frame: the rows; of several with one key, the last one that Spark returns stays: make keys unique first.
        backend: the operator's backend, from the writer.
        descriptor: of the value state.
        key: the key's column, or several for a tuple.
        value: the value's column, or a function from the whole row, as a dict, to the value.

    Returns:
        The number of rows.

    Raises:
        SparkBridgeError: no such column, a state of another kind, or a null for a key.
        KeyTypeError: keys of several types.
    """
    if not isinstance(descriptor, ValueStateDescriptor):
        kind = descriptor.kind.value
        raise SparkBridgeError(f"state {descriptor.name!r} is {kind} state, but put_state fills value state only")
    columns = [key] if isinstance(key, str) else list(key)
    wanted = columns if callable(value) else [*columns, value]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise SparkBridgeError(f"the DataFrame has no column {missing[0]!r}; it has {', '.join(frame.columns)}")
    state, count = backend.value_state(descriptor), 0
    # Through Arrow, as everywhere: Spark's own rows have datetimes in the zone of this machine.
    for rows in map(python_rows, _slices(frame.toArrow())):
        keys = [row[key] if isinstance(key, str) else tuple(row[name] for name in key) for row in rows]
        for position, one in enumerate(keys):
            if one is None or (isinstance(one, tuple) and None in one):
                raise SparkBridgeError(f"row {count + position} has no key: {one!r} in {', '.join(columns)}")
        backend.set_current_key(keys[0])
        assert backend.key_type is not None, "a key was just set"
        check_keys(keys, backend.key_type)
        state.update_many(keys, [value(row) if callable(value) else row[value] for row in rows])
        count += len(rows)
    return count


def _slices(table: Any) -> Iterator[Any]:
    return (table.slice(start, _ROWS_PER_PUT) for start in range(0, table.num_rows, _ROWS_PER_PUT))
