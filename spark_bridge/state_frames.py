"""The keyed state in a checkpoint or savepoint as a DataFrame, to inspect and compare; and state from a DataFrame.

A row is one entry: ``(operator, state, kind, subtask, key_group, key, namespace, value)``. Keys and values have any
type, so each appears twice: as JSON text for reading (:mod:`state_backends.codec.plain_values` says how), and as
the stored bytes (``key_bytes`` and so on), which are equal exactly when the values are, whatever their types.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_bridge.canonical import python_rows
from spark_bridge.crossing import RowSchema, arrow_table, new_session_directory, parse_schema, write_parquet
from spark_bridge.errors import SparkBridgeError
from spark_bridge.session import get_session
from state_backends.base import StateDescriptor, ValueStateDescriptor, check_keys
from state_backends.codec import StateCodec, inspecting_codec, plain
from state_backends.files import FileSystem, LocalFileSystem
from state_backends.heap import HeapKeyedStateBackend
from state_backends.offline import SnapshotContent, StateEntry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STATE_SCHEMA = (
    "operator string not null, state string not null, kind string not null, subtask int not null,"
    " key_group int not null, key string not null, namespace string, value string not null,"
    " key_bytes binary not null, namespace_bytes binary not null, value_bytes binary not null"
)
"""Columns of :func:`read_state`; ``namespace`` is null where there is none."""

_ROWS_PER_CHUNK = 100_000
_ROWS_PER_PUT = 10_000


def read_state(
    path: str,
    *,
    operator: str | None = None,
    state: str | None = None,
    file_system: FileSystem | None = None,
    session: SparkSession | None = None,
) -> DataFrame:
    """The keyed state of a checkpoint or savepoint, verified to the last byte, in any form in which it was written.

    The rows are copied to files that live as long as the session. The job's program is not needed: values of
    its registered types appear as their registration writes them.

    Args:
        path: the snapshot's directory, or its ``_metadata``.
        operator: only this uid.
        state: only states of this name.
        file_system: the one with the snapshot; None is the local one.

    Raises:
        StateBackendError: there is no such snapshot or operator, or a byte is damaged.
    """
    spark = session or get_session()
    schema = parse_schema(STATE_SCHEMA)
    codec = inspecting_codec()
    content = SnapshotContent.at(LocalFileSystem() if file_system is None else file_system, path, codec)
    directory = new_session_directory(spark)
    rows = map(_row_of(codec), content.entries(operator, state))
    for part, chunk in enumerate(_chunks(rows, schema)):
        write_parquet(chunk, directory, part)
    return spark.read.schema(schema.spark).parquet(str(directory))


def _chunks(rows: Iterator[tuple[Any, ...]], schema: RowSchema) -> Iterator[Any]:
    """Arrow tables of bounded size, at least one."""
    yield arrow_table(list(itertools.islice(rows, _ROWS_PER_CHUNK)), schema)
    while chunk := list(itertools.islice(rows, _ROWS_PER_CHUNK)):
        yield arrow_table(chunk, schema)


def _row_of(codec: StateCodec) -> Callable[[StateEntry], tuple[Any, ...]]:
    encode = codec.encode

    def row(entry: StateEntry) -> tuple[Any, ...]:
        key, namespace, value = entry.key, entry.namespace, entry.value
        texts = _text(key), None if namespace is None else _text(namespace), _text(value)
        return (*entry[:5], *texts, encode(key), encode(namespace), encode(value))

    return row


def _text(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def compare_state(before: DataFrame, after: DataFrame) -> DataFrame:
    """The entries that differ between two snapshots, whatever parallelisms and backends wrote them.

    Columns: ``change`` (added, removed, changed), ``operator``, ``state``, ``key``, ``namespace``, ``value_before``,
    ``value_after``.
    """
    from pyspark.sql import functions as F

    # For a timer its time is part of the name: there may be several per key.
    name = ["operator", "state", "key_bytes", "namespace_bytes", "time_bytes"]

    def side(frame: DataFrame, which: str) -> DataFrame:
        time = F.when(F.col("kind") == "timers", F.col("value_bytes")).otherwise(F.lit(b""))
        kept = {"key": "key", "namespace": "namespace", "value": "value", "value_bytes": "bytes"}
        columns = [F.col(column).alias(f"{short}_{which}") for column, short in kept.items()]
        return frame.withColumn("time_bytes", time).select(*name, *columns)

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
