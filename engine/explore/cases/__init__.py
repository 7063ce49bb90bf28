"""Cases as plain data: what decides one run (``case``), its savepoints and settings, what is promised of its output,
and how a job file says what to search. ``codec`` writes a case as plain values and reads it back.
"""

from __future__ import annotations

from engine.explore.cases.case import FIFO, PCT, RANDOM, Case, Ranges, Setting
from engine.explore.cases.codec import SETTINGS, case_to_plain, plain_to_case
from engine.explore.cases.promises import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    NONE,
    PER_KEY,
    check_promise,
    promise_of,
)
from engine.explore.cases.savepoints import (
    CANCEL,
    CLAIM_MODES,
    DRAIN,
    SAVEPOINT,
    STOP,
    Savepoint,
    parse_savepoint,
    setting_of,
)
from engine.explore.cases.scenario import Scenario, read_scenario, search_params
from engine.explore.cases.settings import run_config

__all__ = [
    "AT_LEAST_ONCE",
    "AT_MOST_ONCE",
    "CANCEL",
    "CLAIM_MODES",
    "DRAIN",
    "EXACTLY_ONCE",
    "FIFO",
    "NONE",
    "PCT",
    "PER_KEY",
    "RANDOM",
    "SAVEPOINT",
    "SETTINGS",
    "STOP",
    "Case",
    "Ranges",
    "Savepoint",
    "Scenario",
    "Setting",
    "case_to_plain",
    "check_promise",
    "parse_savepoint",
    "plain_to_case",
    "promise_of",
    "read_scenario",
    "run_config",
    "search_params",
    "setting_of",
]
