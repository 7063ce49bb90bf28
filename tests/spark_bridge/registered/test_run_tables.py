"""``weir.checkpoints``: the checkpoint table of a run as rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli import main
from spark_bridge.errors import SparkBridgeError
from spark_bridge.registered.run_tables import CheckpointTable
from tests.house.project import ROOT
from tests.spark_bridge.registered.reading import rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage directory of a run with seven checkpoints."""
    directory = tmp_path_factory.mktemp("run")
    job = str(ROOT / "examples" / "wordcount.py")
    made = CliRunner().invoke(main, ["run", job, "--storage", str(directory), "--checkpoint-interval", "1000rec"])
    assert made.exit_code == 0, made.stderr
    return directory


def test_a_row_for_each_checkpoint(run: Path) -> None:
    """The oldest first, with the numbers of ``run.json``, and a line for each subtask."""
    history = json.loads((run / "out" / "run.json").read_text())["checkpoints"]["history"]

    found = rows(CheckpointTable, path=run)
    assert [row["id"] for row in found] == [one["id"] for one in reversed(history)] == list(range(1, 8))
    assert {row["job"] for row in found} == {"wordcount"}
    for row, one in zip(found, reversed(history), strict=True):
        names = row.keys() & one.keys()
        assert len(names) == 24
        assert {name: row[name] for name in names} == {name: one[name] for name in names}
        subtasks = {(each["vertex"], each["index"]): each for each in row["subtasks"]}
        assert len(subtasks) == row["num_subtasks"] == 5
        assert sum(each["state_size"] for each in subtasks.values()) == row["state_size"]
        there = one["tasks"]["count"]["subtasks"][1]
        assert subtasks["count", 1]["alignment_duration"] == there["alignment"]["duration"]
        assert subtasks["count", 1]["sync_duration"] == there["checkpoint"]["sync"]
    assert rows(CheckpointTable, path=run / "out") == rows(CheckpointTable, path=run / "out" / "run.json") == found


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _changed(path: Path) -> None:
    path.write_text(path.read_text().replace('"id": 3', '"id": 4'))


def _running(path: Path) -> None:
    path.write_text('{"job": {"name": "wordcount"}, "run": {"state": "running"}}')


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_torn, "is damaged, or is no run.json"),
        (_changed, "checksum does not match"),
        (_running, "has no checkpoint table: the run has not ended"),
        (Path.unlink, "holds no run.json"),
    ],
)
def test_a_run_that_cannot_be_read(run: Path, tmp_path: Path, change: Callable[[Path], None], why: str) -> None:
    """It is an error when the source is loaded."""
    copy = tmp_path / "run.json"
    copy.write_bytes((run / "out" / "run.json").read_bytes())
    change(copy)

    with pytest.raises(SparkBridgeError, match=why):
        CheckpointTable({"path": str(tmp_path)})
