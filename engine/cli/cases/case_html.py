"""What ``--html`` of a search or a replay writes: the file with the page of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.cli.text import job_output_dropped
from engine.explore.cases import Case
from engine.explore.run import Subject, Violation
from engine.explore.search import Token
from engine.runtime.config import RunConfig


def write_case_page(
    path: str,
    subject: Subject,
    case: Case,
    violations: Sequence[Violation],
    lines: Sequence[tuple[str, str]],
    endings: Mapping[str, Any] | None = None,
    *,
    promise: str | None = None,
) -> None:
    """Write the page of a case, which is run once more for it. ``promise``: by which its replays are judged, ``None`` =
    that of its mode."""
    from engine.view import case_page, write_page

    title = f"{subject.label}: mode {case.config.get('mode', RunConfig().mode)}"
    with job_output_dropped():
        crash = partial(crash_command, subject, promise)
        text = case_page(title, subject, case, lines, violations=violations, endings=endings, crash=crash)
    write_page(path, text)


def crash_command(subject: Subject, promise: str | None, case: Case) -> str:
    """The command that makes a case crash at a step of its page. It holds the whole case: a page may be read where the
    files of its run are not."""
    from engine.view import FAULT

    return f"{Token.of(subject, case, promise=promise).command('replay', subject)} --fault '{FAULT}'"
