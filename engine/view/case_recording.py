"""A case, run once more for its page: with its checkpoint table and its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.explore.cases import Case, run_config
from engine.explore.ledger import EffectsInvariant, Findings
from engine.explore.run import Bounds, FinishedCase, Subject, Violation, choices_of, injector_of, run_case
from engine.observe.cut_oracle import CutOracle
from engine.report.checkpoint_table import checkpoint_table
from engine.view.ledger_trail import trail_of
from engine.view.recorder import Recorder
from engine.view.single import RunFace, face_data


@dataclass(frozen=True, slots=True)
class CaseRecording:
    """A recorded case. ``found``: by its ledger, ``None`` = it keeps none."""

    finished: FinishedCase
    recorder: Recorder
    face: RunFace
    found: Findings | None

    @property
    def data(self) -> dict[str, Any]:
        """As one run of a page."""
        return face_data(self.recorder, self.face)


def record_case(
    subject: Subject,
    case: Case,
    name: str,
    effects: EffectsInvariant | None,
    violations: Sequence[Violation] | None = None,
    *,
    crash: str | None = None,
    bounds: Bounds | None = None,
) -> CaseRecording:
    """Run a case under a recorder. ``violations``: of judges that have run before, ``None`` = those of ``effects``;
    ``crash``: see :class:`engine.view.single.RunFace`. Raises what :func:`engine.explore.run.run_case` raises."""
    recorder, oracle = Recorder(subject), CutOracle()
    choices = choices_of(case)
    finished = run_case(
        recorder.witness.subject,
        case,
        [recorder.witness, recorder, *([] if effects is None else [effects])],
        # Of a case without faults, too: its page says at which visit of a point the run can be made to die.
        interference=injector_of(case, choices),
        choices=choices,
        instruments=[oracle],
        bounds=bounds,
        provenance=None if effects is None else effects.ledger,
    )
    table = trail = found = None
    if finished.results:
        table = checkpoint_table(finished.result.checkpoints, finished.view.plan, run_config(case), oracle)
    if effects is not None and effects.found is not None:
        found = effects.found
        trail = trail_of(effects.ledger, found)
    shown = finished.violations if violations is None else violations
    return CaseRecording(finished, recorder, RunFace(name, crash, table, trail, shown), found)
