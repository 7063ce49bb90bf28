"""The common part of formats whose files hold blocks of records, such as Avro and ORC, and of their readers.

A position is ``(block, records after its beginning, checksum)``; the checksum is that of what makes the file this file,
its header or footer. A file with another one is another file, and refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

from engine.elements.batch import Batch
from engine.elements.errors import ConfigurationError, StateError
from engine.elements.source import SourceContext
from operators.files.formats import CorruptFileError
from operators.files.reading.splits import FileSplitReader, SplitRange, position_behind
from state_backends.base import number, row, whole

BLOCK_POSITION = row(number, whole, whole)


class RecordInputFormat:
    """The options of such a format.

    ``columns``     the columns to read, in order; ``None``: all;
    ``record``      ``"dict"`` or ``"tuple"``;
    ``prepared``    is called with each record as a dict, and returns what is emitted; a ``ValueError`` names the file;
    ``on_corrupt``  ``"fail"``, or ``"skip"`` = leave out blocks that cannot be read, and count them.
    """

    kind = ""
    """Its name in errors."""
    position_shape = staticmethod(BLOCK_POSITION)

    def __init__(
        self,
        columns: Sequence[str] | None = None,
        *,
        record: Literal["dict", "tuple"] = "dict",
        prepared: Callable[[dict[str, Any]], Any] | None = None,
        on_corrupt: Literal["fail", "skip"] = "fail",
    ) -> None:
        if isinstance(columns, str):
            raise ConfigurationError(f"columns={columns!r}: give a list of names")
        if record not in ("dict", "tuple"):
            raise ConfigurationError(f"record must be 'dict' or 'tuple', got {record!r}")
        if on_corrupt not in ("fail", "skip"):
            raise ConfigurationError(f"on_corrupt must be 'fail' or 'skip', got {on_corrupt!r}")
        self.columns = None if columns is None else tuple(columns)
        self.record = record
        self.prepared = prepared
        self.on_corrupt = on_corrupt

    def shaped(self, record: dict[str, Any], path: str) -> Any:
        """A record of the file ``path`` as it is emitted. Raises :class:`CorruptFileError` when it does not fit."""
        if self.columns is not None:
            record = {name: record[name] for name in self.columns}
        if self.prepared is not None:
            return prepared_record(self.prepared, record, path, self.kind)
        return tuple(record.values()) if self.record == "tuple" else record


def prepared_record(prepared: Callable[[dict[str, Any]], Any], record: dict[str, Any], path: str, kind: str) -> Any:
    """``prepared(record)``. Raises :class:`CorruptFileError` for a record that does not fit."""
    try:
        return prepared(record)
    except ValueError as error:
        raise CorruptFileError(path, kind, f"a record does not fit the table: {error}") from error


class BlockReader(FileSplitReader, ABC):
    """Reads the blocks of one split in order. ``counter``: counts blocks that were left out."""

    counter = ""

    def __init__(self, format: RecordInputFormat, file: Any, split: SplitRange, context: SourceContext) -> None:
        super().__init__(file, split, context)
        self._format = format
        self._checksum = 0
        self._block = -1
        """The block in hand; none has been read yet."""
        self._records: list[Any] = []
        self._taken = 0

    @abstractmethod
    def _next_block(self) -> tuple[int, Callable[[], list[dict[str, Any]]]] | None:
        """Place of the next block, and a function that reads its records; ``None`` after the last one. The function
        raises :class:`CorruptFileError` for records that cannot be read: the block after them can be found."""

    @abstractmethod
    def _resume_at(self, block: int) -> None:
        """Let ``block`` be the next one."""

    def _restore(self, position: Any, what: str) -> None:
        """Go on after ``position``. ``what`` says in the error how another file is recognized."""
        block, records, checksum = position
        if checksum != self._checksum:
            raise self._changed(what)
        if block < 0:
            return
        self._resume_at(block)
        found = self._next_block()
        is_whole = found is not None and self._take(*found)
        if found is None or (is_whole and records > len(self._records)):
            raise StateError(
                f"file {self._path!r} of source {self._context.name!r}: the checkpoint says that {records} records"
                f" of the block {block} were read, which has {len(self._records)}\n"
                "  go on from another checkpoint, or start without one"
            )
        if is_whole:
            # Of a block that has become unreadable since, the rest is left out, and nothing of the next one.
            self._taken = records

    def _load(self) -> bool:
        """Read the next block with records; false at the end of the split."""
        while (found := self._next_block()) is not None:
            if self._take(*found):
                return True
        return False

    def _take(self, place: int, read: Callable[[], list[dict[str, Any]]]) -> bool:
        """Have the records of a block in hand; false when there are none, or they cannot be read and are left out."""
        self._block, self._records, self._taken = place, [], 0
        try:
            records = read()
        except CorruptFileError:
            if self._format.on_corrupt == "fail":
                raise
            self._context.count(self.counter)
            return False
        # A record that does not fit the table is no damage: it is an error even where blocks are left out.
        shaped, path = self._format.shaped, self._path
        self._records = [shaped(one, path) for one in records]
        return bool(records)

    def ready(self) -> int:
        """How many records are sure to come next, at least one before the end of the split."""
        if self._taken == len(self._records) and not self._load():
            return 0
        return len(self._records) - self._taken

    def read(self, max_records: int) -> Batch | None:
        if not self.ready():
            return None
        start, self._taken = self._taken, min(self._taken + max_records, len(self._records))
        return Batch(self._records[start : self._taken])

    def position(self) -> tuple[int, int, int]:
        if self._block < 0:
            return (-1, 0, self._checksum)
        return (*position_behind(self._block, 0, self._taken - 1), self._checksum)
