"""What came of a run, for people and for programs: one JSON-able report, its verdict, its text."""

from __future__ import annotations

from engine.report.report import REPORT_SCHEMA_VERSION, RunFacts, build_report
from engine.report.verdict import Verdict, judge_run

__all__ = ["REPORT_SCHEMA_VERSION", "RunFacts", "Verdict", "build_report", "judge_run"]
