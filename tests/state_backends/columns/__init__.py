"""Keyed state in columns: hashing, grouping, folding, and the heap's columnar form."""
