"""The page of a case: what ``--html`` of a search or a replay writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.cli.text import job_output_dropped
from engine.explore.cases import Case
from engine.explore.run import Subject, Violation
from engine.runtime.config import RunConfig


def write_case_page(
    path: str,
    subject: Subject,
    case: Case,
    violations: Sequence[Violation],
    lines: Sequence[tuple[str, str]],
    endings: Mapping[str, Any] | None = None,
) -> None:
    """Write the page of a case, which is run once more for it."""
    from engine.view import case_page, write_page

    title = f"{subject.label}: mode {case.config.get('mode', RunConfig().mode)}"
    with job_output_dropped():
        text = case_page(title, subject, case, lines, violations=violations, endings=endings)
    write_page(path, text)
