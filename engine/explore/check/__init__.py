"""Exhaustive check: every schedule and every crash of a small job, over the real engine."""

from __future__ import annotations

from engine.explore.check.report import CheckReport, check
from engine.explore.check.search import CheckOrder, Ending, Found

__all__ = ["CheckOrder", "CheckReport", "Ending", "Found", "check"]
