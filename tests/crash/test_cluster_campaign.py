"""Executors, workers and drivers of a job on a Spark cluster under SIGKILL: the campaign as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.cluster_campaign import HOLDER, VICTIMS
from tests.crash.processes import program
from tests.crash.test_campaign import counts

pytestmark = pytest.mark.spark


SMALL = ("--workers", "1", "--cores", "2", "--batches", "3")


def test_an_executor_dies_in_the_middle_of_a_stage(tmp_path: Path) -> None:
    """The second batch goes on with the other executor and a new one: no row is lost, there twice or early."""
    where = ("--directory", str(tmp_path), "--seed", "1")
    code, words = program("-m", "tests.crash.cluster_campaign", *SMALL, *where, "--each", "1", "--victim", HOLDER)

    assert code == 0, words
    assert counts(words)[HOLDER] == 1


@pytest.mark.slow
def test_ten_of_each_die_while_spark_speculates(tmp_path: Path) -> None:
    """No row is lost, there twice, early or gone again, and no file is left; two attempts at a task run at once."""
    code, words = program("-m", "tests.crash.cluster_campaign", "--directory", str(tmp_path), "--each", "10")

    assert code == 0, words
    seen = counts(words)
    assert all(seen[victim] >= 10 for victim in VICTIMS)
    assert seen["views"] >= 10
