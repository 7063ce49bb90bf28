"""A failure explained: its ``failure_report``, the ``regression`` test, and the nearest run that passes
(``run_difference``)."""

from __future__ import annotations

from engine.explore.failures.failure_report import (
    JSON_NAME as JSON_NAME,
    TEST_NAME as TEST_NAME,
    FailureReport as FailureReport,
    failure_report as failure_report,
    read_failure as read_failure,
    standard_invariants as standard_invariants,
)
from engine.explore.failures.run_difference import (
    DEFAULT_BUDGET as DEFAULT_BUDGET,
    compare_cases as compare_cases,
    nearest_passing as nearest_passing,
)
