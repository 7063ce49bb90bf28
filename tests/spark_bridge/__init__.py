"""Tests of the bridge to Spark, and of the flight data and its oracle, which need it."""

from __future__ import annotations
