"""Which partition a record belongs to, and what of it is written to the files.

* A record is a dict; the values of its partition columns name the partition
  (:mod:`operators.files.writing.partition_names`).
* The partition columns are left out of the files, for they are in the paths, as Hive and Flink have it; unless they are
  asked for.
* A partition is looked at once, when its first record comes: what cannot be a directory, or names no time although time
  decides when it is committed, is an error that shows the record.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Any

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError
from operators.files.writing import (
    DEFAULT_PARTITION_NAME,
    BucketAssigner,
    BucketContext,
    PartitionPathError,
    RecordError,
    partition_directory,
)

_MAX_KNOWN = 10_000
_SCALARS = (str, int, float, decimal.Decimal, datetime.date, datetime.time)


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """``columns``, if a table can be partitioned by them. Raises :class:`ConfigurationError`."""
    names: list[object] = list(columns)
    if isinstance(columns, str) or not names:
        raise ConfigurationError(f"partition_by is {columns!r}; it must be names of columns, such as ('day', 'hour')")
    for position, name in enumerate(names):
        if not isinstance(name, str) or not name or name.startswith((".", "_")):
            raise ConfigurationError(
                f"partition_by has the column {name!r}; a partition column is a name that does not start with '.' or"
                " '_', which would hide its directories"
            )
        if name in names[:position]:
            raise ConfigurationError(f"partition_by has the column {name!r} twice")
    return tuple(columns)


def checked_default(name: object) -> str:
    """``name``, if the partition of rows without a value can be called that. Raises :class:`ConfigurationError`."""
    if not isinstance(name, str) or not name or name.startswith("."):
        raise ConfigurationError(f"the default partition is called {name!r}; its name must not be hidden")
    return name


def check_values(columns: Sequence[str], values: Sequence[object]) -> None:
    """Raises :class:`PartitionPathError` for a value that no directory is named after."""
    for column, value in zip(columns, values, strict=True):
        if value is not None and not isinstance(value, _SCALARS):
            raise PartitionPathError(
                f"column {column!r} is {value!r} of type {type(value).__name__}; a partition is named by text, a"
                " number or a date"
            )


class PartitionAssigner(BucketAssigner):
    """The partition of a record as its bucket.

    ``checks``  are called with each new partition before anything is written to it; an error refuses the record.
    """

    def __init__(
        self,
        columns: Sequence[str],
        default_name: str = DEFAULT_PARTITION_NAME,
        checks: Sequence[Callable[[str], object]] = (),
    ) -> None:
        self.columns = check_columns(columns)
        self._default_name = checked_default(default_name)
        self._checks = tuple(checks)
        self._paths: dict[tuple[str, ...], str] = {}

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        """The path of the partition. Raises ``ValueError`` or ``TypeError`` for a record that has none."""
        texts = self._texts(record)
        path = self._paths.get(texts)
        return self._new_path(texts, record) if path is None else path

    def buckets_of(self, batch: Batch, processing_time_ms: int, watermark_ms: int) -> str | list[str]:
        """Of each record, or of all if it is the same. Raises :class:`RecordError`."""
        values, paths = batch.values, self._paths
        keys: list[tuple[str, ...]] = []
        try:
            keys.extend(map(self._texts, values))
        except Exception as error:
            raise RecordError(len(keys), values[len(keys)], error) from error
        first_of: dict[tuple[str, ...], int] = {}
        for position, key in enumerate(keys):
            first_of.setdefault(key, position)
        for key, position in first_of.items():
            if key not in paths:
                try:
                    self._new_path(key, values[position])
                except Exception as error:
                    raise RecordError(position, values[position], error) from error
        if len(first_of) == 1:
            found = paths[keys[0]]
            self._forget_if_many()
            return found
        assigned = list(map(paths.__getitem__, keys))
        self._forget_if_many()
        return assigned

    def _texts(self, record: Any) -> tuple[str, ...]:
        try:
            return tuple(["" if record[column] is None else str(record[column]) for column in self.columns])
        except (KeyError, TypeError, IndexError):
            raise _no_column(record, self.columns) from None

    def _new_path(self, texts: tuple[str, ...], record: Any) -> str:
        check_values(self.columns, [record[column] for column in self.columns])
        path = partition_directory(self.columns, texts, self._default_name)
        for check in self._checks:
            check(path)
        self._paths[texts] = path
        return path

    def _forget_if_many(self) -> None:
        if len(self._paths) > _MAX_KNOWN:
            self._paths.clear()


def _no_column(record: Any, columns: Sequence[str]) -> PartitionPathError:
    if not isinstance(record, dict):
        return PartitionPathError(
            f"the record is a {type(record).__name__}; a table partitioned by columns takes dicts, so map it to one"
        )
    missing = [column for column in columns if column not in record]
    return PartitionPathError(
        f"the record has no partition column {', '.join(map(repr, missing))}; it has {', '.join(map(repr, record))}"
    )


def without(columns: Sequence[str], batch: Batch) -> Batch:
    """The records of ``batch`` without ``columns``."""
    left_out = dict.fromkeys(columns)
    return Batch(
        [{key: value for key, value in record.items() if key not in left_out} for record in batch.values],
        batch.timestamps,
        batch.keys,
    )
