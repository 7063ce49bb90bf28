"""Running cases of a job under test, and comparing runs: with an undisturbed one, and with themselves."""

from __future__ import annotations

from engine.explore.case import Case
from engine.explore.output_comparison import CountDifference, OutputComparison, compare_by_key, compare_outputs
from engine.explore.runner import run_case
from engine.explore.savepoints import parse_savepoint
from engine.explore.selfcheck import SelfCheckReport, Surroundings, self_check
from engine.explore.subject import Subject
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
