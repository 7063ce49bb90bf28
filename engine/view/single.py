"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.explore.run import Violation
from engine.runtime.kernel import START_NS
from engine.view.page import page
from engine.view.page_data import ORPHAN, run_data
from engine.view.recorder import Recorder
from engine.view.shown import clean

_LONGEST_LINE = 2_000


@dataclass(frozen=True, slots=True)
class RunFace:
    """What a page says about a run beside its recording.

    ``name``         of the run, where there are two;
    ``crash``        the command that makes the run crash, with ``@FAULT@`` for the fault;
    ``checkpoints``  the checkpoint table, ``ledger``: see :mod:`engine.view.ledger_trail`.
    """

    name: str
    crash: str | None = None
    checkpoints: Mapping[str, Any] | None = None
    ledger: Mapping[str, Any] | None = None
    violations: Sequence[Violation] = ()


def face_data(recorder: Recorder, face: RunFace) -> dict[str, Any]:
    """The data of one run of a page."""
    checkpoints = None if face.checkpoints is None else {**face.checkpoints, "started": START_NS}
    facts = {"name": face.name, "crash": face.crash, "checkpoints": checkpoints, "ledger": face.ledger}
    data = run_data(recorder, facts)
    data["violations"] = [
        {"name": one.invariant, "text": clean(one.text, _LONGEST_LINE), "step": _step_at(data, one.at_ns)}
        for one in face.violations
    ]
    return data


def _step_at(data: Mapping[str, Any], at_ns: int | None) -> int:
    """The last step that has begun at an instant."""
    if at_ns is None:
        return len(data["steps"]) - 1
    found = -1
    for number, step in enumerate(data["steps"]):
        row = step["r"][0]
        if row < len(data["actions"]) and data["actions"][row][0] <= at_ns - START_NS:
            found = number
    return found


def notices(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """What a page does not show, and why."""
    before, after = data["leftOut"]
    found: list[str] = []
    if before or after:
        found.append(
            f"A long run: {before:,} events before what is shown here and {after:,} after it are left out. The page"
            " keeps the time around the first failure, its checkpoint and its restore; without a failure it keeps the"
            " end. The checkpoint table is of the whole run; series and the trails of the ledger are of this part."
        )
    if not any(row[2] == "record" for row in data["actions"]):
        found.append("No record is in this part of the run.")
    return [{"kind": "notice", "text": one} for one in found]


def run_page(
    title: str,
    recorder: Recorder,
    face: RunFace,
    lines: Sequence[tuple[str, str]] = (),
    endings: Mapping[str, Any] | None = None,
) -> str:
    """The page of one run. ``lines``: text at the top, each with its kind (``soft``, ``why``, ``verdict valid``)."""
    data = face_data(recorder, face)
    return page(
        title,
        {
            "title": clean(title),
            "lines": [{"kind": kind, "text": clean(text, _LONGEST_LINE)} for kind, text in lines] + notices(data),
            "runs": [data],
            "begin": first_of_interest(data),
            "endings": endings,
        },
    )


def first_of_interest(data: Mapping[str, Any]) -> int:
    """The step that a page opens at: the first orphan, crash or completed checkpoint; else the first step."""
    orphans = [arrow[1] for arrow in data["arrows"] if arrow[6] == ORPHAN]
    found = [number for number, step in enumerate(data["steps"]) if orphans and orphans[0] in range(*step["r"])]
    for kind in ("crash", "complete"):
        for number, step in enumerate(data["steps"]):
            if any(row[2] == kind for row in data["actions"][slice(*step["r"])]):
                found.append(number)
                break
    return found[0] if found else 0
