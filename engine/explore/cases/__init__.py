"""Cases as plain data. ``case`` holds all that decides one run, with its savepoints, settings and the promise for its
output; ``scenario`` reads from a job file how to search its job. ``codec`` converts a case to plain values and back.
"""

from __future__ import annotations

from engine.explore.cases.case import (
    FIFO as FIFO,
    PCT as PCT,
    RANDOM as RANDOM,
    Case as Case,
    Ranges as Ranges,
    Setting as Setting,
)
from engine.explore.cases.case_settings import (
    NOT_OF_A_CASE as NOT_OF_A_CASE,
    case_settings as case_settings,
    run_config as run_config,
)
from engine.explore.cases.codec import (
    SETTINGS as SETTINGS,
    case_to_plain as case_to_plain,
    plain_to_case as plain_to_case,
)
from engine.explore.cases.promises import (
    AT_LEAST_ONCE as AT_LEAST_ONCE,
    AT_MOST_ONCE as AT_MOST_ONCE,
    EXACTLY_ONCE as EXACTLY_ONCE,
    NONE as NONE,
    PER_KEY as PER_KEY,
    check_promise as check_promise,
    promise_of as promise_of,
)
from engine.explore.cases.savepoint_plans import (
    CANCEL as CANCEL,
    CLAIM_MODES as CLAIM_MODES,
    DRAIN as DRAIN,
    SAVEPOINT as SAVEPOINT,
    STOP as STOP,
    Savepoint as Savepoint,
    parse_savepoint as parse_savepoint,
    setting_of as setting_of,
)
from engine.explore.cases.scenario import (
    Scenario as Scenario,
    read_scenario as read_scenario,
    search_params as search_params,
)
