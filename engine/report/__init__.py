"""The results of a run, for people and for programs: one JSON-able report, its verdict, its text."""

from __future__ import annotations

from engine.report.checkpoint_table import checkpoint_table as checkpoint_table
from engine.report.report import (
    REPORT_SCHEMA_VERSION as REPORT_SCHEMA_VERSION,
    RunFacts as RunFacts,
    build_report as build_report,
)
from engine.report.result_table import ResultTable as ResultTable
from engine.report.run_result import RunResult as RunResult
from engine.report.verdict import Verdict as Verdict, judge_run as judge_run
