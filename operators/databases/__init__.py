"""Sinks into databases: the port of a database session; SQLite, PostgreSQL and a model in memory behind it; and the
sinks that commit in two phases, or by key."""
