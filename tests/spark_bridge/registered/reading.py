"""Reads a registered source as Spark does, without Spark: each step works on a pickled copy of the one before."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from spark_bridge.sinks import schema_of


def copied(value: Any) -> Any:
    """As on its way to another process."""
    return pickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def tasks(source: type[Any], schema: str | None = None, **options: Any) -> list[list[dict[str, Any]]]:
    """The rows of each partition."""
    made = copied(source({name: str(value) for name, value in options.items()}))
    reader = copied(made.reader(from_arrow_schema(schema_of(schema or made.schema()))))
    found = []
    for partition in copied(reader.partitions()):
        found.append([row for batch in copied(reader).read(partition) for row in batch.to_pylist()])
    return found


def rows(source: type[Any], schema: str | None = None, **options: Any) -> list[dict[str, Any]]:
    """The rows of all partitions, in order."""
    return [row for task in tasks(source, schema, **options) for row in task]
