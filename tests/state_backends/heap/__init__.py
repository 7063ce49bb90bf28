"""Tests of the heap backend and its incremental snapshots."""
