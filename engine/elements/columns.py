"""The columnar batch: records as numpy arrays, one per field, that flow wherever row batches flow.

A record of a columnar batch is, as a row, a ``dict`` from the name of each column to a plain Python value. So rows and
columns turn into each other without a schema. The ``values`` of a columnar batch are rows (made once); an operator that
needs columns of a row batch takes them from its dicts. Records in flight are stored as rows.

A column has one of five types; arrays of other types are brought to these or refused:

| type    | array                   | as a row | taken from                                       |
|---------|-------------------------|----------|--------------------------------------------------|
| BIGINT  | ``int64``               | ``int``  | integers that fit, signed or not                 |
| DOUBLE  | ``float64``             | ``float``| floats of 16, 32 and 64 bits                     |
| BOOLEAN | ``bool``                | ``bool`` |                                                  |
| STRING  | ``object``, all ``str`` | ``str``  | ``str`` and fixed-width text, Arrow strings      |
| BYTES   | ``object``, all ``bytes`` | ``bytes`` | ``bytes``, Arrow binary                       |

There are no nulls. Arrays in a batch are read-only views: operators share them. As with rows, the size of a batch has
no meaning: it may be cut at any record, so a function over columns must work record by record (elementwise).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.elements.batch import Batch
from engine.elements.errors import shorten
from state_backends.base import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Column = Any
"""A numpy array of one of the five types."""


class ColumnError(ValueError):
    """Columns cannot be made of the given values; the message says which and why."""


class ColumnBatch(Batch):
    """Records in order, as parallel arrays of equal length.

    ``columns``            the fields, in order;
    ``timestamp_column``   event times in ms since the epoch (``int64``), or ``None``;
    ``key_column``         the key of each record, or ``None`` when the stream is not keyed.

    ``values``, ``timestamps`` and ``keys`` are those of the same records as a row batch.
    """

    __slots__ = ("_keys", "_rows", "_stamps", "columns", "key_column", "timestamp_column")

    def __init__(
        self,
        columns: dict[str, Column],
        count: int,
        timestamp_column: Column | None = None,
        key_column: Column | None = None,
    ) -> None:
        """A batch of checked columns (see :func:`checked_columns`) of ``count`` records; there may be no column."""
        self.columns = columns
        self.timestamp_column = timestamp_column
        self.key_column = key_column
        self.size = count
        self._rows: list[Any] | None = None
        self._stamps: list[int] | None = None
        self._keys: list[Any] | None = None

    def __len__(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[type[ColumnBatch], tuple[Any, ...]]:
        # An exhaustive check copies batches in flight. The slots of a row batch are properties here, and cannot be set.
        return ColumnBatch, (self.columns, self.size, self.timestamp_column, self.key_column)

    def __repr__(self) -> str:
        return f"ColumnBatch({self.size} records, columns {', '.join(self.columns)})"

    @property
    def values(self) -> list[Any]:  # type: ignore[override]
        """The records as rows."""
        if self._rows is None:
            names = tuple(self.columns)
            fields = [column.tolist() for column in self.columns.values()]
            self._rows = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
            if not names:
                self._rows = [{} for _ in range(self.size)]
        return self._rows

    @property
    def timestamps(self) -> list[int] | None:  # type: ignore[override]
        """The event times as ints."""
        if self._stamps is None and self.timestamp_column is not None:
            self._stamps = self.timestamp_column.tolist()
        return self._stamps

    @property
    def keys(self) -> list[Any] | None:  # type: ignore[override]
        """The keys as plain values."""
        if self._keys is None and self.key_column is not None:
            self._keys = self.key_column.tolist()
        return self._keys

    def split(self, at: int) -> tuple[Batch, Batch]:
        """The records before and from position ``at`` (``0 < at < len``), as two batches. Nothing is copied."""
        assert 0 < at < self.size, (at, self.size)
        return self.between(0, at), self.between(at, self.size)

    def take(self, positions: Sequence[int]) -> Batch:
        """The records at ``positions``, in that order. Those of a range are not copied."""
        if isinstance(positions, range):
            assert positions.step > 0
            return self._each(slice(positions.start, positions.stop, positions.step), len(positions))
        return self.select(np.asarray(positions, dtype=np.intp))

    def between(self, start: int, stop: int) -> ColumnBatch:
        """The records from position ``start`` up to ``stop``."""
        return self._each(slice(start, stop), stop - start)

    def select(self, positions: NDArray[np.intp]) -> ColumnBatch:
        """The records at ``positions``, an array."""
        return self._each(positions, len(positions))

    def with_columns(self, columns: dict[str, Column]) -> ColumnBatch:
        """The same records with other fields, and without keys: the fields that keys were taken from may differ."""
        return ColumnBatch(columns, self.size, self.timestamp_column)

    def with_keys(self, key_column: Column) -> ColumnBatch:
        """The same records, keyed."""
        return ColumnBatch(self.columns, self.size, self.timestamp_column, key_column)

    def _each(self, chosen: Any, count: int) -> ColumnBatch:
        stamps, keys = self.timestamp_column, self.key_column
        columns = {name: column[chosen] for name, column in self.columns.items()}
        field = self.key_field
        return ColumnBatch(
            columns,
            count,
            None if stamps is None else stamps[chosen],
            columns[field] if field is not None else None if keys is None else keys[chosen],
        )

    @property
    def key_field(self) -> str | None:
        """The field whose column is the keys themselves."""
        keys = self.key_column
        if keys is None:
            return None
        return next((name for name, column in self.columns.items() if column is keys), None)


def concatenated(batches: Sequence[ColumnBatch]) -> ColumnBatch:
    """The records of several batches with the same columns; event times only if all have some. Without keys."""
    stamps = [batch.timestamp_column for batch in batches if batch.timestamp_column is not None]
    return ColumnBatch(
        {name: np.concatenate([batch.columns[name] for batch in batches]) for name in batches[0].columns},
        sum(map(len, batches)),
        np.concatenate(stamps) if len(stamps) == len(batches) else None,
    )


def positions_by_target(targets: Sequence[int], count: int) -> list[tuple[int, NDArray[np.intp]]]:
    """For each of ``count`` targets that occurs, ascending: the positions of that target, ascending."""
    # Stable sorts of 16-bit integers are radix sorts: linear in the number of records.
    array = np.asarray(targets, dtype=np.uint16 if count <= 1 << 16 else np.int64)
    order = np.argsort(array, kind="stable")
    ends = np.cumsum(np.bincount(array, minlength=count)).tolist()
    starts = [0, *ends[:-1]]
    return [
        (target, order[start:end]) for target, (start, end) in enumerate(zip(starts, ends, strict=True)) if end > start
    ]


def column_type(column: Column) -> str:
    """The name of a checked column's type."""
    if column.dtype == np.int64:
        return "BIGINT"
    if column.dtype == np.float64:
        return "DOUBLE"
    if column.dtype == np.bool_:
        return "BOOLEAN"
    return "BYTES" if len(column) and type(column[0]) is bytes else "STRING"


