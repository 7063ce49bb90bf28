"""`weir run --ledger`: its output, its files, and its part in the verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.protocols.barriers import AlignedBarriers, AtLeastOnceBarriers
from tests.cli.conftest import BRISK, Weir

SHOWN_AT_ONCE = """
from engine import CollectedResults, Job, SequenceSource

def job():
    job = Job("shown")
    numbers = job.source(SequenceSource(0, 100), name="numbers")
    numbers.map(lambda number: number, name="same").collect(CollectedResults(transactional=False), name="out")
    return job
"""


def part(weir: Weir, name: str = "sums") -> dict[str, Any]:
    """The part of run.json of the latest run about the ledger."""
    report = json.loads((weir.directory / f"out/{name}/latest/run.json").read_text())
    found: dict[str, Any] = report["ledger"]
    return found


def test_a_sound_run_says_how_many_effects_there_are(weir: Weir) -> None:
    """Killed or not, each record has each of its effects once, and the sink's files hold the right rows."""
    answer = weir("run", "sums.py", "--ledger", *BRISK, "--kill", "sum[0]@50us")
    assert answer.exit_code == 0
    assert "ledger: 200 effects on 5 cells, 200 on 1 output: each as often as it should be" in answer.stderr
    told = part(weir)
    assert told["findings"] == []
    assert told["problem"] is None
    assert told["promise"] == "exactly-once"
    assert told["effects"] == {"cells": 5, "on_cells": 200, "outputs": 1, "on_outputs": 200}
    assert " --ledger" in answer.last_line


def test_the_runs_for_comparison_write_nothing(weir: Weir) -> None:
    """Output holds each row once, in one directory of output."""
    weir("run", "sums.py", "--ledger")
    assert sum(map(len, weir.rows("out/sums/latest").values())) == 200
    assert sorted(one.name for one in (weir.directory / "out/sums").iterdir()) == ["1", "latest"]


def test_rows_shown_twice_are_told_and_are_no_breach(weir: Weir) -> None:
    """A sink that shows at once makes no promise: text and data tell of the rows, and the verdict stays valid."""
    (weir.directory / "shown.py").write_text(SHOWN_AT_ONCE)
    answer = weir("run", "shown.py", "--ledger", *BRISK, "--kill", "same[0]@55us")
    assert answer.exit_code == 0
    assert "were seen twice instead of once in the output of out" in answer.stderr
    (found,) = part(weir, "shown")["findings"]
    assert found["kind"] == "applied twice"
    assert found["at_once"] is True
    assert found["checkpoint_id"] is not None
    assert "was killed" in found["crash"]
    assert found["records"] == sum(end - first for first, end in found["ranges"])
    assert part(weir, "shown")["paragraphs"]


def test_a_finding_that_the_mode_forbids_is_a_violation(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """With alignment broken and the channel counters blind, it is the ledger that says violated, with exit code 1."""
    for method in ("barrier_handler", "options"):
        monkeypatch.setattr(AlignedBarriers, method, getattr(AtLeastOnceBarriers, method))
    monkeypatch.setattr("engine.report.verdict.breaks_promise", lambda verdict, protocol: False)
    monkeypatch.setattr(
        "engine.runtime.config.cost.CostModel.latency_ns", lambda self, names: 30_000 if "numbers[1]" in names else 0
    )
    answer = weir("run", "sums.py", "--ledger", "--parallelism", "2", *BRISK, "--kill", "sum[0]@80us")
    assert answer.exit_code == 1
    assert answer.last_line.startswith("violated: the ledger has ")
    assert "were applied twice instead of once in sum[key" in answer.stderr


def test_a_start_from_a_snapshot_is_refused(weir: Weir) -> None:
    """A snapshot that was taken without a ledger does not tell what it holds."""
    weir("run", "sums.py", "--storage", "state")
    answer = weir("run", "sums.py", "--ledger", "--from", "state")
    assert answer.exit_code == 11
    assert "--ledger cannot say what is in a snapshot" in answer.stderr


def test_without_the_option_nothing_is_said(weir: Weir) -> None:
    """No part of the report, no line."""
    answer = weir("run", "sums.py")
    assert "ledger" not in answer.stderr
    assert "ledger" not in json.loads((weir.directory / "out/sums/latest/run.json").read_text())
