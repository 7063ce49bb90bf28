"""The statements of upserts, which SQLite and PostgreSQL share: ``INSERT ... ON CONFLICT (key) DO UPDATE``.

With a version column a row replaces or deletes only a row of the same or an older version. So rows that come again
after a restore do not change newer ones. A row without a version counts as the oldest; it may be from before the column
existed. The guard is part of the statement, not a query before it.
"""

from __future__ import annotations

from operators.databases.database_session import TableDescription, quoted


def table_name(description: TableDescription) -> str:
    """The quoted name; ``schema.table`` has two parts."""
    return ".".join(map(quoted, description.table.split(".")))


def upsert_statement(description: TableDescription, hole: str, table: str | None = None) -> str:
    """Inserts or replaces one row; ``hole`` is how a parameter is written; ``table`` is quoted already."""
    target = quoted(description.table) if table is None else table
    others = [quoted(name) for name in description.names if name not in description.key]
    columns, holes = ", ".join(map(quoted, description.names)), ", ".join([hole] * len(description.names))
    statement = f"INSERT INTO {target} AS old ({columns}) VALUES ({holes}) ON CONFLICT"
    statement += f" ({', '.join(map(quoted, description.key))}) DO "
    if not others:
        return statement + "NOTHING"
    statement += f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}"
    if description.version is not None:
        version = quoted(description.version)
        statement += f" WHERE old.{version} IS NULL OR excluded.{version} >= old.{version}"
    return statement


def delete_statement(description: TableDescription, hole: str, table: str | None = None) -> str:
    """Deletes one row by its key; with a version (the parameter after the key), unless the row is newer."""
    target = quoted(description.table) if table is None else table
    where = [f"{quoted(name)} = {hole}" for name in description.key]
    if description.version is not None:
        version = quoted(description.version)
        where.append(f"({version} IS NULL OR {version} <= {hole})")
    return f"DELETE FROM {target} WHERE {' AND '.join(where)}"
