"""Partitions of tables: their paths, times, commits and compaction."""
