"""V21 finds its mistake: a checkpoint that builds upon one that is still being taken."""

from __future__ import annotations

from typing import Any

import pytest

from engine.cli.cases import load_subject_and_scenario
from engine.cli.verbs.explore import _swarm
from engine.explore import run_case
from engine.explore.invariants import invariants_for
from engine.explore.search.swarm import draw_case
from state_backends.rows.upload_history import NO_FILES, UploadHistory
from tests.house.project import ROOT


def test_a_checkpoint_that_builds_upon_one_that_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload is taken for a base as soon as it is made; without the mistake the same case is clean."""
    subject, scenario = load_subject_and_scenario(str(ROOT / "examples/scenarios/shared_files.py"), {})
    overlapping = {"mode": "aligned", "max_concurrent": 3, "state_backend": "lsm", "snapshot": "incremental"}
    swarm = _swarm(scenario, (), (), overlapping)
    measured = subject.measure()

    def newest(history: Any) -> Any:
        return history._uploads[max(history._uploads)] if history._uploads else NO_FILES

    for number in range(200):
        case = draw_case(swarm, measured, f"bases/{number}")
        with monkeypatch.context() as mistaken:
            mistaken.setattr(UploadHistory, "base", newest)
            violations = run_case(subject, case, invariants_for(only=["V21"])).violations
        if violations:
            break
    assert [one.invariant for one in violations] == ["V21"] * len(violations) != []
    assert "not complete then" in violations[0].text
    assert not run_case(subject, case, invariants_for(only=["V21"])).violations
