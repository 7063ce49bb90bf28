"""The same run writes the same bytes on every state backend of our own, whatever process it is in."""

from __future__ import annotations

from tests.hash_seeds import printed

SCRIPT = """
import hashlib, sys
from engine.observe.trace import TraceDigest
from tests.scenarios.stateful_jobs import Ran, settings

kills = [("everything[1]", 2_300_000), ("job manager", 4_100_000)]
for form in sys.argv[1:]:
    name, snapshot = form.split()
    digest = TraceDigest()
    config = settings(name, snapshot, retained=100, local_recovery=True)
    ran = Ran(config, kills=kills, instruments=[digest])
    ran.run()
    files = ran.checkpoint_files()
    assert len(files) > 100
    print(form, digest.hexdigest(), hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())
"""


def test_processes_and_hash_seeds_make_no_difference() -> None:
    """Every checkpoint of a run with kills, every file, every event of the trace."""
    forms = ("heap incremental", "lsm incremental", "lsm full", "changelog:lsm full")
    assert printed(SCRIPT, "0", *forms) == printed(SCRIPT, "4242", *forms)