def checked_columns(columns: object, count: int | None = None) -> tuple[dict[str, Column], int]:
    """Columns as they may stand in a batch, and how many records they have.

    :param columns: a mapping from names to arrays or sequences, or something with ``column_names`` and ``column(name)``
        such as a ``pyarrow.Table`` or ``RecordBatch``
    :param count: how many records there must be
    :raises ColumnError: when they are of different length, or one has a type that columns cannot have
    """
    if hasattr(columns, "column_names") and hasattr(columns, "column"):
        columns = {name: columns.column(name) for name in columns.column_names}
    if not isinstance(columns, Mapping):
        raise ColumnError(f"columns are a dict from names to arrays, got {type(columns).__name__}")
    checked: dict[str, Column] = {}
    for name, column in columns.items():
        if type(name) is not str:
            raise ColumnError(f"the name of a column is a str, got {name!r}")
        checked[name] = array = checked_column(name, column)
        if count is None:
            count = len(array)
        if len(array) != count:
            raise ColumnError(f"column {name!r} has {len(array)} records where there are {count}")
    return checked, count or 0


def checked_column(name: str, column: object) -> Column:
    """One column as it may stand in a batch: a read-only array of one of the five types.

    :raises ColumnError: when that is not possible without a loss
    """
    if getattr(column, "null_count", 0):
        raise ColumnError(f"column {name!r} holds nulls, which no column can: fill them with some value")
    if isinstance(column, np.ndarray):
        array = column
    elif isinstance(column, (list, tuple)):
        return column_of_values(name, column)
    elif hasattr(column, "to_numpy"):
        # An Arrow array, chunked or not. One with another layout than a numpy array is converted.
        array = np.asarray(column.to_numpy(zero_copy_only=False))
        if str(getattr(column, "type", "")) in ("string", "binary"):
            # Of one type already, so that no item needs a look.
            array.flags.writeable = False
            return array
    else:
        raise ColumnError(f"column {name!r} is a {type(column).__name__}, not an array or a list")
    if array.ndim != 1:
        raise ColumnError(f"column {name!r} has {array.ndim} dimensions; it must have one, an item for each record")
    if isinstance(array, np.ma.MaskedArray):
        raise ColumnError(f"column {name!r} is a masked array, and columns hold no nulls: fill it")
    array = _of_known_type(name, array).view()
    array.flags.writeable = False
    return array


