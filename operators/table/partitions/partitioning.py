"""The partition of a record, and the columns that are written to the files.

* A record is a dict, or its columns are named beforehand; the values of its partition columns name the partition
  (:mod:`operators.files.writing.partition_names`).
* The files do not contain the partition columns, because the paths do, as in Hive and Flink; an option keeps them.
* A partition is checked once, when its first record comes. If a value cannot be a directory name, or names no time
  although partitions are committed by time, the error shows the record.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
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

TextInPath = Callable[[str, Any], str]

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
    """``name``, if it is valid for the partition of rows without a value. Raises :class:`ConfigurationError`."""
    if not isinstance(name, str) or not name or name.startswith("."):
        raise ConfigurationError(f"the default partition is called {name!r}; its name must not be hidden")
    return name


def check_values(columns: Sequence[str], values: Sequence[object]) -> None:
    """Raises :class:`PartitionPathError` for a value that cannot name a directory."""
    for column, value in zip(columns, values, strict=True):
        if value is not None and not isinstance(value, _SCALARS):
            raise PartitionPathError(
                f"column {column!r} is {value!r} of type {type(value).__name__}; a partition is named by text, a"
                " number or a date"
            )


class NoPartitionError(RecordError):
    """A record does not name a partition of the table, or names a refused one."""


class PartitionColumns:
    """Splits the columns of a record into path columns and row columns.

    ``columns``    of records that are tuples or lists, without those of the static partition; records that are dicts
                   need none;
    ``partition``  the columns in the path, in their order;
    ``static``     their values that are known beforehand;
    ``default_name``  the name of null and the empty text in the path;
    ``check``      is called with each new path; its ``ValueError`` refuses the record;
    ``text_of``    is called with a column and its value, and returns the text for the path or raises ``ValueError``; by
                   default ``str`` of the value.
    """

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        partition: Sequence[str] = (),
        static: Mapping[str, object] | None = None,
        default_name: str = DEFAULT_PARTITION_NAME,
        check: Callable[[str], object] | None = None,
        text_of: TextInPath | None = None,
    ) -> None:
        self._text_of = text_of
        self.partition = check_columns(partition) if partition else ()
        self.static = dict(static or {})
        self._default_name = checked_default(default_name)
        self._check = check
        self._columns = None if columns is None else [name for name in columns if name not in self.static]
        _check_static(self.partition, self.static, self._columns)
        self._dynamic = [name for name in self.partition if name not in self.static]
        self._may_be_quick = bool(self._dynamic) and not self.static
        self._paths: dict[tuple[object, ...], str] = {}
        if self._columns is not None:
            self._places = [self._columns.index(name) for name in self._dynamic]
            self._kept = [place for place, name in enumerate(self._columns) if name not in self._dynamic]

    def path_of(self, values: Sequence[object]) -> str:
        """The partition whose dynamic columns have these values. Raises :class:`PartitionPathError`."""
        check_values(self._dynamic, values)
        given = iter(values)
        everything = [self.static[name] if name in self.static else next(given) for name in self.partition]
        if (text_of := self._text_of) is not None:
            pairs = zip(self.partition, everything, strict=True)
            everything = [value if value is None else text_of(name, value) for name, value in pairs]
        path = partition_directory(self.partition, everything, self._default_name)
        if self._check is not None:
            self._check(path)
        return path

    def split(self, records: Sequence[Any]) -> tuple[list[str], list[Any]]:
        """The partition of each record, and its row without the columns that are in the path. Raises
        :class:`NoPartitionError`."""
        if not self.partition and self._columns is None:
            return [""] * len(records), list(records)
        if self._may_be_quick and {*map(type, records)} == {dict}:
            rows = [record.copy() for record in records]
            if (known_paths := self._paths_of_dicts(rows, dict.pop)) is not None:
                return known_paths, rows
        self._forget_if_many()
        partitions: list[str] = []
        rows = []
        paths = self._paths
        try:
            for record in records:
                values, row = self._take_apart(record)
                known = _known_as(values)
                path = paths.get(known)
                if path is None:
                    path = paths[known] = self.path_of(values)
                partitions.append(path)
                rows.append(row)
        except Exception as error:
            raise NoPartitionError(len(rows), records[len(rows)], error) from error
        return partitions, rows

    def _forget_if_many(self) -> None:
        if len(self._paths) > _MAX_KNOWN:
            self._paths.clear()

    def paths_of(self, records: Sequence[Any]) -> list[str]:
        """The partition of each record alone."""
        quick = self._may_be_quick and {*map(type, records)} == {dict}
        paths = self._paths_of_dicts(records, dict.__getitem__) if quick else None
        return self.split(records)[0] if paths is None else paths

    def _paths_of_dicts(self, records: Sequence[Any], take: Any) -> list[str] | None:
        """The same, but faster, if all records have all columns; ``None`` if not. ``take``: reads a column, or removes
        it from the record."""
        dynamic, paths = self._dynamic, self._paths
        self._forget_if_many()
        try:
            columns = [list(map(take, records, repeat(name))) for name in dynamic]
            texts, types = [map(str, column) for column in columns], [map(type, column) for column in columns]
            keys: list[tuple[object, ...]] = list(zip(*texts, *types, strict=True))
            for key, values in dict(zip(keys, zip(*columns, strict=True), strict=True)).items():
                if key not in paths:
                    paths[key] = self.path_of(values)
        except Exception:
            # The slower way, record by record, finds the bad one.
            return None
        return [paths[key] for key in keys]

    def _take_apart(self, record: Any) -> tuple[tuple[object, ...], Any]:
        if isinstance(record, dict):
            missing = [name for name in self._dynamic if name not in record]
            if missing:
                raise PartitionPathError(
                    f"the record has no partition column {', '.join(map(repr, missing))}; it has "
                    f"{', '.join(map(repr, record))}"
                )
            for name, value in self.static.items():
                if name in record and record[name] != value:
                    raise ValueError(f"column {name!r} is {record[name]!r}, but all records go to {name}={value}")
            values = tuple([record[name] for name in self._dynamic])
            return values, {name: value for name, value in record.items() if name not in self.partition}
        if not isinstance(record, (tuple, list)):
            raise TypeError(f"a record with columns is a dict, a tuple or a list, not {type(record).__name__}")
        if self._columns is None:
            raise TypeError(f"the record is a {type(record).__name__}: give columns=, the names of its values")
        if len(record) != len(self._columns):
            raise ValueError(f"the record has {len(record)} values, for the columns {', '.join(self._columns)}")
        return tuple([record[place] for place in self._places]), tuple([record[place] for place in self._kept])


def _known_as(values: tuple[object, ...]) -> tuple[object, ...]:
    """A key for values that go to the same directory, or are refused alike. Equal values may differ in this: the
    decimals 1.0 and 1.00 have different texts, and so have equal instants of two time zones."""
    return (*map(str, values), *map(type, values))


def _check_static(partition: tuple[str, ...], static: Mapping[str, object], columns: list[str] | None) -> None:
    unknown = [name for name in static if name not in partition]
    if unknown:
        raise ConfigurationError(f"{unknown[0]!r} has a static value but is no partition column")
    try:
        check_values(list(static), list(static.values()))
    except PartitionPathError as error:
        raise ConfigurationError(f"static_partition cannot be: {error}") from None
    if columns is not None:
        missing = [name for name in partition if name not in static and name not in columns]
        if missing:
            raise ConfigurationError(f"partition column {missing[0]!r} is none of the columns {', '.join(columns)}")


def partition_key(
    columns: Sequence[str], default_name: str, text_of: TextInPath | None = None
) -> Callable[[Any], str]:
    """A function of a record, which is a dict: the path of its partition."""
    paths = PartitionColumns(None, columns, None, default_name, text_of=text_of)
    return lambda record: paths.paths_of([record])[0]


class PartitionAssigner(BucketAssigner):
    """The partition of a record, which is a dict, as its bucket.

    ``checks``   are called with each new partition before anything is written to it; an error refuses the record;
    ``text_of``  see :class:`PartitionColumns`.
    """

    def __init__(
        self,
        columns: Sequence[str],
        default_name: str = DEFAULT_PARTITION_NAME,
        checks: Sequence[Callable[[str], object]] = (),
        text_of: TextInPath | None = None,
    ) -> None:
        self.columns = check_columns(columns)
        check = (lambda path: [check(path) for check in checks]) if checks else None
        self._paths = PartitionColumns(None, self.columns, None, default_name, check, text_of)

    def bucket_of(self, record: Any, context: BucketContext) -> str:
        """The path of the partition. Raises :class:`RecordError` for a record without one."""
        return self._paths.paths_of([record])[0]

    def buckets_of(self, batch: Batch, processing_time_ms: int, watermark_ms: int) -> str | list[str]:
        """The partition of each record, or one text if all have the same. Raises :class:`RecordError`."""
        try:
            paths = self._paths.paths_of(batch.values)
        except RecordError as error:
            if isinstance(error.record, dict):
                raise
            kind = type(error.record).__name__
            wanted = f"the record is a {kind}; a table partitioned by columns takes dicts, so map it to one"
            raise RecordError(error.position, error.record, PartitionPathError(wanted)) from error
        return paths[0] if paths.count(paths[0]) == len(paths) else paths


def without(columns: Sequence[str], batch: Batch) -> Batch:
    """The records of ``batch`` without ``columns``."""
    left_out = dict.fromkeys(columns)
    return Batch(
        [{key: value for key, value in record.items() if key not in left_out} for record in batch.values],
        batch.timestamps,
        batch.keys,
    )
