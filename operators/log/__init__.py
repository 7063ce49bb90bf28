"""Partitioned logs: the port of an append-only log with transactions, its implementations, its sinks and sources."""
