"""Running cases of a job under test, and comparing runs: with an undisturbed one, and with themselves."""

from __future__ import annotations

from engine.explore.cases import Case, parse_savepoint
from engine.explore.opinion import CountDifference, OutputComparison, compare_by_key, compare_outputs
from engine.explore.run import SelfCheckReport, Subject, Surroundings, run_case, self_check
from engine.faults.fault import parse_fault

__all__ = [
    "Case",
    "OutputComparison",
    "CountDifference",
    "SelfCheckReport",
    "Subject",
    "Surroundings",
    "compare_by_key",
    "compare_outputs",
    "parse_fault",
    "parse_savepoint",
    "run_case",
    "self_check",
]
