"""Tests of incremental snapshots of the heap backend."""

from __future__ import annotations
