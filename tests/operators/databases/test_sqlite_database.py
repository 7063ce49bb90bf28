"""What only SQLite has: a file with several writers, locks of other programs, constraints that only the target has."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.elements.errors import ConfigurationError, StorageError
from operators.databases import DatabaseError, SqliteDatabase, SqliteSink, TableDescription
from operators.databases.database_session import RowRefusedError
from tests.operators.databases.cluster import Cluster, clusters
from tests.operators.harness import Harness

Make = Callable[..., Cluster]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "deep" / "er" / "data.sqlite")


@pytest.fixture
def cluster_of(path: str) -> Iterator[Make]:
    def opened(journal_mode: str = "wal") -> SqliteDatabase:
        return SqliteDatabase(path, busy_timeout_ms=20, journal_mode=journal_mode)

    with clusters(opened, "journal_mode") as make:
        yield make


def execute(path: str, *statements: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [row for statement in statements for row in connection.execute(statement).fetchall()]
    finally:
        connection.close()


def test_a_stranger_who_holds_the_database_is_told_of_and_outlived(cluster_of: Make, path: str) -> None:
    """The checkpoint fails with the reason; nothing is lost, and the next checkpoint covers everything."""
    cluster = cluster_of()
    cluster.write(1)
    stranger = sqlite3.connect(path, isolation_level=None)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseError, match="another program holds the database"):
        cluster.snapshot()
    stranger.execute("ROLLBACK")
    stranger.close()
    cluster.write(2)
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_a_reader_in_the_middle_sees_one_state(cluster_of: Make, path: str, journal_mode: str) -> None:
    """With a write-ahead log the reader blocks no commit; with a rollback journal it does, and the error says so."""
    cluster = cluster_of(journal_mode=journal_mode)
    cluster.write(1)
    cluster.checkpoint(0)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT number FROM numbers").fetchall() == [(1,)]
    cluster.write(2)
    if journal_mode == "wal":
        cluster.checkpoint(0)
    else:
        with pytest.raises(DatabaseError, match="a reader should not keep a transaction open"):
            cluster.snapshot()
    assert reader.execute("SELECT number FROM numbers").fetchall() == [(1,)]
    reader.close()
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2]


def test_commits_reach_the_disk_before_they_return(cluster_of: Make) -> None:
    """``FULL`` with a write-ahead log; ``EXTRA`` with a rollback journal, whose removal has to be durable, too."""
    for mode, level in (("wal", 2), ("delete", 3)):
        cluster = cluster_of(journal_mode=mode, writer=mode)
        session = cluster.tasks[0].operator._table.session  # type: ignore[attr-defined]
        assert session._connection.execute("PRAGMA synchronous").fetchone() == (level,)
        cluster.close()


@pytest.mark.parametrize(
    ("definition", "row"),
    [
        ("TEXT NOT NULL", (1, None)), ("TEXT CHECK (text <> 'no')", (1, "no")), ("TEXT UNIQUE", (1, "fine")),
        ("TEXT", (1, {"a": 1})), ("TEXT", (2**63, "x")), ("TEXT", (1, "\ud800")),
    ],
)  # fmt: skip
def test_what_the_target_refuses_is_found_at_the_pre_commit(
    cluster_of: Make, path: str, definition: str, row: tuple[Any, ...]
) -> None:
    """After the checkpoint it could never be committed. The error names table and row, and no row is visible."""
    cluster = cluster_of(columns={"number": "BIGINT", "text": definition})
    cluster.tasks[0].process([(0, "fine"), row])
    with pytest.raises(RowRefusedError, match="'numbers' in ") as caught:
        cluster.snapshot()
    assert caught.value.row == row
    assert cluster.visible() == []
    assert execute(path, "SELECT count(*) FROM weir_staged_numbers WHERE weir_number > 1") == [(0,)]


def test_rows_that_break_a_constraint_only_together_are_found_at_the_pre_commit(cluster_of: Make) -> None:
    """Two subtasks wait for their commits with one unique value: the second of them is refused."""
    cluster = cluster_of(2, columns={"number": "BIGINT PRIMARY KEY", "text": "TEXT"})
    cluster.tasks[0].process([(1, "a")])
    cluster.tasks[1].process([(2, "b"), (1, "c")])
    with pytest.raises(RowRefusedError, match=r"UNIQUE.*\n.*\(1, 'c'\)"):
        cluster.snapshot()
    cluster.crash()
    cluster.write(1, 2)
    cluster.checkpoint(0, 1)
    cluster.write(3)
    cluster.checkpoint(0, 1)
    assert cluster.visible() == [1, 2, 3]


@pytest.mark.parametrize("options", ["", "WITHOUT ROWID"])
def test_a_foreign_key_that_is_checked_at_the_end_is_found_at_the_pre_commit(
    cluster_of: Make, path: str, options: str
) -> None:
    """At the commit, after the completed checkpoint, no restart would help."""
    SqliteDatabase(path).connect(TableDescription("t", ("a",), "w"), str).close()
    execute(
        path,
        "CREATE TABLE texts (text TEXT PRIMARY KEY)",
        "INSERT INTO texts VALUES ('text 1'), ('text 2')",
        "CREATE TABLE numbers (number BIGINT PRIMARY KEY, text TEXT REFERENCES texts DEFERRABLE INITIALLY DEFERRED)"
        + options,
    )
    cluster = cluster_of(columns=("number", "text"))
    cluster.write(1, 2)
    cluster.checkpoint(0)
    cluster.write(3)
    row = r"row     \(3, 'text 3'\)" if not options else "no such row in 'texts'"
    with pytest.raises(RowRefusedError, match=f"(?s)table 'numbers'.*FOREIGN KEY.*{row}"):
        cluster.snapshot()
    execute(path, "INSERT INTO texts VALUES ('text 3')")
    cluster.checkpoint(0)
    assert cluster.visible() == [1, 2, 3]


def test_rows_come_into_the_target_in_their_order(cluster_of: Make, path: str) -> None:
    """The order holds across batches, too."""
    cluster = cluster_of(batch_rows=2)
    numbers = [5, 3, 9, 1, 7, 2, 8]
    for number in numbers:
        cluster.tasks[0].process([(number, "")])
    cluster.checkpoint(0)
    assert execute(path, "SELECT number FROM numbers ORDER BY rowid") == [(number,) for number in numbers]


def test_values_have_the_types_of_the_target(cluster_of: Make, path: str) -> None:
    """Staging does not change the values."""
    columns = {"number": "INTEGER", "text": "TEXT", "data": "BLOB", "real": "REAL"}
    cluster = cluster_of(columns=columns)
    cluster.tasks[0].process([(True, "1", b"\0", 1), ("7", 8, "text", 0.5)])
    cluster.checkpoint(0)
    assert execute(path, "SELECT * FROM numbers") == [(1, "1", b"\0", 1.0), (7, "8", "text", 0.5)]


def test_a_table_that_is_there_is_used_as_it_is(cluster_of: Make, path: str) -> None:
    """Columns that the sink does not know keep their defaults; a column that is added later is staged, too."""
    Path(path).parent.mkdir(parents=True)
    execute(path, "CREATE TABLE numbers (id INTEGER PRIMARY KEY, number INT, text TEXT, at TEXT DEFAULT 'now')")
    cluster = cluster_of(columns=("number",))
    cluster.tasks[0].process([(5,)])
    cluster.checkpoint(0)
    cluster.close()
    wider = cluster_of(existing="append")
    wider.write(6)
    wider.checkpoint(0)
    assert execute(path, "SELECT * FROM numbers") == [(1, 5, None, "now"), (2, 6, "text 6", "now")]


def test_relative_paths_lie_below_the_output_of_the_run(tmp_path: Path) -> None:
    """Directories are made; committed rows are read from the same path."""
    sink = SqliteSink("deep/data.sqlite", "numbers", {"number": "INT"})
    assert sink.committed_rows() == []
    operator = sink.create_operator()
    context = Harness(SqliteSink(str(tmp_path / "x"), "t", {"a": "INT"}).create_operator()).context
    context.resolve_path = lambda path: str(tmp_path / path)  # type: ignore[method-assign]
    operator.setup(context, None)  # type: ignore[arg-type]
    operator.initialize_state()
    operator.open()
    assert (tmp_path / "deep" / "data.sqlite").exists()
    assert sink.committed_rows() == []
    operator.abandon()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    """The error names the path; a directory and an invalid path are refused, too."""
    bad = tmp_path / "notes.txt"
    bad.write_text("no database at all, but long enough to be read as one " * 10)
    for path in (str(bad), str(tmp_path)):
        with pytest.raises(StorageError, match=path):
            Harness(SqliteSink(path, "numbers", {"number": "INT"}).create_operator())
    for path in ("", ":memory:", "file:x", "s3://bucket/x"):
        with pytest.raises(ConfigurationError):
            SqliteDatabase(path)
    for options in ({"journal_mode": "off"}, {"busy_timeout_ms": -1}):
        with pytest.raises(ConfigurationError):
            SqliteDatabase("x", **options)  # type: ignore[arg-type]
