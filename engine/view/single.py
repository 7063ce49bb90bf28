"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.explore.run import Violation
from engine.runtime.kernel import START_NS
from engine.view.chapters import chapters_of
from engine.view.ledger_trail import with_ways
from engine.view.page import page
from engine.view.page_data import ORPHAN, run_data
from engine.view.recorder import Recorder
from engine.view.shown import clean

_LONGEST_LINE = 2_000
MOST_CHECKPOINTS, MOST_SUBTASKS = 150, 64
"""In the checkpoint table of a page: the newest checkpoints, and the first subtasks of each operator."""
_MOST_DETAILED = 20
"""Of the newest checkpoints: with a table by operator and subtask."""


FAULT = "@FAULT@"
"""Stands for a fault in the command of a page."""


@dataclass(frozen=True, slots=True)
class RunFace:
    """What a page says about a run beside its recording.

    ``name``         of the run, where there are two;
    ``crash``        the command that makes the run crash, with ``@FAULT@`` for the fault;
    ``checkpoints``  the checkpoint table, ``ledger``: see :func:`engine.view.ledger_trail.trail_of`.
    """

    name: str
    crash: str | None = None
    checkpoints: Mapping[str, Any] | None = None
    ledger: Mapping[str, Any] | None = None
    violations: Sequence[Violation] = ()


def face_data(recorder: Recorder, face: RunFace) -> dict[str, Any]:
    """The data of one run of a page."""
    checkpoints = None if face.checkpoints is None else _few(face.checkpoints)
    facts = {"name": face.name, "crash": face.crash, "checkpoints": checkpoints, "ledger": face.ledger}
    data = run_data(recorder, facts)
    data["violations"] = [
        {"name": one.invariant, "text": clean(one.text, _LONGEST_LINE), "step": _step_at(data, one.at_ns)}
        for one in face.violations
    ]
    data["chapters"] = chapters_of(data)
    if face.ledger is not None:
        data["ledger"] = with_ways(face.ledger, data)
    if face.crash is None:
        for step in data["steps"]:
            del step["x"]
    # Only ways lead to them, and a long run has hundreds of thousands.
    reads = data.pop("reads")
    data["replayed"] = sum(len(rows) - 1 for rows in reads.values())
    return data


def _few(table: Mapping[str, Any]) -> dict[str, Any]:
    """The checkpoint table with as many rows as a page shows: a job of a thousand subtasks has thousands."""
    history = list(table["history"][:MOST_CHECKPOINTS])
    for number, row in enumerate(history):
        tasks = row["tasks"] if number < _MOST_DETAILED else {}
        few = {uid: {**task, "subtasks": task["subtasks"][:MOST_SUBTASKS]} for uid, task in tasks.items()}
        history[number] = {**row, "tasks": few}
    return {**table, "history": history, "more": len(table["history"]) - len(history), "started": START_NS}


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
            " end. The checkpoint table is of the whole run; series and the ways of the ledger are of this part."
            " The option --perfetto FILE of weir run and weir view writes the whole run."
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
    tables: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of one run. ``lines``: text at the top, each with its kind (``soft``, ``why``, ``verdict valid``);
    ``tables``: below them, each with ``caption``, ``heads`` and ``rows``."""
    data = face_data(recorder, face)
    return page(
        title,
        {
            "title": clean(title),
            "lines": [{"kind": kind, "text": clean(text, _LONGEST_LINE)} for kind, text in lines] + notices(data),
            "tables": list(tables),
            "runs": [data],
            "begin": first_of_interest(data),
            "endings": endings,
        },
    )


def first_of_interest(data: Mapping[str, Any]) -> int:
    """The step that a page opens at: the orphan or the crash of its story; else the first orphan, crash or completed
    checkpoint; else the first step."""
    signs = [row for sign in "◎✕⚡" for text, row in data["chapters"] if text.startswith(sign)]
    orphans = [arrow[1] for arrow in data["arrows"] if arrow[6] == ORPHAN]
    rows = [*signs, *orphans]
    for kind in ("crash", "complete"):
        rows += [number for number, row in enumerate(data["actions"]) if row[2] == kind][:1]
    return 0 if not rows else next(number for number, step in enumerate(data["steps"]) if rows[0] < step["r"][1])
