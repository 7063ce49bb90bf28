"""The file of a sweep: each row is written as its case ends, so that an interrupted sweep goes on.

While a sweep runs, rows are appended to a journal of JSON lines, whose first line says which study they are of. A line
that was cut off by a crash is dropped. When the sweep has ended, the rows become the file itself: Parquet, or the
journal as it is when the name ends with ``.jsonl``. The file says of which study it is, too.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, NoReturn

from engine.elements.errors import MissingDependencyError, StorageError

SCHEMA, SCHEMA_VERSION = "weir-sweep", 1
_METADATA = b"weir"
_AS_JSON = "as_json"
"""In the header of a Parquet file: the columns whose values are of several types."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudyIdentity:
    """What decides the rows besides the arguments. ``source``: a digest of the program text of the study."""

    study: str
    source: str
    weir_version: str
    arguments: tuple[str, ...]

    def header(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self), "arguments": [*self.arguments]}


class ResultsFile:
    """Rows of one study, in the file at ``path``. A context manager: it is locked while a sweep writes to it."""

    def __init__(self, path: str | os.PathLike[str], identity: StudyIdentity) -> None:
        self._path = os.fspath(path)
        if not self._path.endswith((".parquet", ".jsonl")):
            raise StorageError(f"{self._path}: the name of a results file ends with .parquet or .jsonl; change it")
        self._is_parquet = self._path.endswith(".parquet")
        if self._is_parquet:
            _arrow(self._path)
        self._journal = f"{self._path}.journal" if self._is_parquet else self._path
        self._identity = identity
        self._lock = -1
        self._is_void = False
        """Whether the journal has no row that the file itself lacks. It is deleted then, and belongs to no study."""

    @property
    def place(self) -> str:
        """The file that has rows now: the journal, until a sweep has ended."""
        return self._path if os.path.exists(self._path) else self._journal

    def __enter__(self) -> list[Row]:
        """The rows that it has. Raises :class:`StorageError` when they are of another study or version, or the file
        cannot be written."""
        try:
            os.makedirs(os.path.dirname(self._path) or ".", exist_ok=True)
            self._lock = os.open(self._journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self._begin()
        except BlockingIOError:
            self._close()
            raise StorageError(
                f"{self._path}: another sweep writes to it; wait for its end, or give another file"
            ) from None
        except BaseException:
            self._close()
            raise

    def _begin(self) -> list[Row]:
        self._is_void = os.fstat(self._lock).st_size == 0
        rows: list[Row] = []
        if self._is_parquet and os.path.exists(self._path):
            whole, rows = _read_parquet(self._path)
            self._check(self._path, whole)
        header, journaled, length = _read_journal(self._journal)
        self._is_void = not journaled
        if journaled:
            assert header is not None
            self._check(self._journal, header)
            os.ftruncate(self._lock, length)
        else:
            os.ftruncate(self._lock, 0)
            self._write(self._identity.header())
        return [*rows, *journaled]

    def _check(self, path: str, header: Mapping[str, Any]) -> None:
        ours = self._identity.header()
        for name, what in (
            ("weir_version", "of Weir {theirs}, and this is {ours}"),
            ("study", "of study {theirs!r}, and this is {ours!r}"),
            ("arguments", "of a study with the arguments {theirs}, and this one has {ours}"),
            ("source", "of another version of the study: its program text has changed"),
        ):
            if header.get(name) != ours[name]:
                told = what.format(theirs=_plain(header.get(name)), ours=_plain(ours[name]))
                raise StorageError(
                    f"{path}: holds results {told}\n  fix: give another file, or delete this one to begin again"
                )

    def add(self, row: Row) -> None:
        """One more row, durable when this returns."""
        self._write(row)
        self._is_void = False

    def _write(self, value: Mapping[str, Any]) -> None:
        left = json.dumps(value).encode() + b"\n"
        try:
            # A disk that is full takes a part.
            while left:
                left = left[os.write(self._lock, left) :]
            os.fsync(self._lock)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> StorageError:
        where = f"{error.filename}: " if error.filename else ""
        return StorageError(
            f"{self._path}: cannot be written: {where}{error.strerror}\n"
            "  fix: make room for it, or give a file in a directory where you may write"
        )

    def finish(self, rows: Sequence[Row]) -> None:
        """The sweep has ended with these rows."""
        if not self._is_parquet:
            return
        unfinished = f"{self._path}.unfinished"
        try:
            _write_parquet(unfinished, self._identity.header(), rows)
            os.replace(unfinished, self._path)
        except OSError as error:
            with suppress(OSError):
                os.unlink(unfinished)
            raise self._unwritable(error) from error
        self._is_void = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        # Before the lock goes: another sweep may begin with the file.
        if self._is_void:
            os.unlink(self._journal)
        os.close(self._lock)


def _plain(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def read_results(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Row]]:
    """The header and the rows of a results file, also of a sweep that was interrupted."""
    path = os.fspath(path)
    journal = f"{path}.journal"
    if not (os.path.exists(path) or os.path.exists(journal)):
        raise StorageError(f"{path}: there is no such results file; weir sweep --out writes one")
    header: dict[str, Any] | None = None
    rows: list[Row] = []
    if path.endswith(".parquet"):
        if os.path.exists(path):
            header, rows = _read_parquet(path)
        path = journal
    if os.path.exists(path):
        journal_header, journaled, _ = _read_journal(path)
        header, rows = header or journal_header, [*rows, *journaled]
    if header is None:
        raise StorageError(f"{path}: is empty; run the sweep again")
    # A case whose process died has another row after it has run again.
    newest = {json.dumps([row[name] for name in header["arguments"]]): row for row in rows}
    return header, list(newest.values())


def _read_journal(path: str) -> tuple[dict[str, Any] | None, list[Row], int]:
    """Header, rows, and the length of what is whole."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; give another file") from error
    length = content.rfind(b"\n") + 1
    lines = content[:length].splitlines()
    if not lines:
        if content and not f'{{"schema": "{SCHEMA}"'.encode().startswith(content[:20]):
            _foreign(path)
        return None, [], 0
    try:
        values = [json.loads(line) for line in lines]
    except ValueError:
        _foreign(path)
    if not all(isinstance(value, dict) for value in values):
        _foreign(path)
    _check_schema(path, values[0])
    return values[0], values[1:], length


def _check_schema(path: str, header: Mapping[str, Any]) -> None:
    if header.get("schema") != SCHEMA:
        _foreign(path)
    if header.get("schema_version") != SCHEMA_VERSION:
        raise StorageError(
            f"{path}: has version {header.get('schema_version')} of the format, and this Weir reads {SCHEMA_VERSION};"
            " read it with the Weir that wrote it, or give another file"
        )


def _foreign(path: str) -> NoReturn:
    raise StorageError(f"{path}: is not a results file of a sweep, or it is damaged; give another file")


def _arrow(path: str) -> Any:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"{path}: Parquet needs pyarrow; run: pip install 'weirstream[parquet]', or name the file .jsonl"
        ) from error
    return pyarrow


def _read_parquet(path: str) -> tuple[dict[str, Any], list[Row]]:
    arrow = _arrow(path)
    try:
        table = arrow.parquet.read_table(path)
        header = json.loads((table.schema.metadata or {})[_METADATA])
    except (arrow.ArrowException, KeyError, ValueError, OSError):
        _foreign(path)
    _check_schema(path, header)
    rows = table.to_pylist()
    for name in header.pop(_AS_JSON, ()):
        for row in rows:
            row[name] = json.loads(row[name])
    return header, rows


def _write_parquet(path: str, header: Mapping[str, Any], rows: Sequence[Row]) -> None:
    arrow = _arrow(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns, as_json = dict[str, Any](), list[str]()
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = arrow.array(values)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError):
            # Numbers beyond 64 bits, or numbers in one case and texts in another: read again, each is what it was, so
            # its case has its row.
            columns[name] = arrow.array(list(map(json.dumps, values)))
            as_json.append(name)
    header = {**header, _AS_JSON: as_json}
    table = arrow.table(columns).replace_schema_metadata({_METADATA: json.dumps(header).encode()})
    with open(path, "wb") as file:
        arrow.parquet.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
