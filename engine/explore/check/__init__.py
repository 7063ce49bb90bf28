"""Exhaustive check: every schedule and every crash of a small job, over the real engine."""

from __future__ import annotations

from engine.explore.check.report import CheckReport, check
from engine.explore.check.search import STATES, CheckOrder, Ending, Found

__all__ = ["STATES", "CheckOrder", "CheckReport", "Ending", "Found", "check"]
