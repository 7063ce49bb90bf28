"""Downstream readers of every sink, and what they may see: written without the sinks where the format is public.

A reader opens the output as a program would that does not know the job: visible files, tables, topics. It holds no lock
that the job knows of, and looks while the job writes, dies and recovers.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from operators.files.bucketing import read_bucketing_output, sequence_records
from operators.log.disk.log_reader import committed_records
from state_backends.files import LocalFileSystem
from tests.crash.jobs.sinks_job import COUNTS, LOG, METASTORE, SQLITE, TABLE, TOPIC, Row

OLD_HOUR, OLD_FILE = "old", "part-of-yesterday"
"""What lies in a table that is overwritten: a partition that stays, and a file in one that does not."""
OLD_ROWS = (Row(-1, -1, 1, OLD_HOUR), Row(-2, -1, 2, "00"))


class UnreachableError(Exception):
    """The system is not there now, so there is no output to see."""


class View(NamedTuple):
    """What a reader has seen at once; it was told of ``complete`` partitions *before* it read the rows."""

    rows: list[Row]
    complete: frozenset[str] = frozenset()


def _files(directory: str) -> Iterator[tuple[str, str]]:
    """Visible files: directory within, and path."""
    for place, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if name[0] not in "._")
        for name in sorted(files):
            if name[0] not in "._":
                yield os.path.relpath(place, directory), os.path.join(place, name)


def _row(values: Mapping[str, Any], place: str) -> Row:
    hour = values["hour"] if "hour" in values else place.removeprefix("hour=")
    return Row(values["number"], values["key"], values["seen"], hour)


def _lines(path: str) -> Iterable[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        return map(json.loads, file.read().splitlines())


def _parquet_rows(path: str) -> Iterable[dict[str, Any]]:
    import pyarrow.parquet

    # Opened here: a file without a footer must be an error, and must not be taken for a directory.
    with open(path, "rb") as file:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    return rows


def files_reader(out: str, target: str, rows_of: Callable[[str], Iterable[dict[str, Any]]] = _lines) -> View:
    directory = os.path.join(out, TABLE)
    return View([_row(row, place) for place, path in _files(directory) for row in rows_of(path)])


def partitions_reader(out: str, target: str, rows_of: Callable[[str], Iterable[dict[str, Any]]] = _lines) -> View:
    """The same; complete are partitions with a success file, and those in the metastore."""
    directory = Path(out, TABLE)
    complete = {path.parent.name.removeprefix("hour=") for path in directory.glob("hour=*/_SUCCESS")}
    catalogue = os.path.join(out, METASTORE)
    if os.path.exists(catalogue):
        for (spec,) in _query(catalogue, "partitions", "SELECT spec FROM partitions"):
            complete.add(dict(json.loads(spec))["hour"])
    return View(files_reader(out, target, rows_of).rows, frozenset(complete))


def overwritten_reader(out: str, target: str) -> View:
    """The same of a table that is overwritten: a file that a reader has listed may be gone when it opens it."""
    while True:
        with suppress(FileNotFoundError):
            return partitions_reader(out, target)


def bucketing_reader(out: str, target: str) -> View:
    """Finished files, up to their valid length."""
    directory = os.path.join(out, TABLE)
    if not os.path.isdir(directory):
        return View([])
    buckets = read_bucketing_output(LocalFileSystem(), directory)
    return View([_row(json.loads(line), "") for lines in buckets.values() for line in lines])


def written_reader(out: str, target: str, rows_of: Callable[[str, bytes], Iterable[dict[str, Any]]]) -> View:
    """The same of records that are no lines."""
    directory = os.path.join(out, TABLE)
    if not os.path.isdir(directory):
        return View([])
    buckets = read_bucketing_output(
        LocalFileSystem(), directory, lines_of=lambda path, data: list(map(json.dumps, rows_of(path, data)))
    )
    return View([_row(json.loads(line), "") for lines in buckets.values() for line in lines])


def _avro_rows(path: str, content: bytes) -> Iterable[dict[str, Any]]:
    import fastavro

    return fastavro.reader(io.BytesIO(content))  # type: ignore[no-any-return]


def _avro_file(path: str) -> Iterable[dict[str, Any]]:
    return _avro_rows(path, Path(path).read_bytes())


def _orc_rows(path: str) -> Iterable[dict[str, Any]]:
    import pyarrow.orc

    rows: list[dict[str, Any]] = pyarrow.orc.ORCFile(path).read().to_pylist()
    return rows


def log_reader(out: str, target: str) -> View:
    """Committed records up to the last stable offset."""
    partitions = committed_records(LocalFileSystem(), os.path.join(out, LOG), TOPIC)
    values: list[Any] = [record.value for partition in partitions for record in partition]
    return View([_row(value, "") for value in values])


def _query(path: str, table: str, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=rw", uri=True, timeout=30)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
            return []
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def sqlite_reader(out: str, target: str, table: str = TABLE) -> View:
    path = os.path.join(out, SQLITE)
    if not os.path.exists(path):
        return View([])
    return View([Row(*row) for row in _query(path, table, f"SELECT number, key, seen, hour FROM {table}")])


def postgres_reader(out: str, target: str, table: str = TABLE) -> View:
    """A table of PostgreSQL, each time over a connection of its own."""
    import psycopg

    try:
        with psycopg.connect(target, autocommit=True, connect_timeout=5) as connection:
            if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
                return View([])
            return View([Row(*row) for row in connection.execute(f"SELECT number, key, seen, hour FROM {table}")])
    except psycopg.OperationalError as error:
        raise UnreachableError(str(error)) from error


def delta_reader(out: str, target: str) -> View:
    """The files that the newest version of the table names."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(os.path.join(out, TABLE))
    except TableNotFoundError:
        return View([])
    return View([_row(row, "") for path in table.file_uris() for row in _parquet_rows(path.removeprefix("file://"))])


