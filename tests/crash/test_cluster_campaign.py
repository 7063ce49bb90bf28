"""Executors, workers and drivers of a job on a Spark cluster under SIGKILL: the campaign as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.cluster_campaign import EXECUTOR, VICTIMS
from tests.crash.processes import program
from tests.crash.test_campaign import counts

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_an_executor_dies(tmp_path: Path) -> None:
    """A master and two workers, and the job goes on with another executor: no row is lost, there twice or early."""
    where = ["--directory", str(tmp_path)]
    code, words = program("-m", "tests.crash.cluster_campaign", *where, "--each", "1", "--victim", EXECUTOR)

    assert code == 0, words
    assert counts(words)[EXECUTOR] >= 1


@pytest.mark.slow
def test_ten_of_each_die_while_spark_speculates(tmp_path: Path) -> None:
    """No row is lost, there twice, early or gone again, and no file is left; two attempts at a task run at once."""
    code, words = program("-m", "tests.crash.cluster_campaign", "--directory", str(tmp_path), "--each", "10")

    assert code == 0, words
    seen = counts(words)
    assert all(seen[victim] >= 10 for victim in VICTIMS)
    assert seen["views"] >= 10
