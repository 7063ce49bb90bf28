"""The metastores: both behave alike, and errors of the one on disk are clear."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.elements.errors import ConfigurationError, StorageError
from operators.table.partitions.commit_policies import MetastorePolicy
from operators.table.partitions.metastore import MemoryMetastore, PartitionEntry, SqliteMetastore
from operators.table.partitions.partition_commit import PartitionCommit, PartitionCommitterOperator
from operators.table.partitions.partition_messages import announcement
from tests.operators.harness import Harness

Made = MemoryMetastore | SqliteMetastore


@pytest.fixture(params=["memory", "sqlite"])
def metastore(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """A metastore with table ``t`` by day and hour, and a plain table ``plain``."""
    made: Made = MemoryMetastore() if request.param == "memory" else SqliteMetastore(str(tmp_path / "100%?#.db"))
    made.create_table("t", ("day", "hour"))
    made.create_table("plain")
    assert request.param == "memory" or (tmp_path / "100%?#.db").exists()
    return made


def entry(hour: str, committed_ms: int = 1, location: str = "/t") -> PartitionEntry:
    return PartitionEntry((("day", "ä'1"), ("hour", hour)), location, committed_ms)


def test_partitions_are_created_once_and_updated(metastore: Made) -> None:
    """Committing again changes the entry and makes no second one."""
    assert metastore.put_partition("t", entry("2"))
    assert metastore.put_partition("t", entry("1"))
    assert not metastore.put_partition("t", entry("2", 5, "/elsewhere"))
    assert metastore.partitions("t") == [entry("1"), entry("2", 5, "/elsewhere")]


def test_tables_and_their_columns(metastore: Made) -> None:
    """A plain table has none; making a table again keeps its partitions."""
    metastore.put_partition("t", entry("1"))
    metastore.create_table("t", ("day",))
    assert metastore.partition_columns("t") == ("day",)
    assert metastore.partition_columns("plain") == ()
    assert metastore.partitions("t") == [entry("1")]
    assert metastore.partitions("plain") == []


def test_a_table_that_is_listed_keeps_its_columns(metastore: Made) -> None:
    """A sink that lists its table when it starts does not change the one of others."""
    metastore.put_partition("t", entry("1"))
    for table, columns in (("t", ("day", "hour")), ("new", ("year",))):
        metastore.ensure_table(table, ("year",))
        assert metastore.partition_columns(table) == columns
    assert metastore.partitions("t") == [entry("1")]


@pytest.mark.parametrize(
    "use",
    [
        lambda metastore: metastore.partition_columns("T"),
        lambda metastore: metastore.put_partition("T", entry("1")),
        lambda metastore: metastore.partitions("T"),
    ],
)
def test_a_table_that_is_not_there(metastore: Made, use: Callable[[Made], object]) -> None:
    """The error lists the existing tables, and says what to do."""
    with pytest.raises(ConfigurationError, match=r"no table 'T'; it has 'plain', 't'\n.*create_table"):
        use(metastore)


def test_a_sink_never_makes_the_file(tmp_path: Path) -> None:
    """A wrong path is an error, not a new metastore."""
    path = tmp_path / "none.db"
    with pytest.raises(StorageError, match=r"none\.db cannot be used: unable to open.*\n.*create_table"):
        SqliteMetastore(str(path)).partitions("t")
    assert not path.exists()


def test_a_database_that_is_no_metastore(tmp_path: Path) -> None:
    """A metastore without its tables, and a file that is not a database."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(StorageError, match="is no metastore"):
        SqliteMetastore(str(other)).partitions("t")
    text = tmp_path / "text.db"
    text.write_text("not a database, " * 100)
    with pytest.raises(StorageError, match="check that the file is a database"):
        SqliteMetastore(str(text)).partitions("t")


def test_a_metastore_that_somebody_else_writes(tmp_path: Path) -> None:
    """A call waits for it; then the error says who is to blame, and nothing was done."""
    path = str(tmp_path / "locked.db")
    metastore = SqliteMetastore(path, busy_timeout_ms=20)
    metastore.create_table("t", ("day", "hour"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"locked\n.*another program holds a transaction open"):
            metastore.put_partition("t", entry("1"))
        other.execute("ROLLBACK")
    assert metastore.partitions("t") == []


def test_an_error_inside_a_transaction_takes_it_back(tmp_path: Path) -> None:
    """A call that did not reach its end leaves nothing."""
    path = str(tmp_path / "m.db")
    metastore = SqliteMetastore(path)
    metastore.create_table("t", ("day", "hour"))
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TRIGGER no BEFORE INSERT ON partitions BEGIN SELECT RAISE(ABORT, 'no'); END")
        other.commit()
    with pytest.raises(StorageError, match="no"):
        metastore.put_partition("t", entry("1"))
    assert metastore.partitions("t") == []


@pytest.mark.parametrize("wrong", [{"path": ""}, {"path": "x\0"}, {"path": "x", "busy_timeout_ms": -1}])
def test_settings_that_make_no_sense(wrong: dict[str, object]) -> None:
    """They are refused at once."""
    with pytest.raises(ConfigurationError):
        SqliteMetastore(**wrong)  # type: ignore[arg-type]


def test_the_committer_writes_to_it(tmp_path: Path) -> None:
    """A relative path is below the run's output directory; the entry has columns, location and the job's clock."""
    stored = SqliteMetastore(str(tmp_path / "catalogue.db"))
    stored.create_table("visits", ("day", "hour"))

    class Below(SqliteMetastore):
        def resolved(self, path_of: Callable[[str], str]) -> SqliteMetastore:
            assert path_of(self.path) == "/out/catalogue.db"
            return stored

    commit = PartitionCommit(policies=[MetastorePolicy(Below("catalogue.db"), "visits")])
    committer = Harness(PartitionCommitterOperator("table", ("day", "hour"), commit), now_ns=9_000_000)
    committer.process([announcement(1, 0, 1, ["day=a%3Ab/hour=7"])])
    assert stored.partitions("visits") == [
        PartitionEntry((("day", "a:b"), ("hour", "7")), "/out/table/day=a%3Ab/hour=7", 9)
    ]
