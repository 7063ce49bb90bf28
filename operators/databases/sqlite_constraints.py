"""Constraints that SQLite checks only across rows, or at the end: their rows must be tried together."""

from __future__ import annotations

import sqlite3

from operators.databases.database_session import Row, quoted


def has_unique_columns(connection: sqlite3.Connection, table: str) -> bool:
    """Whether two rows can conflict."""
    of_index = "SELECT count(*) FROM pragma_index_list(?) WHERE \"unique\""
    of_key = "SELECT count(*) FROM pragma_table_info(?) WHERE pk > 0"
    return any(connection.execute(statement, (table,)).fetchone()[0] for statement in (of_index, of_key))


def has_deferred_keys(connection: sqlite3.Connection, table: str) -> bool:
    """Whether a foreign key of the table is checked only at the commit. No pragma says it."""
    ask = "SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%INITIALLY%DEFERRED%'"
    return connection.execute(ask, (table,)).fetchone() is not None


def broken_key(connection: sqlite3.Connection, table: str, columns: str) -> tuple[str, Row | None] | None:
    """The table without the row that a row of ``table`` refers to, and the latter if it can be found again;
    ``columns`` of it, as SQL. Reads all of ``table``."""
    found = connection.execute("SELECT parent, rowid FROM pragma_foreign_key_check(?)", (table,)).fetchone()
    if found is None:
        return None
    parent, row_id = found
    if row_id is None:
        return parent, None
    return parent, connection.execute(f"SELECT {columns} FROM {quoted(table)} WHERE rowid = ?", (row_id,)).fetchone()
