"""One run for the command line: the places of its output and checkpoints, its surroundings, the driver, and the
messages at its end. Verbs are made of these.
"""

from __future__ import annotations

from engine.cli.runs.directory import (
    REPORT_NAME as REPORT_NAME,
    claim_directory as claim_directory,
    failure_directory as failure_directory,
    next_run_directory as next_run_directory,
    report_json as report_json,
    write_text as write_text,
)
from engine.cli.runs.driver import RunOrder as RunOrder, check_orders as check_orders, drive as drive
from engine.cli.runs.earlier_run import EarlierRun as EarlierRun, earlier_run as earlier_run
from engine.cli.runs.incarnations import used_incarnations as used_incarnations
from engine.cli.runs.on_spark import (
    check_job as check_job,
    check_search as check_search,
    check_where as check_where,
    explain_on_spark as explain_on_spark,
    on_option as on_option,
    search_on_spark as search_on_spark,
    spread_option as spread_option,
)
from engine.cli.runs.results_file import results_file as results_file
from engine.cli.runs.run_storage import (
    hold_claimed as hold_claimed,
    hold_directory as hold_directory,
    newest_usable as newest_usable,
    refuse_taken as refuse_taken,
)
from engine.cli.runs.savepoint_options import (
    SavepointWishes as SavepointWishes,
    restore_from as restore_from,
    restore_options as restore_options,
    savepoint_options as savepoint_options,
)
