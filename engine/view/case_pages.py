"""Pages of cases: a run that is replayed, the failure of a search, two runs that differ, all endings of a check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.elements.errors import WeirError
from engine.explore.cases import EXACTLY_ONCE, Case, run_config
from engine.explore.invariants import DAMAGE
from engine.explore.ledger import EffectsInvariant
from engine.explore.run import Bounds, Subject, Violation
from engine.view.case_recording import record_case
from engine.view.compare import pair_page
from engine.view.single import run_page

Lines = Sequence[tuple[str, str]]
CrashCommand = Callable[[Case], str]
"""The command that makes a case crash, as of :class:`engine.view.single.RunFace`."""


def case_page(
    title: str,
    subject: Subject,
    case: Case,
    lines: Lines = (),
    *,
    violations: Sequence[Violation] = (),
    endings: Mapping[str, Any] | None = None,
    bounds: Bounds | None = None,
    crash: CrashCommand | None = None,
) -> str:
    """The page of one case."""
    command = None if crash is None else crash(case)
    made = record_case(subject, case, title, _effects(subject, case), violations, crash=command, bounds=bounds)
    told = [*lines, *(("why", f"{one.invariant}: {one.text}") for one in violations[:3])]
    return run_page(title, made.recorder, made.face, told, endings)


def cases_page(
    title: str,
    subject: Subject,
    cases: Sequence[tuple[str, Case, Sequence[Violation]]],
    lines: Lines = (),
    *,
    crash: CrashCommand | None = None,
) -> str:
    """Two cases side by side, each with its name and its violations."""
    one, other = (
        record_case(
            subject, case, name, _effects(subject, case), violations, crash=None if crash is None else crash(case)
        ).data
        for name, case, violations in cases
    )
    return pair_page(title, one, other, lines)


def _effects(subject: Subject, case: Case) -> EffectsInvariant | None:
    """``None`` where there is no ledger: several jobs in a row use numbers of checkpoints again, modes that track
    records keep none, damage may destroy the checkpoints that it judges by, and a job that fails without faults has no
    effects to compare with."""
    faults = {*(one.kind for one in case.faults), *case.mix.per_million}
    if any(one.ends_job for one in case.savepoints) or run_config(case).protocol.tracks_records or faults & DAMAGE:
        return None
    try:
        return EffectsInvariant.of(subject, case, EXACTLY_ONCE)
    except WeirError:
        return None
