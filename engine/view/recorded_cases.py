"""Pages of cases: a run that is replayed, the failure of a search, two runs that differ, all endings of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.explore.cases import Case, run_config
from engine.explore.run import Bounds, Subject, Violation, run_case
from engine.observe.cut_oracle import CutOracle
from engine.report.checkpoint_table import checkpoint_table
from engine.view.compare import pair_page
from engine.view.recorder import Recorder
from engine.view.single import RunFace, face_data, run_page

Lines = Sequence[tuple[str, str]]


def _recorded(
    subject: Subject, case: Case, name: str, violations: Sequence[Violation], bounds: Bounds | None
) -> tuple[Recorder, RunFace]:
    """The case, run once more. Its judges have run before: they watch every event, as the recorder does."""
    recorder, oracle = Recorder(subject), CutOracle()
    watching = [recorder.witness, recorder]
    finished = run_case(recorder.witness.subject, case, watching, instruments=[oracle], bounds=bounds)
    table = None
    if finished.results:
        table = checkpoint_table(finished.result.checkpoints, finished.view.plan, run_config(case), oracle)
    return recorder, RunFace(name, None, table, None, violations)


def case_page(
    title: str,
    subject: Subject,
    case: Case,
    lines: Lines = (),
    *,
    violations: Sequence[Violation] = (),
    endings: Mapping[str, Any] | None = None,
    bounds: Bounds | None = None,
) -> str:
    """The page of one case."""
    recorder, face = _recorded(subject, case, title, violations, bounds)
    told = [*lines, *(("why", f"{one.invariant}: {one.text}") for one in violations[:3])]
    return run_page(title, recorder, face, told, endings)


def cases_page(
    title: str, subject: Subject, cases: Sequence[tuple[str, Case, Sequence[Violation]]], lines: Lines = ()
) -> str:
    """Two cases side by side, each with its name and its violations."""
    one, other = (
        face_data(*_recorded(subject, case, name, violations, None)) for name, case, violations in cases
    )
    return pair_page(title, one, other, lines)
