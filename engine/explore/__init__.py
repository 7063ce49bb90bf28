"""Comparing runs: with an undisturbed run of the same job, and with themselves."""

from __future__ import annotations

from engine.explore.reference import OutputComparison, RowDifference, compare_by_key, compare_outputs
from engine.explore.selfcheck import SelfCheckReport, Surroundings, self_check

__all__ = [
    "OutputComparison",
    "RowDifference",
    "SelfCheckReport",
    "Surroundings",
    "compare_by_key",
    "compare_outputs",
    "self_check",
]
