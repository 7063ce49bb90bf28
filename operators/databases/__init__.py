"""Sinks into databases: ``session`` is the port; SQLite, PostgreSQL and a model in memory stand behind it.
``database_sink`` inserts by two-phase commit, ``upsert_sink`` keeps one row per key, ``table_sink`` is their half in
common. psycopg is loaded at its first use.
"""

from __future__ import annotations

from operators.databases.database_sink import DatabaseSink, PostgresSink, SqliteSink
from operators.databases.memory_database import DatabaseExchange, DatabaseRequest, Gate, MemoryDatabase, UnansweredError
from operators.databases.postgres_database import PostgresDatabase
from operators.databases.session import (
    DatabaseError,
    EpochHolder,
    LedgerRow,
    Row,
    SinkDatabase,
    SinkSession,
    TableDescription,
    TransactionName,
)
from operators.databases.sqlite_database import SqliteDatabase
from operators.databases.upsert_sink import UpsertSink

__all__ = [
    "DatabaseError",
    "DatabaseExchange",
    "DatabaseRequest",
    "DatabaseSink",
    "EpochHolder",
    "Gate",
    "LedgerRow",
    "MemoryDatabase",
    "PostgresDatabase",
    "PostgresSink",
    "Row",
    "SinkDatabase",
    "SinkSession",
    "SqliteDatabase",
    "SqliteSink",
    "TableDescription",
    "TransactionName",
    "UnansweredError",
    "UpsertSink",
]
