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
    seen = counts(words)
    assert all(seen[point] >= 5 for point in (IN_A_STAGE, *POINTS))
    assert seen["looks"] > 1_000
    assert seen["views"] >= 20


EARLY = """
import os, sys, time
from engine.runtime.storage import CheckpointFiles
from spark_bridge.pipeline.batch_driver import BatchDriver
from tests.crash import spark_campaign

held = []

def move(source, target):
    for directory in held:
        os.rename(f"{directory}/{source}", f"{directory}/{target}")

def complete(self, *arguments, inner=CheckpointFiles.complete):
    held.append(inner(self, *arguments))
    move("_metadata", "later")
    return held[0]

def latest(self, *arguments, inner=CheckpointFiles.latest):
    move("later", "_metadata")
    found = inner(self, *arguments)
    move("_metadata", "later")
    return found

def commit(self, checkpoint_id, inner=BatchDriver._commit):
    inner(self, checkpoint_id)
    time.sleep(0.5)
    move("later", "_metadata")
    held.clear()

CheckpointFiles.complete, CheckpointFiles.latest, BatchDriver._commit = complete, latest, commit
sys.exit(spark_campaign.main())
"""


def test_a_commit_before_the_metadata_is_found_out(tmp_path: Path) -> None:
    """The reader sees rows that no checkpoint covers."""
    options = ("--point", "after-the-commits", "--each", "1", "--own", "0", "--directory", str(tmp_path))
    code, words = program("-c", EARLY, *options)

    assert code == 1, words
    assert "no completed checkpoint covers" in words
