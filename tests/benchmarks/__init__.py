"""Tests of the benchmarks: that they measure what they say. How fast anything is, no test asks."""

from __future__ import annotations
