"""Sinks into databases. ``database_session`` is the port; SQLite, PostgreSQL and a model in memory implement it.
``database_sink`` inserts by two-phase commit, ``upsert_sink`` keeps one row per key, ``table_sink`` is their common
half. psycopg is loaded at its first use.
"""

from __future__ import annotations

from operators.databases.database_session import (
    DatabaseError as DatabaseError,
    EpochHolder as EpochHolder,
    LedgerRow as LedgerRow,
    Row as Row,
    SinkDatabase as SinkDatabase,
    SinkSession as SinkSession,
    TableDescription as TableDescription,
    TransactionName as TransactionName,
)
from operators.databases.database_sink import (
    DatabaseSink as DatabaseSink,
    PostgresSink as PostgresSink,
    SqliteSink as SqliteSink,
)
from operators.databases.memory_database import (
    DatabaseExchange as DatabaseExchange,
    DatabaseRequest as DatabaseRequest,
    Gate as Gate,
    MemoryDatabase as MemoryDatabase,
    UnansweredError as UnansweredError,
)
from operators.databases.postgres_database import PostgresDatabase as PostgresDatabase
from operators.databases.sqlite_database import SqliteDatabase as SqliteDatabase
from operators.databases.upsert_sink import UpsertSink as UpsertSink