def _of_known_type(name: str, array: NDArray[Any]) -> Column:
    kind = array.dtype.kind
    if array.dtype in (np.int64, np.float64, np.bool_) and array.dtype.isnative:
        return array
    if kind == "i" or (kind == "u" and (array.dtype.itemsize < 8 or not len(array) or int(array.max()) < 2**63)):
        return array.astype(np.int64)
    if kind == "f" and array.dtype.itemsize <= 8:
        return array.astype(np.float64)
    if kind == "U":
        return array.astype(object)
    if kind == "O":
        kinds = set(map(type, array))
        if kinds <= {str} or kinds == {bytes}:
            return array
        return column_of_values(name, array.tolist())
    what = "integers beyond 64 bits with a sign" if kind == "u" else f"{array.dtype} items"
    raise ColumnError(
        f"column {name!r} has {what}; a column is of 64-bit integers, floats, bools, str or bytes: convert it, dates "
        "for instance to whole ms"
    )


def column_of_values(name: str, values: Sequence[Any]) -> Column:
    """The column of some plain Python values, all of one type.

    :raises ColumnError: naming the first value that is not like the others, or that no column can hold
    """
    kinds = dict.fromkeys(map(type, values))
    if len(kinds) > 1:
        first = type(values[0])
        other = next(one for one in values if type(one) is not first)
        raise ColumnError(
            f"column {name!r} has {shorten(values[0])} of type {first.__name__} and {shorten(other)} of type "
            f"{type(other).__name__}; a column has one type: convert them before"
        )
    kind = next(iter(kinds), str)
    if kind is int:
        try:
            array = np.array(values, dtype=np.int64)
        except OverflowError:
            wide = next(one for one in values if not -(2**63) <= one < 2**63)
            raise ColumnError(f"column {name!r} has {wide}, which does not fit 64 bits") from None
    elif kind in (float, bool):
        array = np.array(values, dtype=np.dtype(kind))
    elif kind in (str, bytes):
        array = np.empty(len(values), dtype=object)
        array[:] = values
    else:
        raise ColumnError(
            f"column {name!r} has {shorten(values[0])} of type {kind.__name__}; a column holds int, float, bool, str "
            "or bytes, and no nulls"
        )
    array.flags.writeable = False
    return array


def key_column_of(keys: Sequence[Any]) -> Column:
    """The keys of a row batch, all of one type that keys may have, as a key column."""
    if keys and type(keys[0]) is int:
        return column_of_values("key", keys)
    array = np.empty(len(keys), dtype=object)
    for position, key in enumerate(keys):
        array[position] = key
    return array


def as_columns(batch: Batch) -> ColumnBatch:
    """The records of a batch as columns: itself, or made from its rows, all of them dicts with the same names.

    :raises ColumnError: when its rows are of another form
    """
    if isinstance(batch, ColumnBatch):
        return batch
    rows = batch.values
    names = _names_of(rows)
    columns = {name: column_of_values(name, [row[name] for row in rows]) for name in names}
    stamps, keys = batch.timestamps, batch.keys
    return ColumnBatch(
        columns,
        len(rows),
        None if stamps is None else np.array(stamps, dtype=np.int64),
        None if keys is None else key_column_of(keys),
    )


def _names_of(rows: list[Any]) -> tuple[str, ...]:
    if not rows:
        return ()
    if type(rows[0]) is not dict:
        raise ColumnError(
            f"record {shorten(rows[0])} is a {type(rows[0]).__name__}, and columns are made of dicts\n"
            "  fix: put .to_columns(...) before, which names the fields of other records"
        )
    names = tuple(map(str, rows[0]))
    wanted = rows[0].keys()
    for row in rows:
        if type(row) is not dict or row.keys() != wanted:
            raise ColumnError(f"record {shorten(row)} has other fields than the first one: {', '.join(names)}")
    return names
