"""Exhaustive check: every schedule and every crash of a small job, over the real engine."""

from __future__ import annotations

from engine.explore.check.check_report import CheckReport as CheckReport, check as check
from engine.explore.check.search import STATES as STATES, CheckOrder as CheckOrder, Ending as Ending, Found as Found
