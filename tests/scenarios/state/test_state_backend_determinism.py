"""The same run writes the same bytes on every state backend of our own, whatever process it is in."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.house.project import ROOT

SCRIPT = """
import hashlib, sys
from engine.observe.trace import TraceDigest
from tests.scenarios.stateful_jobs import Ran, settings

name, snapshot = sys.argv[1:]
digest = TraceDigest()
kills = [("everything[1]", 2_300_000), ("job manager", 4_100_000)]
config = settings(name, snapshot, retained=100, local_recovery=True)
ran = Ran(config, kills=kills, instruments=[digest])
ran.run()
files = ran.checkpoint_files()
assert len(files) > 100
print(digest.hexdigest(), hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())
"""


def in_a_fresh_process(hash_seed: str, name: str, snapshot: str) -> str:
    """Digests of everything that happened and of every file, under a hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, snapshot],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    ("name", "snapshot"), [("heap", "incremental"), ("lsm", "incremental"), ("lsm", "full"), ("changelog:lsm", "full")]
)
def test_processes_and_hash_seeds_make_no_difference(name: str, snapshot: str) -> None:
    """Every checkpoint of a run with kills, every file, every event of the trace."""
    assert in_a_fresh_process("0", name, snapshot) == in_a_fresh_process("4242", name, snapshot)