READERS: dict[str, Callable[[str, str], View]] = {
    "parquet": lambda out, target: files_reader(out, target, _parquet_rows),
    "data-frame": lambda out, target: files_reader(out, target, _parquet_rows),
    "delta": delta_reader,
    "bucketing": bucketing_reader,
    "bucketing-lengths": bucketing_reader,
    "avro": lambda out, target: files_reader(out, target, _avro_file),
    "orc": lambda out, target: files_reader(out, target, _orc_rows),
    "bucketing-avro": lambda out, target: written_reader(out, target, _avro_rows),
    "bucketing-sequence": lambda out, target: written_reader(out, target, sequence_records),
    "partitioned": partitions_reader,
    "partitioned-compacting": partitions_reader,
    "table-orc": lambda out, target: partitions_reader(out, target, _orc_rows),
    "table-raw": partitions_reader,
    "staged": overwritten_reader,
    "log": log_reader,
    "sqlite": sqlite_reader,
    "sqlite-upsert": lambda out, target: sqlite_reader(out, target, COUNTS),
    "postgres": postgres_reader,
    "postgres-upsert": lambda out, target: postgres_reader(out, target, COUNTS),
}


def reader_of(sink: str) -> Callable[[str, str], View]:
    """Reads the output of that sink, given the output directory and the dsn of the database."""
    return READERS.get(sink, files_reader)


class Watch:
    """Judges one view after the other.

    ``one_per_key``  the sink keeps one row per key: each is one of the job's, and never gives way to an older one;
    ``in_order``     the sink shows whole transactions: of each key all rows up to the newest;
    ``old_rows``     rows that were there before, and may go, but not come back.
    """

    def __init__(
        self, expected: Iterable[Row], *, one_per_key: bool = False, in_order: bool = False, old: Iterable[Row] = ()
    ) -> None:
        self._expected = frozenset(expected)
        self._one_per_key, self._in_order = one_per_key, in_order
        self._old = frozenset(old)
        self._seen: frozenset[Row] = frozenset()
        self._of_hour: dict[str, set[Row]] = {}
        for row in self._expected:
            self._of_hour.setdefault(row.hour, set()).add(row)
        self.changes = 0
        """How many views showed something new."""

    @property
    def shown(self) -> int:
        """How many of the job's rows the last view had."""
        return len(self._seen)

    def problem(self, view: View) -> str | None:
        rows = frozenset(view.rows)
        if len(rows) != len(view.rows):
            twice = sorted(row for row, times in Counter(view.rows).items() if times > 1)
            return f"{len(twice)} rows are there twice: {twice[:3]}"
        mine = rows - self._old
        if not mine <= self._expected:
            return f"{len(mine - self._expected)} rows are none of the job's: {sorted(mine - self._expected)[:3]}"
        problem = self._one_row_problem(mine) if self._one_per_key else self._more_rows_problem(mine)
        if problem is not None:
            return problem
        for hour in sorted(view.complete):
            missing = self._of_hour.get(hour, set()) - mine
            if missing:
                return f"hour {hour} is said to be complete, but {len(missing)} rows are missing: {sorted(missing)[:3]}"
        if not self._old & rows >= frozenset(row for row in self._old if row.hour not in self._of_hour):
            return "rows of a partition that the job does not write are gone"
        self.changes += mine != self._seen
        self._seen, self._old = mine, self._old & rows
        return None

    def _one_row_problem(self, rows: frozenset[Row]) -> str | None:
        now = {row.key: row.seen for row in rows}
        if len(now) != len(rows):
            return "a key has more than one row"
        for row in self._seen:
            if now.get(row.key, 0) < row.seen:
                return f"key {row.key} was counted {row.seen} times, and now {now.get(row.key, 0)}"
        return None

    def _more_rows_problem(self, rows: frozenset[Row]) -> str | None:
        if not rows >= self._seen:
            return f"{len(self._seen - rows)} rows have been seen and are gone: {sorted(self._seen - rows)[:3]}"
        if self._in_order:
            newest: dict[int, int] = {}
            for row in rows:
                newest[row.key] = max(newest.get(row.key, 0), row.seen)
            if sum(newest.values()) != len(rows):
                missing = min(self._before(newest) - rows)
                return f"{missing} is missing, but a later row of its key is there"
        return None

    def _before(self, newest: Mapping[int, int]) -> set[Row]:
        return {row for row in self._expected if row.seen <= newest.get(row.key, 0)}

    def problem_of_early_rows(self, covered: Mapping[int, int] | None) -> str | None:
        """The rows of the last view that no completed checkpoint covers; ``covered``: its number of rows per key."""
        if self._one_per_key or covered is None:
            return None
        early = sorted(row for row in self._seen if row.seen > covered.get(row.key, 0))
        if early:
            return f"{len(early)} rows are there that no completed checkpoint covers: {early[:3]}"
        return None

    def problem_at_the_end(self) -> str | None:
        """The rows missing in the last view."""
        wanted = self._expected
        if self._one_per_key:
            wanted = frozenset({row.key: row for row in sorted(wanted, key=lambda row: row.seen)}.values())
        lost = wanted - self._seen
        if lost:
            return f"in the end {len(lost)} rows are missing: {sorted(lost)[:3]}"
        if any(row.hour in self._of_hour for row in self._old):
            return "in the end rows are there that should have been overwritten"
        return None


def watch_for(sink: str, expected: Iterable[Row]) -> Watch:
    """What a reader of this sink may see."""
    return Watch(
        expected,
        one_per_key=sink.endswith("-upsert"),
        in_order=sink in ("sqlite", "postgres"),
        old=OLD_ROWS if sink == "staged" else (),
    )
