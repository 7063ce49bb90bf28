"""A case for the command line: jobs under test made from job files, a failing run named by its token or its directory,
and that run made once more.
"""

from __future__ import annotations

from engine.cli.cases.failing import OpenedRun as OpenedRun, open_run as open_run
from engine.cli.cases.named_run import (
    load_subject as load_subject,
    load_subject_and_scenario as load_subject_and_scenario,
    resolve as resolve,
    write_token as write_token,
)
