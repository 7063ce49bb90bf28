"""One run for the command line: where its output and its checkpoints go, what surrounds it, the driver, and what is
said at its end. Verbs are made of these.
"""

from __future__ import annotations

from engine.cli.runs.directory import claim_directory, failure_directory, next_run_directory, report_json, write_text
from engine.cli.runs.driver import RunOrder, check_orders, drive
from engine.cli.runs.incarnations import used_incarnations
from engine.cli.runs.savepoints import SavepointWishes, restore_from, restore_options, savepoint_options
from engine.cli.runs.storage import hold_claimed, hold_directory, newest_usable, refuse_taken

__all__ = [
    "RunOrder",
    "SavepointWishes",
    "check_orders",
    "claim_directory",
    "drive",
    "failure_directory",
    "hold_claimed",
    "hold_directory",
    "newest_usable",
    "next_run_directory",
    "refuse_taken",
    "report_json",
    "restore_from",
    "restore_options",
    "savepoint_options",
    "used_incarnations",
    "write_text",
]
