"""Every sink under SIGKILL, while a process reads its output: the campaign as a program, and that it finds mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.jobs.sinks_job import SINKS
from tests.crash.processes import program
from tests.crash.test_campaign import counts
from tests.postgres_server import needs_server

GROUPS = {
    "file sinks": ("rows", "at-checkpoints", "parquet", "bucketing", "bucketing-lengths"),
    "Avro, ORC, writers": ("avro", "orc", "bucketing-avro", "bucketing-sequence"),
    "committers": ("committer", "compacting"),
    "tables and logs": ("partitioned", "partitioned-compacting", "table-orc", "table-raw", "staged", "log"),
    "databases": ("sqlite", "sqlite-upsert"),
    "tables for Spark": ("data-frame", "delta", "foreach-batch"),
    "a server": ("postgres", "postgres-upsert"),
}
QUICK = ("file sinks", "committers", "databases", "a server")
"""The others take five to ten seconds more each."""
BRIEF = ("--records", "1200", "--most-kills", "2")


def campaign(directory: Path, sinks: tuple[str, ...], *options: str) -> dict[str, int]:
    """The numbers of a campaign without a finding."""
    chosen = [part for sink in sinks for part in ("--sink", sink)]
    code, words = program("-m", "tests.crash.sinks_campaign", "--directory", str(directory), *chosen, *options)
    assert code == 0, words
    return counts(words)


def test_the_groups_are_all_sinks() -> None:
    """No sink is left out."""
    assert sorted(sink for group in GROUPS.values() for sink in group) == sorted(SINKS)


@pytest.mark.parametrize(
    "group", [pytest.param(group, marks=[] if group in QUICK else [pytest.mark.slow]) for group in GROUPS]
)
def test_each_sink_is_killed(group: str, tmp_path: Path) -> None:
    """At least one process of each sink is killed; readers saw no wrong view, and in the end every row was there."""
    if group == "a server":
        needs_server()
    sinks = GROUPS[group]
    seen = campaign(tmp_path, sinks, *BRIEF, "--kills", str(len(sinks)), "--seed", "brief")

    assert seen["least_kills_of_a_sink"] >= 1
    assert seen["looks"] > 10 * len(sinks)
    assert seen["views"] > len(sinks)


@pytest.mark.slow
@pytest.mark.parametrize("sink", SINKS)
def test_each_sink_is_killed_many_times(sink: str, tmp_path: Path) -> None:
    """Twelve kills each, with resumes, other parallelism, full disks, and a server that dies before commits."""
    if sink.startswith("postgres"):
        needs_server()
    seen = campaign(tmp_path, (sink,), "--kills", "12", "--seed", "many")

    assert seen["kills_of_resumes"] >= 2
    assert seen["restored"] >= 1
    if sink.startswith("postgres"):
        assert seen["server_kills"] >= 1


EARLY = """
import sys
from operators.log.connectors.log_sink import LogSink
from operators.log.connectors.plain_log_sink import PlainLogSink
from tests.crash import sinks_campaign

def without_transactions(self):
    self.delivery = "none"
    return PlainLogSink(self)

LogSink.create_operator = without_transactions
sys.exit(sinks_campaign.main())
"""


def test_a_sink_that_shows_rows_too_early_is_found_out(tmp_path: Path) -> None:
    """The reader reports it, the campaign fails, and the directory is kept."""
    options = ("--sink", "log", "--kills", "10", "--seed", "broken", "--records", "1600", "--no-storage-faults")
    code, words = program("-c", EARLY, "--directory", str(tmp_path), *options)

    assert code == 1, words
    assert "a reader saw: " in words
    assert "no completed checkpoint covers" in words
    assert list(tmp_path.glob("*/job-*-log/process-1.txt"))
