"""Drivers on Spark under SIGKILL, while a process reads the output of both sinks: the campaign as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.processes import program
from tests.crash.spark_campaign import IN_A_STAGE, POINTS
from tests.crash.test_campaign import counts

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def test_drivers_die_five_times_at_each_point(tmp_path: Path) -> None:
    """No row is lost, there twice, early or gone again, and no file is left; one kill at each point with its JVM."""
    code, words = program("-m", "tests.crash.spark_campaign", "--directory", str(tmp_path), "--each", "5")

    assert code == 0, words
    seen = counts(words.splitlines()[-1])
    assert all(seen[point] >= 5 for point in (IN_A_STAGE, *POINTS))
    assert seen["looks"] > 1_000
    assert seen["views"] >= 20


WITHOUT = """
import sys
from spark_bridge.pipeline.batch_driver import BatchDriver
from tests.crash import spark_campaign

def begin(self, restored, inner=BatchDriver.begin):
    commit, self._commit = self._commit, lambda checkpoint_id: None
    inner(self, restored)
    self._commit = commit

BatchDriver.begin = begin
sys.exit(spark_campaign.main())
"""


def test_a_resume_that_does_not_commit_again_is_found_out(tmp_path: Path) -> None:
    """What the last checkpoint lists is then never committed."""
    options = ("--point", "after-the-metadata", "--each", "1", "--own", "0", "--directory", str(tmp_path))
    code, words = program("-c", WITHOUT, *options)

    assert code == 1, words
    assert "rows are missing" in words
