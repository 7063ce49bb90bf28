"""`--on spark`: the places it names, what it is refused with, and the stages that it explains. No Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import ConfigurationError
from engine.runtime.config import SparkCluster, parse_where
from tests.cli.conftest import Weir


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (None, None),
        ("spark", SparkCluster()),
        ("spark=local[4]", SparkCluster("local[4]")),
        ("spark=spark://h:7", SparkCluster("spark://h:7")),
    ],
)
def test_the_place_that_the_option_names(text: str | None, where: SparkCluster | None) -> None:
    """Without a master it is two cores of this machine; without the option the simulator."""
    assert parse_where(text) == where


@pytest.mark.parametrize("text", ["sprak", "", "spark=", "flink", "SPARK"])
def test_a_place_that_there_is_not(text: str) -> None:
    """The error shows both forms."""
    with pytest.raises(ConfigurationError, match="is no place to run a job\n  fix: spark, or spark=MASTER"):
        parse_where(text)


def test_checkpoints_need_a_directory(weir: Weir) -> None:
    """In memory no executor would find them."""
    answer = weir("run", "sums.py", "--on", "spark")
    assert answer.exit_code == 11
    assert "needs a directory for checkpoints that all executors see" in answer.stderr
    assert "add --storage DIR" in answer.stderr


def test_a_url_is_no_such_directory(weir: Weir) -> None:
    """Executors reach a directory under one path."""
    answer = weir("run", "sums.py", "--on", "spark", "--storage", "memory://state")
    assert answer.exit_code == 11
    assert "name a directory that all executors see" in answer.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--kill", "sum[0]@1ms"), ("--fault", "crash:sum[0]@before:ack.send#1"), ("--paranoid",), ("--ledger",),
        ("--savepoint-at", "1ms"), ("--stop-with-savepoint", "1ms"),
    ],
    ids=lambda options: options[0],
)  # fmt: skip
def test_what_only_a_simulation_can_do(weir: Weir, options: tuple[str, ...], tmp_path: Path) -> None:
    """Such an option is refused before anything is created, and not ignored."""
    answer = weir("run", "sums.py", "--on", "spark", "--storage", str(tmp_path / "state"), *options)
    assert answer.exit_code == 11
    assert f"{options[0]} works in the simulator only" in answer.stderr
    assert not (tmp_path / "state").exists()


def test_explain_prints_the_stages(weir: Weir) -> None:
    """With each exchange, and what the driver does after them."""
    answer = weir("run", "sums.py", "--on", "spark", "--explain")
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert lines[0] == "job sums on Spark: a batch goes through these stages, and ends with a checkpoint"
    assert "stage 0, on executors" in lines
    assert any(" by hash" in line for line in lines)
    assert lines[-1] == "after the last stage, on the driver: the checkpoint, then the commits of sinks"
