"""The rows that wait in a Spark transform until their batch is cut: as they came, in rows or in columns.

Columns stay columns, on their way into state, too: no Python object is made for a record. Pieces that came in both
forms become rows when they are taken, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.elements.batch import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, Batch
from engine.elements.columns import ColumnBatch, checked_columns
from spark_bridge.canonical import python_rows
from spark_bridge.cuts import Period
from spark_bridge.errors import SparkBridgeError
from spark_bridge.period_column import Rows, is_table
from state_backends.api import OperatorListState, OperatorStateBackend
from state_backends.base import binary, np, number, row as row_of, text, values

_ROWS_STATE = "spark-rows"
_COLUMNS_STATE = "spark-columns"
# The period of waiting rows whose cut does not use event time.
EVERYTHING = Period(MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS, "rows")

_NOTHING = Period(0, 0, "")

PeriodAt = Callable[[Any, int], Period]
"""The period of a row with its event time."""
Owned = Callable[[Batch], Batch]
"""The records of a restored batch that belong to this subtask."""


class PeriodRows:
    """The rows of one period, in pieces."""

    __slots__ = ("_pieces", "_tables")

    def __init__(self) -> None:
        self._pieces: list[list[Any] | ColumnBatch] = []
        self._tables: list[Any] = []
        """The first pieces as ``pyarrow.Table``, as far as they were asked for: each checkpoint asks for all again."""

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def add(self, batch: Batch) -> None:
        """Append the records of a batch."""
        if isinstance(batch, ColumnBatch):
            self._pieces.append(ColumnBatch(batch.columns, len(batch)))
        else:
            self.open_rows().extend(batch.values)

    def open_rows(self) -> list[Any]:
        """The list to which the next rows can be appended."""
        last = self._pieces[-1] if self._pieces else None
        if not isinstance(last, list):
            last = []
            self._pieces.append(last)
        return last

    def rows(self) -> list[Any]:
        """All of them as rows."""
        return [row for piece in self._pieces for row in (piece if isinstance(piece, list) else piece.values)]

    def taken(self) -> Rows:
        """All of them: a ``pyarrow.Table`` if all came in columns, else rows."""
        columns = self.columns()
        return self.rows() if columns is None else columns

    def columns(self) -> Any:
        """A ``pyarrow.Table``; ``None`` when some came as rows, or columns have other names than before."""
        pieces = [piece for piece in self._pieces if isinstance(piece, ColumnBatch)]
        if not pieces or len(pieces) < len(self._pieces) or len({(*piece.columns,) for piece in pieces}) > 1:
            return None
        import pyarrow as pa

        # Piece by piece: one that is empty, or of another type, has no say in the type of the others.
        for piece in pieces[len(self._tables) :]:
            self._tables.append(pa.table({name: pa.array(column) for name, column in piece.columns.items()}))
        if len({table.schema for table in self._tables}) > 1:
            return None
        return pa.concat_tables(self._tables)

    def first(self, count: int) -> PeriodRows:
        """Take the first ``count`` rows away."""
        found = PeriodRows()
        while len(found) < count:
            piece = self._pieces.pop(0)
            room = count - len(found)
            if len(piece) > room:
                piece, rest = _cut(piece, room)
                self._pieces.insert(0, rest)
                self._tables.clear()
            found.add(piece if isinstance(piece, ColumnBatch) else Batch(piece))
            if self._tables:
                found._tables.append(self._tables.pop(0))
        return found


def _cut(piece: list[Any] | ColumnBatch, at: int) -> tuple[Any, Any]:
    if isinstance(piece, ColumnBatch):
        return piece.between(0, at), piece.between(at, len(piece))
    return piece[:at], piece[at:]


class WaitingRows:
    """The periods with rows. ``is_shared``: subtasks share the rows by key, so each gets all of a checkpoint and keeps
    what ``owned`` gives."""

    def __init__(self, backend: OperatorStateBackend, name: str, *, owned: Owned | None = None) -> None:
        self._name = name
        self._periods: dict[int, tuple[Period, PeriodRows]] = {}
        declare = backend.list_state if owned is None else backend.union_list_state
        self._rows: OperatorListState = declare(_ROWS_STATE, row_of(number, number, text, values))
        self._columns: OperatorListState = declare(_COLUMNS_STATE, row_of(number, number, text, binary))
        for start_ms, end_ms, label, rows in self._rows.get():
            self._restore(Period(start_ms, end_ms, label), Batch(list(rows)), owned)
        for start_ms, end_ms, label, packed in self._columns.get():
            self._restore(Period(start_ms, end_ms, label), _unpacked(packed), owned)

    def _restore(self, period: Period, batch: Batch, owned: Owned | None) -> None:
        mine = batch if owned is None else owned(batch)
        if len(mine):
            self._periods.setdefault(period.start_ms, (period, PeriodRows()))[1].add(mine)

    def of(self, period: Period) -> PeriodRows:
        """The rows of a period, to add more.

        Raises :class:`SparkBridgeError` when rows wait in a period that overlaps.
        """
        entry = self._periods.get(period.start_ms)
        if entry is None or entry[0].end_ms != period.end_ms:
            self._check_apart(period)
            entry = self._periods[period.start_ms] = (period, PeriodRows())
        return entry[1]

    def _check_apart(self, period: Period) -> None:
        for other in self.periods():
            if other.start_ms < period.end_ms and period.start_ms < other.end_ms:
                raise SparkBridgeError(
                    f"{self._name}: rows wait in {other}, which overlaps {period}: the periods of one cut must "
                    "not overlap; after a change of the cut, give the operator another uid to begin without the rows "
                    "of its checkpoint"
                )

    def sort(self, batch: Batch, stamps: Any, period_at: PeriodAt, is_closed: Callable[[Period], bool]) -> list[int]:
        """Add the records of a batch to their periods. ``stamps``: their event times.

        Returns the positions of those that are late.
        """
        if isinstance(batch, ColumnBatch):
            return _sort_columns(self, batch, stamps, period_at, is_closed)
        return _sort_rows(self, batch, stamps, period_at, is_closed)

    def periods(self) -> list[Period]:
        """Oldest first."""
        return [period for _, (period, _) in sorted(self._periods.items())]

    def take(self, period: Period) -> PeriodRows:
        """Its rows wait no longer."""
        return self._periods.pop(period.start_ms)[1]

    def _filled(self) -> Iterator[tuple[Period, PeriodRows]]:
        return (entry for _, entry in sorted(self._periods.items()) if len(entry[1]))

    def snapshot(self) -> None:
        """Bring the state up to date."""
        rows: list[Any] = []
        columns: list[Any] = []
        for period, found in self._filled():
            place = [period.start_ms, period.end_ms, period.label]
            table = found.columns()
            if table is None:
                rows.append([*place, found.rows()])
            else:
                columns.append([*place, _packed(table)])
        self._rows.update(rows)
        self._columns.update(columns)

    def fingerprint(self) -> object:
        return tuple((period.start_ms, tuple(map(repr, found.rows()))) for period, found in self._filled())


def _sort_rows(
    waiting: WaitingRows, batch: Batch, stamps: Any, period_at: PeriodAt, is_closed: Callable[[Period], bool]
) -> list[int]:
    late: list[int] = []
    # Adjacent rows mostly share a period, so it is looked up only when it changes.
    period, rows = _NOTHING, late
    for position, (row, timestamp_ms) in enumerate(zip(batch.values, stamps, strict=True)):
        if not period.start_ms <= timestamp_ms < period.end_ms:
            period = period_at(row, timestamp_ms)
            rows = late if is_closed(period) else waiting.of(period).open_rows()
        rows.append(position if rows is late else row)
    return late


def _sort_columns(
    waiting: WaitingRows, batch: ColumnBatch, stamps: Any, period_at: PeriodAt, is_closed: Callable[[Period], bool]
) -> list[int]:
    late: list[int] = []
    left = np.arange(len(batch), dtype=np.intp)
    while len(left):
        at = int(left[0])
        period = period_at(batch.between(at, at + 1).values[0], int(stamps[at]))
        inside = (stamps[left] >= period.start_ms) & (stamps[left] < period.end_ms)
        mine, left = left[inside], left[~inside]
        if is_closed(period):
            late += mine.tolist()
        else:
            waiting.of(period).add(batch if len(mine) == len(batch) else batch.select(mine))
    return sorted(late)


def _packed(table: Any) -> bytearray:
    """One stream of one batch: its bytes do not tell how the columns came."""
    import pyarrow as pa

    whole = table.combine_chunks()
    counted = pa.MockOutputStream()
    _write_stream(counted, whole)
    # Of its size from the start: a buffer that grows copies what it holds, and is copied in the end.
    packed = bytearray(counted.size())
    _write_stream(pa.FixedSizeBufferWriter(pa.py_buffer(packed)), whole)
    return packed


def _write_stream(sink: Any, table: Any) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _unpacked(packed: bytes) -> ColumnBatch:
    import pyarrow as pa

    return ColumnBatch(*checked_columns(pa.ipc.open_stream(packed).read_all()))


def as_batch(results: Rows, timestamp_ms: int | None) -> Batch:
    """Results as records: a table in columns, if columns can hold it, else in rows; rows in rows."""
    if not is_table(results):
        return Batch(list(results), None if timestamp_ms is None else [timestamp_ms] * len(results))
    if not _fits_columns(results):
        return as_batch(python_rows(results), timestamp_ms)
    stamps = None if timestamp_ms is None else np.full(len(results), timestamp_ms, np.int64)
    return ColumnBatch(*checked_columns(results), stamps)


def _fits_columns(table: Any) -> bool:
    import pyarrow.types as kinds

    known = (
        kinds.is_signed_integer, kinds.is_floating, kinds.is_boolean, kinds.is_string, kinds.is_large_string,
        kinds.is_binary,
    )  # fmt: skip
    return all(not column.null_count and any(kind(column.type) for kind in known) for column in table.columns)
