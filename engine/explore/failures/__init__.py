"""A failure explained: its ``report``, the ``regression`` test, and the nearest run that passes (``diff``)."""

from __future__ import annotations

from engine.explore.failures.diff import DEFAULT_BUDGET, compare_cases, nearest_passing
from engine.explore.failures.report import (
    JSON_NAME,
    TEST_NAME,
    FailureReport,
    failure_report,
    read_failure,
    standard_invariants,
)

__all__ = [
    "DEFAULT_BUDGET",
    "JSON_NAME",
    "TEST_NAME",
    "FailureReport",
    "compare_cases",
    "failure_report",
    "nearest_passing",
    "read_failure",
    "standard_invariants",
]
