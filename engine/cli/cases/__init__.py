"""A case for the command line: make jobs under test from job files, find a failing run by its token or its directory,
and make that run once more.
"""

from __future__ import annotations

from engine.cli.cases.case_html import crash_command as crash_command, write_case_page as write_case_page
from engine.cli.cases.failing import OpenedRun as OpenedRun, open_run as open_run
from engine.cli.cases.named_run import (
    NamedRun as NamedRun,
    load_subject as load_subject,
    load_subject_and_scenario as load_subject_and_scenario,
    resolve as resolve,
    write_token as write_token,
)
