"""Deduplication and top-n, and the change records that they and the regular join emit."""
