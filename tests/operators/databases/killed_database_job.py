"""The job that is killed while a reader watches: numbers go to a table exactly once, their counts to another one.

``target`` is a path of SQLite, or a dsn of PostgreSQL with ``host=``. A job file like any other.
"""

from __future__ import annotations

from engine import Job, SequenceSource
from operators.databases import DatabaseSink, PostgresDatabase, SinkDatabase, SqliteDatabase, UpsertSink

KEYS = 7
SPLITS = 2


def database_of(target: str) -> SinkDatabase:
    return PostgresDatabase(target) if "host=" in target else SqliteDatabase(target)


def sinks(target: str) -> tuple[DatabaseSink, UpsertSink]:
    database = database_of(target)
    numbers = DatabaseSink(
        database,
        "numbers",
        {"number": "BIGINT NOT NULL"},
        row=lambda number: (number,),
        transaction_column="written_by",
        newer_commits="retract",
        batch_rows=100,
    )
    counts = UpsertSink(database, "counts", {"key": "BIGINT", "seen": "BIGINT"}, key=("key",), version="seen")
    return numbers, counts


def job(records: str = "40000", target: str = "data.sqlite") -> Job:
    """Two splits, each of which is one half of the numbers."""
    numbers, counts = sinks(target)
    job = Job("killed", parallelism=2)
    source = job.source(SequenceSource(0, int(records), splits=SPLITS), name="numbers")
    source.sink(numbers, name="table")
    ones = source.map(lambda number: (number % KEYS, 1), name="one")
    counted = ones.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]), name="count")
    return counted.sink(counts, name="counts")
